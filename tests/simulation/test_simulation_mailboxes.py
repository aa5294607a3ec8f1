"""Worlds of mailboxes: nothing torn is taken, everything arrives, a hash that proves nothing is found out."""

import json
import random

import pytest

from softhca.links.faults import Faults
from softhca.mailbox.blocks import TAKEN, TORN
from softhca.mailbox.hashes import Digest
from softhca.mailbox.terms import Terms
from softhca.simulation.mailbox_setting import connect_ends
from softhca.simulation.mailboxes import READ_OPCODE, Plan, Reader, Writer
from softhca.simulation.runner import run_world
from softhca.simulation.trace import Trace
from softhca.simulation.world import World

MICROSECOND_NS = 1_000
BLOCK_BYTES = 32


def directions_of(seed, faults=""):
    """What each reader says at the end."""
    lines = []
    outcome = run_world("torn-writes", seed, faults, Trace(lines.append))
    return outcome, [line for line in map(json.loads, lines) if line["event"] == "mailbox"]


def test_every_message_arrives_and_many_looks_meet_torn_blocks():
    modes, torn = set(), 0
    for seed in range(1, 6):
        outcome, directions = directions_of(seed)
        assert outcome.violations == ()
        assert [direction["received"] for direction in directions] == [15, 15]
        modes |= {direction["mode"] for direction in directions}
        torn += sum(direction["torn"] for direction in directions)
    assert modes == {"read", "write"}
    assert torn > 100


@pytest.mark.parametrize("faults", [
    "loss=40%", "corrupt=5%,truncate=2%,duplicate=10%,reorder=10%", "partition=1>2@1ms..9ms",
    "partition=2>1@1.02ms..", "crash=2@1.05ms..3ms", "crash=1@1.1ms..", "stall=200us/100us",
])  # fmt: skip
def test_worse_networks_break_no_rule(faults):
    for seed in (1, 3, 8):
        assert directions_of(seed, faults)[0].violations == ()


def test_a_hash_that_proves_nothing_is_found_out(monkeypatch):
    monkeypatch.setattr(Terms, "digest", lambda *_: Digest(lambda *_: bytes(32), None))
    rules = {found.rule for seed in range(1, 6) for found in directions_of(seed)[0].violations}
    assert "messages are whole, in order, and come once" in rules


def test_a_reader_that_gives_no_credit_is_found_out(monkeypatch):
    monkeypatch.setattr(Reader, "_give_credit", lambda self: self.inbox.seal_credit())
    rules = {found.rule for seed in range(1, 4) for found in directions_of(seed)[0].violations}
    assert rules == {"every message arrives"}


class PublishedAsTold(Writer):
    """Publishes its first messages at once; the parts of the third by `publish`."""

    def _carry(self, offset, length):
        if self.sent < 3:
            self._publish(offset, length)

    def publish(self, start, end):
        self._publish(start, end - start)


class FetchedInTwo(Reader):
    """Fetches block 204 of the third message first, and the rest 50 µs later."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.snapshots = []

    def read(self, offset):
        self.reading = True
        block = slice(16, 16 + BLOCK_BYTES)
        rest = [(0, block.start), (block.stop, self.plan.terms.slot_bytes)]
        if len(self.received) < 2 or self.snapshots:
            rest, block = [(0, self.plan.terms.slot_bytes)], None
        self._pieces = len(rest) + (block is not None)
        if block is not None:
            self.fetch(offset, block.start, block.stop)
            self.later(50 * MICROSECOND_NS, lambda: [self.fetch(offset, *span) for span in rest])
            self.snapshots.append(None)
        else:
            self.later(0, lambda: [self.fetch(offset, *span) for span in rest])

    def fetch(self, offset, start, end):
        source = self.writer.ring
        element = (self.ring.va + start, end - start, self.ring.lkey)
        self.post(READ_OPCODE, 0, (source.va + offset + start, source.rkey), [element])

    def fetched(self):
        super().fetched()
        if not self.reading and self.snapshots == [None]:
            self.snapshots = [bytes(self.ring.view)]


def three(*values):
    """Three blocks of memory, each of one value (204, 206 and 208 in the source's figure 2)."""
    return b"".join(bytes([value]) * BLOCK_BYTES for value in values)


def test_memory_that_is_read_while_it_is_updated_as_a_state_that_never_was():
    """Blocks 0,0,0 become 1,0,0 and then 1,2,0; a READ brings 0,2,0.  The hash shows it, the next READ brings
    1,2,0.
    """
    world = World("figure 2", Faults(), Trace())
    nodes = [world.add(number) for number in (1, 2)]
    terms = Terms(slots=2, slot_bytes=144, algorithm="blake2b", mode="read")
    plan = Plan(terms, bytes(8), bytes(32), (three(0, 0, 0), b"", three(1, 2, 0)))
    dice = random.Random(2)
    writer, reader = (
        kind(node, node.device.alloc_pd(), number, dice, plan)
        for number, (kind, node) in enumerate(zip((PublishedAsTold, FetchedInTwo), nodes, strict=True))
    )
    writer.reader, reader.writer = reader, writer
    connect_ends(world, writer, reader, dice)
    seen = []

    def update(start, end):
        writer.publish(start, end)
        state = bytes(writer.ring.view[16 : 16 + 3 * BLOCK_BYTES])
        seen.append(tuple(state[::BLOCK_BYTES]))

    def begin(_):
        for node in nodes:
            node.turn()

    def begin_update():
        """The first block was read: now the third message replaces the first, block by block."""
        update(16, 16 + BLOCK_BYTES)
        writer.later(MICROSECOND_NS, lambda: update(16 + BLOCK_BYTES, 16 + 3 * BLOCK_BYTES))
        writer.later(2 * MICROSECOND_NS, lambda: (update(0, 16), update(16 + 3 * BLOCK_BYTES, 144)))

    real = reader.fetch

    def fetch(offset, start, end):
        real(offset, start, end)
        if end - start == BLOCK_BYTES:
            reader.later(20 * MICROSECOND_NS, begin_update)

    reader.fetch = fetch
    for end in (writer, reader):
        end.node.tasks.append(end.turn)
    world.at(world.now, begin)
    world.run(10_000, 1_000_000_000)
    assert world.report.violations == []
    read = reader.snapshots[0]
    assert tuple(read[16 : 16 + 3 * BLOCK_BYTES : BLOCK_BYTES]) == (0, 2, 0)
    assert (1, 0, 0) in seen
    assert (0, 2, 0) not in seen
    assert (
        int.from_bytes(read[:8], "little") == 3
    )  # the header is that of the new message: only the hash tells
    assert reader.opener.verdicts[TORN] > 0
    assert reader.opener.verdicts[TAKEN] == 3
    assert reader.received == list(plan.messages)
    world.close()
