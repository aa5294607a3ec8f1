"""Information units, descriptors and SCSI's numbers: layouts, round trips, and what cannot be."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.storage import descriptors, scsi, srp
from softhca.storage.descriptors import Buffer, Range
from softhca.storage.errors import MessageError
from softhca.wire.errors import WireError
from softhca.wire.layout import Header

ALL = (
    srp.LoginRequest, srp.ShortLoginRequest, srp.LoginResponse, srp.LoginReject, srp.Command,
    srp.TaskManagement, srp.Response,
    srp.Short, srp.TargetLogout, srp.TargetRequest,
)  # fmt: skip
every_layout = pytest.mark.parametrize("layout", ALL, ids=lambda cls: cls.__name__)

# (unit, field, first bit, width): SRP revision 16a, 6.2 … 6.13
PLACES: tuple[tuple[type[Header], str, int, int], ...] = (
    (srp.LoginRequest, "tag", 64, 64),
    (srp.LoginRequest, "max_it_bytes", 128, 32),
    (srp.LoginRequest, "required_formats", 192, 16),
    (srp.LoginRequest, "multi_channel_action", 214, 2),
    (srp.LoginRequest, "initiator_port", 256, 128),
    (srp.LoginRequest, "target_port", 384, 128),
    (srp.ShortLoginRequest, "tag", 0, 64),
    (srp.ShortLoginRequest, "required_formats", 64, 16),
    (srp.ShortLoginRequest, "multi_channel_action", 86, 2),
    (srp.ShortLoginRequest, "type", 88, 8),
    (srp.ShortLoginRequest, "max_it_bytes", 96, 32),
    (srp.ShortLoginRequest, "initiator_port", 128, 128),
    (srp.ShortLoginRequest, "target_port", 256, 128),
    (srp.LoginResponse, "request_limit_delta", 32, 32),
    (srp.LoginResponse, "tag", 64, 64),
    (srp.LoginResponse, "max_it_bytes", 128, 32),
    (srp.LoginResponse, "max_ti_bytes", 160, 32),
    (srp.LoginResponse, "supported_formats", 192, 16),
    (srp.LoginResponse, "multi_channel_result", 214, 2),
    (srp.LoginReject, "reason", 32, 32),
    (srp.LoginReject, "tag", 64, 64),
    (srp.LoginReject, "supported_formats", 192, 16),
    (srp.Command, "out_format", 40, 4),
    (srp.Command, "in_format", 44, 4),
    (srp.Command, "out_count", 48, 8),
    (srp.Command, "in_count", 56, 8),
    (srp.Command, "tag", 64, 64),
    (srp.Command, "lun", 160, 64),
    (srp.Command, "task_attribute", 237, 3),
    (srp.Command, "additional_cdb_words", 248, 6),
    (srp.Command, "cdb", 256, 128),
    (srp.TaskManagement, "tag", 64, 64),
    (srp.TaskManagement, "lun", 160, 64),
    (srp.TaskManagement, "function", 240, 8),
    (srp.TaskManagement, "task_tag", 256, 64),
    (srp.Response, "request_limit_delta", 32, 32),
    (srp.Response, "tag", 64, 64),
    (srp.Response, "in_under", 146, 1),
    (srp.Response, "in_over", 147, 1),
    (srp.Response, "out_under", 148, 1),
    (srp.Response, "out_over", 149, 1),
    (srp.Response, "sense_valid", 150, 1),
    (srp.Response, "response_valid", 151, 1),
    (srp.Response, "status", 152, 8),
    (srp.Response, "out_residual", 160, 32),
    (srp.Response, "in_residual", 192, 32),
    (srp.Response, "sense_bytes", 224, 32),
    (srp.Response, "response_bytes", 256, 32),
    (srp.Short, "tag", 64, 64),
    (srp.TargetLogout, "reason", 32, 32),
    (srp.TargetRequest, "request_limit_delta", 32, 32),
)


@every_layout
def test_every_bit_of_a_unit_belongs_to_a_field(layout: type[Header]) -> None:
    assert sum(field.bits for field in layout.LAYOUT) == 8 * layout.LENGTH_BYTES
    assert layout.LAYOUT[0].name == ("tag" if layout is srp.ShortLoginRequest else "type")


@every_layout
@given(data=st.data())
def test_what_is_decoded_encodes_to_the_same(layout: type[Header], data: st.DataObject) -> None:
    raw = data.draw(st.binary(min_size=layout.LENGTH_BYTES, max_size=layout.LENGTH_BYTES))
    assert layout.decode(raw).encode() == raw
    with pytest.raises(WireError):
        layout.decode(raw[:-1])


@pytest.mark.parametrize(("layout", "name", "first", "width"), PLACES)
def test_fields_stand_where_the_standard_has_them(
    layout: type[Header], name: str, first: int, width: int
) -> None:
    number = ((1 << width) - 1) << (8 * layout.LENGTH_BYTES - first - width)
    found = layout.decode(number.to_bytes(layout.LENGTH_BYTES, "big"))
    for field in layout.LAYOUT:
        value = getattr(found, field.name)
        full = b"\xff" * (width // 8) if field.as_bytes else (1 << width) - 1
        nothing = bytes(field.bits // 8) if field.as_bytes else 0
        assert value == (full if field.name == name else nothing), field.name


def test_logical_units_are_named_in_two_ways() -> None:
    assert srp.lun_of(5) == bytes([0, 5, 0, 0, 0, 0, 0, 0])
    assert srp.number_of(srp.lun_of(255)) == 255
    assert srp.number_of(bytes([0x41, 2, 0, 0, 0, 0, 0, 0])) == 0x102  # flat space
    assert srp.number_of(bytes([0x7F, 0xFF, 0, 0, 0, 0, 0, 0])) == 0x3FFF
    for strange in (b"\1\0" + bytes(6), b"\x80\0" + bytes(6), b"\xc1\1" + bytes(6), bytes(7) + b"\1"):
        assert srp.number_of(strange) is None
    with pytest.raises(ValueError, match="256"):
        srp.lun_of(256)


def test_service_names_say_the_extension() -> None:
    assert srp.service_name(0xABC) == "SRP.T10:0000000000000abc"
    assert srp.extension_of(srp.service_name((1 << 64) - 1)) == (1 << 64) - 1
    for digits in ("abc", "00000000000000_1", "zzzzzzzzzzzzzzzz"):
        assert srp.extension_of("SRP.T10:" + digits) is None
    assert srp.extension_of("srp.t10:" + "0" * 16) is None


def test_request_limits_go_down_too() -> None:
    assert [srp.signed(each) for each in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF)] == [0, 1, 0x7FFFFFFF, -1]


# descriptors


def decoded(form: int, count: int, data: bytes) -> tuple[Buffer, int]:
    return descriptors.decode(form, count, memoryview(data))


def test_a_direct_descriptor_is_one_range() -> None:
    one = Range(1 << 63, 5, 100)
    assert decoded(1, 0, one.encode() + b"more") == (Buffer(100, (one,)), 16)
    assert decoded(1, 0, one._replace(length=0).encode()) == (descriptors.EMPTY, 16)
    assert decoded(0, 9, b"whatever") == (descriptors.EMPTY, 0)


RANGES = [Range(0, 1, 512), Range(4096, 2, 0), Range(9000, 3, 1024)]
TABLE = Range(1 << 20, 4, 48)


def test_an_indirect_descriptor_has_its_ranges_or_says_where_they_are() -> None:
    whole = descriptors.encode_indirect(TABLE, 1536, RANGES)
    assert decoded(2, 3, whole) == (Buffer(1536, (RANGES[0], RANGES[2])), 68)
    part = descriptors.encode_indirect(TABLE, 1536, RANGES[:2])
    assert decoded(2, 2, part) == (Buffer(1536, table=TABLE), 52)
    assert decoded(2, 0, part[:20]) == (Buffer(1536, table=TABLE), 20)
    assert decoded(2, 3, descriptors.encode_indirect(TABLE, 0, RANGES)) == (descriptors.EMPTY, 68)


@pytest.mark.parametrize(
    ("form", "count", "data", "says"),
    [
        (1, 0, bytes(15), "cut short"),
        (2, 0, bytes(19), "cut short"),
        (2, 3, descriptors.encode_indirect(TABLE, 1536, RANGES)[:-1], "cut short"),
        (2, 3, descriptors.encode_indirect(TABLE, 1535, RANGES), "another length"),
        (2, 3, descriptors.encode_indirect(TABLE._replace(length=32), 1536, RANGES), "more ranges"),
        (2, 0, descriptors.encode_indirect(TABLE._replace(length=0), 0, []), "none of"),
        (2, 0, descriptors.encode_indirect(TABLE._replace(length=47), 1, []), "none of"),
        (2, 0, descriptors.encode_indirect(TABLE._replace(length=256 * 16), 1, []), "none of"),
        (3, 0, bytes(64), "format 3"),
        (15, 0, bytes(64), "format 15"),
    ],
)
def test_descriptors_that_cannot_be_are_refused(form: int, count: int, data: bytes, says: str) -> None:
    with pytest.raises(MessageError, match=says):
        decoded(form, count, data)


def test_data_are_cut_at_the_ends_of_ranges() -> None:
    ranges = [RANGES[0], RANGES[2]]
    assert descriptors.pieces(ranges, 600) == [(RANGES[0], 0), (Range(9000, 3, 88), 512)]
    assert descriptors.pieces(ranges, 512) == [(RANGES[0], 0)]
    assert descriptors.pieces([], 512) == []


# SCSI


def test_sense_data_are_read_in_both_formats() -> None:
    for sense in (scsi.LBA_OUT_OF_RANGE, scsi.UNIT_RESET, scsi.NO_SPACE):
        assert len(sense.encode()) == 18
        assert scsi.Sense.decode(sense.encode()) == sense
    assert scsi.Sense.decode(bytes([0x72, 0x5, 0x21, 0x01])) == (5, 0x21, 1)
    assert scsi.Sense.decode(bytes([0xF0]) + scsi.NO_SPACE.encode()[1:]) == scsi.NO_SPACE
    deferred = bytes([0x71, 0, 0xE3]) + scsi.MEDIUM_WRITE_ERROR.encode()[3:]  # with flags beside its key
    assert scsi.Sense.decode(deferred) == scsi.MEDIUM_WRITE_ERROR
    assert scsi.Sense.decode(bytes([0x73, 0x5, 0x21, 0x01])) == (5, 0x21, 1)
    assert scsi.Sense.decode(scsi.NO_SPACE.encode()[:14]) == scsi.NO_SPACE
    for strange in (b"", b"\x70", b"\x72\x05\x21", bytes(18), scsi.NO_SPACE.encode()[:13]):
        assert scsi.Sense.decode(strange) is None
    assert str(scsi.LBA_OUT_OF_RANGE) == "logical block address out of range (5/21/00)"
    assert str(scsi.Sense(6, 0x28)) == "unit attention (6/28/00)"
    assert "unknown" in str(scsi.Sense(0xE, 1))


@pytest.mark.parametrize(
    ("lba", "blocks", "opcode"),
    [(0, 1, 0x28), ((1 << 32) - 8, 8, 0x28), ((1 << 32) - 7, 8, 0x88), (0, 0xFFFF, 0x28), (0, 0x10000, 0x88)],
)
def test_commands_are_as_long_as_their_numbers_need(lba: int, blocks: int, opcode: int) -> None:
    cdb = scsi.transfer(lba, blocks, scsi.READ_10, scsi.READ_16)
    assert (len(cdb), cdb[0]) == (16, opcode)
    form, start = (">I", 2) if opcode == 0x28 else (">Q", 2)
    assert struct.unpack_from(form, cdb, start)[0] == lba


def test_a_capacity_that_cannot_be_is_refused() -> None:
    assert scsi.capacity_of(struct.pack(">QI", 9, 512)) == scsi.Capacity(10, 512)
    assert scsi.Capacity(10, 512).length_bytes == 5120
    assert scsi.capacity_of(struct.pack(">QI", (1 << 62) - 1, 1 << 16)).block_bytes == 1 << 16
    for last, block in ((9, 0), (9, 513), (9, 1 << 17), (1 << 62, 512)):
        with pytest.raises(ValueError, match="cannot be"):
            scsi.capacity_of(struct.pack(">QI", last, block))
    with pytest.raises(ValueError, match="cut short"):
        scsi.capacity_of(bytes(11))


def test_numbers_of_a_refused_login() -> None:
    """SRP revision 16a, LOGIN_REJ."""
    assert list(srp.REJ_REASONS) == list(range(0x10000, 0x10007))
    assert (srp.REJ_UNABLE, srp.REJ_NO_RESOURCES, srp.REJ_IU_TOO_LONG) == (0x10000, 0x10001, 0x10002)
    assert (srp.REJ_NO_SUCH_PORT, srp.REJ_FORMAT) == (0x10003, 0x10004)
    assert (srp.REJ_MULTI_CHANNEL, srp.REJ_CHANNEL_LIMIT) == (0x10005, 0x10006)
