"""header_check.asm against rules written out apart, on the model of the engine and on its gates."""

import itertools

import pytest

pytest.importorskip("amaranth")

from engine_blocks import DOMAIN_SHIFT, ENTRY_VALID, RIGHTS_SHIFT, ReceiveBlocks, packet
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.adapter.remote_keys import RemoteKeyModel
from softhca.hardware.assembler import assemble
from softhca.hardware.engine_bench import EngineBench, ModelBlocks
from softhca.hardware.instruction_model import InstructionModel, PlainRegisters
from softhca.hardware.microcode_files import microcode_program, microcode_source

ACCEPTED, DUPLICATE, GAP, WRONG, NO_QP, NOT_HANDLED, KEY_REFUSED = range(7)
VIS = 4
PROGRAM = microcode_program("header_check", {"VIS": VIS})
VERDICT = 4
PD, KEY, OTHER_KEY, READ_ONLY, FOREIGN = 5, 0x77, 0x88, 0x99, 0xAA
REMOTE_WRITE, REMOTE_READ = 2, 4
SEND_ONLY, WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY = 4, 6, 7, 8, 10


def entry(pd, rights):
    return ENTRY_VALID | rights << RIGHTS_SHIFT | pd << DOMAIN_SHIFT


TABLE = {
    KEY: entry(PD, REMOTE_WRITE),
    OTHER_KEY: entry(PD, REMOTE_WRITE | REMOTE_READ),
    READ_ONLY: entry(PD, REMOTE_READ),
    FOREIGN: entry(PD + 1, REMOTE_WRITE),
}


def blocks_of(psn=0, table=TABLE, latency=3):
    blocks = ReceiveBlocks(RemoteKeyModel(VIS), dict(table), latency)
    for qp in range(VIS):
        blocks.keys.set_domain(qp, PD)
        blocks.context[64 * qp + 32], blocks.context[64 * qp + 34] = psn, PD
    return blocks


def verdicts(blocks, program=PROGRAM, clocks=100):
    """Run until every packet has its verdict."""
    engine = InstructionModel(program.halves, blocks)
    blocks.watch = lambda: engine.registers[VERDICT]
    while not blocks.quiet:
        assert engine.clocks < clocks * 50, "the engine hangs"
        engine.step()
    return blocks.seen


class Rules:
    """The same by other words: which packets of a queue pair are taken."""

    def __init__(self, psn):
        self.psn = [psn] * VIS
        self.writing = [None] * VIS

    def verdict(self, opcode, qp, psn, key, version, link_next, bad):
        if bad or version or link_next not in (2, 3):
            return WRONG
        if qp >= VIS:
            return NO_QP
        ahead = (psn - self.psn[qp]) % (1 << 24)
        if ahead:
            return GAP if ahead < 1 << 23 else DUPLICATE
        if opcode > 11:
            return NOT_HANDLED
        if opcode in (6, 10, 11):
            if key not in (KEY, OTHER_KEY):
                self.writing[qp] = None
                return KEY_REFUSED
            self.writing[qp] = key if opcode == 6 else None
        elif opcode > 6:
            if self.writing[qp] is None:
                return KEY_REFUSED
            if opcode != 7:
                self.writing[qp] = None
        self.psn[qp] = (psn + 1) % (1 << 24)
        return ACCEPTED


PSNS = st.sampled_from([0, 1, (1 << 23) - 1, 1 << 23, (1 << 24) - 1])
STEPS = st.one_of(st.just(0), st.just(0), st.sampled_from([1, (1 << 23) - 1, 1 << 23, (1 << 24) - 1]))
PACKETS = st.lists(
    st.fixed_dictionaries(
        {
            "opcode": st.one_of(st.integers(0, 12), st.integers(0, 255)),
            "qp": st.one_of(st.just(1), st.just(1), st.sampled_from([0, VIS - 1, VIS, 0xFFFFFF])),
            "step": STEPS,
            "key": st.sampled_from([KEY, KEY, OTHER_KEY, READ_ONLY, FOREIGN, 0, KEY | 1 << 31]),
            "grh": st.booleans(),
            "version": st.sampled_from([0, 0, 0, 0, 1, 8]),
            "link_next": st.sampled_from([None, None, None, None, 0, 1]),
            "bad": st.sampled_from([False, False, False, False, True]),
            "flags": st.sampled_from([0, 0x80, 0xFF]),
        }
    ),
    min_size=1,
    max_size=8,
)


def arrivals(blocks, psn, descriptions):
    """Put the packets in, each ``step`` ahead of what is expected then; what the rules say of each."""
    rules, expected = Rules(psn), []
    for one in descriptions:
        qp = one["qp"]
        number = (rules.psn[qp % VIS] + one["step"]) % (1 << 24)
        link_next = (3 if one["grh"] else 2) if one["link_next"] is None else one["link_next"]
        key = one["key"] if one["opcode"] in (6, 10, 11) else None
        blocks.arrive(
            packet(one["opcode"], qp, number, key=key, grh=one["grh"], version=one["version"],
                   link_next=link_next, flags=one["flags"]),
            one["bad"],
        )  # fmt: skip
        expected.append(
            rules.verdict(one["opcode"], qp, number, key, one["version"], link_next, one["bad"])
        )
    return rules, expected


@settings(max_examples=300, deadline=None)
@given(psn=PSNS, descriptions=PACKETS, latency=st.sampled_from([0, 1, 5]))
def test_verdicts_sequence_numbers_and_keys_are_by_the_rules(psn, descriptions, latency):
    blocks = blocks_of(psn, latency=latency)
    rules, expected = arrivals(blocks, psn, descriptions)
    assert verdicts(blocks) == expected
    assert [blocks.context[64 * qp + 32] for qp in range(VIS)] == rules.psn
    assert [blocks.keys.valid_keys(qp)[0] for qp in range(VIS)] == rules.writing
    judged = zip(descriptions, expected, strict=True)
    refused = [one["qp"] for one, verdict in judged if verdict == KEY_REFUSED]
    assert blocks.events == [6 << 24 | qp for qp in refused]


@settings(max_examples=15, deadline=None)
@given(psn=PSNS, descriptions=PACKETS)
def test_the_gates_do_what_the_model_does(bench, psn, descriptions):
    model_blocks, gate_blocks = blocks_of(psn), blocks_of(psn)
    for blocks in (model_blocks, gate_blocks):
        arrivals(blocks, psn, descriptions)
    engine = InstructionModel(PROGRAM.halves, model_blocks)
    clocks = []
    while not model_blocks.quiet:
        clocks.append(engine.step())
    bench.blocks.model = gate_blocks
    assert bench.run(PROGRAM.halves, len(clocks)).clocks == clocks
    assert gate_blocks.context == model_blocks.context
    assert gate_blocks.keys.memory == model_blocks.keys.memory
    assert gate_blocks.quiet


@pytest.fixture(scope="module")
def bench():
    return EngineBench(ModelBlocks(PlainRegisters()))


def test_a_write_whose_key_is_withdrawn_between_its_packets_is_refused():
    blocks = blocks_of()
    blocks.arrive(packet(WRITE_FIRST, 1, 0, key=KEY))
    assert verdicts(blocks) == [ACCEPTED]
    assert blocks.keys.valid_keys(1)[0] == KEY
    blocks.keys.start(PD, KEY)
    blocks.keys.walk()
    blocks.arrive(packet(WRITE_MIDDLE, 1, 1))
    blocks.arrive(packet(WRITE_LAST, 1, 1))
    assert verdicts(blocks) == [ACCEPTED, KEY_REFUSED, KEY_REFUSED]
    assert blocks.context[64 + 32] == 1


def left_valid(program, when, lag):
    """Whether a key is left valid when its window is destroyed at clock ``when`` and searched for ``lag``
    clocks later, while a write with it begins."""
    blocks = blocks_of(latency=4)
    blocks.arrive(packet(WRITE_FIRST, 1, 0, key=KEY))
    engine = InstructionModel(program.halves, blocks)
    for clock in itertools.count():
        if clock == when:
            blocks.table[KEY] = 0
        if clock == when + lag:
            blocks.keys.start(PD, KEY)
        if clock >= when + lag and not blocks.keys.busy and blocks.quiet and clock > 120:
            return KEY in blocks.keys.valid_keys(1)
        blocks.keys.step()
        engine.step()


@pytest.mark.parametrize("lag", [1, 4, 20])
def test_no_key_enters_beside_a_search_whenever_the_window_is_destroyed(lag):
    """The key is entered before it is looked up: every clock of the packet's time is tried."""
    assert not any(left_valid(PROGRAM, when, lag) for when in range(110))


def test_a_program_that_looks_up_first_leaves_a_key_behind():
    """The other order, to see that the test above can fail: the store moves behind the look-up."""
    source = microcode_source("header_check")
    store = "        move    RQ_KEY_DATA, word\n        add     context, 2"
    assert store in source
    source = source.replace(store, "        move    r13, word\n        add     context, 2")
    checked = "        cmp     opcode, 6               ; one packet"
    assert checked in source
    source = source.replace(checked, f"        move    RQ_KEY_DATA, r13\n{checked}")
    other = assemble(source, {"VIS": VIS})
    blocks = blocks_of()
    blocks.arrive(packet(WRITE_FIRST, 1, 0, key=KEY))
    assert verdicts(blocks, other) == [ACCEPTED]
    assert any(left_valid(other, when, 1) for when in range(110))


@pytest.mark.parametrize(("grh", "clocks"), [(False, 46), (True, 77)])
def test_clocks_of_an_accepted_packet(grh, clocks):
    """From the clock that sees its first word to the one that drops its rest."""
    blocks = blocks_of()
    engine = InstructionModel(PROGRAM.halves, blocks)
    for _ in range(20):
        engine.step()
    while engine.address != PROGRAM.labels["wait"]:
        engine.step()
    blocks.arrive(packet(SEND_ONLY, 1, 0, grh=grh))
    blocks.tick()
    before = engine.clocks
    while not blocks.quiet:
        engine.step()
    assert engine.clocks - before == clocks
