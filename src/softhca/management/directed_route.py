"""Directed routes: subnet management packets that name the ports on their way, at a channel adapter's port
(IBTA vol. 1, 14.2.2).

On the way out (D = 0) the hop pointer counts up to the hop count and each node notes the port of its
entrance; on the way back (D = 1) it counts down.  A channel adapter passes nothing on: it begins a way or
ends one.  `ARRIVING` and `LEAVING` say for each place of the hop pointer what becomes of a packet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from softhca.management.constants import DIRECTION, LID_PERMISSIVE
from softhca.management.mad import Mad
from softhca.wire.layout import Field, Header

HOPS_LAST = 63
_BODY = 24  # where a MAD's body begins
RETURN_PATH = 192 - _BODY
INITIAL_PATH = 128 - _BODY

# what becomes of a packet
TAKE = "take"  # it has arrived
SEND = "send"  # it leaves by the port
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


def arrive(mad: Mad, port_number: int) -> Mad | None:
    """A packet has come in by a port: as an agent or a client of this node gets it, None where it is
    discarded.

    One that has come to its end notes the port, and its pointer stands behind the last hop.
    """
    pointer, count = hops(mad)
    returning = bool(mad.header.status & DIRECTION)
    where = place(pointer, count, returning)
    route = DirectedRoute.decode(mad.body)
    if where not in (START, BEYOND) if stays(mad) else ARRIVING[returning, where] is not TAKE:
        return None
    if returning:
        return _at(mad, 0) if route.dr_slid == LID_PERMISSIVE else None
    if route.dr_dlid != LID_PERMISSIVE:
        return None
    if count:
        path = RETURN_PATH + count
        mad = replace(mad, body=mad.body[:path] + bytes([port_number]) + mad.body[path + 1 :])
    return _at(mad, count + 1)


def leave(mad: Mad, port_number: int) -> Mad | None:
    """A packet of an agent or a client leaves by a port: as it goes out, None where it cannot, be it that its
    first port is another one.
    """
    pointer, count = hops(mad)
    returning = bool(mad.header.status & DIRECTION)
    where = place(pointer, count, returning)
    if LEAVING[returning, where] is not SEND or not count:
        return None
    first = RETURN_PATH + count if returning else INITIAL_PATH + 1
    if mad.body[first] != port_number:
        return None
    return _at(mad, count if returning else 1)


def stays(mad: Mad) -> bool:
    """Whether a packet that is sent goes to this node itself: a way out, or back, of no hops."""
    return hops(mad)[1] == 0


def _at(mad: Mad, pointer: int) -> Mad:
    specific = pointer << 8 | mad.header.class_specific & 0xFF
    return replace(mad, header=replace(mad.header, class_specific=specific))
