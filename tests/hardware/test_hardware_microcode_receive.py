"""receive.asm under hostile packets and descriptors, against rules of its own: what may be written, who is
told.

Some programs run in the tests; ``make hardware-proof`` tries 100,000.
"""

import os
import random

import pytest

pytest.importorskip("amaranth")

from message_blocks import LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, MessageBlocks, Region

from softhca.hardware.context_memory import WORDS
from softhca.hardware.instruction_model import InstructionModel
from softhca.hardware.microcode_files import microcode_program

PROGRAMS = int(os.environ.get("SOFTHCA_MESSAGE_PROGRAMS", "150"))
VIS, MTU, PD, OTHER_PD = 4, 256, 5, 6
PROGRAM = microcode_program("receive", {"VIS": VIS})
LONGEST = 20_000
"""Clocks of a packet, and of a READ that is answered before it."""
IDLE, IS_READ, TURNED, BEGUN = 0, 1 << 31, 1 << 30, 1 << 31
"""Phases of the SQ: for an acknowledgement, for the answers to a READ."""
ACCEPTED, DUPLICATE, GAP, LOCAL = 0, 1, 2, 8
ACK, NAK_GAP, NAK_LOCAL = 0x1F, 0x60, 0x63
BROKEN = 3
"""A state of the RQ."""
HAS_IMMEDIATE, NOT_WRITTEN = 0x80, 4
"""Of a completion's status."""


def regions():
    """Of both domains, with all kinds of rights, one withdrawn; pages do not stand in their order."""
    every = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ
    return [
        Region(0, 0x10_0F80, 1200, (7, 3), PD, every),
        Region(4, 0xFFFF_FFFF_FFFF_F100, 0xF00, (9,), PD, every),
        Region(8, 0x2000, 64, (11,), PD, LOCAL_WRITE),
        Region(12, 0x2000, 64, (12,), PD, REMOTE_READ),
        Region(16, 0x3000, 4096, (13,), OTHER_PD, every),
        Region(20, 0x3000, 4096, (14,), PD, every, valid=False),
    ]


def blocks_of():
    receives = [0x8000 + 0x1000 * qp + 128 * place for qp in range(VIS) for place in range(4)]
    blocks = MessageBlocks(VIS, regions(), receives)
    for qp in range(VIS):
        words = {"RQ_PD": PD, "RQ_PSN": 0xFFFFFE, "RQ_BASE": 0x8000 + 0x1000 * qp, "RQ_MASK": 3, "SQ_PD": PD,
                 "SQ_BASE": 0x20000 + 0x1000 * qp, "SQ_MASK": 3, "SQ_MTU": MTU, "SQ_PKEY": 0xFFFF,
                 "SQ_PEER": 77, "RQ_CQ": qp, "SQ_LINK": 0x20001, "SQ_SOURCE": 9}  # fmt: skip
        for name, value in words.items():
            blocks.context[64 * qp + WORDS[name]] = value
        blocks.keys.set_domain(qp, PD)
    return blocks


def packet(opcode, qp, psn, *, reth=None, aeth=None, immediate=None, payload=b"", ack=True, pkey=0xFFFF):
    """Words as the receive FIFO has them, some word for the ICRC last."""
    pad = -len(payload) % 4
    words = [0x20009, 0x1, opcode << 24 | 0x40 << 16 | pad << 20 | pkey, qp, ack << 31 | psn]
    if reth is not None:
        va, key, length = reth
        words += [va >> 32, va & 0xFFFFFFFF, key, length]
    if aeth is not None:
        words.append(aeth)
    if immediate is not None:
        words.append(immediate)
    data = payload + bytes(pad)
    return [*words, *(int.from_bytes(data[i : i + 4], "big") for i in range(0, len(data), 4)), 0xCCCCCCCC]


def run(blocks, engine):
    """Until nothing is left to do; each packet is over in time."""
    clocks, ends = 0, blocks.ends
    while not blocks.quiet or engine.address != PROGRAM.labels["next"]:
        engine.step()
        clocks = 0 if blocks.ends != ends else clocks + 1
        ends = blocks.ends
        assert clocks < LONGEST, f"the engine hangs at {engine.address}"


class Dice(random.Random):
    """What a hostile peer and a careless host do."""

    def descriptor(self, blocks, queue, qp, place, opcode):
        """Segments that fit, that do not, or none at all."""
        base = (0x8000 if queue else 0x20000) + 0x1000 * qp + 128 * place
        words = [opcode, 1000 + place, 0, 0, 0, 0] + [0] * 10
        for _ in range(self.randrange(5)):
            region = self.choice(list(blocks.regions.values()))
            va = region.va + self.choice((0, 1, 3, 60, region.length - 5, -1, 1 << 40))
            words += [va & 0xFFFFFFFF, va >> 32 & 0xFFFFFFFF, self.choice((region.key, region.key, 24)),
                      self.choice((0, 1, 5, 64, 300, 0xFFFFFFFF))]  # fmt: skip
        words += [0] * (32 - len(words))
        if self.random() < 0.95:  # the host refuses the others
            blocks.rings.update({base + 4 * i: word for i, word in enumerate(words[:32])})

    def packet(self, blocks, qp, psn):
        opcode = self.choice((0, 1, 2, 4, 6, 7, 8, 10, 10, 12, 12, 3, 5, 9, 11, 13, 14, 15, 16, 17, 18, 30))
        region = self.choice(list(blocks.regions.values()))
        reth = aeth = None
        full = MTU if opcode in (0, 1, 6, 7, 13, 14) else self.choice((0, 1, 4, 63, 200, MTU))
        length = self.choice((full, full, full, full + 1, 3, MTU + 4))
        # a packet that is shorter than its headers is marked by the FIFO and never looked at
        immediate = self.getrandbits(32) if opcode in (3, 5, 9, 11) else None
        if opcode in (6, 10, 11, 12):
            va = region.va + self.choice((0, 0, 1, 70, region.length - 3, region.length, -4, 1 << 63))
            asked = self.choice((length, length, 0, 1, 600, 1 << 31, 0xFFFFFFFF))
            if opcode == 12:
                asked = min(asked, 2000)
            reth = va & (1 << 64) - 1, self.choice((region.key, region.key, 24, 0xFFFFFFFF)), asked
        if opcode in (13, 15, 16, 17):
            aeth = self.choice((0, 0x1F, 0x20, 0x60, 0x61, 0x7F)) << 24
        payload = b"" if opcode in (12, 17) else self.randbytes(length)
        psn = psn + self.choice((0, 0, 0, 0, 0, 0, -1, 1, 1 << 23)) & 0xFFFFFF
        pkey = self.choice((0xFFFF,) * 9 + (0x7FFF, 1))
        return packet(
            opcode, qp, psn, reth=reth, aeth=aeth, immediate=immediate, payload=payload,
            ack=self.random() < 0.7, pkey=pkey,
        )  # fmt: skip


def rules(blocks, engine, seed):
    """One program: packets, receives and READs of our own on all queue pairs."""
    dice = Dice(seed)
    for qp in range(VIS):
        blocks.counts[qp] = dice.randrange(4)
        for place in range(4):
            dice.descriptor(blocks, 1, qp, place, 0)
            dice.descriptor(blocks, 0, qp, place, dice.choice((1, 4, 4)))
        waits = {"SQ_HEAD": dice.randrange(8), "SQ_PHASE": dice.choice((IDLE, IDLE, IDLE, BROKEN))}
        psn = dice.choice((3, 0xFFFFFC))
        for place in range(4):
            is_read = dice.random() < 0.6
            psn = psn + (3 if is_read else 1) & 0xFFFFFF
            waits[f"SQ_LAST_{place}"] = psn - 1 & 0xFFFFFF | (IS_READ | dice.choice((0, TURNED))) * is_read
            waits[f"SQ_LENGTH_{place}"] = dice.choice((600, 600, 1 << 31, 0))
        blocks.context.update({64 * qp + WORDS[name]: value for name, value in waits.items()})
    for _ in range(dice.randrange(1, 12)):
        qp = dice.choice((0, 0, 1, 2, 3, 3, VIS))
        psn = blocks.context.get(64 * qp + WORDS["RQ_PSN"], 0)
        before, sent = dict(blocks.context), len(blocks.sent)
        blocks.arrive(dice.packet(blocks, qp, psn))
        run(blocks, engine)
        check(blocks, engine, before, blocks.sent[sent:], qp)


def check(blocks, engine, before, sent, qp):
    """What a packet may change: its own queue pair's half of a context; who was refused is told once."""
    changed = {at for at, word in blocks.context.items() if before.get(at, 0) != word}
    assert all(at // 64 == qp and at % 64 >= 32 for at in changed)
    syndromes = [words[5] >> 24 for words in sent if words[2] >> 24 == 17]
    assert len(syndromes) <= 1 + any(words[2] >> 24 in (13, 14, 15, 16) for words in sent)
    state, psn = (64 * qp + WORDS[name] for name in ("RQ_STATE", "RQ_PSN"))
    moved = (blocks.context.get(psn, 0) - before.get(psn, 0)) & 0xFFFFFF
    if engine.registers[4] not in (ACCEPTED, DUPLICATE) or before.get(state, 0) & 15 == 3:
        assert moved == 0
    if any(0x60 < syndrome < 0x64 for syndrome in syndromes):
        assert blocks.context[state] == 3
    for words in sent:
        assert words[3] == 77


@pytest.mark.parametrize("part", range(3))
def test_no_packet_and_no_descriptor_writes_outside_or_stops_the_engine(part):
    """The blocks themselves hold what may be written, taken and sent."""
    for seed in range(part, PROGRAMS, 3):
        blocks = blocks_of()
        engine = InstructionModel(PROGRAM.halves, blocks)
        try:
            rules(blocks, engine, seed)
        except AssertionError as error:
            raise AssertionError(f"program {seed}: {error}") from error


READ_LENGTH = 600
FROM, TO = 0x10_0F80, 0xFFFF_FFFF_FFFF_F100


def reading(*lasts, head=0, length=READ_LENGTH):
    """Queue pair 1 with four messages under way that end with these PSNs, negative where they are READs, the
    first at place ``head`` of the ring; each READ's data go to a place of its own."""
    blocks = blocks_of()
    words = {"SQ_HEAD": head, "SQ_PHASE": IDLE}
    for behind, last in enumerate(lasts):
        place = head + behind & 3
        words[f"SQ_LAST_{place}"] = IS_READ | TURNED | -last if last < 0 else last
        words[f"SQ_LENGTH_{place}"] = length
        slot = 0x20000 + 0x1000 + 128 * place
        blocks.rings.update({slot + 4 * word: 0 for word in range(32)})
        region, va = (4, TO + 700 * behind) if behind < 3 else (0, FROM)
        piece = (va & 0xFFFFFFFF, va >> 32, region, length)
        blocks.rings.update({slot + 64 + 4 * at: word for at, word in enumerate(piece)})
    for name, value in words.items():
        blocks.context[64 + WORDS[name]] = value
    return blocks, InstructionModel(PROGRAM.halves, blocks)


def comes(blocks, engine, first, data, begins=True, ends=True):
    """Packets that answer a READ, the first one's PSN is ``first``: what the SQ's engine was told of them."""
    parts = [data[at : at + MTU] for at in range(0, len(data), MTU)]
    for number, part in enumerate(parts):
        last = ends and number == len(parts) - 1
        opcode = (16 if last else 13) if begins and number == 0 else 15 if last else 14
        aeth = None if opcode == 14 else 0x1F << 24
        blocks.arrive(packet(opcode, 1, first + number, aeth=aeth, payload=part))
        run(blocks, engine)
    names = ("RQ_ANSWER", "RQ_ANSWER_PSN", "RQ_RECEIVED")
    answer, psn, received = (blocks.context.get(64 + WORDS[name], 0) for name in names)
    return answer & 0xFF, psn & 0xFFFFFF, received


def read_data(blocks, behind):
    region, at = (blocks.regions[4], 700 * behind) if behind < 3 else (blocks.regions[0], 0)
    return bytes(blocks.memory.get(region.place(at + offset), 0) for offset in range(READ_LENGTH))


@pytest.mark.parametrize("head", range(4))
def test_data_of_several_reads_come_one_behind_the_other(head):
    blocks, engine = reading(-22, 23, -26, -29, head=head)
    dice, received = random.Random(head), 0
    for behind, first in ((0, 20), (2, 24), (3, 27)):
        data = dice.randbytes(READ_LENGTH)
        received |= 1 << (head + behind & 3)
        assert comes(blocks, engine, first, data) == (0x40, first + 2, received)
        assert read_data(blocks, behind) == data
    assert blocks.woken == [1] * 3


def test_data_that_come_twice_or_for_nobody_are_dropped():
    blocks, engine = reading(-22, -25, 30, 31)
    data = random.Random(1).randbytes(READ_LENGTH)
    # the second one's before those of the first one: some of these are lost
    assert comes(blocks, engine, 23, bytes(READ_LENGTH)) == (0, 0, 0)
    assert comes(blocks, engine, 20, data) == (0x40, 22, 1)
    before = dict(blocks.memory)
    for first in (20, 17, 24, 26, 30):
        assert comes(blocks, engine, first, bytes(READ_LENGTH)) == (0x40, 22, 1)
    assert blocks.memory == before
    # nor what goes on behind the first one's data as if they went on
    assert comes(blocks, engine, 23, data[MTU:], begins=False) == (0x40, 22, 1)
    assert comes(blocks, engine, 23, data[::-1]) == (0x40, 25, 3)
    assert (read_data(blocks, 0), read_data(blocks, 1)) == (data, data[::-1])


def test_data_whose_beginning_is_lost_do_not_come_and_those_that_begin_again_do():
    blocks, engine = reading(-0x000001, 2, 3, 4)  # the first packet's number is 0xFFFFFF, the second one's 0
    data = random.Random(2).randbytes(READ_LENGTH)
    assert comes(blocks, engine, 0, data[MTU:], begins=False) == (0, 0, 0)
    assert not any(read_data(blocks, 0))
    assert comes(blocks, engine, 0xFFFFFF, data[:MTU], ends=False) == (0, 0, 0)
    assert comes(blocks, engine, 1, data[2 * MTU :], begins=False) == (0, 0, 0)
    assert comes(blocks, engine, 0xFFFFFF, data[: 2 * MTU], ends=False) == (0, 0, 0)
    assert comes(blocks, engine, 1, data[2 * MTU :], begins=False) == (0x40, 1, 1)
    assert read_data(blocks, 0) == data


@pytest.mark.parametrize("length", [MTU, 599, 601])
def test_data_that_are_not_what_was_asked_for_are_told_as_a_fault_of_ours(length):
    blocks, engine = reading(-22, 23, 24, 25)
    assert comes(blocks, engine, 20, bytes(length))[0] == 0x7F


def test_data_behind_a_reads_last_packet_are_nobodys():
    blocks, engine = reading(-21, 22, 23, 24, length=2 * MTU)
    assert comes(blocks, engine, 20, bytes(3 * MTU), ends=False) == (0, 0, 0)


def test_a_queue_pair_at_its_end_takes_no_data():
    blocks, engine = reading(-22, 23, 24, 25)
    blocks.context[64 + WORDS["SQ_PHASE"]] = BROKEN
    assert comes(blocks, engine, 20, b"x" * READ_LENGTH) == (0, 0, 0)
    assert not any(read_data(blocks, 0))


def test_a_byte_outside_of_what_is_registered_would_be_seen():
    blocks = blocks_of()
    blocks.packet.extend((1, 2, 3))
    blocks.values["HOST_ADDRESS"] = 7 * 4096 + 0xF80
    blocks.write_HOST_COMMAND(1 << 8 | 5)
    blocks.values["HOST_ADDRESS"] -= 1
    with pytest.raises(AssertionError, match="nobody registered"):
        blocks.write_HOST_COMMAND(1 << 8 | 5)


@pytest.mark.parametrize("opcode", [5, 11])
@pytest.mark.parametrize("refused", [False, True])
def test_a_peer_whose_immediate_data_the_host_does_not_take_is_told_so(opcode, refused):
    blocks = blocks_of()
    engine = InstructionModel(PROGRAM.halves, blocks)
    slot = 0x8000 + 0x1000
    blocks.counts[1] = 1
    blocks.rings.update({slot + 4 * word: 0 for word in range(32)})
    blocks.rings[slot + 4] = 77
    blocks.rings.update({slot + 64: 0x10_0F80, slot + 76: 16})
    if refused:
        blocks.closed.add(slot + 8)
    reth = (0x10_0F80, 0, 4) if opcode == 11 else None
    blocks.arrive(packet(opcode, 1, 0xFFFFFE, reth=reth, immediate=0x01020304, payload=b"data"))
    run(blocks, engine)
    state, psn, msn = (blocks.context.get(64 + WORDS[name], 0) for name in ("RQ_STATE", "RQ_PSN", "RQ_MSN"))
    told = [(words[5] >> 24, words[5] & 0xFFFFFF) for words in blocks.sent]
    if refused:
        assert (told, state, psn, msn) == ([(NAK_LOCAL, 0)], BROKEN, 0xFFFFFE, 0)
        assert blocks.completions == [(1, 77, NOT_WRITTEN, 4)]
        assert engine.registers[4] == LOCAL
    else:
        assert (told, state, psn, msn) == ([(ACK, 1)], 0, 0xFFFFFF, 1)
        assert blocks.completions == [(1, 77, HAS_IMMEDIATE, 4)]
        assert blocks.rings[slot + 8] == 0x01020304


def test_a_gap_is_told_once_and_a_duplicate_is_acknowledged():
    blocks = blocks_of()
    engine = InstructionModel(PROGRAM.halves, blocks)
    for psn in (0, 1, 0xFFFFFD):
        blocks.arrive(packet(10, 1, psn, reth=(0x10_0F80, 0, 4), payload=b"data"))
        run(blocks, engine)
    assert [(words[5] >> 24, words[4]) for words in blocks.sent] == [(NAK_GAP, 0xFFFFFE), (ACK, 0xFFFFFD)]
    blocks.arrive(packet(10, 1, 0xFFFFFE, reth=(0x10_0F80, 0, 4), payload=b"data"))
    blocks.arrive(packet(10, 1, 1, reth=(0x10_0F80, 0, 4), payload=b"data"))
    run(blocks, engine)
    assert [words[5] >> 24 for words in blocks.sent[2:]] == [ACK, NAK_GAP]
    assert bytes(blocks.memory[7 * 4096 + 0xF80 + i] for i in range(4)) == b"data"


def test_an_answers_psn_carries_the_count_of_the_answer_that_it_belongs_to():
    """So the SQ's engine, which may read while they are written, does not take one for the other's."""
    blocks = blocks_of()
    engine = InstructionModel(PROGRAM.halves, blocks)
    words = [64 + WORDS[name] for name in ("RQ_ANSWER_PSN", "RQ_ANSWER")]
    blocks.context[words[1]] = 0xFE_00
    for count, psn, syndrome in ((0xFF, 5, ACK), (0x100, 0xFFFFFF, NAK_GAP), (0x101, 7, 0x62)):
        blocks.arrive(packet(17, 1, psn, aeth=syndrome << 24 | 9))
        run(blocks, engine)
        assert [blocks.context[word] for word in words] == [(count & 0xFF) << 24 | psn, count << 8 | syndrome]
    assert blocks.woken == [1, 1, 1]
