"""The assembler: what it makes, where it says no; with the disassembler there and back."""

import pytest

pytest.importorskip("amaranth")

from hypothesis import given, settings
from microcode_strategies import PROGRAMS, proper_programs

from softhca.hardware.assembler import AssemblyError, assemble
from softhca.hardware.disassembler import disassemble
from softhca.hardware.flow import FlowError, check_flow
from softhca.hardware.isa import (
    CAPACITY,
    FIELDS,
    INSTRUCTION_BITS,
    WORD_BITS,
    WORDS,
    Condition,
    Form,
    Instruction,
    Operation,
    decode,
    encode,
    packed,
    unpacked,
)
from softhca.hardware.listing import listing
from softhca.hardware.memory_image import image_text, read_image


def test_the_memory_is_2k_words_of_44_bits_with_two_instructions_each():
    assert (WORDS, WORD_BITS, INSTRUCTION_BITS, CAPACITY) == (2048, 44, 22, 4096)


def test_fields_do_not_overlap_and_stay_within_22_bits():
    for fields in FIELDS.values():
        used = [bit for field in fields for bit in range(field.low, field.low + field.bits)]
        assert len(set(used)) == len(used)
        assert max(used) == INSTRUCTION_BITS - 1


@pytest.mark.parametrize(
    ("source", "halves"),
    [
        ("halt", (0b11_11_000_000_000000000000,)),
        ("x: jump.nz x\nhalt", (0b11_00_010_000_000000000000, 0b11_11_000_000_000000000000)),
        ("move.keep r0, r0\nhalt", (0, 0b11_11_000_000_000000000000)),
        ("add r1, r2\nhalt", (0b00_0001_000001_000010_1_000, 0b11_11_000_000_000000000000)),
        ("cmp.c m45, 63\nhalt", (0b01_0110_101101_111111_1_011, 0b11_11_000_000_000000000000)),
        (
            "move r3, 0x80000001\nhalt",
            (0b10_0000_000011_1000000000, 0b0000000000000000000001, 0b11_11_000_000_000000000000),
        ),
    ],
)
def test_encoding_by_example(source, halves):
    assert assemble(source).halves == halves


def test_a_long_form_takes_a_whole_word_with_its_number_in_the_low_32_bits():
    words = packed(assemble("move r5, 0xDEADBEEF\nhalt").halves)
    assert words[0] & 0xFFFFFFFF == 0xDEADBEEF
    assert unpacked(words)[:2] == list(assemble("move r5, 0xDEADBEEF\nhalt").halves[:2])


def test_a_long_form_behind_an_odd_count_begins_the_next_word_and_its_label_with_it():
    program = assemble("move r1, 1\nlabel: move r2, 64\njump label")
    assert program.labels == {"label": 2}
    assert [placed.line for placed in program.placed] == [1, 0, 2, 3]
    assert decode(program.halves, 1) == Instruction(Form.REGISTER, Operation.MOVE, 0, 0)


def test_names_constants_and_numbers():
    program = assemble(
        """
        .engine SQ RQ
        .name window, r3
        .name words, RQ_KEY_DATA
        .set VALID, 0x800_0000
        .set ONE, 0b1
        move window, VALID
        xor words, window
        add.z.keep window, ONE
        move r4, -1
        halt"""
    )
    made = [decode(program.halves, placed.address) for placed in program.placed]
    assert made[0] == Instruction(Form.LONG, Operation.MOVE, 3, 0x8000000, True)
    assert made[1] == Instruction(Form.REGISTER, Operation.XOR, 45, 3, True)
    assert made[2] == Instruction(Form.SHORT, Operation.ADD, 3, 1, False, Condition.Z)
    assert made[3] == Instruction(Form.LONG, Operation.MOVE, 4, 0xFFFFFFFF, True)


FULL = "move r0, r0\n" * CAPACITY


@pytest.mark.parametrize(
    ("source", "line", "column", "reason"),
    [
        ("mov r1, 2", 1, 1, "no operation 'mov'"),
        ("  move r1", 1, 3, "takes 2 operands, not 1"),
        ("halt r1", 1, 1, "takes no operands, not 1"),
        ("move r16, 2", 1, 6, "'r16' is no register"),
        ("move r1, r99", 1, 10, "is no register, number or name"),
        ("move r1, 0x", 1, 10, "is no register, number or name"),
        ("move r1, 010", 1, 10, "'010' is no number"),
        ("move r1, 0x1_0000_0000", 1, 10, "more than 32 bits"),
        ("move r1, -2147483649", 1, 10, "more than 32 bits"),
        ("move 5, r1", 1, 6, "'5' is no register"),
        ("move r1,, r2", 1, 9, "operand is missing"),
        ("move r1, ", 1, 9, "operand is missing"),
        ("halt\nmove.z r1, 64", 2, 12, "no room for a condition"),
        ("move.keep r1, 64", 1, 15, "no room for a condition"),
        ("move.zz r1, 2", 1, 6, "no suffix 'zz'"),
        ("move.z.nz r1, 2", 1, 8, "no suffix 'nz'"),
        ("move.long r1, r2", 1, 1, "the long form takes a number"),
        ("jump.keep 0", 1, 1, "jump takes a condition alone"),
        (".engine XQ", 1, 9, "no engine 'XQ'"),
        (".engine SQ\nmove RQ_KEY_DATA, 1", 2, 6, "RQ_KEY_DATA is not on this engine's bus"),
        ("move RX_WORD, 1", 1, 6, "RX_WORD can only be read"),
        ("add HOST_COMMAND, 1", 1, 5, "HOST_COMMAND can only be written"),
        ("move r1, RX_POP", 1, 10, "RX_POP can only be written"),
        (".name r2, r1", 1, 7, "r2 is already a name"),
        (".name HOST_DATA, r1", 1, 7, "HOST_DATA is already a name"),
        (".name x, 7", 1, 10, "'7' is no register"),
        (".set add, 7", 1, 6, "add is an operation's name"),
        (".set 7x, 7", 1, 6, "'7x' is no name"),
        (".org 7", 1, 1, "no directive '.org'"),
        (".word 0x400000", 1, 7, "more than 22 bits"),
        ("a: a: halt", 1, 4, "a is already a name"),
        (".set a, 1\n.set a, 2\nhalt", 2, 6, "a is already a name"),
        (".set a, 1\na: halt", 2, 1, "a is already a name"),
        ("move.keep.keep r1, r2", 1, 11, "no suffix 'keep' here"),
        ("move.long.long r1, 2", 1, 11, "no suffix 'long' here"),
        ("a: halt\na: halt", 2, 1, "a is already a name"),
        ("halt\n  jump there", 2, 8, "no label 'there'"),
        ("jump end\nend:", 1, 6, "end stands behind the last instruction"),
        ("jump 1", 1, 6, "jump to 1, outside the program's 0 … 0"),
        ("halt\ncall 4095", 2, 6, "call to 4095, outside"),
        ("jump 4096", 1, 6, "outside the memory's 0 … 4095"),
        ("move r1, 64\nhalt\n jump 1", 3, 7, "jump to 1, the second half of a number"),
        (".word 0x300007", 1, 1, "jump to 7, outside"),
        ("move r1, 2", 1, 1, "runs off its end"),
        ("x: jump.z x", 1, 11, "runs off its end"),
        ("return", 1, 1, "return without a call"),
        ("x: call x\nreturn", 1, 9, "calls nest deeper than 4"),
        ("; nothing", 1, 1, "no instruction"),
        (".if 1", 1, 1, ".if without .end"),
        ("halt\n.end", 2, 1, ".end without .if"),
        (".else", 1, 1, ".else without .if"),
        (".if 1\n .if 1", 2, 2, ".if within another"),
        (".if 0\n .if 1", 2, 2, ".if within another"),
        (".if", 1, 1, ".if takes 1 operand"),
        (".if 1\n.end 1", 2, 1, ".end takes no operands, not 1"),
        (".if NO", 1, 5, "is no register, number or name"),
        (".include there", 1, 10, "no part 'there'"),
        (".include two, one", 1, 1, ".include takes 1 operand, not 2"),
        (FULL + "halt", CAPACITY + 1, 1, "does not fit"),
        ("move r0, r0\n" * (CAPACITY - 1) + "move r1, 64", CAPACITY, 1, "does not fit"),
    ],
)
def test_what_is_refused_where_and_why(source, line, column, reason):
    with pytest.raises(AssemblyError) as refusal:
        assemble(source)
    assert (refusal.value.line, refusal.value.column) == (line, column)
    assert reason in refusal.value.reason
    assert str(refusal.value) == f"{line}:{column}: {refusal.value.reason}"


CHOICE = """
        .set WIDE, 0
        halt
        .if WIDE
        .set MANY, 7
again:  move r1, MANY
        .else
again:  add r1, 1
        .end
        jump again"""


def test_lines_that_are_not_chosen_are_not_there():
    assert assemble(CHOICE).halves == assemble("halt\nx: add r1, 1\njump x").halves
    wide = assemble(CHOICE, {"WIDE": 1, "MANY": 9})
    assert wide.halves == assemble("halt\nx: move r1, 9\njump x").halves
    with pytest.raises(ValueError, match="no constant 'MANY'"):
        assemble(CHOICE, {"MANY": 9})
    both = ".if 1\nhalt\n.else\nfrobnicate\n.end\n.if 0\nmove 1\n.end\nmove r1, 2\nhalt"
    assert assemble(both).halves == assemble("halt\nmove r1, 2\nhalt").halves
    labelled = ".if 0\nx: halt\ny: .else\nhalt\nz: .end\nmove r1, 2\nz2: halt"
    assert assemble(labelled).halves == assemble("halt\nmove r1, 2\nhalt").halves
    assert assemble(labelled).labels == {"z": 1, "z2": 2}


PARTS = {"one": "; a part\nadd x, 1\nover:", "two": "halt\n  add y, 1", "more": "halt\n.include one"}


def test_a_part_s_lines_belong_to_the_line_that_includes_it():
    program = assemble("move r1, 0\n.name x, r1\n.include one\njump over", parts=PARTS)
    assert program.halves == assemble("move r1, 0\nadd r1, 1\nx: jump x").halves
    assert [placed.line for placed in program.placed] == [1, 3, 4]
    assert program.labels == {"over": 2}
    assert [placed.text for placed in program.placed] == ["move r1, 0", "add x, 1", "jump over"]
    wrong = (("\n.include two", r"2:7: two:2: 'y' is no register"), (".include more", r"1:10: more:2: "))
    for source, told in wrong:
        with pytest.raises(AssemblyError, match=told):
            assemble(source, parts=PARTS)
    with pytest.raises(AssemblyError, match=r"^3:1: no operation 'hult'"):
        assemble(".name x, r1\n.include one\nhult", parts=PARTS)


def test_what_stands_right_behind_a_label_counts():
    assert assemble("x:halt\ny:z: jump x").halves == assemble("halt\njump 0").halves
    with pytest.raises(AssemblyError, match="1:3: no operation 'hult'"):
        assemble("x:hult")


def test_constants_that_are_given_have_32_bits():
    source = ".set A, 1\nmove r1, A\nhalt"
    for told, number in ((-1, 0xFFFFFFFF), (1 << 32 | 70, 70)):
        assert assemble(source, {"A": told}).halves == assemble(f"move r1, {number}\nhalt").halves


@pytest.mark.parametrize("number", [0, 1, 62, 63, 64, 0xFFFFFFFF])
def test_a_long_form_stays_one_whatever_its_number(number):
    halves = assemble(f"move.long r1, {number}\nhalt").halves
    assert len(halves) == 3
    assert assemble(disassemble(halves)).halves == halves


def test_four_calls_may_nest_and_a_fifth_may_not():
    nested = "call a\nhalt\na: call b\nreturn\nb: call c\nreturn\nc: call d\nreturn\n"
    assert assemble(nested + "d: return").labels["d"] == 8
    with pytest.raises(AssemblyError, match=r"9:11: calls nest deeper than 4"):
        assemble(nested + "d: call e\nreturn\ne: return".replace("call e", "  call e"))


def test_a_full_memory_fits():
    assert len(assemble("move r0, r0\n" * (CAPACITY - 1) + "halt").halves) == CAPACITY


@settings(max_examples=200, deadline=None)
@given(halves=proper_programs())
def test_what_is_disassembled_assembles_to_the_same(halves):
    assert assemble(disassemble(halves)).halves == tuple(halves)


@settings(max_examples=200, deadline=None)
@given(halves=PROGRAMS)
def test_bits_that_lead_elsewhere_are_refused_as_source_too(halves):
    """Any bits: their disassembly gives them back, or is refused for the reason that they are refused for."""
    text = disassemble(halves)
    try:
        check_flow(halves)
        reason = None
    except FlowError as error:
        reason = error.reason
    if reason is None:
        assert assemble(text).halves == tuple(halves)
        return
    with pytest.raises(AssemblyError) as refusal:
        assemble(text)
    assert refusal.value.reason == reason


@settings(max_examples=150, deadline=None)
@given(halves=PROGRAMS)
def test_what_is_decoded_encodes_to_the_same(halves):
    for address in range(len(halves)):
        instruction = decode(tuple(halves), address)
        if instruction is not None:
            assert encode(instruction) == tuple(halves[address : address + instruction.size])


def test_disassembly_by_example():
    source = "move r1, 0x40\nL2: cmp.keep r1, RX_WORD\njump.c L2\nmove.long r1, 7\nadd m49, m50\nhalt"
    assert disassemble(assemble(source).halves).split("\n") == [
        "    move r1, 0x00000040",
        "L2:",
        "    cmp.keep r1, RX_WORD",
        "    jump.c L2",
        "    move.long r1, 7",
        "    add m49, m50",
        "    halt",
        "",
    ]


@settings(max_examples=50, deadline=None)
@given(halves=PROGRAMS)
def test_an_image_is_read_back(halves):
    assert list(read_image(image_text(halves))) == [*halves, *([0] if len(halves) & 1 else [])]


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("00000000000\n  xyz", 2, 3, "'xyz' is no hexadecimal number"),
        ("1 100000000000", 1, 3, "more than 44 bits"),
        ("// only words", 1, 1, "no word"),
        ("0\n" * (WORDS + 1), WORDS + 1, 1, "does not fit"),
    ],
)
def test_an_image_that_is_none(text, line, column, reason):
    with pytest.raises(AssemblyError) as refusal:
        read_image(text)
    assert (refusal.value.line, refusal.value.column) == (line, column)
    assert reason in refusal.value.reason


def test_a_listing_counts_clocks_from_each_label():
    rows = listing(assemble("move r1, 1 ; one\nloop: add r1, 64\njump loop"))
    assert [(row.address, row.word, row.half, row.code_text, row.since_label) for row in rows] == [
        (0, 0, 0, "100418", 1),
        (1, 0, 1, "000000", 2),
        (2, 1, 0, "84100000040", 1),
        (4, 2, 0, "300002", 2),
    ]
    assert [row.clocks for row in rows] == [1] * 4
    assert [row.source for row in rows[::2]] == ["move r1, 1", "add r1, 64"]
    assert rows[2].labels == ("loop",)


@pytest.mark.parametrize(
    "instruction",
    [
        Instruction(Form.REGISTER, Operation.ADD, 64, 0),
        Instruction(Form.SHORT, Operation.ADD, 0, 64),
        Instruction(Form.LONG, Operation.ADD, 0, 1 << 32, True),
        Instruction(Form.LONG, Operation.ADD, 0, 1, False),
        Instruction(Form.LONG, Operation.ADD, 0, 1, True, Condition.Z),
    ],
)
def test_what_has_no_encoding_is_refused(instruction):
    with pytest.raises(ValueError, match=r"within|no room"):
        encode(instruction)
