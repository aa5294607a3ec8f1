"""Every field of every management datagram stands where the standard has it, and reads what stands there."""

from __future__ import annotations

import ctypes
import importlib
from ctypes import util

import pytest
from layout_places import PLACES

from softhca.wire.layout import Header

MODULES = sorted({name.rpartition(".")[0] for name in PLACES})
every_layout = pytest.mark.parametrize("name", PLACES)

# libibmad's number of a field, and the layout and the field that it is
OF_LIBIBMAD: tuple[tuple[int, str, str], ...] = (
    (29, "attributes.PortInfo", "lid"), (43, "attributes.PortInfo", "lmc"),
    (51, "attributes.PortInfo", "vl_arbitration_high_cap"),
    (52, "attributes.PortInfo", "vl_arbitration_low_cap"),
    (326, "attributes.PortInfo", "link_speed_ext_enabled"), (82, "attributes.NodeInfo", "partition_cap"),
    (103, "subnet_attributes.SwitchInfo", "filter_raw_outbound_cap"),
    (144, "subnet_attributes.SMInfo", "act_count"),
    (131, "performance_attributes.PortCounters", "rcv_constraint_errors"),
    (216, "attributes.ClassPortInfo", "redirect_pkey"), (225, "attributes.ClassPortInfo", "trap_hop_limit"),
    (158, "administration_attributes.MultiPathRecord", "sgid_count"),
    (166, "administration_attributes.PathRecord", "sl"),
    (173, "administration_attributes.MCMemberRecord", "rate"),
    (177, "administration_attributes.MCMemberRecord", "join_state"),
    (182, "administration_attributes.ServiceRecord", "lease"),
)  # fmt: skip


def layout(name: str) -> type[Header]:
    """A layout by its module and name."""
    module, _, kind = name.rpartition(".")
    found: type[Header] = getattr(importlib.import_module(f"softhca.management.{module}"), kind)
    return found


def places(name: str) -> list[tuple[str, int, int]]:
    """Fields with their first bit and their width."""
    length, text = PLACES[name]
    pairs = [(each.split()[0], int(each.split()[1])) for each in text.split(", ")]
    ends = [first for _, first in pairs[1:]] + [8 * length]
    return [(field, first, end - first) for (field, first), end in zip(pairs, ends, strict=True)]


@every_layout
def test_each_field_reads_its_own_bits_and_no_others(name: str) -> None:
    kind, length = layout(name), PLACES[name][0]
    assert length == kind.LENGTH_BYTES
    assert [field.name for field in kind.LAYOUT] == [field for field, _, _ in places(name)]
    for field, first, width in places(name):
        number = ((1 << width) - 1) << (8 * length - first - width)
        decoded = kind.decode(number.to_bytes(length, "big"))
        for each in kind.LAYOUT:
            value = getattr(decoded, each.name)
            bits = int.from_bytes(value, "big") if isinstance(value, bytes) else value
            assert bits == ((1 << width) - 1 if each.name == field else 0), (field, each.name)
        assert decoded.encode() == number.to_bytes(length, "big")


def test_every_layout_of_management_is_in_the_table() -> None:
    found = set()
    for module in MODULES:
        loaded = importlib.import_module(f"softhca.management.{module}")
        for kind in vars(loaded).values():
            if isinstance(kind, type) and kind.__module__ == loaded.__name__ and "LAYOUT" in vars(kind):
                found.add(f"{module}.{kind.__name__}")
    assert found == set(PLACES)


@pytest.mark.skipif(util.find_library("ibmad") is None, reason="libibmad is not installed")
def test_libibmad_has_the_fields_at_the_same_bits() -> None:
    library = ctypes.CDLL(util.find_library("ibmad"))
    library.mad_set_field.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_uint32]
    for number, name, wanted in OF_LIBIBMAD:
        data = ctypes.create_string_buffer(256)
        library.mad_set_field(data, 0, number, 0xFFFFFFFF)
        bits = int.from_bytes(data.raw, "big")
        first, width = next((first, width) for field, first, width in places(name) if field == wanted)
        assert (2048 - bits.bit_length(), bits.bit_count()) == (first, width), (name, wanted)


# (layout, what it says where nothing is said, but for zeros)
SAID: tuple[tuple[str, dict[str, int]], ...] = (
    ("mad.MadHeader", {"base_version": 1, "class_version": 1}),
    ("directed_route.DirectedRoute", {"dr_slid": 0xFFFF, "dr_dlid": 0xFFFF}),
    ("attributes.NodeInfo", {
        "base_version": 1, "class_version": 1, "node_type": 1, "num_ports": 1, "partition_cap": 1,
        "local_port_num": 1,
    }),
    ("attributes.PortInfo", {"local_port_num": 1}),
    ("attributes.ClassPortInfo", {"base_version": 1, "class_version": 1, "resp_time_value": 18}),
    ("subnet_attributes.Notice", {"is_generic": 1}),
    ("administration_attributes.NodeRecord", {"base_version": 1, "class_version": 1}),
    ("administration_attributes.InformInfo", {
        "is_generic": 1, "type": 0xFFFF, "trap_number": 0xFFFF, "qpn": 1, "producer_type": 0xFFFFFF,
    }),
    ("cm.messages.Req", {"partition_key": 0xFFFF}),
    ("cm.messages.SidrReq", {"partition_key": 0xFFFF}),
)  # fmt: skip


@every_layout
def test_what_is_not_said_is_zero_but_for_these(name: str) -> None:
    said = dict(SAID).get(name, {})
    kind = layout(name)
    plain = kind()
    for field in kind.LAYOUT:
        wanted: int | bytes = bytes(field.bits // 8) if field.as_bytes else said.get(field.name, 0)
        assert getattr(plain, field.name) == wanted, field.name
