"""Random programs for the assembled adapter against the functional model: a few of them, and what they found.

``make hardware-programs`` runs as many as fit into five minutes on compiled gates.
"""

import os
import shutil

import pytest

pytest.importorskip("amaranth")

from functional_adapter import READ, SEND, WRITE
from random_messages import MEMORY, MTU, PKEY, VIS, Differs, Program

from machine_speed import limit_s
from softhca.hardware import fast_bench, message_host
from softhca.hardware.assembler import assemble
from softhca.hardware.microcode_files import microcode_program, microcode_source
from softhca.hardware.simulated_bench import SimulatedBench

pytestmark = pytest.mark.timeout(limit_s(600))
SEEDS = tuple(range(1, 1 + int(os.environ.get("SOFTHCA_RANDOM_PROGRAMS", "1"))))
SUCCESS, NOT_READ = 0, 4
QP = 1


@pytest.mark.parametrize("seed", SEEDS)
def test_the_gates_do_what_the_model_does(seed):
    bench = SimulatedBench(VIS, MEMORY)
    program = Program(bench, seed)
    bench.run(program.script)
    assert program.done >= 2


class Told(Program):
    """Actions one by one, each compared; ``outcomes``: packets' opcodes and completions after each."""

    def __init__(self, bench):
        super().__init__(bench, 1)
        self.outcomes = []

    async def script(self, context):
        await self.prepare(context)
        for action in self.actions():
            self.model.packets, self.model.completions, self.model.events = [], [], []
            self.told = "told"
            await action(context)
            await self.compare(context)
            self.outcomes.append(([data[8] for data in self.model.packets], list(self.model.completions)))

    def descriptor(self, queue, opcode, work, pieces):
        async def posted(context):
            words = [opcode, work, 0, 5, 0x1000, 0, *(0,) * 10]
            for va, key, length in pieces:
                words += [va & 0xFFFFFFFF, va >> 32, key, length]
            await self.post_words(context, QP, queue, [*words, *(0,) * (32 - len(words))])

        return posted

    def arrives(self, opcode, psn, extension=(), payload=b"", ack=True):
        async def arrived(context):
            self.send(self.bth(opcode, QP, psn(), len(payload), ack) + list(extension), payload)

        return arrived

    def twice(self, opcode, psn, extension, payload):
        """One packet right behind itself."""

        async def arrived(context):
            words = [*self.bth(opcode, QP, psn(), len(payload), False), *extension]
            self.send(words, payload)
            self.send(words, payload)

        return arrived

    def closed_read(self):
        region, closed = self.regions[0], self.regions[3]
        yield self.descriptor(0, READ, 24, [(closed.va, closed.key, 20), (region.va, region.key, 5000)])
        yield self.arrives(13, lambda: self.model.queues[QP].first, [0x1F000001], bytes(MTU))

    def bth(self, opcode, qp, psn, length, ack):
        return [opcode << 24 | 0x40 << 16 | (-length % 4) << 20 | PKEY, qp, ack << 31 | psn & 0xFFFFFF]


class Mended(Told):
    """What random programs found: acknowledgements without credits; a READ that is acknowledged, whose data
    do not come, so that it goes again; syndromes that nobody may send; the PSNs of a READ of 20 packets;
    2 GiB, which are no message; an answer that comes twice while its READ ends and another message is under
    way; a receive and a READ whose memory may not be written."""

    def actions(self):
        region, short = self.regions[0], self.regions[2]
        one = self.model.queues[QP]
        piece = (region.va + 9, region.key, 40)
        yield self.descriptor(0, WRITE, 21, [piece])
        yield self.arrives(17, lambda: one.last, [0x1F000001])
        yield self.descriptor(0, READ, 22, [piece])
        for syndrome in (0x1F, 0x7F, 0x40):
            yield self.arrives(17, lambda: one.last, [syndrome << 24 | 1])
        yield self.arrives(16, lambda: one.last, [0x1F000002], bytes(range(40)))
        yield self.descriptor(0, SEND, 23, [(region.va, region.key, 0xFFFFFFFF), (region.va, region.key, 2)])
        yield self.descriptor(0, READ, 25, [piece])
        yield self.descriptor(0, SEND, 26, [(region.va + 3000, region.key, 40)])
        yield self.twice(16, lambda: one.first, [0x1F000002], bytes(range(100, 140)))
        yield self.arrives(17, lambda: one.last, [0x1F000003])
        yield from self.closed_read()
        yield self.descriptor(1, 0, 32, [(short.va + 60, short.key, 64)])
        yield self.arrives(4, lambda: one.expected, [], bytes(63))


class ClosedRead(Told):
    """Of these, the READ whose memory may not be written."""

    def actions(self):
        return self.closed_read()


@pytest.fixture
def bench():
    return SimulatedBench(VIS, MEMORY)


def test_what_random_programs_have_found(bench):
    program = Mended(bench)
    bench.run(program.script)
    assert program.outcomes == [
        ([10], []), ([], [(QP, 21, SUCCESS, 0)]),
        ([12], []), ([12], []), ([], []), ([], []), ([], [(QP, 22, SUCCESS, 0)]),
        ([], [(QP, 23, NOT_READ, 0)]),
        ([12], []), ([4], []), ([], [(QP, 25, SUCCESS, 0)]), ([], [(QP, 26, SUCCESS, 0)]),
        ([12], []), ([], [(QP, 24, NOT_READ, 0)]),
        ([], []), ([17], [(QP, 32, NOT_READ, 0)]),
    ]  # fmt: skip
    one = program.model.queues[QP]
    assert (one.psn - one.first) % (1 << 24) == 20


def test_microcode_that_forgets_it_is_found_out(bench, monkeypatch):
    source = microcode_source("receive")
    spoilt = source.replace("move.keep want, 0 ", "move      want, 0 ")
    assert spoilt != source

    def program(name, sizes=None):
        return assemble(spoilt, sizes) if name == "receive" else microcode_program(name, sizes)

    monkeypatch.setattr(message_host, "microcode_program", program)
    with pytest.raises(Differs, match="completions"):
        bench.run(ClosedRead(bench).script)


def test_without_a_compiler_no_fast_gates(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError):
        fast_bench.build(tmp_path)
