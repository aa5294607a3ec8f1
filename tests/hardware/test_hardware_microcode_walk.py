"""The walk in microcode alone: it does what the remote-key manager does, in the clocks that are published."""

import pytest

pytest.importorskip("amaranth")

from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.adapter.remote_keys import RemoteKeyModel
from softhca.hardware.assembler import assemble
from softhca.hardware.instruction_model import InstructionModel
from softhca.hardware.isa import CAPACITY
from softhca.hardware.key_memory import VALID
from softhca.hardware.micro_registers import number_of
from softhca.hardware.microcode_files import microcode_names, microcode_program, microcode_source
from softhca.hardware.microcode_walk import CASES, MicrocodeWalk

VIS = 4
PDS = st.sampled_from([0, 1, 2, VALID | 1, (1 << 28) - 1])
KEYS = st.sampled_from([0, 1, 2, (1 << 27) - 1])
WORDS = st.builds(lambda key, valid: key | (VALID if valid else 0), KEYS, st.booleans())
MEMORIES = st.lists(st.tuples(PDS, WORDS, WORDS, WORDS, WORDS), min_size=VIS, max_size=VIS).map(
    lambda rows: [word for row in rows for word in row]
)
BEFORE_AND_TURN = 10
"""One more behind a last row that is another domain's."""
OTHER_ROW, OWN_ROW = 5, 17


class KeyRegisters:
    """The key memory's two registers as a model."""

    def __init__(self, memory):
        self.memory = memory
        self.address = self.word = 0

    def read(self, number):
        return {number_of("RQ_KEY_ADDRESS"): self.address, number_of("RQ_KEY_DATA"): self.word}.get(number, 0)

    def write(self, number, value):
        if number == number_of("RQ_KEY_ADDRESS"):
            self.address = value
            self.word = self.memory[value] if value < len(self.memory) else 0
        if number == number_of("RQ_KEY_DATA"):
            self.memory[self.address] = value

    def tick(self):
        pass


@pytest.fixture(scope="module")
def walk():
    return MicrocodeWalk(VIS)


def expected(memory, pd, key):
    model = RemoteKeyModel(VIS)
    model.memory = list(memory)
    model.start(pd, key)
    model.walk()
    return model.memory


@settings(max_examples=60, deadline=None)
@given(memory=MEMORIES, pd=PDS, key=KEYS)
def test_the_gates_leave_what_the_remote_key_model_leaves(walk, memory, pd, key):
    result = walk.run(memory, pd, key)
    assert result.memory == expected(memory, pd, key)
    own = sum(pd != 0 and memory[5 * vi] == pd for vi in range(VIS))
    wanted = BEFORE_AND_TURN + OWN_ROW * own + OTHER_ROW * (VIS - own) + (memory[-5] != pd)
    assert result.clocks == (wanted if pd else 3)


@settings(max_examples=200, deadline=None)
@given(memory=MEMORIES, pd=PDS, key=KEYS)
def test_the_instruction_model_does_the_same_on_a_model_of_the_memory(memory, pd, key):
    blocks = KeyRegisters(list(memory))
    engine = InstructionModel(microcode_program("walk", {"WORDS": 5 * VIS}).halves, blocks)
    engine.registers[14], engine.registers[15] = pd, key
    engine.run(1000)
    assert engine.halted
    assert blocks.memory == expected(memory, pd, key)


@pytest.mark.parametrize(
    ("case", "row"),
    [("all PDs differ", OTHER_ROW), ("PD matches, no key matches", OWN_ROW), ("all keys match", OWN_ROW)],
)
def test_clocks_of_a_row_in_the_three_cases(case, row):
    result = MicrocodeWalk(16).case(case)
    assert result.clocks == BEFORE_AND_TURN + 16 * row + (row == OTHER_ROW)
    cleared = [word for word in result.memory if not word & VALID]
    assert (len(cleared) == 16 * 5) == (case == "all keys match")


def test_256_rows_take_the_published_clocks():
    assert MicrocodeWalk().case("all PDs differ").clocks == 1291
    assert set(CASES) == {"all PDs differ", "PD matches, no key matches", "all keys match"}


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_model_runs_for_as_many_clocks_as_it_is_given(limit):
    model = InstructionModel(assemble("here: jump here").halves, KeyRegisters([0] * 20))
    assert model.run(limit) == limit
    assert not model.halted


def test_a_call_from_the_last_place_returns_to_the_first():
    model = InstructionModel(assemble("call there\nthere: halt").halves, KeyRegisters([0] * 20))
    model.program[CAPACITY - 1] = model.program[0]
    model.address = CAPACITY - 1
    model.step()
    assert model.stack[0] == model.program[0].size - 1


def test_a_walk_that_cannot_be_is_refused(walk):
    with pytest.raises(ValueError, match="20 words, not 1"):
        walk.run([0], 1, 1)
    with pytest.raises(ValueError, match="27 bits"):
        walk.run([0] * 20, 1, 1 << 27)
    with pytest.raises(ValueError, match="27 bits"):
        walk.run([0] * 20, 1, -1)
    with pytest.raises(ValueError, match="VIs"):
        MicrocodeWalk(0)


def test_microcode_is_found_by_name_and_its_constants_can_be_others():
    assert "walk" in microcode_names()
    assert ".engine SQ-ALONE" in microcode_source("walk")
    with pytest.raises(ValueError, match=r"no microcode 'run': .*walk"):
        microcode_source("run")
    with pytest.raises(ValueError, match="no constant 'ROWS'"):
        microcode_program("walk", {"ROWS": 1})
    assert microcode_program("walk", {"WORDS": 20}).halves != microcode_program("walk").halves


@pytest.mark.parametrize("name", microcode_names())
def test_all_microcode_assembles(name):
    assert microcode_program(name).halves
