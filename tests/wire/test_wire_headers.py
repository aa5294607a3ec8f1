"""Every header: layout, round trip, truncation, values beyond a field, and the standard's bit positions."""

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import fields_of

from softhca.management.administration_attributes import PathRecord
from softhca.management.attributes import PortInfo
from softhca.management.cm.messages import ATTRIBUTES
from softhca.management.mad import MadHeader
from softhca.wire.aeth import Aeth
from softhca.wire.atomicacketh import AtomicAckEth
from softhca.wire.atomiceth import AtomicEth
from softhca.wire.bth import Bth
from softhca.wire.deth import Deth
from softhca.wire.errors import WireError
from softhca.wire.feth import Feth
from softhca.wire.grh import Grh
from softhca.wire.ieth import Ieth
from softhca.wire.immdt import ImmDt
from softhca.wire.ip import (
    Ethernet,
    Ipv4,
    Ipv6,
    LinuxCooked,
    LinuxCooked2,
    Udp,
    Vlan,
    internet_checksum,
)
from softhca.wire.layout import Field, Header
from softhca.wire.lrh import Lrh
from softhca.wire.rdeth import Rdeth
from softhca.wire.reth import Reth
from softhca.wire.rwh import Rwh
from softhca.wire.xrceth import Xrceth

STANDARD = {
    "lrh": Lrh,
    "grh": Grh,
    "bth": Bth,
    "deth": Deth,
    "rdeth": Rdeth,
    "xrceth": Xrceth,
    "feth": Feth,
    "reth": Reth,
    "atomiceth": AtomicEth,
    "aeth": Aeth,
    "atomicacketh": AtomicAckEth,
    "immdt": ImmDt,
    "ieth": Ieth,
    "rwh": Rwh,
}
ALL = [*STANDARD.values(), Ethernet, Vlan, LinuxCooked, LinuxCooked2, Ipv4, Ipv6, Udp]
every_header = pytest.mark.parametrize("header", ALL, ids=lambda cls: cls.__name__)


@every_header
@given(data=st.data())
def test_a_header_decodes_to_what_was_encoded(header: type[Header], data: st.DataObject) -> None:
    value = data.draw(fields_of(header))
    encoded = value.encode()
    assert len(encoded) == header.LENGTH_BYTES
    assert header.decode(encoded) == value
    assert header.decode(b"\xaa" * 3 + encoded + b"\xbb", 3) == value


@every_header
@given(data=st.data())
def test_every_bit_of_a_header_survives_decoding(header: type[Header], data: st.DataObject) -> None:
    raw = data.draw(st.binary(min_size=header.LENGTH_BYTES, max_size=header.LENGTH_BYTES))
    assert header.decode(bytearray(raw)).encode() == raw
    assert header.decode(memoryview(raw)).encode() == raw


@every_header
def test_a_truncated_header_is_refused(header: type[Header]) -> None:
    for length in range(header.LENGTH_BYTES):
        with pytest.raises(WireError, match="needs"):
            header.decode(bytes(length))
    with pytest.raises(WireError):
        header.decode(bytes(header.LENGTH_BYTES), 1)
    with pytest.raises(WireError):
        header.decode(bytes(2 * header.LENGTH_BYTES), -1)


@every_header
def test_a_layout_is_as_long_as_the_header(header: type[Header]) -> None:
    assert sum(field.bits for field in header.LAYOUT) == 8 * header.LENGTH_BYTES


@every_header
def test_a_value_beyond_its_field_is_refused(header: type[Header]) -> None:
    good = {field.name: bytes(field.bits // 8) if field.as_bytes else 0 for field in header.LAYOUT}
    for field in header.LAYOUT:
        beyond = [bytes(field.bits // 8 + 1)] if field.as_bytes else [1 << field.bits, -1]
        for value in beyond:
            with pytest.raises(WireError, match=field.name):
                header(**{**good, field.name: value}).encode()


HEADERS = sorted({*ALL, MadHeader, *ATTRIBUTES.values(), PortInfo, PathRecord}, key=lambda cls: cls.__name__)


@pytest.mark.parametrize("header", HEADERS, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_a_header_is_the_same_in_one_go_and_field_by_field(
    header: type[Header], data: st.DataObject
) -> None:
    value = data.draw(fields_of(header))
    assert value.encode() == value._encode_one_by_one()
    name = data.draw(st.sampled_from([field.name for field in header.LAYOUT if not field.as_bytes]))
    object.__setattr__(value, name, data.draw(st.sampled_from([-1, 1 << 64, True, 1.5, b"1", None])))
    told = []
    for encode in (value.encode, value._encode_one_by_one):
        try:
            told.append(encode())
        except (WireError, TypeError) as error:
            told.append((type(error), str(error)))
    assert told[0] == told[1]


def _bit_offset(header: type[Header], name: str) -> int:
    names = [field.name for field in header.LAYOUT]
    return sum(field.bits for field in header.LAYOUT[: names.index(name)])


@pytest.mark.parametrize(
    ("module", "constant", "field"),
    [
        ("lrh", "VL_LVER", "vl"),
        ("lrh", "SL_LNH", "sl"),
        ("lrh", "DLID", "dlid"),
        ("lrh", "SLID", "slid"),
        ("lrh", "PACKET_LENGTH", "reserved5"),
        ("grh", "VERSION_TCLASS_FLOW", "version"),
        ("grh", "PAYLOAD_LENGTH", "payload_length_bytes"),
        ("grh", "NEXT_HEADER", "next_header"),
        ("grh", "HOP_LIMIT", "hop_limit"),
        ("grh", "SGID", "sgid"),
        ("grh", "DGID", "dgid"),
        ("bth", "OPCODE", "opcode"),
        ("bth", "FLAGS", "solicited"),
        ("bth", "PKEY", "pkey"),
        ("bth", "CONGESTION", "fecn"),
        ("bth", "DEST_QP", "dest_qp"),
        ("bth", "ACK_REQUEST", "ack_request"),
        ("bth", "PSN", "psn"),
        ("deth", "QKEY", "qkey"),
        ("deth", "SOURCE_QP", "source_qp"),
        ("rdeth", "EE_CONTEXT", "ee_context"),
        ("xrceth", "XRC_SRQ", "xrc_srq"),
        ("reth", "VA", "va"),
        ("reth", "RKEY", "rkey"),
        ("reth", "DMA_LENGTH", "dma_length_bytes"),
        ("atomiceth", "VA", "va"),
        ("atomiceth", "RKEY", "rkey"),
        ("atomiceth", "SWAP_ADD", "swap_add"),
        ("atomiceth", "COMPARE", "compare"),
        ("aeth", "SYNDROME", "syndrome"),
        ("aeth", "MSN", "msn"),
        ("atomicacketh", "ORIGINAL", "original"),
        ("immdt", "IMMEDIATE", "immediate"),
        ("ieth", "RKEY", "rkey"),
        ("rwh", "ETHERTYPE", "ethertype"),
    ],
)
def test_a_byte_offset_is_where_the_layout_puts_the_field(module: str, constant: str, field: str) -> None:
    offset = getattr(importlib.import_module(f"softhca.wire.{module}"), constant)
    assert 8 * offset == _bit_offset(STANDARD[module], field)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (
            Lrh(vl=7, lver=0, sl=1, lnh=2, dlid=0x375C, packet_length_words=14, slid=0x17D2),
            "7012375c000e17d2",
        ),
        (
            Grh(
                traffic_class=0x12,
                flow_label=0x34567,
                payload_length_bytes=48,
                hop_limit=5,
                sgid=b"\1" * 16,
                dgid=b"\2" * 16,
            ),
            "6123456700301b05" + "01" * 16 + "02" * 16,
        ),
        (
            Bth(
                0x0A, solicited=1, migreq=0, pad=2, pkey=0x2487, dest_qp=0x87B1B3, ack_request=1, psn=0x0DEC2A
            ),
            "0aa024870087b1b3800dec2a",
        ),
        (Bth(0x04, becn=1, tver=3), "0443ffff4000000000000000"),
        (Deth(0x11223344, source_qp=0x556677), "1122334400556677"),
        (Rdeth(ee_context=0xABCDEF), "00abcdef"),
        (Xrceth(xrc_srq=0xABCDEF), "00abcdef"),
        (Feth(selectivity=1, placement=3), "00000013"),
        (Reth(0x0102030405060708, 0x090A0B0C, 0x0D0E0F10), "0102030405060708090a0b0c0d0e0f10"),
        (AtomicEth(1, 2, 3, 4), "00000000000000010000000200000000000000030000000000000004"),
        (Aeth(0x1F, 5), "1f000005"),
        (AtomicAckEth(0x1122), "0000000000001122"),
        (ImmDt(0xDEADBEEF), "deadbeef"),
        (Ieth(0x01020304), "01020304"),
        (Rwh(ethertype=0x0800), "00000800"),
        (Udp(0xC000, 4791, 24), "c00012b700180000"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_fields_stand_where_the_standard_puts_them(value: Header, encoded: str) -> None:
    assert value.encode().hex() == encoded


def test_what_we_send_is_in_the_migrated_state_with_the_default_pkey() -> None:
    assert (Bth(0).migreq, Bth(0).pkey, Bth(0).tver) == (1, 0xFFFF, 0)


def test_an_ipv4_header_with_its_checksum_sums_to_zero() -> None:
    # the example of RFC 1071's arithmetic that every textbook uses: 45 00 00 73 … gives 0xB861
    header = Ipv4(
        total_length_bytes=0x73,
        hop_limit=64,
        source=bytes((192, 168, 0, 1)),
        destination=bytes((192, 168, 0, 199)),
    )
    assert header.with_checksum().checksum == 0xB861
    assert internet_checksum(header.with_checksum().encode()) == 0
    assert header.with_checksum().with_checksum() == header.with_checksum()


def test_the_checksum_of_an_odd_length_counts_a_zero_byte() -> None:
    assert (
        internet_checksum(b"\x12\x34\x56")
        == internet_checksum(b"\x12\x34\x56\x00")
        == 0xFFFF - 0x1234 - 0x5600
    )
    assert internet_checksum(b"\xff\xff\x00\x01") == 0xFFFE


def test_a_header_prints_numbers_and_hexadecimal_addresses() -> None:
    assert Ethernet(bytes(6), b"\1\2\3\4\5\6", 0x800).as_dict() == {
        "destination": "000000000000",
        "source": "010203040506",
        "ethertype": 0x800,
    }
    assert Field("a", 3).as_bytes is False
