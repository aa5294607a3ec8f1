"""Datagrams and attributes: layouts, round trips, truncation, and where the standard has each field."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.management import constants as c
from softhca.management.attributes import (
    NODE_DESCRIPTION_BYTES,
    ClassPortInfo,
    NodeInfo,
    PortInfo,
    node_description,
)
from softhca.management.cm import messages
from softhca.management.cm.messages import Req
from softhca.management.device_attributes import IoControllerProfile, IoUnitInfo, ServiceEntry
from softhca.management.directed_route import DirectedRoute
from softhca.management.mad import Mad, MadHeader
from softhca.management.performance_attributes import (
    SELECT,
    PortCounters,
    PortCountersExtended,
    PortRcvDataSL,
    PortRcvErrorDetails,
    PortXmitDataSL,
    PortXmitDiscardDetails,
)
from softhca.management.subnet_attributes import (
    TABLES,
    BadMKeyDetails,
    CapabilityDetails,
    LedInfo,
    LinkStateDetails,
    Notice,
    SMInfo,
    SwitchInfo,
)
from softhca.wire.errors import WireError
from softhca.wire.layout import Header

ALL = (
    MadHeader, DirectedRoute, NodeInfo, PortInfo, ClassPortInfo,
    SwitchInfo, SMInfo, Notice, LinkStateDetails, CapabilityDetails, BadMKeyDetails, LedInfo,
    PortCounters, PortCountersExtended, PortRcvDataSL, PortRcvErrorDetails, PortXmitDataSL,
    PortXmitDiscardDetails,
    IoUnitInfo, IoControllerProfile, ServiceEntry,
)  # fmt: skip
every_layout = pytest.mark.parametrize("layout", ALL, ids=lambda cls: cls.__name__)

# (layout, field, first bit, width), bits counted from the attribute's first: IBTA vol. 1, 13.4.3, 13.4.8.1,
# 14.2.5.3 to 14.2.5.15, 14.2.5.1, 16.1.3.5, 16.1.4, 16.3.3
PLACES: tuple[tuple[type[Header], str, int, int], ...] = (
    (MadHeader, "management_class", 8, 8),
    (MadHeader, "method", 24, 8),
    (MadHeader, "status", 32, 16),
    (MadHeader, "class_specific", 48, 16),
    (MadHeader, "transaction_id", 64, 64),
    (MadHeader, "attribute_id", 128, 16),
    (MadHeader, "attribute_modifier", 160, 32),
    (DirectedRoute, "dr_slid", 64, 16),
    (DirectedRoute, "dr_dlid", 80, 16),
    (NodeInfo, "node_type", 16, 8),
    (NodeInfo, "num_ports", 24, 8),
    (NodeInfo, "system_image_guid", 32, 64),
    (NodeInfo, "node_guid", 96, 64),
    (NodeInfo, "port_guid", 160, 64),
    (NodeInfo, "partition_cap", 224, 16),
    (NodeInfo, "device_id", 240, 16),
    (NodeInfo, "revision", 256, 32),
    (NodeInfo, "local_port_num", 288, 8),
    (NodeInfo, "vendor_id", 296, 24),
    (PortInfo, "gid_prefix", 64, 64),
    (PortInfo, "lid", 128, 16),
    (PortInfo, "sm_lid", 144, 16),
    (PortInfo, "capability_mask", 160, 32),
    (PortInfo, "local_port_num", 224, 8),
    (PortInfo, "link_width_active", 248, 8),
    (PortInfo, "link_speed_supported", 256, 4),
    (PortInfo, "state", 260, 4),
    (PortInfo, "phys_state", 264, 4),
    (PortInfo, "lmc", 277, 3),
    (PortInfo, "link_speed_active", 280, 4),
    (PortInfo, "neighbor_mtu", 288, 4),
    (PortInfo, "sm_sl", 292, 4),
    (PortInfo, "vl_cap", 296, 4),
    (PortInfo, "mtu_cap", 332, 4),
    (PortInfo, "operational_vls", 344, 4),
    (PortInfo, "p_key_violations", 368, 16),
    (PortInfo, "q_key_violations", 384, 16),
    (PortInfo, "guid_cap", 400, 8),
    (PortInfo, "client_reregister", 408, 1),
    (PortInfo, "subnet_timeout", 411, 5),
    (PortInfo, "resp_time_value", 419, 5),
    (PortInfo, "link_speed_ext_active", 496, 4),
    (ClassPortInfo, "capability_mask", 16, 16),
    (ClassPortInfo, "resp_time_value", 59, 5),
    (ClassPortInfo, "redirect_gid", 64, 128),
    (ClassPortInfo, "redirect_lid", 224, 16),
    (ClassPortInfo, "redirect_qpn", 264, 24),
    (ClassPortInfo, "trap_gid", 320, 128),
    (ClassPortInfo, "trap_lid", 480, 16),
    (ClassPortInfo, "trap_qkey", 544, 32),
    (SwitchInfo, "linear_fdb_cap", 0, 16),
    (SwitchInfo, "multicast_fdb_cap", 32, 16),
    (SwitchInfo, "linear_fdb_top", 48, 16),
    (SwitchInfo, "default_port", 64, 8),
    (SwitchInfo, "lifetime", 88, 5),
    (SwitchInfo, "port_state_change", 93, 1),
    (SwitchInfo, "lids_per_port", 96, 16),
    (SwitchInfo, "partition_enforcement_cap", 112, 16),
    (SwitchInfo, "enhanced_port_zero", 132, 1),
    (SwitchInfo, "multicast_fdb_top", 144, 16),
    (SMInfo, "sm_key", 64, 64),
    (SMInfo, "act_count", 128, 32),
    (SMInfo, "priority", 160, 4),
    (SMInfo, "sm_state", 164, 4),
    (Notice, "type", 1, 7),
    (Notice, "producer_type", 8, 24),
    (Notice, "trap_number", 32, 16),
    (Notice, "issuer_lid", 48, 16),
    (Notice, "notice_count", 65, 15),
    (Notice, "data_details", 80, 432),
    (LinkStateDetails, "lid", 0, 16),
    (CapabilityDetails, "lid", 16, 16),
    (CapabilityDetails, "capability_mask", 48, 32),
    (BadMKeyDetails, "lid", 16, 16),
    (BadMKeyDetails, "method", 48, 8),
    (BadMKeyDetails, "attribute_id", 64, 16),
    (BadMKeyDetails, "m_key", 112, 64),
    (BadMKeyDetails, "dr_hop_count", 178, 6),
    (BadMKeyDetails, "dr_return_path", 184, 240),
    (LedInfo, "led_mask", 0, 1),
    (IoUnitInfo, "max_controllers", 16, 8),
    (IoUnitInfo, "option_rom", 31, 1),
    (IoUnitInfo, "controller_list", 32, 1024),
    (IoControllerProfile, "vendor_id", 64, 24),
    (IoControllerProfile, "device_id", 96, 32),
    (IoControllerProfile, "device_version", 128, 16),
    (IoControllerProfile, "subsystem_id", 192, 32),
    (IoControllerProfile, "io_class", 224, 16),
    (IoControllerProfile, "io_subclass", 240, 16),
    (IoControllerProfile, "protocol", 256, 16),
    (IoControllerProfile, "protocol_version", 272, 16),
    (IoControllerProfile, "initiators_supported", 304, 16),
    (IoControllerProfile, "send_queue_depth", 320, 16),
    (IoControllerProfile, "rdma_read_depth", 344, 8),
    (IoControllerProfile, "send_bytes", 352, 32),
    (IoControllerProfile, "rdma_bytes", 384, 32),
    (IoControllerProfile, "operations", 416, 8),
    (IoControllerProfile, "service_entries", 432, 8),
    (IoControllerProfile, "id_string", 512, 512),
    (ServiceEntry, "service_id", 320, 64),
    (PortCounters, "port_select", 8, 8),
    (PortCounters, "symbol_error", 32, 16),
    (PortCounters, "link_downed", 56, 8),
    (PortCounters, "xmit_discards", 112, 16),
    (PortCounters, "local_link_integrity_errors", 152, 4),
    (PortCounters, "vl15_dropped", 176, 16),
    (PortCounters, "xmit_data", 192, 32),
    (PortCounters, "rcv_pkts", 288, 32),
    (PortCounters, "xmit_wait", 320, 32),
    (PortCountersExtended, "xmit_data", 64, 64),
    (PortCountersExtended, "multicast_rcv_pkts", 512, 64),
    (PortRcvErrorDetails, "looping_errors", 112, 16),
    (PortXmitDataSL, "xmit_data_sl0", 32, 32),
    (PortRcvDataSL, "rcv_data_sl15", 512, 32),
    (PortInfo, "link_speed_ext2_active", 449, 2),
    (PortInfo, "link_speed_ext2_supported", 451, 2),
    (PortInfo, "link_speed_ext2_enabled", 453, 3),
    (PortXmitDiscardDetails, "sw_hoq_lifetime_limit_discards", 80, 16),
)


@every_layout
def test_the_fields_of_a_layout_fill_its_length(layout: type[Header]) -> None:
    assert sum(field.bits for field in layout.LAYOUT) == 8 * layout.LENGTH_BYTES


@pytest.mark.parametrize(("layout", "name", "first", "width"), PLACES)
def test_a_field_stands_where_the_standard_has_it(
    layout: type[Header], name: str, first: int, width: int
) -> None:
    data = ((1 << width) - 1) << (8 * layout.LENGTH_BYTES - first - width)
    decoded = layout.decode(data.to_bytes(layout.LENGTH_BYTES, "big"))
    for field in layout.LAYOUT:
        full: int | bytes = (1 << field.bits) - 1
        if field.as_bytes:
            full = b"\xff" * (field.bits // 8)
        nothing = bytes(field.bits // 8) if field.as_bytes else 0
        assert getattr(decoded, field.name) == (full if field.name == name else nothing)


@every_layout
@given(data=st.data())
def test_every_bit_survives(layout: type[Header], data: st.DataObject) -> None:
    raw = data.draw(st.binary(min_size=layout.LENGTH_BYTES, max_size=layout.LENGTH_BYTES))
    assert layout.decode(raw).encode() == raw


@every_layout
def test_what_is_cut_short_is_refused(layout: type[Header]) -> None:
    for length in range(layout.LENGTH_BYTES):
        with pytest.raises(WireError, match="needs"):
            layout.decode(bytes(length))


@given(st.binary(min_size=c.MAD_BYTES, max_size=c.MAD_BYTES), st.integers(0, 9))
def test_a_datagram_encodes_to_what_was_decoded(raw: bytes, offset: int) -> None:
    assert Mad.decode(bytes(offset) + raw + b"more", offset).encode() == raw


def test_a_short_datagram_is_refused() -> None:
    for length in (0, 23, 255):
        with pytest.raises(WireError, match="a MAD needs 256"):
            Mad.decode(bytes(length))
    with pytest.raises(WireError):
        Mad.decode(bytes(256), 1)
    with pytest.raises(WireError):
        Mad.decode(bytes(300), -1)
    with pytest.raises(WireError, match="has 256 bytes"):
        Mad(MadHeader(), bytes(7)).encode()


@pytest.mark.parametrize(
    ("management_class", "offset"),
    [
        (c.CLASS_SUBN_LID, 64),
        (c.CLASS_SUBN_DIRECTED, 64),
        (c.CLASS_SUBN_ADM, 56),
        (c.CLASS_PERF, 64),
        (c.CLASS_COMM_MGT, 24),
        (c.CLASS_DEV_MGT, 64),
        (c.CLASS_CONGESTION, 64),
        (0x09, 24),
        (0x0F, 24),
        (0x10, 64),
        (0x30, 40),
        (0x4F, 40),
        (0x50, 64),
    ],
)
def test_each_class_has_its_data_in_its_place(management_class: int, offset: int) -> None:
    mad = Mad.make(MadHeader(management_class=management_class), b"data")
    assert mad.encode()[offset : offset + 4] == b"data"
    assert mad.data[:4] == b"data"
    subnet = management_class in c.SUBNET_CLASSES
    assert len(mad.data) == (64 if subnet else c.MAD_BYTES - offset)


def test_data_that_do_not_fit_are_refused() -> None:
    assert len(Mad.make(MadHeader(management_class=c.CLASS_PERF), bytes(192)).encode()) == 256
    with pytest.raises(WireError, match="do not fit"):
        Mad.make(MadHeader(management_class=c.CLASS_PERF), bytes(193))


def test_a_response_is_the_request_with_status_and_attribute() -> None:
    header = MadHeader(
        management_class=c.CLASS_PERF,
        method=c.METHOD_GET,
        transaction_id=0x1122334455667788,
        attribute_id=c.ATTRIBUTE_CLASS_PORT_INFO,
        attribute_modifier=7,
    )
    request = Mad.make(header, b"what was asked")
    response = request.response(c.STATUS_BAD_VALUE)
    assert response.header == replace(header, method=0x81, status=c.STATUS_BAD_VALUE)
    assert response.body == request.body
    told = request.response(c.STATUS_OK, ClassPortInfo(capability_mask=5))
    assert told.data[:72] == ClassPortInfo(capability_mask=5).encode()
    assert not any(told.data[72:])
    assert told.body[:40] == request.body[:40]


def test_the_response_of_a_directed_route_turns_its_direction() -> None:
    request = Mad.make(MadHeader(management_class=c.CLASS_SUBN_DIRECTED, method=c.METHOD_GET))
    assert request.response(c.STATUS_BAD_ATTRIBUTE).header.status == 0x800C
    assert request.response().header.status == 0x8000


def test_the_paths_of_a_directed_route_are_no_data() -> None:
    header = MadHeader(management_class=c.CLASS_SUBN_DIRECTED, method=c.METHOD_GET)
    request = replace(Mad.make(header), body=bytes(range(232)))
    response = request.response(c.STATUS_OK, PortInfo(lid=5))
    assert response.data == PortInfo(lid=5).encode()
    assert response.body[:40] == request.body[:40]
    assert response.body[104:] == request.body[104:]
    with pytest.raises(WireError, match="do not fit"):
        Mad.make(header, bytes(65))


def test_a_node_description_is_cut_between_characters() -> None:
    assert node_description("softhca0") == b"softhca0" + bytes(56)
    cut = node_description("x" * 63 + "é")
    assert len(cut) == NODE_DESCRIPTION_BYTES
    assert cut == b"x" * 63 + b"\0"


@given(st.sampled_from(sorted(TABLES)), st.binary(min_size=64, max_size=64))
def test_a_block_of_a_table_is_its_entries(attribute: int, data: bytes) -> None:
    table = TABLES[attribute]
    values = table.decode(data)
    used = table.entries * table.bits // 8
    assert len(values) == table.entries
    assert table.encode(values) == data[:used]
    for broken in (data[: used - 1], b""):
        with pytest.raises(WireError, match="a block has"):
            table.decode(broken)
    for bad in (values[:-1], (*values, 0), (1 << table.bits, *values[1:]), (-1, *values[1:])):
        with pytest.raises(WireError):
            table.encode(bad)


def test_a_block_has_64_bytes_but_that_of_service_levels() -> None:
    bits = {attribute: table.entries * table.bits for attribute, table in TABLES.items()}
    assert bits == dict.fromkeys(TABLES, 8 * 64) | {c.ATTRIBUTE_SL_TO_VL_TABLE: 8 * 8}


def test_blocks_of_tables_begin_with_the_first_entry() -> None:
    assert TABLES[c.ATTRIBUTE_PKEY_TABLE].decode(b"\xff\xff\x12\x34" + bytes(60))[:3] == (0xFFFF, 0x1234, 0)
    assert TABLES[c.ATTRIBUTE_SL_TO_VL_TABLE].decode(bytes.fromhex("0123456789abcdef")) == tuple(range(16))
    assert TABLES[c.ATTRIBUTE_LINEAR_FORWARDING].decode(bytes(range(64))) == tuple(range(64))
    assert TABLES[c.ATTRIBUTE_GUID_INFO].encode([1, *[0] * 7])[:9] == bytes(7) + b"\1\0"


def test_every_counter_has_one_bit_that_clears_it() -> None:
    names = {field.name for field in PortCounters.LAYOUT} - {"reserved8", "port_select"}
    assert len(SELECT) == len(set(SELECT)) == 16
    assert names - set(SELECT) == {"counter_select", "counter_select2", "xmit_wait", "qp1_dropped"}


def test_a_message_with_other_values_is_another_message():
    first = Req(local_comm_id=7, private_data=b"x" * 92)
    other = first.changed(local_comm_id=8)
    assert (first.local_comm_id, other.local_comm_id, other.private_data) == (7, 8, first.private_data)
    assert other == replace(first, local_comm_id=8)
    assert Req.decode(other.encode()) == other
    with pytest.raises(TypeError, match="no_field"):
        first.changed(no_field=1)
    with pytest.raises(FrozenInstanceError):
        other.local_comm_id = 9
    with pytest.raises(FrozenInstanceError):
        Req.decode(first.encode()).local_comm_id = 9


# What the reasons of REJ and the states of APR are called (IBTA vol. 1, 12.6.7.2, 12.8.2.1), by number.
CODES = {
    "REJ": [
        "", "NO_QP", "NO_EEC", "NO_RESOURCES", "TIMEOUT", "UNSUPPORTED", "INVALID_COMM_ID",
        "INVALID_COMM_INSTANCE", "INVALID_SERVICE_ID", "INVALID_TRANSPORT", "STALE_CONNECTION", "NO_RDC",
        "INVALID_GID", "INVALID_LID", "INVALID_SL", "INVALID_TRAFFIC_CLASS", "INVALID_HOP_LIMIT",
        "INVALID_PACKET_RATE", *(f"ALTERNATE_{n}" for n in range(18, 24)), "CM_REDIRECTED", "REDIRECTED",
        "INVALID_PATH_MTU", "TOO_FEW_RESOURCES", "CONSUMER_DEFINED",
    ],
    "APR": [
        "LOADED", "INVALID_COMM_ID", "UNSUPPORTED", "REJECTED", "REDIRECTED", "IS_CURRENT", "INVALID_QPN",
        "INVALID_LID", "INVALID_GID", "INVALID_FLOW_LABEL", "INVALID_TRAFFIC_CLASS", "INVALID_HOP_LIMIT",
        "INVALID_PACKET_RATE", "INVALID_SL",
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", CODES)
def test_codes_of_the_connection_manager_are_the_standards(kind: str) -> None:
    said = {name: value for name, value in vars(messages).items() if name.startswith(f"{kind}_")}
    assert said == {name: CODES[kind].index(name.removeprefix(f"{kind}_")) for name in said}
    assert len(said) > 9
