"""Directed routes at a channel adapter's port: every place of the hop pointer, both directions, both ways."""

from __future__ import annotations

import itertools

import pytest

from softhca.management import constants as c
from softhca.management import directed_route as d
from softhca.management.mad import Mad, MadHeader

PORT = 1
PLACES = (d.START, d.END, d.BEYOND, d.FIRST, d.BETWEEN, d.NOWHERE)
DIRECTIONS = (False, True)


def packet(
    pointer: int,
    count: int,
    returning: bool = False,
    path: bytes = b"",
    slid: int = c.LID_PERMISSIVE,
    dlid: int = c.LID_PERMISSIVE,
) -> Mad:
    header = MadHeader(
        management_class=c.CLASS_SUBN_DIRECTED,
        method=c.METHOD_GET | (c.RESPONSE if returning else 0),
        status=c.DIRECTION if returning else 0,
        class_specific=pointer << 8 | count,
    )
    body = bytearray(232)
    body[:12] = d.DirectedRoute(dr_slid=slid, dr_dlid=dlid).encode()
    start = d.RETURN_PATH if returning else d.INITIAL_PATH
    body[start : start + len(path)] = path
    return Mad(header, bytes(body))


def test_the_tables_have_every_cell() -> None:
    cells = set(itertools.product(DIRECTIONS, PLACES))
    assert set(d.ARRIVING) == set(d.LEAVING) == cells


@pytest.mark.parametrize(
    ("pointer", "count", "returning", "place"),
    [
        (0, 0, False, d.START),
        (0, 3, False, d.START),
        (3, 3, False, d.END),
        (1, 1, False, d.END),
        (4, 3, False, d.BEYOND),
        (1, 0, False, d.BEYOND),
        (1, 3, False, d.BETWEEN),
        (2, 3, False, d.BETWEEN),
        (5, 3, False, d.NOWHERE),
        (64, 64, False, d.NOWHERE),
        (64, 63, False, d.BEYOND),
        (0, 3, True, d.START),
        (1, 3, True, d.FIRST),
        (1, 1, True, d.FIRST),
        (2, 3, True, d.BETWEEN),
        (3, 3, True, d.END),
        (4, 3, True, d.BEYOND),
        (255, 3, True, d.NOWHERE),
    ],
)
def test_a_hop_pointer_is_at_one_place(pointer: int, count: int, returning: bool, place: str) -> None:
    assert d.place(pointer, count, returning) == place


@pytest.mark.parametrize(("returning", "pointer"), list(itertools.product(DIRECTIONS, range(6))))
def test_what_arrives_is_taken_where_its_way_ends(returning: bool, pointer: int) -> None:
    """C14-9 and C14-13 with three hops."""
    taken = d.arrive(packet(pointer, 3, returning), PORT)
    expected = {(False, 3): 4, (False, 4): 4, (True, 0): 0, (True, 1): 0}
    assert (taken is not None) == ((returning, pointer) in expected)
    if taken is not None:
        assert d.hops(taken) == (expected[returning, pointer], 3)


@pytest.mark.parametrize(("returning", "pointer"), list(itertools.product(DIRECTIONS, range(6))))
def test_what_leaves_begins_its_way(returning: bool, pointer: int) -> None:
    path = bytes([0, 1, 1, 1])
    left = d.leave(packet(pointer, 3, returning, path), PORT)
    expected = {(False, 0): 1, (True, 4): 3}
    assert (left is not None) == ((returning, pointer) in expected)
    if left is not None:
        assert d.hops(left) == (expected[returning, pointer], 3)


def test_the_end_of_a_way_notes_its_port() -> None:
    taken = d.arrive(packet(2, 2), 5)
    assert taken is not None
    assert taken.body[d.RETURN_PATH : d.RETURN_PATH + 4] == bytes([0, 0, 5, 0])


def test_a_way_there_and_back_between_two_ports() -> None:
    out = d.leave(packet(0, 1, path=bytes([0, 2])), 2)
    assert out is not None
    assert d.hops(out) == (1, 1)
    taken = d.arrive(out, 1)
    assert taken is not None
    back = d.leave(taken.response(), 1)
    assert back is not None
    assert d.hops(back) == (1, 1)
    home = d.arrive(back, 2)
    assert home is not None
    assert d.hops(home) == (0, 1)


def test_a_way_whose_first_port_is_another_one_is_discarded() -> None:
    assert d.leave(packet(0, 1, path=bytes([0, 2])), 1) is None
    assert d.leave(packet(2, 1, True, path=bytes([0, 2])), 1) is None


def test_a_way_that_goes_on_by_lid_is_no_channel_adapters() -> None:
    assert d.arrive(packet(1, 1, dlid=5), PORT) is None
    assert d.arrive(packet(1, 1, slid=5), PORT) is not None
    assert d.arrive(packet(1, 1, True, slid=5), PORT) is None


@pytest.mark.parametrize(
    ("pointer", "returning", "after"),
    [(0, False, 1), (1, False, 1), (2, False, None), (0, True, 0), (1, True, 0), (2, True, None)],
)
def test_a_way_of_no_hops_stays(pointer: int, returning: bool, after: int | None) -> None:
    mad = packet(pointer, 0, returning)
    assert d.stays(mad)
    assert d.leave(mad, PORT) is None
    taken = d.arrive(mad, PORT)
    assert (None if taken is None else d.hops(taken)[0]) == after


def on_its_way(pointer: int, slid: int, dlid: int, returning: bool = False) -> bytearray:
    """The bytes of a packet of two hops, by ports 5 and 6, and back by 7 and 8."""
    data = bytearray(256)
    data[4], data[6], data[7] = 0x80 * returning, pointer, 2
    data[32:36] = slid.to_bytes(2, "big") + dlid.to_bytes(2, "big")
    data[129:131], data[193:195] = b"\5\6", b"\7\x08"
    return data


def test_a_way_begins_at_a_switch_only_where_it_was_reached_by_lid() -> None:
    data = on_its_way(0, 9, c.LID_PERMISSIVE)
    assert d.enter(data, 3, is_switch=True) == d.LOST
    assert d.enter(data, 0, is_switch=False) == d.LOST
    assert data == on_its_way(0, 9, c.LID_PERMISSIVE)
    assert d.enter(data, 0, is_switch=True) == 5
    assert data == on_its_way(1, 9, c.LID_PERMISSIVE)


@pytest.mark.parametrize("returning", [False, True])
def test_a_switch_passes_on_by_lid_where_the_part_with_ports_ends(returning: bool) -> None:
    """The way out asks for DrDLID and the way back for DrSLID; the other of the two does not count."""
    pointer = 1 if returning else 2
    lids = [(c.LID_PERMISSIVE, 9), (9, c.LID_PERMISSIVE)]
    said = [
        [d.enter(on_its_way(pointer, *each, returning), 4, is_switch) for each in lids]
        for is_switch in (True, False)
    ]
    expected = [[d.BY_LID, d.TAKEN], [d.LOST, d.TAKEN]]
    assert said == ([each[::-1] for each in expected] if returning else expected)
