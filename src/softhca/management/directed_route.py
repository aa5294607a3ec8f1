"""Directed routes: subnet management packets that name the ports on their way (IBTA vol. 1, 14.2.2).

On the way out (D = 0) the hop pointer counts up to the hop count and each node notes the port of its
entrance; on the way back (D = 1) it counts down.  A channel adapter passes nothing on: it begins a way or
ends one; a switch passes on.  `ARRIVING`, `ARRIVING_SWITCH` and `LEAVING` say for each place of the hop
pointer what becomes of a packet.

`arrive` and `leave` are a channel adapter's; `enter` and `begin` are any node's, and change the packet's
bytes in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.management.constants import LID_PERMISSIVE
from softhca.management.mad import Mad
from softhca.wire.layout import Field, Header

HOPS_LAST = 63
_BODY = 24  # where a MAD's body begins
RETURN_PATH = 192 - _BODY
INITIAL_PATH = 128 - _BODY

# what becomes of a packet
TAKE = "take"  # it has arrived
SEND = "send"  # it leaves by the port
FORWARD = "forward"  # it goes on by the next port of its way
DISCARD = "discard"

# places of the hop pointer, the first that fits
START = "start"  # 0, of none or more hops
END = "end"  # the hop count, of one or more
BEYOND = "beyond"  # one more than that
FIRST = "first"  # 1 on the way back, of two or more: a switch's port, or where the way began
BETWEEN = "between"  # in the middle: another node's
NOWHERE = "nowhere"  # more than there are hops

ARRIVING: dict[tuple[bool, str], str] = {
    # (D bit, place): C14-9 on the way out, C14-13 on the way back
    (False, START): DISCARD,
    (False, END): TAKE,
    (False, BEYOND): TAKE,
    (False, FIRST): DISCARD,
    (False, BETWEEN): DISCARD,
    (False, NOWHERE): DISCARD,
    (True, START): TAKE,
    (True, END): DISCARD,
    (True, BEYOND): DISCARD,
    (True, FIRST): TAKE,
    (True, BETWEEN): DISCARD,
    (True, NOWHERE): DISCARD,
}
"""What becomes of a packet of one hop or more that has come in."""

ARRIVING_SWITCH: dict[tuple[bool, str], str] = {
    # C14-9 and C14-13 at a switch; START: the way begins here, the packet has come by LID
    (False, START): SEND,
    (False, END): TAKE,
    (False, BEYOND): TAKE,
    (False, FIRST): DISCARD,
    (False, BETWEEN): FORWARD,
    (False, NOWHERE): DISCARD,
    (True, START): TAKE,
    (True, END): FORWARD,
    (True, BEYOND): DISCARD,
    (True, FIRST): TAKE,
    (True, BETWEEN): FORWARD,
    (True, NOWHERE): DISCARD,
}
"""The same of a packet that has come into a switch."""

LEAVING: dict[tuple[bool, str], str] = {
    (False, START): SEND,
    (False, END): DISCARD,
    (False, BEYOND): DISCARD,
    (False, FIRST): DISCARD,
    (False, BETWEEN): DISCARD,
    (False, NOWHERE): DISCARD,
    (True, START): DISCARD,
    (True, END): DISCARD,
    (True, BEYOND): SEND,
    (True, FIRST): DISCARD,
    (True, BETWEEN): DISCARD,
    (True, NOWHERE): DISCARD,
}
"""What becomes of a packet of one hop or more that a client or an agent sends: a way begins at 0, a way back
behind the end."""


@dataclass(frozen=True, slots=True)
class DirectedRoute(Header):
    """What a directed-route packet has between its common header and its data: M_Key and the LIDs of the
    parts of the way that go by LID, the permissive one where there are none.
    """

    LENGTH_BYTES: ClassVar[int] = 12
    LAYOUT: ClassVar[tuple[Field, ...]] = (Field("m_key", 64), Field("dr_slid", 16), Field("dr_dlid", 16))

    m_key: int = 0
    dr_slid: int = LID_PERMISSIVE
    dr_dlid: int = LID_PERMISSIVE


def hops(mad: Mad) -> tuple[int, int]:
    """``(hop pointer, hop count)``."""
    return mad.header.class_specific >> 8, mad.header.class_specific & 0xFF


def place(pointer: int, count: int, returning: bool) -> str:
    """Which of the places of the tables a hop pointer is at."""
    if count > HOPS_LAST or pointer > count + 1:
        return NOWHERE
    if pointer == 1 and returning and count >= 1:
        return FIRST
    if pointer == 0:
        return START
    if pointer == count:
        return END
    return BEYOND if pointer == count + 1 else BETWEEN


TAKEN = 0
LOST = -1
BY_LID = -2
"""What `enter` and `begin` say where they name no port: the packet has come to its end; it is discarded; it
goes on by LID, to DrDLID on its way out and to DrSLID on its way back."""

_POINTER_AT, _COUNT_AT, _DIRECTION_AT = 6, 7, 4
_SLID_AT, _DLID_AT = 32, 34
_INITIAL_AT, _RETURN_AT = _BODY + INITIAL_PATH, _BODY + RETURN_PATH


def enter(data: bytearray, entrance: int, is_switch: bool) -> int:
    """A packet has come into a node by a port (0: a switch has got it by LID): by which port it goes on,
    `TAKEN`, `LOST` or `BY_LID`.
    """
    pointer, count = data[_POINTER_AT], data[_COUNT_AT]
    returning = data[_DIRECTION_AT] >= 0x80
    where = place(pointer, count, returning)
    if not count:
        verdict = TAKE if where in (START, BEYOND) else DISCARD
    else:
        verdict = (ARRIVING_SWITCH if is_switch else ARRIVING)[returning, where]
    if verdict is FORWARD:
        if returning:
            data[_POINTER_AT] = pointer - 1
            return data[_RETURN_AT + pointer - 1] or LOST
        data[_RETURN_AT + pointer] = entrance
        data[_POINTER_AT] = pointer + 1
        return data[_INITIAL_AT + pointer + 1] or LOST
    if verdict is SEND:
        return begin(data) if not entrance else LOST
    if verdict is DISCARD:
        return LOST
    by_lid = int.from_bytes(data[_SLID_AT:_DLID_AT] if returning else data[_DLID_AT : _DLID_AT + 2], "big")
    if returning:
        data[_POINTER_AT] = 0
    else:
        if count and where is END:
            data[_RETURN_AT + count] = entrance
        data[_POINTER_AT] = count + 1
    if by_lid == LID_PERMISSIVE:
        return TAKEN
    return BY_LID if is_switch else LOST


def begin(data: bytearray) -> int:
    """A packet of a node's own, of one hop or more: by which port it leaves, or `LOST`."""
    pointer, count = data[_POINTER_AT], data[_COUNT_AT]
    returning = data[_DIRECTION_AT] >= 0x80
    if LEAVING[returning, place(pointer, count, returning)] is not SEND:
        return LOST
    data[_POINTER_AT] = count if returning else 1
    return (data[_RETURN_AT + count] if returning else data[_INITIAL_AT + 1]) or LOST


def arrive(mad: Mad, port_number: int) -> Mad | None:
    """A packet has come in by a port: as an agent or a client of this node gets it, None where it is
    discarded.

    One that has come to its end notes the port, and its pointer stands behind the last hop.
    """
    data = bytearray(mad.encode())
    return Mad.decode(data) if enter(data, port_number, is_switch=False) == TAKEN else None


def leave(mad: Mad, port_number: int) -> Mad | None:
    """A packet of an agent or a client leaves by a port: as it goes out, None where it cannot, be it that its
    first port is another one.
    """
    data = bytearray(mad.encode())
    return Mad.decode(data) if not stays(mad) and begin(data) == port_number else None


def stays(mad: Mad) -> bool:
    """Whether a packet that is sent goes to this node itself: a way out, or back, of no hops."""
    return hops(mad)[1] == 0
