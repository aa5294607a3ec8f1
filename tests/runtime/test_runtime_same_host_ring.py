"""Packets through the ring of a reader's file: what goes in comes out, what cannot be ends the ring, and
nobody sleeps through it."""

import errno
import mmap

import pytest
from runtime_pair import lets_others_run

from softhca.links.link import AGAIN, SENT
from softhca.machine.primitives import address_of, bytes_at, load64, store64
from softhca.memory.shared_layout import (
    ASLEEP,
    READER_BYTES,
    READER_HEADER_BYTES,
    RING_CLOSED,
    RING_ENTRIES,
    RING_STORE_BYTES,
    WAKE_REQUEST,
)
from softhca.memory.shared_path import SharedPath
from softhca.queues.layout import RING_HEAD_AT
from softhca.queues.ring import RingProducer
from softhca.runtime.same_host import SameHost
from softhca.runtime.same_host_limits import unsupported
from softhca.runtime.same_host_ring import PacketReceiver, PacketSender, layout_at
from softhca.wire.burst import HEAD_BYTES, Arrival, Burst
from softhca.wire.framing import NATIVE, ROCE_V4
from softhca.wire.route import V4_MAPPED_PREFIX, Route

HERE, THERE = (V4_MAPPED_PREFIX + bytes([127, 0, 0, last]) for last in (2, 3))


class Ring:
    """Both ends of a ring, a burst and an arrival; ``woken`` counts."""

    def __init__(self):
        self.reader = mmap.mmap(-1, READER_BYTES)
        self.address = address_of(self.reader)
        self.woken = 0
        self.sender = PacketSender(self.address, self.wake)
        self.receiver = PacketReceiver(self.address, HERE, THERE)
        self.burst, self.arrival = Burst(), Arrival()

    def wake(self):
        self.woken += 1

    def send(self, data, stride=0, route=None, has_icrc=True):
        self.burst.reset()
        self.burst.buffer[: len(data)] = data
        self.burst.length, self.burst.stride = len(data), stride or len(data)
        self.burst.has_icrc = has_icrc
        self.burst.route = route or Route(ROCE_V4, HERE, THERE, 0xC123, traffic_class=0xE8)
        return self.sender.send(self.burst) == SENT

    def receive(self):
        if not self.receiver.receive(self.arrival):
            return None
        found = bytes_at(self.arrival.payload_address, self.arrival.length)
        self.receiver.done()
        return found


    def path(self):
        """The writer's path to the memory of the ring's reader."""
        made = SharedPath(THERE, HERE)
        made.open(self.address, self.address, 0, lambda: True, wake=self.wake)
        return made


@pytest.fixture
def ring():
    return Ring()


def test_a_burst_comes_out_as_it_went_in(ring):
    data = bytes(range(256)) * 240
    assert ring.send(data, 4116)
    assert ring.receive() == data
    arrival = ring.arrival
    assert (arrival.stride, arrival.framing, arrival.source_port) == (4116, ROCE_V4, 0xC123)
    assert (arrival.source, arrival.destination, arrival.traffic_class) == (HERE, THERE, 0xE8)
    assert ring.receive() is None


@pytest.mark.parametrize("has_icrc", [False, True])
def test_whether_there_are_icrcs_goes_along(ring, has_icrc):
    assert not ring.sender.needs_icrc
    ring.arrival.has_icrc = not has_icrc
    assert ring.send(b"1234", has_icrc=has_icrc)
    assert ring.receive() == b"1234"
    assert ring.arrival.has_icrc == has_icrc


@pytest.mark.parametrize("has_icrc", [False, True])
def test_bursts_keep_their_order_over_many_turns_of_the_ring(ring, has_icrc):
    for number in range(3000):
        data = number.to_bytes(4, "little") * (1 + number % 4000)
        assert ring.send(data, has_icrc=has_icrc)
        assert ring.receive() == data


def test_of_long_segments_the_heads_alone_are_taken_out_of_the_ring(ring):
    data = bytes(range(250)) * 50
    ring.arrival.buffer[:16_000] = b"\xee" * 16_000
    assert ring.send(data, 4096, has_icrc=False)
    assert ring.receiver.receive(ring.arrival)
    heads = b"".join(
        data[at : at + HEAD_BYTES].ljust(4096, b"\xee") for at in range(0, len(data), 4096)
    )
    assert bytes(ring.arrival.buffer[:16_000]) == heads[:16_000]
    assert ring.arrival.payload_address != ring.arrival.address
    assert bytes_at(ring.arrival.payload_address, len(data)) == data


def test_segments_of_two_heads_are_long(ring):
    assert ring.send(bytes(4 * HEAD_BYTES), 2 * HEAD_BYTES, has_icrc=False)
    assert ring.receiver.receive(ring.arrival)
    assert ring.arrival.payload_address != ring.arrival.address


def test_what_the_sender_changes_afterwards_changes_no_head(ring):
    data = bytes(8192)
    assert ring.send(data, 4096, has_icrc=False)
    assert ring.receiver.receive(ring.arrival)
    for at in (0, 4096):
        store64(ring.arrival.payload_address + at, 0xFFFF_FFFF_FFFF_FFFF)
    assert bytes(ring.arrival.buffer[:8192]) == data


@pytest.mark.parametrize(("stride", "has_icrc"), [(4096, True), (1020, False)])
def test_what_has_icrcs_or_short_segments_is_taken_out_whole(ring, stride, has_icrc):
    data = bytes(range(256)) * 16
    assert ring.send(data, stride, has_icrc=has_icrc)
    assert ring.receiver.receive(ring.arrival)
    assert ring.arrival.payload_address == ring.arrival.address
    assert bytes(ring.arrival.buffer[:4096]) == data


def test_the_room_of_a_burst_is_the_senders_when_it_is_done(ring):
    for number in range(3):
        assert ring.send(bytes([number]) * 5000, has_icrc=False)
    assert ring.sender.producer.count() == 6
    assert ring.receiver.receive(ring.arrival)
    assert ring.sender.producer.count() == 6
    ring.receiver.done()
    ring.receiver.done()
    assert ring.sender.producer.count() == 4
    assert ring.receive() == bytes([1]) * 5000


def test_a_burst_that_runs_over_the_end_of_the_ring_is_taken_out_whole(ring):
    whole = 0
    for number in range(20):
        data = bytes([number]) * 60_000
        assert ring.send(data, 4000, has_icrc=False)
        assert ring.receiver.receive(ring.arrival)
        whole += ring.arrival.payload_address == ring.arrival.address
        assert bytes_at(ring.arrival.payload_address, 60_000) == data
        ring.receiver.done()
    assert whole == 20 * 60_016 // RING_STORE_BYTES


def test_a_full_ring_takes_nothing_and_loses_nothing(ring):
    sent = 0
    while ring.send(sent.to_bytes(4, "little") * 15_000):
        sent += 1
    assert sent == RING_STORE_BYTES // 60_016
    taken = [ring.receive()[:4] for _ in range(sent)]
    assert taken == [number.to_bytes(4, "little") for number in range(sent)]
    assert ring.receive() is None
    assert ring.send(b"again")
    assert ring.receive() == b"again"


def test_what_says_what_a_burst_is_needs_its_bytes_too(ring):
    sent, left = divmod(RING_STORE_BYTES, 60_016)
    for _ in range(sent):
        assert ring.send(bytes(60_000))
    assert not ring.send(bytes(left))
    assert not ring.send(bytes(left - 15))
    assert ring.send(bytes(left - 16))
    assert [len(ring.receive()) for _ in range(sent + 1)] == [*sent * [60_000], left - 16]


def test_a_full_ring_of_which_a_burst_was_given_up_keeps_nobody_waiting_until_there_is_room(ring):
    while ring.send(bytes(60_000)):
        pass
    assert ring.sender.send(ring.burst) == AGAIN
    ring.sender.abandon(ring.burst)
    assert ring.sender.send(ring.burst) == -errno.ENOBUFS
    ring.receive()
    assert ring.send(bytes(60_000))
    assert ring.sender.send(ring.burst) == AGAIN, "it has moved since"


def test_a_burst_and_what_says_what_it_is_go_together_or_not_at_all(ring):
    """A reader that gives back one reference of a burst's two makes no room for another one."""
    sent = 0
    while ring.send(b"1234"):
        sent += 1
    assert 2 * sent == RING_ENTRIES
    consumer = ring.receiver.consumer
    consumer.count()
    consumer.taken = 1
    consumer.release(1)
    assert ring.sender.send(ring.burst) == AGAIN
    assert ring.sender.producer.count() == RING_ENTRIES - 1


def test_a_closed_ring_says_so(ring):
    store64(ring.address + RING_CLOSED, 1)
    ring.send(b"x")
    assert ring.sender.send(ring.burst) == -errno.EPIPE


def test_who_is_to_look_at_its_memory_is_woken_or_does_not_sleep(ring):
    path = ring.path()
    assert ring.receiver.arm_wakeup()
    path.wake_peer()
    assert (ring.woken, load64(ring.address + ASLEEP)) == (1, 0)
    for _ in range(2):  # until somebody has taken it
        assert not ring.receiver.arm_wakeup()
        ring.receiver.disarm_wakeup()
    path.wake_peer()
    assert ring.woken == 1
    assert ring.receiver.take_wake_request()
    assert not ring.receiver.take_wake_request()
    assert ring.receiver.arm_wakeup()
    path.close()
    path.wake_peer()
    assert ring.woken == 1
    assert not ring.receiver.take_wake_request()


def test_any_word_of_the_peer_is_one_wake_request(ring):
    for word in (1, 2, 1 << 63):
        store64(ring.address + WAKE_REQUEST, word)
        assert ring.receiver.take_wake_request()
        assert not ring.receiver.take_wake_request()
        assert load64(ring.address + WAKE_REQUEST) == 0


def test_who_sleeps_is_woken_once_and_who_is_awake_is_not(ring):
    assert ring.send(b"awake")
    assert ring.receive() == b"awake"
    assert ring.receiver.arm_wakeup()
    assert load64(ring.address + ASLEEP) == 1
    assert ring.send(b"1")
    assert ring.send(b"2")
    assert ring.woken == 1
    assert not ring.receiver.arm_wakeup()
    ring.receiver.disarm_wakeup()
    assert load64(ring.address + ASLEEP) == 0
    assert ring.receive() + ring.receive() == b"12"


def test_a_description_without_its_burst_is_waited_for(ring):
    producer = RingProducer(layout_at(ring.address))
    words = memoryview(bytearray((5 | 5 << 32).to_bytes(8, "little") + (ROCE_V4 << 24).to_bytes(8, "little")))
    producer.push(address_of(words), 16)
    assert ring.receive() is None
    assert not ring.receiver.broken
    body = bytearray(b"hello")
    producer.push(address_of(body), 5)
    assert ring.receive() == b"hello"


@pytest.mark.parametrize(("length", "stride", "framing", "body"), [
    (6, 5, ROCE_V4, 5), (4, 4, ROCE_V4, 5), (5, 0, ROCE_V4, 5), (5, 6, ROCE_V4, 5), (5, 5, NATIVE, 5),
    (5, 5, 3, 5), (70_000, 5, ROCE_V4, 70_000),
])  # fmt: skip
def test_a_description_that_cannot_be_ends_the_ring(ring, length, stride, framing, body):
    producer = RingProducer(layout_at(ring.address))
    words = bytearray((length | stride << 32).to_bytes(8, "little") + (framing << 24).to_bytes(8, "little"))
    producer.push(address_of(words), 16)
    payload = bytearray(body)
    producer.push(address_of(payload), body)
    assert ring.receive() is None
    assert ring.receiver.broken
    assert ring.receiver.arm_wakeup()  # nothing keeps its owner from sleeping
    producer.push(address_of(words), 16)
    assert (ring.receiver.waiting(), ring.receiver.arm_wakeup()) == (False, True)


def test_a_description_of_another_length_ends_the_ring(ring):
    producer = RingProducer(layout_at(ring.address))
    half = bytearray(15)
    producer.push(address_of(half), 15)
    assert ring.receive() is None
    assert ring.receiver.broken


def test_a_head_that_jumps_ends_the_ring_and_no_burst_counts_as_sent(ring):
    store64(ring.address + READER_HEADER_BYTES + RING_HEAD_AT, 1 << 40)
    assert not ring.send(b"lost")
    assert ring.sender.send(ring.burst) == -errno.EPIPE
    assert (load64(ring.address + RING_CLOSED), ring.sender.bursts) == (1, 0)


def test_a_tail_that_jumps_ends_the_ring(ring):
    store64(ring.address + READER_HEADER_BYTES, 1 << 40)
    assert ring.receive() is None
    assert ring.receiver.broken


@pytest.fixture
def two(loopback_address):
    """What two adapters with a port each share, without adapters; the first asks for the second's memory."""
    gids = [V4_MAPPED_PREFIX + bytes(map(int, loopback_address().split("."))) for _ in range(2)]
    made = [SameHost() for _ in gids]
    for each, gid in zip(made, gids, strict=True):
        each.add_address(1, gid)
    yield made
    for each in made:
        each.close()


def flag(owner):
    (reader,) = owner.sharing.directory.readers
    return load64(reader.address + ASLEEP)


def meet(asker, owner):
    path = asker.path_to(1, asker.ports[1].first.gid, owner.ports[1].first.gid)
    for _ in range(4):
        owner.poll()
        asker.poll()
    assert path.alive


@pytest.mark.skipif(bool(unsupported()), reason="no same-host paths here")
def test_while_anybody_sleeps_peers_wake(two):
    asker, owner = two
    meet(asker, owner)
    assert flag(owner) == 0
    assert owner.arm_wakeup()
    assert owner.arm_wakeup()
    owner.disarm_wakeup()
    assert flag(owner) == 1
    owner.disarm_wakeup()
    assert flag(owner) == 0


@pytest.mark.skipif(bool(unsupported()), reason="no same-host paths here")
def test_a_peer_that_comes_while_one_sleeps_wakes_it(two):
    asker, owner = two
    assert owner.arm_wakeup()
    meet(asker, owner)
    assert flag(owner) == 1


@pytest.mark.skipif(bool(unsupported()), reason="no same-host paths here")
def test_who_is_about_to_sleep_sees_what_has_come(two):
    asker, owner = two
    meet(asker, owner)
    burst = Burst()
    burst.length = burst.stride = 20
    burst.route = Route(ROCE_V4, asker.ports[1].first.gid, owner.ports[1].first.gid)
    assert asker.ports[1].first.senders[owner.ports[1].first.gid].send(burst)
    assert not owner.arm_wakeup()
    assert flag(owner) == 0
    assert owner.receivers[0].receive(Arrival())
    assert owner.arm_wakeup()


@pytest.mark.skipif(bool(unsupported()), reason="no same-host paths here")
def test_a_wakeup_that_another_thread_has_taken_leaves_the_sleeper_to_be_woken_again(two):
    asker, owner = two
    meet(asker, owner)
    burst = Burst()
    burst.length = burst.stride = 20
    burst.route = Route(ROCE_V4, asker.ports[1].first.gid, owner.ports[1].first.gid)
    assert owner.arm_wakeup()
    assert asker.ports[1].first.senders[owner.ports[1].first.gid].send(burst)
    assert flag(owner) == 0
    owner.poll()  # of a thread that is awake, and has not taken what came
    assert flag(owner) == 1
    assert owner.poll()  # the wakeup still stands
    assert owner.receivers[0].receive(Arrival())
    assert owner.poll()
    assert not owner.poll()
    assert flag(owner) == 1


@pytest.mark.skipif(bool(unsupported()), reason="no same-host paths here")
def test_packets_change_over_when_nothing_is_under_way_or_after_a_while(two):
    asker, owner = two
    under_way = [1]
    asker.ports[1].in_flight = lambda gid: under_way[0]
    asker.path_to(1, asker.ports[1].first.gid, owner.ports[1].first.gid)
    for _ in range(4):
        owner.poll()
        asker.poll()
    assert not asker.ports[1].first.senders
    for _ in range(100):
        asker.poll()
    assert asker.ports[1].first.senders


@pytest.mark.skipif(bool(unsupported()), reason="no same-host paths here")
def test_when_a_peer_ends_its_ring_carries_nothing(two):
    asker, owner = two
    meet(asker, owner)
    assert asker.ports[1].first.senders
    owner.close()
    asker.poll()
    assert not asker.ports[1].first.senders
    assert not asker.ports[1].first._outbound


@pytest.mark.skipif(bool(unsupported()), reason="no same-host paths here")
def test_nothing_is_taken_from_an_inbound_peer_that_has_ended(two):
    asker, owner = two
    meet(asker, owner)
    assert owner.receivers
    asker.close()
    owner.poll()
    assert not owner.receivers
    assert not owner.sharing.directory.readers


@pytest.mark.skipif(bool(unsupported()), reason="no same-host paths here")
def test_a_poll_in_vain_keeps_the_interpreter_lock(two):
    """Else a thread that polls starves the one that serves its peer (see `softhca.machine.processor`)."""
    asker, owner = two
    meet(asker, owner)
    while asker.poll():
        pass
    assert not lets_others_run(asker.poll)


def test_who_finds_what_cannot_be_tells_the_sender(ring):
    """Else it goes on to fill a ring that nobody reads."""
    zeros = bytearray(8)
    ring.sender.producer.push(address_of(zeros), 8)
    assert ring.receive() is None
    assert load64(ring.address + RING_CLOSED) == 1
    assert not ring.send(b"1234")
    assert ring.sender.send(ring.burst) == -errno.EPIPE


def test_what_wakes_a_peer_is_in_the_ring_before():
    seen = []

    class Waking(Ring):
        def wake(self):
            seen.append(self.receive())

    ring = Waking()
    assert ring.receiver.arm_wakeup()
    assert ring.send(b"1234")
    assert seen == [b"1234"]
