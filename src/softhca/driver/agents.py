"""The host's half of a management agent: it sends MADs and receives those that its ring holds."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from softhca.driver.entry_ring import EntryRing
from softhca.driver.errors import DriverError
from softhca.management.constants import GENERAL_QKEY, MAD_BYTES, RESPONSE, UNANSWERED_METHODS
from softhca.queues import control_fields as control
from softhca.queues.layout import MAD_ENTRY_BYTES, MAD_HEADER, MAX_AGENT_ENTRIES

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver

_HEADER = MAD_HEADER.packing()
_METHOD_BITS = 128
_METHOD_AT, _TRANSACTION = 3, slice(8, 16)
"""Where a datagram has its method and its transaction ID (13.4.3)."""


@dataclass(frozen=True)
class MadAddress:
    """The remote end of a datagram: queue pair ``qpn`` and, where packets have a GRH (on RoCE: always), its
    ``gid``; ``dlid``, ``sl`` and ``path_bits`` on native links.

    ``qkey`` is the Q_Key to send with; ``pkey_index`` names an entry of the own port's table; ``pkey`` is the
    P_Key of a packet that has arrived.
    """

    gid: bytes | None = None
    qpn: int = 1
    qkey: int = GENERAL_QKEY
    pkey_index: int = 0
    dlid: int = 0
    sl: int = 0
    path_bits: int = 0
    traffic_class: int = 0
    pkey: int = 0xFFFF


@dataclass(frozen=True)
class MadArrival:
    """``mad``: 256 bytes, from ``source``; a response can be sent there.

    ``status``: 0, or ETIMEDOUT: ``mad`` is the agent's own request to ``source``, which was not answered.
    """

    mad: bytes
    source: MadAddress
    status: int = 0


class AgentHandle:
    """A registration: ``number``, ``entries``.  Any thread may call any method."""

    def __init__(
        self,
        driver: DeviceDriver,
        port: int,
        management_class: int,
        class_version: int,
        methods: Iterable[int],
        entries: int,
    ) -> None:
        if not 0 < entries <= MAX_AGENT_ENTRIES:
            raise DriverError(
                errno.EINVAL, f"entries = {entries}: an agent has room for 1…{MAX_AGENT_ENTRIES} datagrams"
            )
        asked = 0
        for method in methods:
            if not 0 <= method < _METHOD_BITS:
                raise DriverError(errno.EINVAL, f"methods: there is no method {method:#x}")
            asked |= 1 << method
        self._driver = driver
        self._session = driver.session
        self.entries = entries
        self._asked: dict[bytes, list[MadArrival]] = {}  # by transaction ID: answers to threads that `ask`
        self._ring = EntryRing(self._session, entries, MAD_ENTRY_BYTES, _arrival, "the agent")
        try:
            reply = self._session.call(
                control.REGISTER_AGENT,
                port_num=port,
                mgmt_class=management_class,
                class_version=class_version,
                methods_low=asked & (1 << 64) - 1,
                methods_high=asked >> 64,
                **self._ring.fields,
            )
        except DriverError:
            self._ring.free()
            raise
        self.number: int = reply["agent"]

    def send(self, mad: bytes, to: MadAddress, timeout_ms: int = 0, retries: int = 0) -> None:
        """Send a datagram.  A request with ``timeout_ms`` always ends with a datagram that can be received:
        the response or, after that time and ``retries`` repetitions, the request itself with the status
        ETIMEDOUT.

        EINVAL: the datagram is malformed, or an outstanding request has the same class and the same low 32
        bits of the transaction ID; EAGAIN: too many requests are outstanding; ENOBUFS: the send queue of the
        port is full.
        """
        self._session.call(
            control.SEND_MAD,
            agent=self.number,
            timeout_ms=timeout_ms,
            retries=retries,
            dgid=to.gid or bytes(16),
            qpn=to.qpn,
            qkey=to.qkey,
            dlid=to.dlid,
            pkey_index=to.pkey_index,
            sl=to.sl,
            path_bits=to.path_bits,
            is_global=int(to.gid is not None),
            traffic_class=to.traffic_class,
            mad=mad,
        )

    def receive(self, timeout_s: float | None = None) -> MadArrival | None:
        """The next datagram; None: none has come within ``timeout_s`` (0: poll once).  EIO when the ring
        holds a malformed entry, or the adapter is gone.
        """
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            arrival = self._ring.receive(timeout_s)
            if arrival is None or not self._hand_over(arrival):
                return arrival
            if end_s is not None:
                timeout_s = max(end_s - time.monotonic(), 0.0)

    def _hand_over(self, arrival: MadArrival) -> bool:
        """Give an answer to the thread that has asked; whether there is one."""
        if not arrival.status and not arrival.mad[_METHOD_AT] & RESPONSE:
            return False
        answers = self._asked.get(arrival.mad[_TRANSACTION])
        if answers is None:
            return False
        answers.append(arrival)
        self._session.channel.wake_waiters()
        return True

    @property
    def idle(self) -> bool:
        """Whether no datagram waits."""
        return self._ring.idle

    def ask(self, mad: bytes, to: MadAddress, timeout_ms: int, retries: int) -> bytes:
        """Send a request and wait for its response, whichever thread receives it.  What comes meanwhile that
        nobody asked for is lost.  ETIMEDOUT: nobody has answered; EINVAL: there is no response to such a
        datagram, no time to wait for it, or another thread asks with its transaction ID.
        """
        if timeout_ms <= 0 or len(mad) != MAD_BYTES or not _is_answered(mad):
            raise DriverError(errno.EINVAL, "mad, timeout_ms: what is asked is a request, and has a time-out")
        answers: list[MadArrival] = []
        if self._asked.setdefault(mad[_TRANSACTION], answers) is not answers:
            raise DriverError(errno.EINVAL, "mad: another thread asks with this transaction ID")
        try:
            self.send(mad, to, timeout_ms, retries)
            while not answers:
                arrival = self._ring.receive(None, lambda: bool(answers))
                if arrival is not None:
                    self._hand_over(arrival)
        finally:
            del self._asked[mad[_TRANSACTION]]
        if answers[0].status:
            raise DriverError(errno.ETIMEDOUT, "nobody has answered a management datagram")
        return answers[0].mad

    def unregister(self) -> None:
        """End the registration; datagrams that were not received are lost."""
        with self._session.lock:
            self._session.call(control.UNREGISTER_AGENT, agent=self.number)
            self._ring.end()
        self._driver.events.dispatch()
        self._ring.free()


def _is_answered(mad: bytes) -> bool:
    """Whether a datagram is a request that a response belongs to."""
    return not mad[_METHOD_AT] & RESPONSE and mad[_METHOD_AT] not in UNANSWERED_METHODS


def _arrival(entry: bytes) -> MadArrival:
    values = dict(zip(MAD_HEADER.names, _HEADER.unpack_from(entry), strict=True))
    gid = values["gid_prefix"].to_bytes(8, "big") + values["gid_interface"].to_bytes(8, "big")
    source = MadAddress(
        gid=gid if values["has_grh"] else None,
        qpn=values["qpn"],
        qkey=values["qkey"],
        dlid=values["lid"],
        sl=values["sl"],
        path_bits=values["path_bits"],
        traffic_class=values["traffic_class"],
        pkey=values["pkey"],
    )
    return MadArrival(entry[_HEADER.size :], source, values["status"])
