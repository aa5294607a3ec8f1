"""What a communication manager keeps: listeners, connections, resolutions, and what their owners are told."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace
from typing import Protocol

from softhca.management.cm import messages as m
from softhca.management.cm.by_place import ByPlace
from softhca.management.cm.path_states import QUIET
from softhca.management.mad import Address
from softhca.queues.control_fields import (
    CM_DISCONNECT_REQUEST,
    CM_DISCONNECTED,
    CM_ESTABLISHED,
    CM_PATH_ANSWER,
    CM_PATH_REQUEST,
    CM_REJECTED,
    CM_REPLIED,
    CM_REQUEST,
    CM_SIDR_REPLY,
    CM_SIDR_REQUEST,
    CM_TIMEWAIT_OVER,
    CM_UNREACHABLE,
)
from softhca.wire.errors import WireError

NEVER_NS = 1 << 62
UNIT_NS = 4096
"""Time-outs are 4.096 µs × 2^n."""
PACKET_LIFE_EXPONENT = 16
"""A datagram is on its way for at most 4.096 µs × 2^16."""
MAX_EXPONENT = 31
MAX_PEERS_EXPONENT = 24
"""A peer is waited for, and remembered, for 4.096 µs × 2^24 (69 s) at a time, whatever it asks for: as long
as Linux has others wait while its program thinks.  With 31 one that vanishes would keep its place 39 hours.
"""

# kinds of events, as hosts have them
REQUEST = CM_REQUEST
REPLIED = CM_REPLIED
ESTABLISHED = CM_ESTABLISHED
REJECTED = CM_REJECTED
UNREACHABLE = CM_UNREACHABLE
DISCONNECT_REQUEST = CM_DISCONNECT_REQUEST
DISCONNECTED = CM_DISCONNECTED
SIDR_REQUEST = CM_SIDR_REQUEST
SIDR_REPLY = CM_SIDR_REPLY
PATH_REQUEST = CM_PATH_REQUEST
PATH_ANSWER = CM_PATH_ANSWER
TIMEWAIT_OVER = CM_TIMEWAIT_OVER


@dataclass(frozen=True, slots=True)
class Event:
    """What an owner is told: ``message`` is the peer's, where there was one, ``source`` where it came from.
    ``status``: REJ's reason, SIDR's or APR's status, or ETIMEDOUT.
    """

    kind: int
    number: int
    source: Address
    listener: int = 0
    status: int = 0
    service_id: int = 0
    message: m.Message | None = None


class Owner(Protocol):
    """Who holds listeners and connections."""

    def deliver(self, event: Event) -> bool:
        """Take an event; False, for a request only: there is no room."""


@dataclass(slots=True, eq=False)
class Listener:
    """Requests for ``service_id`` go to ``owner``; ``waiting`` are those that it has not answered."""

    number: int
    owner: Owner
    service_id: int
    backlog: int
    waiting: ByPlace[int] = field(default_factory=ByPlace)


@dataclass(slots=True, eq=False)
class Resolution:
    """A SIDR request: the owner's own, which waits for the peer, or a peer's, which waits for the owner of
    its ``listener``.
    """

    number: int
    owner: Owner
    peer: Address
    service_id: int
    request_id: int
    listener: int = 0
    response_ns: int = 0
    retries: int = 0
    max_retries: int = 0
    transaction_id: int = 0
    sent: bytes = b""
    deadline_ns: int = NEVER_NS
    queued_ns: int = NEVER_NS


@dataclass(slots=True, eq=False)
class Connection:
    """``number`` is the local communication ID and, for its owner, the connection's name.

    ``local_end`` and ``remote_end`` are the queue pairs, or of reliable datagrams the EE contexts, which are
    told from queue pairs by `EE_CONTEXT`.

    ``owner`` is None once nobody holds it any more: what it still has to do it does alone.  ``peer`` is where
    its messages go and must come from, ``place`` where that was at first.  ``sent`` is the last message, as
    it is sent again; ``put_off``: the peer has put off its answer since it was sent last.

    ``path_state`` is that of its alternate path (`path_states`), with the last LAP of this side, its
    transaction, that of the peer's last LAP, and the answer to it.  ``proposed`` is the peer at the other end
    of the path that was proposed last, ``other`` that of the alternate path which both have loaded, or of the
    former one: it may speak from there, too.
    """

    number: int
    owner: Owner | None
    peer: Address
    state: str
    service_id: int = 0
    listener: int = 0
    active: bool = True
    remote_comm_id: int = 0
    remote_ca_guid: int = 0
    remote_end: int = 0
    local_end: int = 0
    response_ns: int = 0
    timewait_ns: int = 0
    max_retries: int = 0
    retries: int = 0
    put_off: bool = False
    transaction_id: int = 0
    sent: bytes = b""
    deadline_ns: int = NEVER_NS
    queued_ns: int = NEVER_NS
    path_state: str = QUIET
    path_sent: bytes = b""
    path_transaction_id: int = -1
    asked_transaction_id: int = -1
    path_answer: bytes = b""
    proposed: Address | None = None
    other: Address | None = None
    place: bytes | int = field(init=False)

    def __post_init__(self) -> None:
        self.place = place_of(self.peer)

    def began(self, state: str) -> None:
        """It has come to ``state``: its retries begin anew."""
        if state != self.state:
            self.retries = 0
            self.put_off = False
        self.state = state


EE_CONTEXT = 1 << 24
"""A bit above the 24 of a number: it is an EE context's."""


def end_of(message: m.Req | m.Rep, datagrams: bool) -> int:
    """The end that a REQ or REP names: its queue pair, or the EE context of reliable datagrams."""
    return EE_CONTEXT | message.local_eecn if datagrams else message.local_qpn


def number_of(end: int) -> int:
    """The number of an end, as DREQ and LAP have it."""
    return end & ~EE_CONTEXT


def is_datagrams(end: int) -> bool:
    """Whether an end is one of reliable datagrams."""
    return bool(end & EE_CONTEXT)


def duration_ns(exponent: int) -> int:
    """The time that a 5-bit time-out stands for."""
    return UNIT_NS << min(exponent, MAX_EXPONENT)


def response_ns(exponent: int) -> int:
    """How long to wait for an answer whose sender may take 4.096 µs × 2^``exponent``."""
    return duration_ns(exponent) + 2 * duration_ns(PACKET_LIFE_EXPONENT)


def of_peer(exponent: int) -> int:
    """A time-out that a peer has named, as it is taken here."""
    return min(exponent, MAX_PEERS_EXPONENT)


def response_exponent(response_ns: int) -> int:
    """The exponent that `response_ns` was given."""
    return max((response_ns - 2 * duration_ns(PACKET_LIFE_EXPONENT)) // UNIT_NS, 1).bit_length() - 1


def same_port(peer: Address, source: Address) -> bool:
    """Whether a datagram comes from a peer: by GID where both have one, else by LID."""
    if peer.gid is not None and source.gid is not None:
        return peer.gid == source.gid
    return peer.lid == source.lid


def moved(
    peer: Address, gid: bytes, own_gid: bytes, lid: int, own_lid: int, sl: int, traffic_class: int
) -> Address:
    """The same peer at the other end of another path; GIDs of zeros: it has none."""
    return replace(
        peer,
        gid=gid if any(gid) else None,
        own_gid=own_gid if any(own_gid) else None,
        lid=lid,
        own_lid=own_lid,
        path_bits=0,
        sl=sl,
        traffic_class=traffic_class,
    )


def by_alternate(peer: Address, message: m.Req | m.Lap, own: bool) -> Address | None:
    """The peer at the other end of the alternate path that ``message`` names, this side's ``own`` message or
    the peer's; None: it names none.
    """
    gids = message.alternate_local_gid, message.alternate_remote_gid
    lids = message.alternate_local_lid, message.alternate_remote_lid
    there = int(own)
    if not any(gids[there]) and not lids[there]:
        return None
    sl, traffic_class = message.alternate_sl, message.alternate_traffic_class
    return moved(peer, gids[there], gids[1 - there], lids[there], lids[1 - there], sl, traffic_class)


def place_of(address: Address) -> bytes | int:
    """What tells a port from others: its GID, or its LID where it has none."""
    return address.lid if address.gid is None else address.gid


def encoded(message: m.Message, transaction_id: int) -> bytes:
    """The datagram of a message; OSError EINVAL when a value does not fit its field."""
    try:
        return m.encode(message, transaction_id)
    except WireError as error:
        raise OSError(errno.EINVAL, str(error)) from None


def padded(kind: type[m.Message], private_data: bytes) -> bytes:
    """Private data as long as the message's; OSError EINVAL: they are too long."""
    try:
        return m.padded(kind, private_data)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"private_data: {error}") from None
