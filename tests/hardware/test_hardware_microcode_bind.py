"""Binds in send.asm: what figure 11 says of a posted descriptor, and the search beside it that clears the
keys."""

import pytest

pytest.importorskip("amaranth")

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from engine_blocks import SendBlocks
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.adapter.remote_keys import RemoteKeyModel
from softhca.hardware.engine_bench import EngineBench, ModelBlocks
from softhca.hardware.instruction_model import InstructionModel, PlainRegisters
from softhca.hardware.micro_registers import EngineBus
from softhca.hardware.microcode_files import microcode_program
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.rmb_registers import RmbRegisters

PROGRAM = microcode_program("send")
BIND, UNKNOWN = 8, 9
"""Opcodes: the other one is none that the engine handles."""
SUCCESS, NOT_HANDLED, NOT_READ, NOT_BOUND = 0, 2, 4, 6
VIS, TABLE, ENTRIES, PLACES = 4, 0x10000, 64, 8
LAST_PAGES = 0xFFF_FFF0_0000
"""The highest MiB of 16 TiB."""
PDS = {0: 5, 1: 5, 2: 6}
KEYS = {7: 5, 8: 5, 9: 6}
"""The windows that are bound at first, and their domains."""
RIGHTS = 0x86000000
MOVE, INVALIDATE = 0, 1


def base(qp):
    return 0x1000 * (qp + 1)


def blocks_of(latencies=(2,), keys=None, kind=SendBlocks, table=TABLE, limit=0x20000):
    """Three queue pairs; every VI has the three windows' keys under way, under the domains of both."""
    keys = RemoteKeyModel(VIS) if keys is None else keys
    blocks = kind(keys, latencies, table, ENTRIES, limit)
    for vi in range(VIS):
        keys.set_domain(vi, 5 + vi % 2)
        for slot, key in enumerate((*KEYS, 7)):
            keys.enter(vi, slot, key)
    for qp, pd in PDS.items():
        for word, value in enumerate((base(qp), 0, PLACES - 1, 0, pd, 40 + qp, 0)):
            blocks.context[64 * qp + word] = value
    for key, pd in KEYS.items():
        blocks.words[table + 8 * key] = 0x100 + key
        blocks.words[table + 8 * key + 4] = RIGHTS | pd
    return blocks


def post(blocks, qp, descriptors):
    for index, words in enumerate(descriptors):
        for place, word in enumerate(words):
            blocks.words[base(qp) + 128 * index + 4 * place] = word
    if descriptors:
        blocks.post(qp, len(descriptors))


def run(blocks, halves=PROGRAM.halves, limit=20_000):
    engine = InstructionModel(halves, blocks)
    while not (blocks.quiet and engine.registers[12] == 0 and engine.clocks > 10):
        assert engine.clocks < limit, "the engine hangs"
        engine.step()
    return engine


DESCRIPTORS = st.tuples(
    st.sampled_from([BIND, BIND, BIND, UNKNOWN, BIND | 0xFFFFFF00, 0]),
    st.integers(0, 0xFFFFFFFF),
    st.sampled_from([MOVE, INVALIDATE, 0xFFFFFFFE]),
    st.sampled_from([*KEYS, *KEYS, 10, ENTRIES, 0x07FFFFFF, 0xFFFFFFFF]),
    st.integers(0, 0xFFFFFFFF),
    st.sampled_from([RIGHTS, RIGHTS | 0xFFFFFF, 0x82000000]),
)
POSTED = st.fixed_dictionaries({qp: st.lists(DESCRIPTORS, max_size=3) for qp in PDS})


LATENCIES = st.one_of(st.integers(0, 12), st.just(200))


def expected(blocks, posted):
    """Statuses by queue pair, the table and the keys, when descriptors work in the order of their turns."""
    table = {key: [0x100 + key, RIGHTS | pd] for key, pd in KEYS.items()}
    keys = blocks_of().keys
    left = {qp: list(descriptors) for qp, descriptors in posted.items()}
    statuses = {qp: [] for qp in PDS}
    for qp in blocks.taken:
        opcode, work, what, key, low, high = left[qp].pop(0)
        entry = table.get(key, [0, 0])
        if opcode & 0xFF != BIND:
            statuses[qp].append((work, NOT_HANDLED))
            continue
        if not entry[1] >> 31 or entry[1] & 0xFFFFFF != PDS[qp]:
            statuses[qp].append((work, NOT_BOUND))
            continue
        table[key] = [entry[0], 0] if what & 1 else [low, high & 0xFF000000 | PDS[qp]]
        keys.start(PDS[qp], key)
        keys.walk()
        statuses[qp].append((work, SUCCESS))
    assert not any(left.values())
    return statuses, table, keys.memory


def check(blocks, posted):
    statuses, table, memory = expected(blocks, posted)
    for qp in PDS:
        mine = [(work, status) for who, work, status, _ in blocks.completions if who == qp]
        assert mine == statuses[qp]
        assert blocks.context[64 * qp + 1] == len(posted[qp])
    assert all(queue == 40 + qp for qp, _, _, queue in blocks.completions)
    for key, (low, high) in table.items():
        assert (blocks.words[TABLE + 8 * key], blocks.words[TABLE + 8 * key + 4]) == (low, high)
    assert not [address for address in blocks.words if address >= TABLE + 8 * ENTRIES]
    return memory


@settings(max_examples=300, deadline=None)
@given(posted=POSTED, latencies=st.lists(LATENCIES, min_size=1, max_size=3))
def test_descriptors_do_to_table_keys_and_completions_what_the_rules_say(posted, latencies):
    blocks = blocks_of(tuple(latencies))
    for qp, descriptors in posted.items():
        post(blocks, qp, descriptors)
    run(blocks)
    assert blocks.keys.memory == check(blocks, posted)


@settings(max_examples=10, deadline=None)
@given(posted=POSTED)
def test_the_gates_do_what_the_model_does(bench, posted):
    seen = []
    for _ in range(2):
        seen.append(blocks_of((3, 0)))
        for qp, descriptors in posted.items():
            post(seen[-1], qp, descriptors)
    engine = InstructionModel(PROGRAM.halves, seen[0])
    clocks = [engine.step() for _ in range(700)]
    bench.blocks.model = seen[1]
    assert bench.run(PROGRAM.halves, 700).clocks == clocks
    assert (seen[1].words, seen[1].completions) == (seen[0].words, seen[0].completions)


@pytest.fixture(scope="module")
def bench():
    return EngineBench(ModelBlocks(PlainRegisters()))


def test_a_search_leaves_the_engine_free_for_other_queue_pairs():
    """Their completions come first; the bind's own queue pair waits."""
    blocks = blocks_of(keys=RemoteKeyModel(256))
    post(blocks, 0, [(BIND, 100, INVALIDATE, 7, 0, 0), (UNKNOWN, 101)])
    post(blocks, 2, [(UNKNOWN, 200), (UNKNOWN, 201)])
    run(blocks)
    assert [(qp, work) for qp, work, _, _ in blocks.completions] == [(2, 200), (2, 201), (0, 100), (0, 101)]


def test_a_move_is_recorded_and_no_reader_meets_half_of_each_entry():
    blocks = blocks_of()
    place, states = TABLE + 8 * 7, []
    original = blocks.write_HOST_COMMAND

    def watch(value):
        original(value)
        states.append((blocks.words[place], blocks.words[place + 4]))

    blocks.write_HOST_COMMAND = watch
    post(blocks, 0, [(BIND, 1, MOVE, 7, 0x222, 0x84000006)])
    engine = run(blocks)
    old, new = (0x107, RIGHTS | 5), (0x222, 0x84000005)
    assert states == [old, (0x107, 0), (0x222, 0), new]
    assert engine.registers[11] == 1
    assert [status for _, _, status, _ in blocks.completions] == [SUCCESS]


@pytest.mark.parametrize(("offset", "upper", "searched"), [(0, 0, True), (4, RIGHTS | 5, False)])
def test_a_window_whose_entry_cannot_be_written(offset, upper, searched):
    """Where only the lower word fails the window is gone already, so its keys go too."""
    blocks = blocks_of()
    blocks.fails = frozenset([TABLE + 8 * 7 + offset])
    post(blocks, 0, [(BIND, 1, MOVE, 7, 0x222, RIGHTS)])
    run(blocks)
    assert [status for _, _, status, _ in blocks.completions] == [NOT_BOUND]
    assert blocks.words[TABLE + 8 * 7 + 4] == upper
    assert (7 not in blocks.keys.valid_keys(0)) == searched


@pytest.mark.parametrize(("what", "clocks"), [(INVALIDATE, 162), (MOVE, 187)])
def test_clocks_until_a_bind_is_left_to_the_manager(what, clocks):
    """From reset, with blocks that answer in the next clock."""
    blocks = blocks_of((0,))
    post(blocks, 0, [(BIND, 1, what, 7, 0x222, RIGHTS)])
    engine = InstructionModel(PROGRAM.halves, blocks)
    while not blocks.taken:
        engine.step()
    assert engine.clocks == clocks


def test_a_descriptor_that_the_host_refuses_completes_and_others_go_on():
    blocks = blocks_of()
    post(blocks, 0, [(UNKNOWN, 1)])
    post(blocks, 1, [(UNKNOWN, 2)])
    blocks.fails = frozenset([base(0)])
    run(blocks)
    assert [(qp, work, status) for qp, work, status, _ in blocks.completions] == [
        (0, 0, NOT_READ),
        (1, 2, NOT_HANDLED),
    ]


@pytest.mark.parametrize("table", [0x1_0001_0000, 0x1_0000_0000 - 8 * 8, LAST_PAGES])
@pytest.mark.parametrize("what", [INVALIDATE, MOVE])
def test_a_page_table_anywhere_in_16_tib(table, what):
    """One begins below 4 GiB and ends above; nothing but the window's entry is written."""
    blocks = blocks_of(table=table, limit=1 << 44)
    post(blocks, 0, [(BIND, 1, what, 8, 0x222, RIGHTS)])
    before = dict(blocks.words)
    run(blocks)
    assert [status for _, _, status, _ in blocks.completions] == [SUCCESS]
    place = table + 8 * 8
    entry = (0x222, RIGHTS | 5) if what == MOVE else (0x108, 0)
    assert blocks.words == before | dict(zip((place, place + 4), entry, strict=True))


@pytest.mark.parametrize(("low", "high"), [(0x1000, 5), (0xFFFFFF80, 6)])
def test_a_send_queue_above_4_gib(low, high):
    """Its second descriptor may lie behind a carry."""
    blocks = blocks_of(limit=1 << 44)
    blocks.context[0], blocks.context[6] = low, high
    start = high << 32 | low
    blocks.words[start + 4], blocks.words[start + 128 + 4] = 11, 12
    blocks.post(0, 2)
    run(blocks)
    assert [entry[1:3] for entry in blocks.completions] == [(11, NOT_HANDLED), (12, NOT_HANDLED)]


class BesideManager(SendBlocks):
    """The manager is not in here: it is the real one."""

    def write_RMB_START(self, value):
        assert value == 1

    def read_RMB_DONE(self):
        return 0


for _name in ("RMB_PD", "RMB_KEY", "RMB_START"):
    setattr(BesideManager, f"read_{_name}", lambda self: 0)


class WithManager(wiring.Component):
    """The model's blocks, and the remote-key manager's gates on the same bus."""

    def __init__(self, model, memory):
        super().__init__({"bus": In(EngineBus())})
        self.model = model
        self.manager = RmbRegisters(RemoteKeyManager(VIS, 4, init=tuple(memory)))

    def elaborate(self, platform):
        m = Module()
        m.submodules.model, m.submodules.manager = self.model, self.manager
        for part in (self.model.bus, self.manager.sq):
            for name in ("read_address_a", "read_address_b", "write_enable", "write_address", "write_data"):
                m.d.comb += getattr(part, name).eq(getattr(self.bus, name))
        for name in ("read_data_a", "read_data_b"):
            m.d.comb += getattr(self.bus, name).eq(
                getattr(self.model.bus, name) | getattr(self.manager.sq, name)
            )
        return m


@pytest.fixture(scope="module")
def whole():
    model = ModelBlocks(PlainRegisters())
    blocks = WithManager(model, blocks_of().keys.memory)
    memory = blocks.manager.manager.rq.memory.data
    return EngineBench(blocks, {"keys": memory}, model)


@settings(max_examples=5, deadline=None)
@given(posted=POSTED)
def test_the_engines_gates_drive_the_managers_gates(whole, posted):
    """Microcode, engine and remote-key manager together leave the keys that the rules leave."""
    blocks = blocks_of((3, 0), kind=BesideManager)
    whole.model.model = blocks
    for qp, descriptors in posted.items():
        post(blocks, qp, descriptors)
    whole.run(PROGRAM.halves, 2500)
    assert whole.contents["keys"] == check(blocks, posted)
