"""send.asm's messages on the instruction model: time, tries and answers, each PSN, deadline and status."""

import pytest

pytest.importorskip("amaranth")

from message_blocks import LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, MessageBlocks, Region

from softhca.hardware.context_memory import WORDS
from softhca.hardware.instruction_model import InstructionModel
from softhca.hardware.microcode_files import microcode_program
from softhca.simulation.oracle_wire_packets import RNR_TIMERS_US

PROGRAM = microcode_program("send")
QP, PD, MTU, VIS, PSN_MASK = 1, 5, 256, 4, 0xFFFFFF
SEND, WRITE, READ = 1, 3, 4
IDLE, SENDING, WAITING, BROKEN, READING, RESTING = range(6)
SUCCESS, NOT_READ, FLUSHED, GIVEN_UP = 0, 4, 5, 12
ACK, RNR, ALL_CAME, NAK_GAP, OWN_FAULT = 0x1F, 0x20, 0x40, 0x60, 0x7F
LATER_BIT, UNIT_NS, TRIES, LONGEST = 30, 4096, 8, 6000
REGION = Region(0, 0x10_0F80, 2000, (7, 3), PD, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ)
RING = 0x20000


class SendBlocks(MessageBlocks):
    """What `send` meets: ``time`` in units; ``later``: how often a later turn was asked for."""

    def __init__(self, timeout=0, psn=0xFFFFFE):
        super().__init__(VIS, [REGION])
        self.time, self.later, self.answers = 0xFFFFFD, 0, 0
        words = {"SQ_BASE": RING, "SQ_MASK": 3, "SQ_PD": PD, "SQ_PSN": psn, "SQ_PEER": 77, "SQ_LINK": 0x20001,
                 "SQ_SOURCE": 9, "SQ_PKEY": 0xFFFF, "SQ_MTU": MTU, "SQ_TIMEOUT": timeout}  # fmt: skip
        for name, value in words.items():
            self[name] = value
        for offset in range(REGION.length):
            self.memory[REGION.place(offset)] = offset & 0xFF
        self.engine = InstructionModel(PROGRAM.halves, self)

    def __getitem__(self, name):
        return self.context.get(64 * QP + WORDS[name], 0)

    def __setitem__(self, name, value):
        self.context[64 * QP + WORDS[name]] = value

    def read_WAKE(self):
        return self.time << 8

    def write_WAKE(self, value):
        assert value & PSN_MASK == QP
        if value >> LATER_BIT & 1:
            self.later += 1
        elif QP not in list(self.offered)[1:]:
            self.offered.append(QP)

    def post(self, opcode=SEND, length=40, work=1):
        """A descriptor, and a doorbell."""
        place = RING + 128 * (self.posted & 3)
        self.posted += 1
        words = [opcode, work, 0, 5, 0x1000, 0, *(0,) * 10, REGION.va, 0, REGION.key, length, *(0,) * 12]
        self.rings.update({place + 4 * at: word for at, word in enumerate(words)})
        self.counts[QP] = self.counts.get(QP, 0) + 1
        self.turn()

    posted = 0

    def turn(self):
        """The queue pair has turns until it gives none back at once."""
        self.offered.append(QP)
        clocks = 0
        while self.offered or self.engine.address != PROGRAM.labels["idle"]:
            self.engine.step()
            clocks += 1
            assert clocks < LONGEST, f"the engine hangs at {self.engine.address}"

    def answer(self, syndrome, psn):
        """The RQ's engine tells of one."""
        self.answers += 1
        self["RQ_ANSWER_PSN"], self["RQ_ANSWER"] = psn & PSN_MASK, self.answers << 8 | syndrome
        self.turn()

    @property
    def statuses(self):
        return [(work, status) for _, work, status, _ in self.completions]


def psns(blocks):
    return [words[4] & PSN_MASK for words in blocks.sent]


def test_a_message_without_an_answer_goes_again_at_its_deadline_and_is_given_up():
    blocks = SendBlocks(timeout=3)
    blocks.post()
    for count in range(1, TRIES + 1):
        assert (len(blocks.sent), blocks["SQ_PHASE"], blocks["SQ_TRIES"]) == (count, WAITING, count - 1)
        # the unit that has begun does not count
        assert blocks["SQ_DEADLINE"] == blocks.time + 8 + 1 & PSN_MASK
        asleep, blocks.time = blocks.later, blocks["SQ_DEADLINE"] - 1 & PSN_MASK
        blocks.turn()
        assert (len(blocks.sent), blocks.later) == (count, asleep + 1)
        blocks.time = blocks["SQ_DEADLINE"]
        assert not blocks.completions
        blocks.turn()
    assert psns(blocks) == [0xFFFFFE] * TRIES
    assert all(words == blocks.sent[0] for words in blocks.sent)
    assert (blocks.statuses, blocks["SQ_PHASE"]) == ([(1, GIVEN_UP)], BROKEN)


def test_without_a_timer_nobody_wakes_and_a_message_waits_for_ever():
    blocks = SendBlocks()
    blocks.post()
    blocks.time = 0x400000
    blocks.turn()
    assert (len(blocks.sent), blocks.later, blocks["SQ_PHASE"]) == (1, 0, WAITING)


@pytest.mark.parametrize("code", range(32))
def test_a_peer_that_is_not_ready_is_left_alone_for_as_long_as_it_asks(code):
    blocks = SendBlocks()
    blocks.post()
    blocks.answer(RNR | code, 0xFFFFFE)
    units = blocks["SQ_DEADLINE"] - blocks.time - 1 & PSN_MASK
    asked_ns = 1000 * RNR_TIMERS_US[code]
    assert units in {base << power for base in (5, 8) for power in range(18)}
    assert asked_ns <= units * UNIT_NS <= max(1.1 * asked_ns, 8 * UNIT_NS)
    assert (blocks["SQ_PHASE"], blocks.later, len(blocks.sent)) == (RESTING, 1, 1)
    blocks.time = blocks["SQ_DEADLINE"] - 1 & PSN_MASK
    blocks.turn()
    assert (blocks["SQ_PHASE"], blocks.later, len(blocks.sent)) == (RESTING, 2, 1)
    blocks.time = blocks["SQ_DEADLINE"]
    blocks.turn()
    assert (psns(blocks), blocks["SQ_PHASE"], blocks["SQ_TRIES"]) == ([0xFFFFFE] * 2, WAITING, 0)
    blocks.answer(ACK, 0xFFFFFE)
    assert blocks.statuses == [(1, SUCCESS)]


def test_a_gap_that_is_told_sends_all_packets_again_and_only_the_last_ends_the_message():
    blocks = SendBlocks()
    blocks.post(WRITE, 600)
    assert [words[2] >> 24 for words in blocks.sent] == [6, 7, 8]
    blocks.answer(ACK, 0xFFFFFF)
    assert blocks.statuses == []
    blocks.answer(NAK_GAP, 0xFFFFFF)
    assert psns(blocks) == [0xFFFFFE, 0xFFFFFF, 0] * 2
    assert blocks.sent[:3] == blocks.sent[3:]
    assert blocks["SQ_TRIES"] == 1
    for psn in (1, 0xFFFFFD):  # another message's
        for syndrome in (ACK, RNR, 0x62):
            blocks.answer(syndrome, psn)
    assert (blocks["SQ_PHASE"], blocks["SQ_TRIES"]) == (WAITING, 1)
    assert blocks.statuses == []
    blocks.answer(ACK, 0)
    assert (blocks.statuses, blocks["SQ_PHASE"], blocks["SQ_PSN"]) == ([(1, SUCCESS)], IDLE, 1)


@pytest.mark.parametrize(
    ("syndrome", "status"), [(0x61, 9), (0x62, 10), (0x63, 11), (OWN_FAULT, NOT_READ)], ids=hex
)
def test_a_refusal_ends_the_message_and_flushes_the_next(syndrome, status):
    blocks = SendBlocks()
    blocks.post()
    blocks.answer(syndrome, 0xFFFFFE)
    blocks.post(work=2)
    assert blocks.statuses == [(1, status), (2, FLUSHED)]
    assert (len(blocks.sent), blocks["SQ_PHASE"]) == (1, BROKEN)


def test_a_read_ends_with_its_data_and_takes_a_psn_for_each_packet():
    blocks = SendBlocks()
    blocks.post(READ, 600)
    assert (blocks["SQ_PHASE"], blocks["SQ_LAST"], blocks["SQ_PSN"]) == (READING, 0, 1)
    blocks.answer(ACK, 0)
    assert blocks.statuses == []
    blocks.answer(ALL_CAME, 0)
    assert (blocks.statuses, blocks["SQ_PHASE"]) == ([(1, SUCCESS)], IDLE)


def test_an_answer_is_heeded_once():
    blocks = SendBlocks()
    blocks.post()
    blocks.answer(NAK_GAP, 0xFFFFFE)
    blocks.turn()
    blocks.turn()
    assert (len(blocks.sent), blocks["SQ_TRIES"]) == (2, 1)


@pytest.mark.parametrize("syndrome", [ACK, RNR | 5, NAK_GAP, 0x62], ids=hex)
def test_what_was_answered_before_a_message_began_is_not_about_it(syndrome):
    """A peer's answer to PSNs that have not been sent yet."""
    blocks = SendBlocks(timeout=3)
    blocks.answer(syndrome, 0xFFFFFE)
    blocks.post()
    blocks.turn()
    assert (psns(blocks), blocks["SQ_PHASE"], blocks.statuses) == ([0xFFFFFE], WAITING, [])
    blocks.answer(ACK, 0xFFFFFE)
    assert blocks.statuses == [(1, SUCCESS)]


@pytest.mark.parametrize(("length", "phase"), [(1 << 31, IDLE), (2001, BROKEN)])
def test_two_gib_do_not_begin_and_what_goes_beyond_its_region_does_not_go_on(length, phase):
    blocks = SendBlocks()
    blocks.post(length=length)
    assert (blocks.statuses, blocks["SQ_PHASE"]) == ([(1, NOT_READ)], phase)
    assert all(words[2] >> 24 < 2 for words in blocks.sent)
