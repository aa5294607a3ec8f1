"""What goes to the driver for each notification of a stream: where it is written, what is told, and how."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from softhca.driver.posting import QueuePairPoster
from softhca.machine.primitives import address_of, bytes_at
from softhca.sockets.memory_processing import Page
from softhca.sockets.protocol import EVENT_REQUEST, NOTIFICATION_RING, RING_ENTRIES, WAKES
from softhca.sockets.staging import SHORT_BYTES, Staging
from softhca.sockets.work_requests import (
    INLINE,
    INLINE_BYTES,
    SIGNALED,
    SOLICITED,
    TAKEN,
    WHOLE_BYTES,
    WorkRequests,
)
from softhca.verbs import enums as e

POOL, RKEY, RECORD = 0x1_0000_0000, 77, 0x2_0000_0000
WRITE, TOLD = int(e.IBV_WR_RDMA_WRITE), int(e.IBV_WR_RDMA_WRITE_WITH_IMM)
SOURCE = array("B", range(256))


class Poster(QueuePairPoster):
    """A queue pair that notes: opcode, flags, immediate, number, remote address, and what is written (a run,
    or the bytes of those that are inline)."""

    def __init__(self) -> None:
        self.noted: list[tuple[Any, ...]] = []
        self.rung: list[int] = []
        self.chains: list[int] = []

    def post_run(
        self, opcode: int, flags: int, imm: int, number: int, remote: int, rkey: int, address: int,
        length: int, lkey: int,
    ) -> None:  # fmt: skip
        assert rkey == RKEY
        what: Any = bytes_at(address, length) if flags & INLINE else (address, length, lkey)
        self.noted.append((opcode, flags, imm, number, remote, what))

    def post_send(
        self, opcode: int, flags: int, imm: int, number: int, remote: int, rkey: int, *rest: Any
    ) -> None:
        assert rkey == RKEY
        elements, data = rest[-2:]
        assert (data is not None) == bool(flags & INLINE)
        self.noted.append((opcode, flags, imm, number, remote, data or tuple(elements)))

    def post_receives(self, chain: Any) -> None:
        count = 0
        while chain is not None:
            assert (chain.wr_id, chain.sges) == (0, ())
            count, chain = count + 1, chain.following
        self.chains.append(count)

    def ring(self) -> None:
        self.rung.append(len(self.noted))


@pytest.fixture
def poster() -> Poster:
    return Poster()


@pytest.fixture
def requests(poster: Poster) -> WorkRequests:
    return WorkRequests(poster, POOL, RKEY, RECORD)


def words(*numbers: int) -> bytes:
    return array("Q", numbers).tobytes()


def test_data_up_to_a_bound_are_their_own_notification_where_writes_take_no_packets(
    poster: Poster, requests: WorkRequests
) -> None:
    requests.in_place = True
    for length, alone in ((WHOLE_BYTES, True), (WHOLE_BYTES + 1, False)):
        run = Page(0x5000, length, 9)
        poster.noted.clear()
        requests.write(3, [run], [(64, length)], 0x11)
        told = (TOLD, SIGNALED, 0x11, 3)
        if alone:
            assert poster.noted == [(*told, POOL + 64, (run,))]
        else:
            assert poster.noted == [(WRITE, 0, 0, 3, POOL + 64, (run,)), (*told, POOL, ())]
    requests.write(3, [Page(0x5000, 100, 9)], [(64, 100)], 0x11, whole=99)
    assert len(poster.noted) == 4
    assert (requests.told, poster.rung) == (3, [1, 2, 4])
    poster.noted.clear()
    requests.write_run(5, 0x5000, WHOLE_BYTES, 9, [(64, WHOLE_BYTES)], 6, 0, False)
    requests.write_run(6, 0x5000, WHOLE_BYTES + 1, 9, [(64, WHOLE_BYTES + 1)], 6, 0, False)
    assert poster.noted == [
        (TOLD, 0, 6, 5, POOL + 64, (0x5000, WHOLE_BYTES, 9)),
        (WRITE, 0, 0, 6, POOL + 64, (Page(0x5000, WHOLE_BYTES + 1, 9),)),
        (TOLD, 0, 6, 6, POOL, ()),
    ]
    requests.write(7, [Page(0x1000, 80, 1)], [(100, 60), (0, 20)], 5)
    assert [each[0] for each in poster.noted[3:]] == [WRITE, WRITE, TOLD]


@pytest.mark.parametrize("whole_run", [False, True], ids=["run", "runs"])
@pytest.mark.parametrize(
    ("length", "told_with"),
    [(1, 1), (2048, 2048), (2049, 1), (3072, 0), (3073, 1), (4092, 1020), (4093, 0), (5000, 904),
     (1 << 20, 0)],
)  # fmt: skip
def test_packets_of_data_have_one_length_and_what_tells_is_no_longer(
    poster: Poster, length: int, told_with: int, whole_run: bool
) -> None:
    requests = WorkRequests(poster, POOL, RKEY, RECORD, 1024)
    if whole_run:
        requests.write(3, [Page(0x5000, length, 9)], [(64, length)], 7, SOLICITED)
    else:
        requests.write_run(3, 0x5000, length, 9, [(64, length)], 7, SOLICITED, False)
    before = length - told_with
    found = [(*each[:5], each[5][0] if whole_run and each[5] else each[5]) for each in poster.noted]
    if before:
        assert found.pop(0) == (WRITE, 0, 0, 3, POOL + 64, (0x5000, before, 9))
    if told_with:
        told = (TOLD, SOLICITED, 7, 3, POOL + 64 + before, (0x5000 + before, told_with, 9))
    else:
        told = (TOLD, SOLICITED | (0 if whole_run else INLINE), 7, 3, POOL, () if whole_run else b"")
    assert found == [told]
    assert (requests.told, poster.rung) == (1, [len(poster.noted)])


def test_the_last_run_tells_where_the_pool_ends_in_a_message(poster: Poster, requests: WorkRequests) -> None:
    requests.write(4, [Page(0x1000, 80, 1)], [(100, 60), (0, 20)], 5, 0)
    requests.write(5, [Page(0x1000, 9000, 1)], [(100, 200), (0, 8800)], 5, 0)
    assert poster.noted == [
        (WRITE, 0, 0, 4, POOL + 100, (Page(0x1000, 60, 1),)),
        (TOLD, 0, 5, 4, POOL, (Page(0x103C, 20, 1),)),
        (WRITE, 0, 0, 5, POOL + 100, (Page(0x1000, 200, 1),)),
        (WRITE, 0, 0, 5, POOL, (Page(0x10C8, 8192, 1),)),
        (TOLD, 0, 5, 5, POOL + 8192, (Page(0x30C8, 608, 1),)),
    ]


def test_runs_are_cut_where_places_end_and_the_last_says_that_they_are_taken(
    poster: Poster, requests: WorkRequests
) -> None:
    runs = [Page(0x1000, 30, 1), Page(0x2000, 50, 2)]
    requests.write(4, runs, [(100, 60), (0, 20)], 5, SIGNALED | SOLICITED, early=True)
    assert poster.noted == [
        (WRITE, 0, 0, 4, POOL + 100, (Page(0x1000, 30, 1),)),
        (WRITE, 0, 0, 4, POOL + 130, (Page(0x2000, 30, 2),)),
        (WRITE, SIGNALED, 0, 4 | TAKEN, POOL, (Page(0x201E, 20, 2),)),
        (TOLD, SIGNALED | SOLICITED, 5, 4, POOL, ()),
    ]
    assert (requests.told, poster.rung) == (1, [4])


def test_one_run_goes_as_one_request_where_the_pool_does_not_end_in_it(
    poster: Poster, requests: WorkRequests
) -> None:
    at = address_of(SOURCE)
    requests.write_run(1, at, 8, 9, [(32, 8)], 6, SIGNALED, False)
    requests.write_run(2, at, 8, 9, [(32, 8)], 6, 0, True)
    requests.write_run(3, at, 8, 9, [(32, 5), (0, 3)], 6, SIGNALED, True)
    assert poster.noted == [
        (TOLD, SIGNALED, 6, 1, POOL + 32, (at, 8, 9)),
        (TOLD, INLINE, 6, 2, POOL + 32, bytes(range(8))),
        (WRITE, INLINE, 0, 3, POOL + 32, bytes(range(5))),
        (TOLD, SIGNALED | INLINE, 6, 3, POOL, bytes(range(5, 8))),
    ]
    assert (requests.told, poster.rung) == (3, [1, 2, 4])


def test_a_notification_in_memory_stands_in_the_ring_behind_the_data(
    poster: Poster, requests: WorkRequests
) -> None:
    at = address_of(SOURCE)
    for told in (RING_ENTRIES - 2, RING_ENTRIES - 1):
        poster.noted.clear()
        requests.told = told
        requests.write_in_memory(8, at, 6, 0, [(90, 2), (0, 4)], 0x77, True)
        place = RECORD + NOTIFICATION_RING + 8 * ((told + 1) % RING_ENTRIES)
        assert poster.noted == [
            (WRITE, INLINE, 0, 8, POOL + 90, bytes((0, 1))),
            (WRITE, INLINE, 0, 8, POOL, bytes((2, 3, 4, 5))),
            (WRITE, SIGNALED | INLINE, 0, 8, place, words(told + 1 << 32 | 0x77)),
        ]
    requests.write_in_memory(9, at, 6, 3, [(90, 6)], 0x77, False)
    assert poster.noted[3] == (WRITE, 0, 0, 9, POOL + 90, (at, 6, 3))
    assert poster.rung == [3, 3, 5]


def test_the_number_of_notifications_has_32_bits(poster: Poster, requests: WorkRequests) -> None:
    requests.told = 0xFFFF_FFFE
    for told in (0xFFFF_FFFF, 0, 1):
        requests.notify(1, 2)
        assert requests.told == told
    assert poster.noted == [(TOLD, SIGNALED, 2, 1, POOL, ())] * 3
    assert poster.rung == [1, 2, 3]


def test_words_are_written_where_the_peer_looks_for_them(poster: Poster, requests: WorkRequests) -> None:
    requests.credit_in_memory(1, 10, 20)
    requests.credit(2, 11, 21, 0x33)
    requests.request_event(3, 44)
    requests.wake(4)
    requests.wake(5)
    requests.probe(6)
    waking = SIGNALED | SOLICITED | INLINE
    assert poster.noted == [
        (WRITE, SIGNALED | INLINE, 0, 1, RECORD, words(10, 20)),
        (TOLD, SIGNALED | INLINE, 0x33, 2, RECORD, words(11, 21)),
        (WRITE, SIGNALED | INLINE, 0, 3, RECORD + EVENT_REQUEST, words(44)),
        (WRITE, waking, 0, 4, RECORD + WAKES, words(1)),
        (WRITE, waking, 0, 5, RECORD + WAKES, words(2)),
        (WRITE, SIGNALED, 0, 6, POOL, ()),
    ]
    assert (requests.told, poster.rung) == (1, [1, 2, 3, 4, 5, 6])  # only an immediate is a notification


def test_receives_are_posted_as_chains(poster: Poster, requests: WorkRequests) -> None:
    for count in (3, 0, 1):
        requests.receive(count)
    assert poster.chains == [3, 1]


@pytest.mark.parametrize(
    ("head", "tail", "wanted", "room"),
    [
        (0, 0, 4096, 4096),
        (0, 0, 5000, 4096),
        (0, 1000, 3096, 3096),
        (0, 1000, 4000, 3096),  # no room behind the rest of the ring
        (1000, 1000, 4000, 3096),
        (3000, 3000, 1500, 1500),  # there is: the rest is left out
        (3000, 3000, 1096, 1096),
        (3000, 4000, 96, 96),
        (3000, 4000, 2000, 2000),  # left out
        (2096, 3584, 3000, 2096),  # short: left out in any case
        (2096, 3583, 3000, 513),
        (1025, 4096 + 512, 2000, 513),
        (1024, 4096 + 512, 2000, 0),  # no run that is worth a copy
        (0, 3584, 2000, 0),
        (512, 3584, 2000, 0),
        (1025, 3584, 2000, 1025),
        (0, 3584, 512, 512),  # as a whole
        (0, 4096, 1, 0),
        (1000, 3496, 1000, 1000),
        (999, 3496, 1000, 600),
    ],
)
def test_room_for_copies_is_one_run_which_is_not_short(head: int, tail: int, wanted: int, room: int) -> None:
    assert SHORT_BYTES == INLINE_BYTES == 512
    ring = Staging.__new__(Staging)
    ring.length, ring.head, ring.tail = 4096, head, tail
    assert ring.room(wanted) == room
    assert ring.tail == tail


def test_copies_are_in_runs_of_a_ring_whose_rest_may_be_left_out() -> None:
    memory = bytearray(100)
    ring = Staging.__new__(Staging)
    ring._address, ring.length = address_of(memory), 100
    for length, tail in ((30, 70), (31, 100)):
        ring.head, ring.tail = 60, 70
        assert ring.free() == 90
        ring.skip(length)
        assert ring.tail == tail
    ring.tail = 70
    for length, place, tail in ((30, 70, 100), (20, 0, 120)):
        assert ring.put(address_of(SOURCE), length) == ring._address + place
        assert ring.tail == tail
    ring.tail = 171
    assert ring.put(address_of(SOURCE) + 1, 30) == ring._address
    assert (ring.tail, memory[:30]) == (230, SOURCE[1:31].tobytes())
