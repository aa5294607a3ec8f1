"""The host's half of the communication manager: channels on which events of connections arrive, and the
commands that listen, connect, accept, reject, resolve and disconnect.

The adapter speaks the protocol (`adapter.connection_manager`); the host owns its queue pairs and changes
their states with what events say.  ``docs/connections.md`` has the order of both sides.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING

from softhca.driver.entry_ring import EntryRing
from softhca.driver.errors import DriverError
from softhca.queues import control_fields as control
from softhca.queues.control_fields import (
    CM_DISCONNECT_REQUEST,
    CM_DISCONNECTED,
    CM_ESTABLISHED,
    CM_PATH_ANSWER,
    CM_PATH_NO_ANSWER,
    CM_PATH_REQUEST,
    CM_REJECTED,
    CM_REPLIED,
    CM_REQUEST,
    CM_SIDR_REPLY,
    CM_SIDR_REQUEST,
    CM_TIMEWAIT_OVER,
    CM_UNREACHABLE,
)
from softhca.queues.layout import CM_ENTRY_BYTES, CM_HEADER, MAX_CM_ENTRIES

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver

__all__ = [
    "CM_DISCONNECTED",
    "CM_DISCONNECT_REQUEST",
    "CM_ESTABLISHED",
    "CM_PATH_ANSWER",
    "CM_PATH_NO_ANSWER",
    "CM_PATH_REQUEST",
    "CM_REJECTED",
    "CM_REPLIED",
    "CM_REQUEST",
    "CM_SIDR_REPLY",
    "CM_SIDR_REQUEST",
    "CM_TIMEWAIT_OVER",
    "CM_UNREACHABLE",
    "CmAlternatePath",
    "CmChannel",
    "CmEvent",
    "CmPath",
    "CmQueuePair",
]

_HEADER, _NAMES = CM_HEADER.packing(), CM_HEADER.names


@dataclass(frozen=True)
class CmPath:
    """The way to a peer: its GID (on native links its LID too), and how long the CM and the transport wait.

    ``cm_response_timeout`` and ``ack_timeout`` are exponents: 4.096 µs × 2^n.  A message is sent again
    ``max_cm_retries`` times (0 … 15).  ``sgid_index``: the entry of the own GID table that it begins at; 0 is
    the first one of the peer's version of IP.
    """

    gid: bytes
    lid: int = 0
    sl: int = 0
    traffic_class: int = 0
    flow_label: int = 0
    hop_limit: int = 64
    pkey_index: int = 0
    path_mtu: int = 3
    ack_timeout: int = 19
    cm_response_timeout: int = 20
    max_cm_retries: int = 15
    sgid_index: int = 0


@dataclass(frozen=True)
class CmAlternatePath:
    """An alternate path, from the own port with ``own_gid`` (on native links ``own_lid``) to the peer's with
    ``gid`` (``lid``).  ``packet_rate`` is an ``ibv_rate``.
    """

    own_gid: bytes
    gid: bytes
    own_lid: int = 0
    lid: int = 0
    sl: int = 0
    traffic_class: int = 0
    flow_label: int = 0
    hop_limit: int = 64
    ack_timeout: int = 19
    packet_rate: int = 0


@dataclass(frozen=True)
class CmQueuePair:
    """One end of a connection as REQ and REP carry it.

    ``qp_type`` is ``ibv_qp_type`` (RC 2, UC 3, XRC_SEND 9), or 5, reliable datagrams: then ``qp_num`` is the
    number of an EE context, and both ends say so.  ``starting_psn`` is the first PSN that the other end is to
    send, and this one expects (12.6.5); ``responder_resources`` are the READs and atomics that it can answer
    at once, ``initiator_depth`` those that it wants to have outstanding.
    """

    qp_num: int
    starting_psn: int
    qp_type: int = control.QPT_RC
    responder_resources: int = 1
    initiator_depth: int = 1
    retry_cnt: int = 7
    rnr_retry: int = 7
    srq: bool = False
    flow_control: bool = False


@dataclass(frozen=True)
class CmEvent:
    """What happened to the connection ``id`` of a channel.

    ==========================  ==========================================================================
    ``kind``                    meaning
    ==========================  ==========================================================================
    ``CM_REQUEST``              a request has come for ``listener``; ``id`` is the new connection, to be
                                answered by `CmChannel.reply` or `CmChannel.reject`; ``queue_pair``,
                                ``path`` and ``own_gid`` are the peer's and the way back
    ``CM_REPLIED``              the peer accepts: ``queue_pair`` is its end; bring the own queue pair to RTS,
                                then `CmChannel.ready` or `CmChannel.reject`
    ``CM_ESTABLISHED``          the accepted connection is ready at the peer
    ``CM_REJECTED``             the peer rejects, or ends what was begun: ``status`` is REJ's reason
    ``CM_UNREACHABLE``          no answer came: ``status`` is ETIMEDOUT
    ``CM_DISCONNECT_REQUEST``   the peer disconnects; `CmChannel.disconnect` answers it
    ``CM_DISCONNECTED``         the connection is over: the peer has answered `CmChannel.disconnect`, or
                                has not within all retries, or was found to have forgotten it
    ``CM_TIMEWAIT_OVER``        the time-wait behind that is over, and the queue pair may be connected again
    ``CM_PATH_REQUEST``         the peer proposes the alternate path ``alternate``, to be answered by
                                `CmChannel.answer_path`
    ``CM_PATH_ANSWER``          the answer to `CmChannel.load_path`: ``status`` is APR's, 0 where the peer
                                has loaded it, or `CM_PATH_NO_ANSWER`
    ``CM_SIDR_REQUEST``         a datagram service is asked for at ``listener``; answered by
                                `CmChannel.answer`
    ``CM_SIDR_REPLY``           the answer to `CmChannel.resolve`: ``status`` is its SIDR status;
                                ``queue_pair.qp_num`` and ``qkey`` are the service's
    ==========================  ==========================================================================

    ``alternate`` is the path that a request or a proposal names besides, as this side takes it, else None;
    ``failover`` what becomes of the request's (REP's: 0 accepted, 1 not supported, 2 rejected).
    ``private_data`` are all bytes that the message has for them (92 of REQ, 196 of REP …), and none where
    there was no message.
    """

    kind: int
    id: int
    listener: int
    status: int
    service_id: int
    remote_ca_guid: int
    own_gid: bytes
    path: CmPath
    queue_pair: CmQueuePair
    pkey: int
    qkey: int
    private_data: bytes
    alternate: CmAlternatePath | None = None
    failover: int = 0


class CmChannel:
    """A channel of connections on one port; ``number``, ``entries``.  Any thread may call any method.

    Connections are numbers of the adapter; they end with `destroy`, with the channel, or with the program,
    and a request also with ``CM_REJECTED``, where nobody has answered it: there is nothing to destroy then.
    Every command raises DriverError: EINVAL for an ``id`` that is not this program's, a moment in which the
    connection takes no such command, or private data that are too long.
    """

    def __init__(
        self, driver: DeviceDriver, port: int, entries: int, on_event: Callable[[], None] | None = None
    ) -> None:
        """``on_event`` is called, by whichever thread drives the device, after events have come."""
        if not 0 < entries <= MAX_CM_ENTRIES:
            raise DriverError(
                errno.EINVAL,
                f"entries = {entries}: a connection channel has room for 1…{MAX_CM_ENTRIES} events",
            )
        self._driver = driver
        self._session = driver.session
        self.on_event = on_event
        self.port = port
        self.entries = entries
        self._ring = EntryRing(
            self._session, entries, CM_ENTRY_BYTES, CmEntry, "the connection channel", self._taken
        )
        try:
            self.number: int = self._session.call(control.OPEN_CM, port_num=port, **self._ring.fields)["cm"]
        except DriverError:
            self._ring.free()
            raise
        driver.events.add_connections(self)

    # commands

    def listen(self, service_id: int, backlog: int = 128) -> int:
        """Take requests for ``service_id``, both of connections and of SIDR; the listener's id.  At most
        ``backlog`` (1 … 1024) wait for an answer: then the oldest is forgotten, and told as `CM_REJECTED`.
        EADDRINUSE: another listener of the adapter's port has it.
        """
        return self._new(control.CM_LISTEN, service_id=service_id, backlog=backlog)

    def connect(
        self, service_id: int, path: CmPath, queue_pair: CmQueuePair, private_data: bytes = b"",
        alternate: CmAlternatePath | None = None,
    ) -> int:  # fmt: skip
        """Send REQ (at most 92 bytes of private data), with an alternate path where there is one; the id.
        CM_REPLIED, CM_REJECTED or CM_UNREACHABLE follows.
        """
        return self._new(
            control.CM_CONNECT,
            service_id=service_id,
            private_data=private_data,
            **_path_fields(path),
            **vars(queue_pair),
            **({f"alternate_{n}": v for n, v in _alternate_fields(alternate).items()} if alternate else {}),
        )

    def reply(
        self, id: int, queue_pair: CmQueuePair, private_data: bytes = b"", failover: int = 0
    ) -> None:
        """Accept a request: send REP (196 bytes).  CM_ESTABLISHED, CM_REJECTED or CM_UNREACHABLE follows.
        ``failover``: whether its alternate path is loaded (0), not supported (1) or rejected (2).
        """
        self._call(
            control.CM_REPLY, id=id, private_data=private_data, failover=failover, **vars(queue_pair)
        )

    def ready(self, id: int, private_data: bytes = b"") -> None:
        """The reply is accepted: send RTU (224 bytes)."""
        self._call(control.CM_READY, id=id, private_data=private_data)

    def establish(self, id: int) -> None:
        """The peer's data have come before its RTU: the connection is established (12.9.7.2)."""
        self._call(control.CM_ESTABLISH, id=id)

    def reject(self, id: int, reason: int, ari: bytes = b"", private_data: bytes = b"") -> None:
        """Reject a request or a reply: send REJ (72 bytes of ``ari``, 148 of private data)."""
        self._call(control.CM_REJECT, id=id, reason=reason, ari=ari, private_data=private_data)

    def disconnect(self, id: int, private_data: bytes = b"") -> None:
        """Send DREQ (220 bytes), whereupon CM_DISCONNECTED follows; after CM_DISCONNECT_REQUEST send DREP
        (224 bytes).
        """
        self._call(control.CM_DISCONNECT, id=id, private_data=private_data)

    def load_path(self, id: int, alternate: CmAlternatePath, private_data: bytes = b"") -> None:
        """Propose another alternate path for an established connection: send LAP (168 bytes).  CM_PATH_ANSWER
        follows; EINVAL while one is proposed.  Queue pairs are the programs' to change, on both sides.
        """
        self._call(control.CM_LOAD_PATH, id=id, private_data=private_data, **_alternate_fields(alternate))

    def answer_path(
        self, id: int, status: int = 0, information: bytes = b"", private_data: bytes = b""
    ) -> None:
        """Answer what the peer proposes: send APR (72 bytes of ``information``, 148 of private data)."""
        self._call(
            control.CM_ANSWER_PATH, id=id, status=status, information=information, private_data=private_data
        )

    def resolve(self, service_id: int, path: CmPath, private_data: bytes = b"") -> int:
        """Ask for the queue pair of a datagram service: send SIDR_REQ (216 bytes); the id.  CM_SIDR_REPLY or
        CM_UNREACHABLE follows.
        """
        return self._new(
            control.CM_RESOLVE, service_id=service_id, private_data=private_data, **_path_fields(path)
        )

    def answer(
        self, id: int, status: int = 0, qp_num: int = 0, qkey: int = 0, private_data: bytes = b""
    ) -> None:
        """Answer a request for a datagram service: send SIDR_REP (136 bytes)."""
        self._call(
            control.CM_ANSWER, id=id, status=status, qp_num=qp_num, qkey=qkey, private_data=private_data
        )

    def destroy(self, id: int) -> None:
        """Let go of a listener or connection.  A peer that is in the middle of it gets REJ, DREQ or DREP; no
        event of it comes any more, but one that is in the ring already may.
        """
        self._call(control.CM_DESTROY, id=id)

    # events

    def receive(self, timeout_s: float | None = None) -> CmEvent | None:
        """The next event; None: none has come within ``timeout_s`` (0: poll once; None: no limit).  EIO when
        the ring holds a malformed entry, or the adapter is gone.
        """
        return self._ring.receive(timeout_s)

    def fileno(self) -> int:
        """A descriptor that is readable while there are events; made by the first call.  Errors as
        `EventRouter.descriptor`.
        """
        return self._driver.events.descriptor(self).fileno()

    @property
    def idle(self) -> bool:
        """Whether no event waits."""
        return self._ring.idle

    def _taken(self) -> None:
        self._driver.events.connections_taken(self)

    def close(self) -> None:
        """Destroy all that was begun on this channel; events that were not received are lost."""
        with self._session.lock:
            self._session.call(control.CLOSE_CM, cm=self.number)
            self._ring.end()
        self._driver.events.remove_connections(self)
        self._ring.free()

    def _new(self, command: int, **fields: object) -> int:
        number: int = self._session.call(command, cm=self.number, **fields)["id"]
        return number

    def _call(self, command: int, **fields: object) -> None:
        self._session.call(command, cm=self.number, **fields)


def _path_fields(path: CmPath) -> dict[str, object]:
    """The fields of a command by the path's own names, but for the addresses."""
    given = dict(vars(path))
    return {"dgid": given.pop("gid"), "dlid": given.pop("lid"), **given}


def _alternate_fields(alternate: CmAlternatePath) -> dict[str, object]:
    given = dict(vars(alternate))
    return {"dgid": given.pop("gid"), "dlid": given.pop("lid"), **given}


def _places(names: Iterable[str]) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """What takes fields out of an entry's header, by their names."""
    return itemgetter(*map(_NAMES.index, names))


_PATH_FIELDS = [each.name for each in fields(CmPath) if each.name in _NAMES]
_QUEUE_PAIR_FIELDS = [each.name for each in fields(CmQueuePair) if each.name not in ("srq", "flow_control")]
_ALTERNATE_FIELDS = [each.name for each in fields(CmAlternatePath) if not each.name.endswith("gid")]
_EVENT_FIELDS = [each.name for each in fields(CmEvent) if each.name in _NAMES]
_PATH_OF, _QUEUE_PAIR_OF, _EVENT_OF = map(_places, (_PATH_FIELDS, _QUEUE_PAIR_FIELDS, _EVENT_FIELDS))
_FLAGS_OF = _places(("srq", "flow_control"))
_ALTERNATE_OF = _places(f"alternate_{name}" for name in _ALTERNATE_FIELDS)
_GID_OF, _OWN_GID_OF, _ALTERNATE_GID_OF, _ALTERNATE_OWN_GID_OF = (
    _places((f"{name}_prefix", f"{name}_interface"))
    for name in ("gid", "own_gid", "alternate_gid", "alternate_own_gid")
)
_PRIVATE_BYTES = _NAMES.index("private_bytes")
_GID = struct.Struct(">QQ")


class CmEntry(CmEvent):
    """An event as its entry says it.  What all events have is there at once, not attribute by attribute as
    frozen dataclasses make theirs; the rest, of which a program needs something in few kinds of events, when
    it is asked for.
    """

    _read: tuple[int, ...]

    def __init__(self, entry: bytes) -> None:
        read = _HEADER.unpack_from(entry)
        values = self.__dict__
        values.update(zip(_EVENT_FIELDS, _EVENT_OF(read), strict=True))
        values["private_data"] = entry[_HEADER.size : _HEADER.size + read[_PRIVATE_BYTES]]
        values["_read"] = read

    @cached_property
    def own_gid(self) -> bytes:
        """See `CmEvent`, as of the others."""
        return _GID.pack(*_OWN_GID_OF(self._read))

    @cached_property
    def path(self) -> CmPath:
        """The way to the peer."""
        read = self._read
        return CmPath(gid=_GID.pack(*_GID_OF(read)), **dict(zip(_PATH_FIELDS, _PATH_OF(read), strict=True)))

    @cached_property
    def queue_pair(self) -> CmQueuePair:
        """The peer's end."""
        read = self._read
        srq, flow_control = map(bool, _FLAGS_OF(read))
        named = dict(zip(_QUEUE_PAIR_FIELDS, _QUEUE_PAIR_OF(read), strict=True))
        return CmQueuePair(**named, srq=srq, flow_control=flow_control)

    @cached_property
    def alternate(self) -> CmAlternatePath | None:
        """The path that is named besides."""
        read = self._read
        gid = _GID.pack(*_ALTERNATE_GID_OF(read))
        named = dict(zip(_ALTERNATE_FIELDS, _ALTERNATE_OF(read), strict=True))
        if not any(gid) and not named["lid"]:
            return None
        return CmAlternatePath(own_gid=_GID.pack(*_ALTERNATE_OWN_GID_OF(read)), gid=gid, **named)
