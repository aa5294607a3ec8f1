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
FENCE, IS_READ, TURNED = 0x100, 1 << 31, 1 << 30
IDLE, SENDING, BROKEN, RESTING = 0, 1, 3, 5
WINDOW = 4
SUCCESS, NOT_READ, FLUSHED, GIVEN_UP = 0, 4, 5, 12
ACK, RNR, ALL_CAME, NAK_GAP, OWN_FAULT = 0x1F, 0x20, 0x40, 0x60, 0x7F
LATER_BIT, UNIT_NS, TRIES, LONGEST = 30, 4096, 8, 6000
REGION = Region(0, 0x10_0F80, 2000, (7, 3), PD, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ)
RING = 0x20000


class SendBlocks(MessageBlocks):
    """What `send` meets: ``time`` in units; ``later``: how often a later turn was asked for."""

    def __init__(self, timeout=0, psn=0xFFFFFE, reads=0):
        super().__init__(VIS, [REGION])
        self.time, self.later, self.answers = 0xFFFFFD, 0, 0
        words = {"SQ_BASE": RING, "SQ_MASK": 7, "SQ_PD": PD, "SQ_PSN": psn, "SQ_PEER": 77, "SQ_LINK": 0x20001,
                 "SQ_SOURCE": 9, "SQ_PKEY": 0xFFFF, "SQ_MTU": MTU, "SQ_TIMEOUT": timeout,
                 "SQ_READS": reads}  # fmt: skip
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
        elif QP not in list(self.offered)[1:] and self.stalls != 0:
            self.offered.append(QP)

    def write_DOORBELL_POP(self, value):
        super().write_DOORBELL_POP(value)
        if self.counts[QP] and QP not in list(self.offered)[1:]:
            self.offered.append(QP)

    def post(self, opcode=SEND, length=40, work=1):
        """A descriptor, and a doorbell."""
        place = RING + 128 * (self.posted & 7)
        self.posted += 1
        words = [opcode, work, 0, 5, 0x1000, 0, *(0,) * 10, REGION.va, 0, REGION.key, length, *(0,) * 12]
        self.rings.update({place + 4 * at: word for at, word in enumerate(words)})
        self.counts[QP] = self.counts.get(QP, 0) + 1
        self.turn()

    posted = 0
    stalls = None
    """After so many packets more the send FIFO has no room, and nobody has a turn any more."""

    def read_TX_STATUS(self):
        return super().read_TX_STATUS() if self.stalls != 0 else 0

    def _end(self):
        super()._end()
        if self.stalls:
            self.stalls -= 1

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
        self["RQ_ANSWER_PSN"] = (self.answers & 0xFF) << 24 | psn & PSN_MASK
        self["RQ_ANSWER"] = self.answers << 8 | syndrome
        self.turn()

    def come(self, number, psn):
        """All data of the READ in that place of the window have come, the last with that PSN."""
        self["RQ_RECEIVED"] ^= 1 << number
        self.answer(ALL_CAME, psn)

    @property
    def statuses(self):
        return [(work, status) for _, work, status, _ in self.completions]


def psns(blocks):
    return [words[4] & PSN_MASK for words in blocks.sent]


def test_a_message_without_an_answer_goes_again_at_its_deadline_and_is_given_up():
    blocks = SendBlocks(timeout=3)
    blocks.post()
    for count in range(1, TRIES + 1):
        assert (len(blocks.sent), blocks["SQ_UNDER_WAY"], blocks["SQ_TRIES"]) == (count, 1, count - 1)
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
    assert (len(blocks.sent), blocks.later, blocks["SQ_UNDER_WAY"]) == (1, 0, 1)


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
    assert (psns(blocks), blocks["SQ_UNDER_WAY"], blocks["SQ_TRIES"]) == ([0xFFFFFE] * 2, 1, 0)
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
    assert (blocks["SQ_PHASE"], blocks["SQ_UNDER_WAY"], blocks["SQ_TRIES"]) == (IDLE, 1, 1)
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
    assert (blocks["SQ_PHASE"], blocks["SQ_LAST"], blocks["SQ_PSN"]) == (IDLE, 0, 1)
    assert (blocks["SQ_UNDER_WAY"], blocks["SQ_LAST_0"], blocks["SQ_LENGTH_0"]) == (1, IS_READ | TURNED, 600)
    blocks.answer(ACK, 0xFFFFFF)  # of its second packet: no answer to a READ
    blocks.answer(ALL_CAME, 0)  # and nothing has come
    assert blocks.statuses == []
    blocks.come(0, 0)
    assert (blocks.statuses, blocks["SQ_PHASE"], blocks["SQ_FIRST"]) == ([(1, SUCCESS)], IDLE, 1)


@pytest.mark.parametrize("reads", range(6))
def test_as_many_reads_are_under_way_as_may_be_and_one_always(reads):
    blocks, together = SendBlocks(reads=reads), min(max(reads, 1), WINDOW)
    for work in range(6):
        blocks.post(READ, 300, work=work)
    assert (len(blocks.sent), blocks["SQ_UNDER_WAY"]) == (together, together)
    for work in range(6):
        assert len(blocks.sent) == min(6, work + together)
        blocks.come(work % WINDOW, 0xFFFFFF + 2 * work & PSN_MASK)
    assert blocks.statuses == [(work, SUCCESS) for work in range(6)]
    assert psns(blocks) == [0xFFFFFE + 2 * work & PSN_MASK for work in range(6)]


def test_other_messages_go_behind_a_read_that_waits_for_others_only_in_their_order():
    blocks = SendBlocks(reads=1)
    for work, opcode in enumerate((READ, SEND, READ, WRITE)):
        blocks.post(opcode, work=work)
    assert [words[2] >> 24 for words in blocks.sent] == [12, 4]
    blocks.come(0, 0xFFFFFE)
    assert [words[2] >> 24 for words in blocks.sent] == [12, 4, 12, 10]
    assert (blocks.statuses, blocks["SQ_UNDER_WAY"]) == ([(0, SUCCESS)], 3)
    blocks.answer(ACK, 0xFFFFFF)
    assert blocks.statuses == [(0, SUCCESS), (1, SUCCESS)]


@pytest.mark.parametrize("opcode", [SEND, WRITE, READ, 2, 5])
def test_the_fence_waits_for_reads_and_for_nothing_else(opcode):
    blocks = SendBlocks(reads=4)
    blocks.post(SEND, work=0)
    blocks.post(opcode | FENCE, work=1)
    assert len(blocks.sent) == 2
    blocks = SendBlocks(reads=4)
    for work, posted in enumerate((READ, READ, opcode | FENCE, SEND)):
        blocks.post(posted, work=work)
    assert len(blocks.sent) == 2
    blocks.come(0, 0xFFFFFE)
    assert (len(blocks.sent), blocks.statuses) == (2, [(0, SUCCESS)])
    blocks.come(1, 0xFFFFFF)
    assert ([words[2] >> 24 for words in blocks.sent[3:]], blocks["SQ_UNDER_WAY"]) == ([4], 2)


def test_an_acknowledgement_behind_a_read_whose_data_are_lost_asks_again_once_then_time_does():
    blocks = SendBlocks(timeout=3, reads=2)
    for work, opcode in enumerate((SEND, READ, SEND, WRITE)):
        blocks.post(opcode, work=work)
    blocks.answer(ACK, 0)
    # what is before the READ is acknowledged, and it goes again with what is behind it
    assert blocks.statuses == [(0, SUCCESS)]
    assert psns(blocks) == [0xFFFFFE, 0xFFFFFF, 0, 1, 0xFFFFFF, 0, 1]
    assert blocks.sent[1:4] == blocks.sent[4:]
    blocks.answer(ACK, 1)
    assert (len(blocks.sent), blocks["SQ_TRIES"]) == (7, 1)
    blocks.time = blocks["SQ_DEADLINE"]
    blocks.turn()
    assert (len(blocks.sent), blocks["SQ_TRIES"]) == (10, 2)
    blocks.come(1, 0xFFFFFF)
    blocks.answer(ACK, 1)
    assert [work for work, _ in blocks.statuses] == [0, 1, 2, 3]


def test_data_that_have_come_before_their_read_goes_again_have_not_come():
    """The answer to the request before it, while the queue pair rests; the peer answers once more."""
    blocks = SendBlocks(reads=2)
    blocks.post(SEND, work=0)
    blocks.post(READ, work=1)
    blocks.answer(RNR | 5, 0xFFFFFE)
    blocks.come(1, 0xFFFFFF)
    assert (blocks.statuses, blocks["SQ_PHASE"]) == ([], RESTING)
    blocks.time = blocks["SQ_DEADLINE"]
    blocks.turn()
    blocks.answer(ACK, 0xFFFFFE)
    assert (blocks.statuses, len(blocks.sent)) == ([(0, SUCCESS)], 4)
    blocks.come(1, 0xFFFFFF)
    assert blocks.statuses == [(0, SUCCESS), (1, SUCCESS)]


def test_data_of_a_read_acknowledge_what_went_before_it():
    blocks = SendBlocks()
    for work, opcode in enumerate((SEND, WRITE, READ)):
        blocks.post(opcode, work=work)
    blocks.come(2, 0)
    assert [work for work, _ in blocks.statuses] == [0, 1, 2]


def test_a_refusal_behind_a_read_whose_data_have_come_ends_the_queue_pair():
    blocks = SendBlocks(reads=2)
    for work in range(3):
        blocks.post(READ, work=work)
    blocks.come(0, 0xFFFFFE)
    blocks.answer(0x62, 0xFFFFFF)
    assert blocks.statuses == [(0, SUCCESS), (1, 10), (2, FLUSHED)]


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
    assert (psns(blocks), blocks["SQ_UNDER_WAY"], blocks.statuses) == ([0xFFFFFE], 1, [])
    blocks.answer(ACK, 0xFFFFFE)
    assert blocks.statuses == [(1, SUCCESS)]


@pytest.mark.parametrize(("length", "phase"), [(1 << 31, IDLE), (2001, BROKEN)])
def test_two_gib_do_not_begin_and_what_goes_beyond_its_region_does_not_go_on(length, phase):
    blocks = SendBlocks()
    blocks.post(length=length)
    assert (blocks.statuses, blocks["SQ_PHASE"]) == ([(1, NOT_READ)], phase)
    assert all(words[2] >> 24 < 2 for words in blocks.sent)


def test_four_messages_are_under_way_and_one_acknowledgement_completes_all_before_it():
    blocks = SendBlocks()
    for work in range(1, 7):
        blocks.post(work=work)
    assert (psns(blocks), blocks["SQ_UNDER_WAY"]) == ([0xFFFFFE, 0xFFFFFF, 0, 1], WINDOW)
    blocks.answer(ACK, 0)
    assert blocks.statuses == [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]
    # those that waited have gone
    assert (psns(blocks)[4:], blocks["SQ_UNDER_WAY"], blocks["SQ_FIRST"]) == ([2, 3], 3, 1)
    blocks.answer(ACK, 2)
    blocks.answer(ACK, 3)
    assert [work for work, _ in blocks.statuses] == [1, 2, 3, 4, 5, 6]
    assert (blocks["SQ_UNDER_WAY"], blocks["SQ_PHASE"], len(blocks.sent)) == (0, IDLE, 6)


def test_posts_that_come_at_once_all_go_by_one_doorbells_turn():
    blocks = SendBlocks()
    blocks.turn, turn = lambda: None, blocks.turn
    for work in range(3):
        blocks.post(work=work, length=300)
    blocks.turn = turn
    blocks.turn()
    assert [words[2] >> 24 for words in blocks.sent] == [0, 2] * 3
    assert blocks["SQ_UNDER_WAY"] == 3


def test_messages_are_completed_in_the_middle_of_the_one_that_is_sent():
    """An acknowledgement comes between its packets; it goes on, and ends with a PSN of its own."""
    blocks = SendBlocks()
    blocks.post(WRITE, 10)
    blocks.stalls = 2
    blocks.post(WRITE, 600, work=2)
    assert (blocks["SQ_UNDER_WAY"], blocks["SQ_PHASE"], len(blocks.sent)) == (1, SENDING, 3)
    blocks.stalls = None
    blocks.answer(ACK, 0xFFFFFE)
    assert blocks.statuses == [(1, SUCCESS)]
    assert [words[2] >> 24 for words in blocks.sent] == [10, 6, 7, 8]
    assert (blocks["SQ_UNDER_WAY"], blocks["SQ_LAST_1"]) == (1, 1)
    blocks.answer(ACK, 0)
    assert len(blocks.completions) == 1
    blocks.answer(ACK, 1)
    assert blocks.statuses == [(1, SUCCESS), (2, SUCCESS)]


def test_a_gap_completes_what_is_before_it_and_sends_the_rest_again():
    blocks = SendBlocks()
    for work in range(1, 4):
        blocks.post(work=work, length=300)
    blocks.answer(NAK_GAP, 1)  # the second message's last packet
    assert blocks.statuses == [(1, SUCCESS)]
    assert psns(blocks) == [0xFFFFFE, 0xFFFFFF, 0, 1, 2, 3, 0, 1, 2, 3]
    assert blocks.sent[2:6] == blocks.sent[6:]
    assert (blocks["SQ_TRIES"], blocks["SQ_UNDER_WAY"]) == (1, 2)
    blocks.answer(ACK, 1)
    assert (blocks["SQ_TRIES"], blocks["SQ_FIRST"]) == (0, 2)
    blocks.answer(ACK, 3)
    assert [work for work, _ in blocks.statuses] == [1, 2, 3]


def test_the_oldest_ones_time_begins_when_it_goes_and_anew_when_one_is_over():
    blocks = SendBlocks(timeout=3)
    blocks.post(work=1)
    deadline = blocks["SQ_DEADLINE"]
    blocks.time = blocks.time + 4 & PSN_MASK
    blocks.post(work=2)
    assert blocks["SQ_DEADLINE"] == deadline
    blocks.answer(ACK, 0xFFFFFE)
    assert blocks["SQ_DEADLINE"] == blocks.time + 9 & PSN_MASK
    blocks.post(work=3)
    blocks.time, asleep = blocks["SQ_DEADLINE"] - 1 & PSN_MASK, blocks.later
    blocks.turn()
    assert (len(blocks.sent), blocks.later) == (3, asleep + 1)
    blocks.time = blocks["SQ_DEADLINE"]
    blocks.turn()
    assert psns(blocks) == [0xFFFFFE, 0xFFFFFF, 0, 0xFFFFFF, 0]
    assert (blocks["SQ_TRIES"], blocks["SQ_DEADLINE"]) == (1, blocks.time + 9 & PSN_MASK)


def test_a_peer_that_is_not_ready_for_the_second_has_the_first_and_both_others_again():
    blocks = SendBlocks()
    for work in range(1, 4):
        blocks.post(work=work)
    blocks.answer(RNR | 5, 0xFFFFFF)
    assert blocks.statuses == [(1, SUCCESS)]
    assert (blocks["SQ_PHASE"], len(blocks.sent)) == (RESTING, 3)
    blocks.answer(ACK, 0)  # of what is to go again: nobody has it
    assert (blocks["SQ_PHASE"], len(blocks.completions)) == (RESTING, 1)
    blocks.time = blocks["SQ_DEADLINE"]
    blocks.turn()
    assert psns(blocks) == [0xFFFFFE, 0xFFFFFF, 0, 0xFFFFFF, 0]
    assert (blocks["SQ_TRIES"], blocks["SQ_UNDER_WAY"]) == (0, 2)


def test_a_refusal_of_the_second_leaves_the_first_and_flushes_the_third():
    blocks = SendBlocks()
    for work in range(1, 4):
        blocks.post(work=work)
    blocks.answer(0x62, 0xFFFFFF)
    assert blocks.statuses == [(1, SUCCESS), (2, 10), (3, FLUSHED)]
    assert (blocks["SQ_PHASE"], blocks["SQ_UNDER_WAY"]) == (BROKEN, 0)


def test_what_goes_alone_waits_until_nothing_is_under_way_and_holds_up_what_is_behind():
    blocks = SendBlocks(reads=4)
    for work, what in enumerate((SEND, READ, 9, SEND), 1):
        blocks.post(what, work=work)
    assert (len(blocks.sent), blocks.completions) == (2, [])
    blocks.answer(ACK, 0xFFFFFE)
    assert (len(blocks.sent), blocks.statuses) == (2, [(1, SUCCESS)])
    blocks.come(1, 0xFFFFFF)
    assert [work for work, _ in blocks.statuses] == [1, 2, 3]
    assert (blocks.sent[-1][2] >> 24, blocks["SQ_UNDER_WAY"]) == (4, 1)


def test_memory_that_fails_is_told_behind_what_was_posted_before():
    blocks = SendBlocks()
    blocks.post(work=1)
    blocks.post(length=2001, work=2)
    blocks.post(work=3)
    assert blocks.completions == []
    blocks.answer(ACK, 0xFFFFFE)
    assert blocks.statuses == [(1, SUCCESS), (2, NOT_READ), (3, FLUSHED)]
    assert all(words[2] >> 24 < 2 for words in blocks.sent[1:])


def test_a_descriptor_that_is_another_when_it_goes_again_ends_the_queue_pair():
    """The peer may have had its PSNs: what follows must not take them for new ones."""
    blocks = SendBlocks()
    blocks.post(work=1)
    blocks.post(work=2)
    blocks.rings[RING] = 8
    blocks.answer(NAK_GAP, 0xFFFFFE)
    assert blocks.statuses == [(1, NOT_READ), (2, FLUSHED)]
    assert (len(blocks.sent), blocks["SQ_PHASE"]) == (2, BROKEN)


def test_an_answer_that_is_half_written_is_read_when_it_is_whole():
    """The RQ's engine has written a refusal's PSN over an acknowledgement's, and not yet the refusal."""
    blocks = SendBlocks()
    blocks.post()
    blocks.answers = 1
    blocks["RQ_ANSWER_PSN"], blocks["RQ_ANSWER"] = 2 << 24 | 0xFFFFFE, 1 << 8 | ACK
    blocks.turn()
    assert blocks.completions == []
    blocks.answer(0x62, 0xFFFFFE)
    assert blocks.statuses == [(1, 10)]


def test_an_acknowledgement_of_what_has_not_gone_completes_nothing():
    blocks = SendBlocks()
    blocks.post(work=1)
    blocks.post(work=2)
    for psn in (0, 0xFFFFFD):
        blocks.answer(ACK, psn)
    assert (blocks.completions, blocks["SQ_UNDER_WAY"]) == ([], 2)
