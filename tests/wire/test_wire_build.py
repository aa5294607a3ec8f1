"""Headers written by the hot path are byte for byte what the representations encode."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import fields_of

from softhca.wire import build
from softhca.wire.aeth import Aeth
from softhca.wire.atomicacketh import AtomicAckEth
from softhca.wire.atomiceth import AtomicEth
from softhca.wire.bth import Bth
from softhca.wire.deth import Deth
from softhca.wire.feth import Feth
from softhca.wire.ieth import Ieth
from softhca.wire.immdt import ImmDt
from softhca.wire.layout import Header
from softhca.wire.opcodes import OPCODES
from softhca.wire.rdeth import Rdeth
from softhca.wire.reth import Reth
from softhca.wire.xrceth import Xrceth

WRITERS = [
    (build.put_reth, Reth), (build.put_atomiceth, AtomicEth), (build.put_aeth, Aeth),
    (build.put_atomicacketh, AtomicAckEth), (build.put_immdt, ImmDt), (build.put_ieth, Ieth),
    (build.put_deth, Deth), (build.put_rdeth, Rdeth), (build.put_xrceth, Xrceth),
    (build.put_feth, Feth),
]  # fmt: skip


def check(written: bytearray, end: int, offset: int, encoded: bytes) -> None:
    """The header stands at ``offset``, ``end`` is behind it, and nothing else was touched."""
    assert end == offset + len(encoded)
    assert bytes(written) == b"\xaa" * offset + encoded + b"\xaa" * (len(written) - end)


@pytest.mark.parametrize(("writer", "header"), WRITERS, ids=lambda value: getattr(value, "__name__", None))
@given(data=st.data(), offset=st.integers(0, 7))
def test_an_extension_header_is_written_as_encoded(writer, header: type[Header], data, offset: int) -> None:
    value = data.draw(fields_of(header))
    names = [field.name for field in header.LAYOUT if not field.name.startswith("reserved")]
    plain = header(**{name: getattr(value, name) for name in names})
    buffer = bytearray(b"\xaa" * 50)
    end = writer(buffer, offset, *(getattr(value, name) for name in names))
    check(buffer, end, offset, plain.encode())


@given(fields_of(Bth), st.integers(0, 7))
def test_a_bth_is_written_as_encoded_in_the_migrated_state(value: Bth, offset: int) -> None:
    buffer = bytearray(b"\xaa" * 50)
    congestion = value.fecn << 7 | value.becn << 6 | value.reserved6
    end = build.put_bth(
        buffer,
        offset,
        value.opcode,
        bool(value.solicited),
        value.pad,
        value.pkey,
        value.dest_qp,
        bool(value.ack_request),
        value.psn,
        congestion,
        value.reserved7,
    )
    expected = bytearray(value.encode())
    expected[1] = expected[1] & 0xB0 | 0x40
    check(buffer, end, offset, bytes(expected))


def test_a_bth_without_options_has_no_congestion_marks_and_no_reserved_bits() -> None:
    buffer = bytearray(b"\xaa" * 12)
    assert build.put_bth(memoryview(buffer), 0, 4, True, 1, 0xFFFF, 5, True, 6) == 12
    assert Bth.decode(buffer) == Bth(
        4, solicited=1, migreq=1, pad=1, pkey=0xFFFF, dest_qp=5, ack_request=1, psn=6
    )


def test_values_are_cut_to_their_fields() -> None:
    buffer = bytearray(12)
    build.put_bth(buffer, 0, 0x104, False, 5, 0x1FFFF, 0x1000005, False, 0x1000006, 0x100, 0x80)
    assert Bth.decode(buffer) == Bth(4, pad=1, pkey=0xFFFF, dest_qp=5, psn=6)


@pytest.mark.parametrize("pad", range(4))
def test_pad_bytes_are_zero(pad: int) -> None:
    buffer = bytearray(b"\xaa" * 9)
    check(buffer, build.put_pad(buffer, 3, pad), 3, bytes(pad))


def test_the_icrc_goes_out_least_significant_byte_first() -> None:
    buffer = bytearray(b"\xaa" * 9)
    check(buffer, build.put_icrc(buffer, 2, 0xF1223344), 2, b"\x44\x33\x22\xf1")


def test_the_vcrc_goes_out_least_significant_byte_first() -> None:
    buffer = bytearray(b"\xaa" * 7)
    check(buffer, build.put_vcrc(buffer, 2, 0xF144), 2, b"\x44\xf1")


def test_header_bytes_are_the_bth_and_its_extensions() -> None:
    assert build.header_bytes(0x00) == 12
    assert build.header_bytes(0x0B) == 12 + 16 + 4
    assert build.header_bytes(0x53) == 12 + 4 + 8 + 28
    for code in set(range(256)) - set(OPCODES):
        with pytest.raises(KeyError):
            build.header_bytes(code)
