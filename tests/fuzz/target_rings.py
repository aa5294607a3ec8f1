"""Every shared ring while the other side writes what it likes into control words, references and bodies.

The pages of a ring lie apart, with guard pages between them; nothing but its own pages may change, no more is
taken than fits, and a broken ring stays broken.  Input: which ring, then steps of either side.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

from fuzz_choices import Choices

from softhca.machine.primitives import address_of, copy, fill, load64, store64
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.host import HostMemory
from softhca.queues import control
from softhca.queues.completion import CompletionQueue, CompletionReader
from softhca.queues.control_fields import COMMANDS
from softhca.queues.cqe import CQE_BYTES
from softhca.queues.doorbells import DoorbellFifo
from softhca.queues.doorbells import plan as doorbell_pages
from softhca.queues.ring import RingConsumer, RingLayout, RingProducer, plan
from softhca.queues.shared_receive import SharedReceiveQueue
from softhca.queues.wqe import ReceiveWork, receive_bytes

HOST = HostMemory(64 << 20)
GUARD = 0xA5
STEPS = 48
SHAPES = ((1, 48), (4, 200), (7, 4100), (600, 9000))
SCRATCH_BYTES = 256
SCRATCH = bytearray(SCRATCH_BYTES + 64)


class Pages:
    """Pages for one ring, every second one a guard."""

    def __init__(self, pages: int) -> None:
        frames = HOST.allocate(2 * pages + 1, contiguous=True)
        self.frames = frames[1::2]
        self.guards = [HOST.address_map.address(frame) for frame in frames[0::2]]
        self.own = [HOST.address_map.address(frame) for frame in self.frames]
        for address in self.guards:
            fill(address, GUARD, PAGE_BYTES)
        self._page = bytearray(PAGE_BYTES)
        self._right = bytes([GUARD]) * PAGE_BYTES

    def check(self) -> None:
        """The guards are as they were."""
        for address in self.guards:
            copy(address_of(self._page), address, PAGE_BYTES)
            assert self._page == self._right, "a guard page changed"


RING_PAGES = [Pages(plan(*shape)) for shape in SHAPES]
LAYOUTS = [
    RingLayout.over(pages.frames, HOST.address_map, *shape)
    for pages, shape in zip(RING_PAGES, SHAPES, strict=True)
]
CQ_ENTRIES = (2, 100)
CQ_PAGES = [Pages(plan(n, n * CQE_BYTES)) for n in CQ_ENTRIES]
CQ_LAYOUTS = [
    RingLayout.over(pages.frames, HOST.address_map, n, n * CQE_BYTES)
    for pages, n in zip(CQ_PAGES, CQ_ENTRIES, strict=True)
]
DOORBELL_SLOTS = 8
DOORBELL_PAGES = Pages(doorbell_pages(DOORBELL_SLOTS))
CONTROL_FRAMES = HOST.allocate(control.ControlRings.PAGES)


def word(choices: Choices, near: int) -> int:
    """A counter of the other side: often one that could be."""
    kind = choices.below(4)
    if kind < 2:
        return (near + choices.byte()) & (1 << 64) - 1
    if kind == 2:
        return (near - choices.byte()) & (1 << 64) - 1
    return choices.number(8)


def one_input(data: bytes) -> None:
    choices = Choices(data)
    kind = choices.below(6)
    (ring, ring, doorbells, completions, shared_receive, control_rings)[kind](choices)


def ring(choices: Choices) -> None:
    """A producer and a consumer, and a hostile hand in between."""
    which = choices.below(len(SHAPES))
    layout, pages, (entries, _) = LAYOUTS[which], RING_PAGES[which], SHAPES[which]
    layout.clear()
    producer, consumer = RingProducer(layout), RingConsumer(layout)
    SCRATCH[SCRATCH_BYTES:] = bytes([GUARD]) * 64
    address = address_of(SCRATCH)
    for _ in range(STEPS):
        if not choices.more:
            break
        step = choices.below(8)
        if step < 2:
            was_broken = producer.broken
            done = producer.push(address, choices.byte())
            assert not (was_broken and done)
        elif step < 4:
            taken(consumer, address, choices.byte())
        elif step == 4:
            count = choices.byte() & 7
            held = (consumer.taken - consumer.released) & (1 << 64) - 1
            assert consumer.release(count) == (count <= held <= entries)
        else:
            scribble(choices, layout, step - 5, producer, consumer)
        assert 0 <= producer.space() <= entries or producer.broken
        assert -1 <= consumer.count() <= entries
    producer.unreleased()
    assert SCRATCH[SCRATCH_BYTES:] == bytes([GUARD]) * 64
    pages.check()


def taken(consumer: RingConsumer, address: int, capacity: int) -> None:
    """Never more than fits; a broken ring gives nothing."""
    was_broken = consumer.broken
    n = consumer.take(address, capacity)
    assert -1 <= n <= capacity
    assert n != -1 or consumer.broken
    assert not was_broken or n == -1


def scribble(
    choices: Choices, layout: RingLayout, where: int, producer: RingProducer, consumer: RingConsumer
) -> None:
    """The hostile side writes a tail, a head or a reference."""
    if where == 0:
        store64(layout.control, word(choices, consumer.seen))
    elif where == 1:
        store64(layout.control + 64, word(choices, producer.head))
    else:
        index = choices.byte() % layout.entries
        length = choices.byte() if choices.byte() & 7 else choices.number(4)
        offset = choices.byte() % layout.body_bytes if choices.byte() & 7 else choices.number(4)
        store64(layout.reference(index), length << 32 | offset)


def doorbells(choices: Choices) -> None:
    """Slots are slots of the queue, and as many calls as places empty it."""
    for address in DOORBELL_PAGES.own:
        fill(address, 0, PAGE_BYTES)
    fifo = DoorbellFifo(DOORBELL_SLOTS, DOORBELL_PAGES.own)
    for _ in range(STEPS):
        if not choices.more:
            break
        step = choices.below(6)
        if step < 2:
            fifo.ring(choices.byte() % 10)
        elif step < 4:
            assert -1 <= fifo.next() < DOORBELL_SLOTS
        elif step == 4:
            store64(fifo.control, word(choices, fifo.head))
        else:
            place = DOORBELL_PAGES.own[1 + (choices.byte() & 1)] + 8 * (choices.byte() % DOORBELL_SLOTS)
            store64(place, word(choices, 0))
    for _ in range(2 * DOORBELL_SLOTS):
        fifo.next()
    assert load64(fifo.control + 64) == fifo.head
    DOORBELL_PAGES.check()


class Hook:
    """What completion queues and shared receive queues tell."""

    def __init__(self) -> None:
        self.overflows = self.errors = self.limits = self.events = 0

    def completion_event(self, cq: CompletionQueue) -> None:
        """Counted."""
        self.events += 1

    def overflow(self, cq: CompletionQueue) -> None:
        """Counted."""
        self.overflows += 1

    def limit_reached(self, srq: SharedReceiveQueue) -> None:
        """Counted."""
        self.limits += 1

    def srq_error(self, srq: SharedReceiveQueue) -> None:
        """Counted."""
        self.errors += 1


def completions(choices: Choices) -> None:
    """Either side of a completion queue, its arm word, and a resize."""
    which = choices.byte() & 1
    layouts = CQ_LAYOUTS
    layout = layouts[which]
    for each in layouts:
        each.clear()
    hook = Hook()
    cq, reader = CompletionQueue(1, layout, hook), CompletionReader(layout)
    for _ in range(STEPS):
        if not choices.more:
            break
        step = choices.below(6)
        if step == 0:
            cq.post(
                choices.byte(),
                choices.byte() & 1,
                0,
                0,
                1,
                2,
                3,
                4,
                5,
                6,
                7,
                8,
                9,
                10,
                bool(choices.byte() & 1),
            )
        elif step == 1:
            poll(reader, choices.byte() & 3)
        elif step == 2:
            store64(layout.control + choices.pick((0, 64, 128)), word(choices, cq.producer.head))
        elif step == 3:
            reader.arm(bool(choices.byte() & 1))
        elif step == 4:
            scribble(choices, layout, 2, cq.producer, reader.consumer)
        else:
            move(cq, reader, layouts[choices.byte() & 1], layout)
            layout = cq.producer.layout
    assert hook.overflows <= 1
    assert hook.events <= STEPS
    for pages in CQ_PAGES:
        pages.check()


def poll(reader: CompletionReader, limit: int) -> None:
    """No more than asked, or EIO."""
    try:
        assert len(reader.poll(limit)) <= limit
    except OSError as error:
        assert error.errno == errno.EIO


def move(cq: CompletionQueue, reader: CompletionReader, target: RingLayout, present: RingLayout) -> None:
    """A resize is done, or refused with nothing changed."""
    if target is present:
        return
    try:
        cq.move_to(target)
    except OSError as error:
        assert error.errno in (errno.EINVAL, errno.EIO)
        assert cq.producer.layout is present
        return
    reader.move_to(target)


def shared_receive(choices: Choices) -> None:
    """A shared receive queue over a ring that the host breaks."""
    which = 1 + choices.below(len(SHAPES) - 1)
    layout = LAYOUTS[which]
    layout.clear()
    hook = Hook()
    srq = SharedReceiveQueue(1, 1, layout, 2, hook)
    producer, work = RingProducer(layout), ReceiveWork(2)
    for _ in range(STEPS):
        if not choices.more:
            break
        step = choices.below(5)
        if step == 0:
            entry = bytearray(choices.take(receive_bytes(2)))
            producer.push(address_of(entry) if entry else 0, len(entry))
        elif step == 1:
            srq.take(work)
        elif step == 2:
            srq.set_limit(choices.byte())
        else:
            scribble(choices, layout, 2 * (step - 3), producer, srq.consumer)
        assert 0 <= srq.count() <= layout.entries
    assert hook.errors <= 1
    RING_PAGES[which].check()


def control_rings(choices: Choices) -> None:
    """Commands, replies and events of a host that writes anything into its rings."""
    for start, _ in control_starts():
        store64(HOST.address_map.address(CONTROL_FRAMES[start]), 0)
        store64(HOST.address_map.address(CONTROL_FRAMES[start]) + 64, 0)
    host = control.ControlRings(CONTROL_FRAMES, HOST.address_map)
    adapter = control.ControlRings(CONTROL_FRAMES, HOST.address_map)
    raw = RingProducer(adapter.commands.consumer.layout)
    for _ in range(STEPS):
        if not choices.more:
            break
        step = choices.below(7)
        if step == 0:
            message = choices.run() or b"\0"
            raw.push(address_of(message, writable=False), len(message))
        elif step == 1:
            command = adapter.commands.take()
            assert command is None or command.errno or command.command in COMMANDS
        elif step == 2:
            if adapter.replies.room():
                adapter.replies.send(choices.byte(), 7, choices.byte() & 1, {})
        elif step == 3:
            adapter.events.post(choices.byte() & 3, choices.byte() & 3)
            assert adapter.events.waiting() <= 16
        elif step == 4:
            received(choices.pick((host.replies, host.events)))
        elif step == 5:
            start, _ = choices.pick(control_starts())
            at = HOST.address_map.address(CONTROL_FRAMES[start]) + 64 * (choices.byte() & 1)
            store64(at, word(choices, 0))
        else:
            adapter.events.flush()
        assert isinstance(adapter.commands.count(), int)


def control_starts() -> list[tuple[int, int]]:
    """First page and pages of each control ring."""
    starts, at = [], 0
    for entries, body_bytes in control.ControlRings.SIZES:
        pages = plan(entries, body_bytes)
        starts.append((at, pages))
        at += pages
    return starts


def received(side: control.ReplyRing | control.EventRing) -> None:
    """The host's side: a message, none, or EINVAL."""
    take: Callable[[], object] = side.take
    try:
        take()
    except OSError as error:
        assert error.errno == errno.EINVAL


def seeds() -> Iterator[bytes]:
    """A few steps of every kind for every ring."""
    for kind in range(6):
        for which in range(4):
            yield bytes([kind, which]) + bytes((i * 7 + which) & 0xFF for i in range(120))
            yield bytes([kind, which]) + bytes([0, 40, 0, 50, 2, 60, 2, 60, 4, 2]) * 6
