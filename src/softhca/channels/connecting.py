"""How a connection comes about: addresses, the request, the reply, the refusal."""

from __future__ import annotations

import contextlib
import errno
import time

from softhca.channels import messages as m
from softhca.channels.endpoint import Endpoint, service_of
from softhca.channels.errors import (
    ChannelError,
    ChannelRefused,
    ChannelTimeout,
    ProtocolError,
    failed,
)
from softhca.channels.link import CONTROL_SLOTS, Link
from softhca.channels.messages import Control, Greeting
from softhca.channels.options import ChannelOptions
from softhca.channels.steps import Steps
from softhca.driver.errors import DriverError
from softhca.driver.rdmacm.addresses import SocketAddress
from softhca.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from softhca.verbs.librdmacm_enums import RAI_PASSIVE
from softhca.verbs.pyverbs_error import PyverbsError

_ACK_OPTION = 3
_MOST = 0xFF
"""READs and atomics at a time: as many as the devices can."""
_RETRIES = 7

PAUSE_S = 0.02
"""Between two attempts of who is patient."""
_TURN_S = 0.5
_PORTS_TRIED = 8

Address = str | tuple[str, int]


def split(address: Address) -> tuple[str, str]:
    """Host and port of ``host:port``, ``[IPv6]:port``, ``:port`` (all addresses) or ``(host, port)``.
    ValueError; TypeError for what is neither.
    """
    if isinstance(address, tuple) and len(address) == 2 and isinstance(address[0], str):
        return address[0], str(address[1])
    if not isinstance(address, str):
        raise TypeError(f"an address is 'host:port' or ('host', port), not {address!r}")
    host, colon, port = address.rpartition(":")
    if not colon or not port:
        raise ValueError(f"an address is host:port, not {address!r}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"an IPv6 address stands in brackets: [{host}]:{port}")
    return ("" if host == "*" else host), port


def text_of(address: SocketAddress | None) -> str:
    """``host:port``."""
    return "" if address is None else str(address)


def ask(address: Address, acknowledged: bool, options: ChannelOptions) -> Endpoint:
    """Ask for a connection; does not wait for the answer.  ChannelError, ValueError."""
    host, port = split(address)
    cm = CMEventChannel()
    cmid: CMID | None = None
    link: Link | None = None
    try:
        cmid = CMID(creator=cm)
        cmid.set_option(0, _ACK_OPTION, options.ack_timeout, 1)
        cmid.resolve_addr(AddrInfo(dst=host or "127.0.0.1", dst_service=port))
        cmid.resolve_route()
        while cm.channel.next_event(0) is not None:
            pass  # both are resolved: what cannot be raises
        link = Link(cmid, cm, options, active=True)
        endpoint = Endpoint(link, 0, service_of(acknowledged), "")
        link.add(endpoint)
        link.begin()
        endpoint.begin()
        cmid.connect(_parameters(link, endpoint))
    except (PyverbsError, DriverError) as error:
        _drop(link, cmid, cm)
        raise failed(error, f"connecting to {host}:{port}") from error
    except BaseException:
        _drop(link, cmid, cm)
        raise
    return endpoint


def _drop(link: Link | None, cmid: CMID | None, cm: CMEventChannel) -> None:
    if link is not None:
        link.close()
        return
    if cmid is not None:
        with contextlib.suppress(PyverbsError, DriverError):
            cmid.close()
    cm.close()


def _parameters(link: Link, endpoint: Endpoint) -> ConnParam:
    greeting = Greeting(endpoint.end, CONTROL_SLOTS).encode()
    found = ConnParam(
        _MOST, _MOST, retry=_RETRIES, rnr_retry=_RETRIES, qp_num=link.wire.number, data_len=len(greeting)
    )
    found.set_private_data(greeting)
    return found


def finish(endpoint: Endpoint) -> Steps[None]:
    """Wait for the answer to `ask`, and be connected.  ChannelRefused, ChannelError."""
    link = endpoint.link
    yield lambda: link.response is not None or link.error is not None or link.closed
    with link.guard:
        if link.established:
            return  # by another thread
        endpoint.require_open()
        response, link.response = link.response, None
    if response is None:
        yield lambda: link.established or link.error is not None
        endpoint.require_open()
        return
    try:
        peer = Greeting.decode(response)
        if peer.end.service != endpoint.service:
            raise ProtocolError("the peer replies with another service")
        link.greet(peer)
        link.wire.connect(link.cmid, None)
        endpoint.connect(peer.end)
        link.cmid.establish()
    except ProtocolError as error:
        link.violated(error)
        endpoint.require_open()
    except (PyverbsError, DriverError) as error:
        link.fail(failed(error, "connecting"))
        endpoint.require_open()
    with link.guard:
        link.established = True
        endpoint.open_for_sending()
        link.send_control(Control(m.READY, 0))


class Plan:
    """What `Channel.connect` was asked for: attempts, as many as it takes within the time."""

    def __init__(
        self,
        address: Address,
        acknowledged: bool,
        options: ChannelOptions,
        patient: bool,
        timeout: float | None,
    ) -> None:
        self._what = address, acknowledged, options
        self._patient = patient
        self.timeout = timeout
        self._end_s = None if timeout is None else time.monotonic() + timeout
        self.unanswered = f"no answer of {':'.join(split(address))}"

    def ask(self) -> Endpoint:
        """One attempt."""
        return ask(*self._what)

    @property
    def turn_s(self) -> float | None:
        """How long the attempt may take."""
        left_s = None if self._end_s is None else max(self._end_s - time.monotonic(), 0.0)
        if not self._patient:
            return left_s
        return _TURN_S if left_s is None else min(left_s, _TURN_S)

    def goes_on(self, error: BaseException) -> bool:
        """Whether there is another attempt after ``error``."""
        if not self._patient or not isinstance(error, ChannelRefused | ChannelTimeout):
            return False
        return self._end_s is None or time.monotonic() < self._end_s


class Requests:
    """Takes requests at an address until `close`.  ChannelError, ValueError."""

    def __init__(self, address: Address, options: ChannelOptions, backlog: int) -> None:
        host, port = split(address)
        self.options = options
        self.channel = CMEventChannel()
        self._cmid: CMID | None = None
        try:
            self._cmid = self._listening(host, port, backlog)
            self.address = text_of(self._cmid._identifier.source)
        except (PyverbsError, DriverError) as error:
            self.close()
            raise failed(error, f"listening at {host}:{port}") from error

    def _listening(self, host: str, port: str, backlog: int) -> CMID:
        """An identifier that listens.  At a port that nobody has named, another program that shares the
        adapter may listen; so may one at the next.
        """
        tries = _PORTS_TRIED if port == "0" else 1
        while True:
            cmid = CMID(creator=self.channel)
            try:
                cmid.bind_addr(AddrInfo(src=host or "0.0.0.0", src_service=port, flags=RAI_PASSIVE))
                cmid.listen(backlog)
                return cmid
            except BaseException as error:
                with contextlib.suppress(PyverbsError, DriverError):
                    cmid.close()
                tries -= 1
                if not tries or getattr(error, "error_code", 0) != errno.EADDRINUSE:
                    raise

    def accept(self, event: CMEvent) -> Endpoint | None:
        """Answer one event of the channel: a connection, or None."""
        if event.event_type != _CONNECT_REQUEST:
            return None
        try:
            cmid = CMID(creator=event, listen_id=self._cmid)
        except (PyverbsError, DriverError):  # who asked has gone, or another thread has closed this
            event.event.identifier.close()
            return None
        try:
            greeting = Greeting.decode(event.private_data)
        except ProtocolError as error:
            _reject(cmid, str(error))
            return None
        cm = CMEventChannel()
        link: Link | None = None
        try:
            cmid.migrate(cm)
            cmid.set_option(0, _ACK_OPTION, self.options.ack_timeout, 1)
            link = Link(cmid, cm, self.options, active=False)
            endpoint = Endpoint(link, 0, greeting.end.service, "")
            link.add(endpoint)
            link.begin()
            endpoint.begin()
            link.greet(greeting)
            link.wire.connect(cmid, None)
            endpoint.connect(greeting.end)
            cmid.accept(_parameters(link, endpoint))
        except BaseException as error:
            _reject(cmid, f"{type(error).__name__}", link)
            if isinstance(error, PyverbsError | DriverError | ChannelError):
                return None
            raise
        return endpoint

    def close(self) -> None:
        """Take no more; may be called again."""
        cmid, self._cmid = self._cmid, None
        if cmid is not None:
            with contextlib.suppress(PyverbsError, DriverError):
                cmid.close()
        self.channel.close()


_CONNECT_REQUEST = 4
_MOST_REASON = 60


def _reject(cmid: CMID, why: str, link: Link | None = None) -> None:
    with contextlib.suppress(PyverbsError, DriverError):
        cmid.reject(why.encode()[:_MOST_REASON])
    if link is not None:
        link.close()
        return
    with contextlib.suppress(PyverbsError, DriverError):
        cmid.close()

