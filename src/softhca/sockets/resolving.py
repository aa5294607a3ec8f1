"""Which queue pair takes datagrams to a UDP address: asked by the connection manager (SIDR), not waited for.

On this host a Unix socket says at which GIDs a port is served, another host's GID is its IP address, as for
streams.  What answers there by its queue pair 1 is believed, and nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import events
from softhca.driver.rdmacm.addresses import of_gid
from softhca.driver.rdmacm.local_devices import LocalPort
from softhca.sockets import connecting, devices, port_lookup, requests
from softhca.sockets.datagram_protocol import Hello, decode_answer, encode_answer
from softhca.sockets.datagram_state import Claim
from softhca.sockets.hub import HUB
from softhca.sockets.protocol import ProtocolError
from softhca.verbs.addr import AHAttr
from softhca.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam, UDParam
from softhca.verbs.librdmacm_enums import RAI_NUMERICHOST
from softhca.verbs.pyverbs_error import PyverbsError


@dataclass(frozen=True)
class Found:
    """What takes datagrams: queue pair ``qp_num`` at ``gid`` under ``qkey``, messages up to ``mtu``
    (``ibv_mtu``), ``window`` of them at first; ``vector`` is the way there from ``place``.
    """

    gid: bytes
    qp_num: int
    qkey: int
    mtu: int
    window: int
    vector: AHAttr
    place: LocalPort


Done = Callable[[Found | None], object]
Introduce = Callable[[bytes, LocalPort], Hello]
"""What to say to the address that is asked, from a port."""


def resolve(host: str, port: int, hint: bytes, introduce: Introduce, done: Done) -> Resolution:
    """Ask for ``port`` of ``host``, a numeric address; at the GID ``hint`` where that is not empty, if it can
    be that host's at all.  ``done`` is called once, by this thread or the hub.

    Who says who is going to send is answered when that was found to be true.
    """
    address = connecting.mapped(host)
    resolution = Resolution(port, partial(introduce, address), done)

    def asked(gids: list[bytes]) -> None:
        if hint:
            gids = [hint] if hint in gids else []
        resolution.begin(gids)

    if connecting.is_here(host):
        addresses = [address, connecting.any_like(address)]
        if not port_lookup.Question(HUB, port, addresses, asked, datagrams=True).begin():
            asked([])
    else:
        asked(connecting.candidates(host, port))
    return resolution


class Resolution:
    """Asks at one GID after the other.  It keeps the device open until it is answered, or called off."""

    def __init__(self, port: int, introduce: Callable[[LocalPort], Hello], done: Done) -> None:
        self._gids: list[bytes] = []
        self._port = port
        self._introduce = introduce
        self._untold = [done]
        self._called_off = False
        self._cmid: CMID | None = None
        self._channel: CMEventChannel | None = None

    def begin(self, gids: list[bytes]) -> None:
        """Ask at these."""
        self._gids = gids
        self.go_on()

    def call_off(self) -> None:
        """Any thread: nobody wants to know any more.  The hub ends it, and tells that nothing was found."""
        self._called_off = True
        HUB.soon(self._hear)

    def _tell(self, found: Found | None) -> None:
        with contextlib.suppress(IndexError):  # a call-off and the answer may meet
            self._untold.pop()(found)

    def go_on(self) -> None:
        """Ask at the next one."""
        while self._gids and not self._called_off:
            gid, self._gids = self._gids[0], self._gids[1:]
            try:
                if self._ask(gid):
                    return
            except requests.FAILED:
                pass
            self._end()
        self._tell(None)

    def _ask(self, gid: bytes) -> bool:
        self._gid = gid
        channel = self._channel = CMEventChannel()
        cmid = self._cmid = CMID(creator=channel, port_space=requests.UDP)
        there = of_gid(gid)
        cmid.resolve_addr(AddrInfo(dst=there.host, dst_service=str(self._port), flags=RAI_NUMERICHOST))
        self._place = devices.keep(cmid)
        if not there.is_loopback and self._place.address.is_loopback:
            connecting.remember_unreached(gid)
            return False
        cmid.resolve_route()
        hello = self._introduce(self._place).encode()
        parameters = ConnParam(data_len=len(hello))
        parameters.set_private_data(hello)
        channel.channel.on_post = lambda: HUB.soon(self._hear)
        cmid.connect(parameters)
        HUB.soon(self._hear)
        return True

    def _hear(self) -> None:
        """The hub: there may be an answer."""
        if self._called_off:
            self._end()
            self._tell(None)
        while self._channel is not None and (event := self._channel.channel.next_event(0)) is not None:
            if event.kind == events.ESTABLISHED:
                found = self._answered(CMEvent.of(event))
                if found is not None:
                    self._end()
                    self._tell(found)
                    return
            elif event.kind not in (events.UNREACHABLE, events.CONNECT_ERROR, events.REJECTED):
                continue
            elif event.status < 0:  # an errno: nobody has answered
                connecting.remember_unreached(self._gid)
            self._end()
            self.go_on()
            return

    def _answered(self, event: CMEvent) -> Found | None:
        with contextlib.suppress(ProtocolError):
            mtu, window = decode_answer(event.private_data)
            how = UDParam(event)
            return Found(self._gid, how.qp_num, how.qkey, mtu, window, how.ah_attr, self._place)
        return None

    def _end(self) -> None:
        cmid, self._cmid = self._cmid, None
        channel, self._channel = self._channel, None
        with contextlib.suppress(PyverbsError, DriverError):
            if cmid is not None:
                cmid.close()
        if channel is not None:
            channel.close()


class DatagramListener(requests.RequestListener):
    """Says which queue pair takes datagrams to a port."""

    space = requests.UDP

    def requested(self, cmid: CMID, event: CMEvent) -> None:
        """Answer with the queue pair of the socket that has the address; who asks in order to send, when it
        is believed.
        """
        try:
            hello = Hello.decode(event.private_data)
            path = cmid._identifier.connection.path
            assert path is not None
            claim = Claim((path.gid, hello.qp_num), (hello.host, hello.port)) if hello.port else None
            end = self.find(hello.towards)
        except ProtocolError:
            end = claim = None
        place = cmid._identifier.place
        answer = partial(_answer, cmid, place, end, claim)
        if end is None or claim is None:
            answer(end is not None)
        else:
            end.admit(place, claim, answer)


def _answer(cmid: CMID, place: LocalPort, end: Any, claim: Claim | None, admitted: bool) -> None:
    with contextlib.suppress(PyverbsError, DriverError):
        number = end.number_at(place) if admitted else None
        if number is None:
            cmid.reject()
        else:
            text = encode_answer(place.mtu, end.window_at(place, claim))
            parameters = ConnParam(qp_num=number, data_len=len(text))
            parameters.set_private_data(text)
            cmid.accept(parameters)
    with contextlib.suppress(PyverbsError, DriverError):
        cmid.close()
