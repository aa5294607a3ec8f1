"""The table of the host interface: its records, and that encoders, decoders and both bodies keep to it."""

import ctypes
import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.memory import bits
from softhca.queues import control_fields, handshake, header, layout, qp_attributes
from softhca.queues.cqe import CompletionEntry
from softhca.queues.layout import CQE, RECORDS, RECV_WQE, SEND_WQE, SGE, WIDTHS, Record
from softhca.queues.wqe import ReceiveWork, SendWork, encode_receive, encode_send
from suite_plan import random_inputs

FINGERPRINTS = {1: "881c7f43d1cd9e63", 2: "1873d127e07fce5d"}
"""What the table of each version is: who changes the table gives it another number."""


def values_of(record):
    return st.fixed_dictionaries({
        name: st.integers(0, (1 << 8 * WIDTHS[kind]) - 1) for name, kind, _ in record.fields
    })


def packed(record, values):
    return record.packing().pack(*(values[name] for name in record.names))


def test_the_table_has_not_changed_without_its_number():
    table = repr((layout.RECORDS, sorted(layout.constants().items()), control_fields.COMMANDS,
                  handshake.MESSAGES, sorted(qp_attributes.MASK.items()), sorted(
                      (title, sorted(group.items())) for title, group in header.numbers())))
    found = hashlib.sha256(table.encode()).hexdigest()[:16]
    assert found == FINGERPRINTS[layout.ABI_VERSION], (
        f"the host interface has changed: raise ABI_VERSION, or, where no release had this number yet, write "
        f"{found} here")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_a_compiler_would_lay_a_record_out_likewise(record):
    kinds = {"u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64}
    fields = [(name, kinds[kind]) for name, kind, _ in record.fields]
    natural = type("Natural", (ctypes.Structure,), {"_fields_": fields})
    assert record.packing().size == record.size_bytes
    gaps = record.name in ("ring", "doorbells", "recv_wqe")  # cache lines; a receive's zeros
    assert gaps or [getattr(natural, name).offset for name in record.names] == [
        offset for _, _, offset in record.fields]


@pytest.mark.parametrize("fields", [
    (("a", "u32", 2),), (("a", "u32", 0), ("b", "u8", 3)), (("a", "u64", 8),),
    (("a", "u8", 1), ("b", "u8", 0)),
])  # fmt: skip
def test_a_record_that_cannot_be_is_refused(fields):
    with pytest.raises(ValueError, match=r"cannot stand|does not fit"):
        Record("r", 8, "none", fields)


def test_pages_are_those_of_memory():
    assert (layout.PAGE_BYTES, layout.SLOT_PAGES) == (bits.PAGE_BYTES, bits.SLOT_PAGES)


@given(values_of(SEND_WQE), st.lists(values_of(SGE), max_size=3))
@settings(max_examples=random_inputs(100), deadline=None)
def test_a_send_is_written_and_read_as_the_table_says(values, sges):
    values |= {"num_sge": len(sges), "inline_bytes": 0, "flags": values["flags"] & ~layout.INLINE}
    data = packed(SEND_WQE, values) + b"".join(packed(SGE, sge) for sge in sges)
    out = bytearray(len(data))
    elements = [(sge["va"], sge["length"], sge["lkey"]) for sge in sges]
    written = encode_send(
        memoryview(out), values["opcode"], values["flags"], values["imm_or_key"], values["wr_id"],
        values["remote_va"], values["rkey"], values["compare_add"], values["swap"], values["ah"],
        values["remote_qpn"], values["remote_qkey"], elements)  # fmt: skip
    assert (written, out) == (len(data), data)
    work = SendWork(4, 64)
    work.load(memoryview(out), len(data))
    found = {name: getattr(work, name) for name in SEND_WQE.names if name != "num_sge"}
    assert found == {name: values[name] for name in found}
    if work.status == 0:
        assert work.elements() == elements


@given(values_of(SEND_WQE), st.binary(max_size=64))
@settings(max_examples=random_inputs(50), deadline=None)
def test_inline_bytes_follow_a_send(values, payload):
    values |= {"opcode": layout.SEND, "num_sge": 0, "inline_bytes": len(payload), "flags": layout.INLINE}
    work = SendWork(4, 64)
    data = bytearray(packed(SEND_WQE, values) + payload)
    assert work.load(memoryview(data), len(data)) == 0
    assert bytes(work.buffer[work.inline_offset:work.inline_offset + len(payload)]) == payload


@given(values_of(RECV_WQE), st.lists(values_of(SGE), max_size=3))
@settings(max_examples=random_inputs(50), deadline=None)
def test_a_receive_is_written_and_read_as_the_table_says(values, sges):
    values["num_sge"] = len(sges)
    data = packed(RECV_WQE, values) + b"".join(packed(SGE, sge) for sge in sges)
    out = bytearray(len(data))
    elements = [(sge["va"], sge["length"], sge["lkey"]) for sge in sges]
    assert (encode_receive(memoryview(out), values["wr_id"], elements), out) == (len(data), data)
    work = ReceiveWork(4)
    work.load(memoryview(out), len(data))
    assert work.wr_id == values["wr_id"]
    if work.status == 0:
        assert work.elements() == elements


@given(values_of(CQE))
@settings(max_examples=random_inputs(50), deadline=None)
def test_a_completion_is_written_as_the_table_says(values):
    entry = CompletionEntry()
    order = ("wr_id", "status", "opcode", "wc_flags", "qp_num", "byte_len", "imm_or_key", "src_qp",
             "vendor_err", "pkey_index", "sl", "slid", "path_bits", "timestamp_ns")  # fmt: skip
    entry.fill(*(values[name] for name in order))
    assert ctypes.string_at(entry.address, CQE.size_bytes) == packed(CQE, values)


@pytest.mark.parametrize("name", ["status", "opcode", "wc_flags", "pkey_index", "sl", "slid", "path_bits"])
def test_a_value_wider_than_its_field_touches_no_other_one(name):
    entry = CompletionEntry()
    order = ("wr_id", "status", "opcode", "wc_flags", "qp_num", "byte_len", "imm_or_key", "src_qp",
             "vendor_err", "pkey_index", "sl", "slid", "path_bits", "timestamp_ns")  # fmt: skip
    values = {field: place for place, field in enumerate(order, 1)}
    bits = {field: 8 * WIDTHS[kind] for field, kind, _ in CQE.fields}[name]
    entry.fill(*(values[field] | (0x7FFFFFFF & ~0 << bits if field == name else 0) for field in order))
    written = CQE.packing().unpack(ctypes.string_at(entry.address, CQE.size_bytes))
    found = dict(zip(CQE.names, written, strict=True))
    assert {field: found[field] for field in order} == values
