"""The numbers of management datagrams are the standard's: two ends of one make would agree on any others."""

from __future__ import annotations

import importlib

import pytest

from softhca.management.cm import messages
from softhca.wire.errors import WireError

# module, and its numbers by name (IBTA vol. 1, 12.6.7.2, 12.8.2, 12.11.2, 13.4.4 to 13.4.8, 13.6.2, 14.2.5,
# 15.2, 16)
NUMBERS: dict[str, dict[str, int]] = {
    "constants": {
        "MAD_BYTES": 256, "BASE_VERSION": 1, "SUBNET_QPN": 0, "GENERAL_QPN": 1, "GENERAL_QKEY": 0x80010000,
        "CLASS_SUBN_LID": 1, "CLASS_SUBN_ADM": 3, "CLASS_PERF": 4, "CLASS_BM": 5, "CLASS_DEV_MGT": 6,
        "CLASS_COMM_MGT": 7, "CLASS_SNMP": 8, "CLASS_CONGESTION": 0x21, "CLASS_SUBN_DIRECTED": 0x81,
        "COMM_MGT_VERSION": 2, "VENDOR_FIRST": 9, "VENDOR_LAST": 0xF, "VENDOR_OUI_FIRST": 0x30,
        "VENDOR_OUI_LAST": 0x4F,
        "METHOD_GET": 1, "METHOD_SET": 2, "METHOD_SEND": 3, "METHOD_TRAP": 5, "METHOD_REPORT": 6,
        "METHOD_TRAP_REPRESS": 7, "METHOD_GET_TABLE": 0x12, "METHOD_GET_TRACE_TABLE": 0x13,
        "METHOD_GET_MULTI": 0x14, "METHOD_DELETE": 0x15, "RESPONSE": 0x80, "METHOD_GET_RESPONSE": 0x81,
        "METHOD_GET_TABLE_RESPONSE": 0x92,
        "ATTRIBUTE_CLASS_PORT_INFO": 1, "ATTRIBUTE_NOTICE": 2, "ATTRIBUTE_NODE_DESCRIPTION": 0x10,
        "ATTRIBUTE_NODE_INFO": 0x11, "ATTRIBUTE_SWITCH_INFO": 0x12, "ATTRIBUTE_GUID_INFO": 0x14,
        "ATTRIBUTE_PORT_INFO": 0x15, "ATTRIBUTE_PKEY_TABLE": 0x16, "ATTRIBUTE_SL_TO_VL_TABLE": 0x17,
        "ATTRIBUTE_VL_ARBITRATION": 0x18, "ATTRIBUTE_LINEAR_FORWARDING": 0x19,
        "ATTRIBUTE_MULTICAST_FORWARDING": 0x1B, "ATTRIBUTE_SM_INFO": 0x20, "ATTRIBUTE_LED_INFO": 0x31,
        "ATTRIBUTE_PORT_COUNTERS": 0x12, "ATTRIBUTE_PORT_RCV_ERROR_DETAILS": 0x15,
        "ATTRIBUTE_PORT_XMIT_DISCARD_DETAILS": 0x16, "ATTRIBUTE_PORT_COUNTERS_EXTENDED": 0x1D,
        "ATTRIBUTE_PORT_XMIT_DATA_SL": 0x36, "ATTRIBUTE_PORT_RCV_DATA_SL": 0x37,
        "EXTENDED_SPEEDS_BIT": 0x80000000,
        "STATUS_OK": 0, "STATUS_BUSY": 1, "STATUS_REDIRECT": 2, "STATUS_BAD_VERSION": 4,
        "STATUS_BAD_METHOD": 8, "STATUS_BAD_ATTRIBUTE": 0xC, "STATUS_BAD_VALUE": 0x1C, "DIRECTION": 0x8000,
        "LID_PERMISSIVE": 0xFFFF,
    },
    "administration_attributes": {
        "CLASS_VERSION": 2, "ATTRIBUTE_INFORM_INFO": 3, "ATTRIBUTE_NODE_RECORD": 0x11,
        "ATTRIBUTE_PORT_INFO_RECORD": 0x12, "ATTRIBUTE_SWITCH_INFO_RECORD": 0x14,
        "ATTRIBUTE_SM_INFO_RECORD": 0x18, "ATTRIBUTE_LINK_RECORD": 0x20, "ATTRIBUTE_SERVICE_RECORD": 0x31,
        "ATTRIBUTE_PATH_RECORD": 0x35, "ATTRIBUTE_MC_MEMBER_RECORD": 0x38,
        "ATTRIBUTE_MULTI_PATH_RECORD": 0x3A, "MULTI_PATH_GIDS": 11,
        "STATUS_NO_RESOURCES": 0x100, "STATUS_REQUEST_INVALID": 0x200, "STATUS_NO_RECORDS": 0x300,
        "STATUS_TOO_MANY_RECORDS": 0x400, "STATUS_INVALID_GID": 0x500,
        "STATUS_INSUFFICIENT_COMPONENTS": 0x600, "STATUS_DENIED": 0x700,
        "TRAP_GID_IN": 64, "TRAP_GID_OUT": 65, "TRAP_GROUP_CREATED": 66, "TRAP_GROUP_DELETED": 67,
    },
    "administration_tables": {
        "ATTRIBUTE_SL_TO_VL_RECORD": 0x13, "ATTRIBUTE_LINEAR_FORWARDING_RECORD": 0x15,
        "ATTRIBUTE_MULTICAST_FORWARDING_RECORD": 0x17, "ATTRIBUTE_GUID_INFO_RECORD": 0x30,
        "ATTRIBUTE_PKEY_TABLE_RECORD": 0x33, "ATTRIBUTE_VL_ARBITRATION_RECORD": 0x36,
        "ATTRIBUTE_INFORM_INFO_RECORD": 0xF3, "BLOCK_BYTES": 64,
    },
    "attributes": {"NODE_DESCRIPTION_BYTES": 64, "NODE_TYPE_CA": 1},
    "device_attributes": {
        "ATTRIBUTE_IO_UNIT_INFO": 0x10, "ATTRIBUTE_IO_CONTROLLER_PROFILE": 0x11,
        "ATTRIBUTE_SERVICE_ENTRIES": 0x12, "STATUS_NO_IOC": 0x100, "SLOT_EMPTY": 0, "SLOT_PRESENT": 1,
        "SLOT_ABSENT": 15, "MOST_SLOTS": 255, "SENDS_TO_IOC": 1, "SENDS_FROM_IOC": 2, "READS_FROM_IOC": 8,
        "WRITES_FROM_IOC": 32, "SERVICES_A_MAD": 4, "SERVICE_NAME_BYTES": 40,
    },
    "directed_route": {"HOPS_LAST": 63},
    "performance_attributes": {
        "ALL_PORTS": 255, "CAPABILITY_ALL_PORTS": 0x100, "CAPABILITY_EXTENDED": 0x200,
        "CAPABILITY_XMIT_WAIT": 0x1000,
    },
    "rmpp": {
        "VERSION": 1, "DATA": 1, "ACK": 2, "STOP": 3, "ABORT": 4, "ACTIVE": 1, "FIRST": 2, "LAST": 4,
        "SEGMENT_BYTES": 200, "HEADER_BYTES": 20, "HEADER_AT": 24, "DATA_AT": 56, "STATUS_NO_RESOURCES": 1,
        "STATUS_BAD_TYPE": 121, "STATUS_BAD_VERSION": 125, "STATUS_TOO_MANY_RETRIES": 126,
        "STATUS_UNSPECIFIED": 127,
    },
    "subnet_attributes": {
        "NOTICE_URGENT": 1, "NOTICE_SECURITY": 2, "NOTICE_SUBNET": 3, "NOTICE_INFO": 4,
        "TRAP_LINK_STATE": 128, "TRAP_CAPABILITY": 144, "TRAP_BAD_M_KEY": 256, "DR_PATH_BYTES": 30,
    },
    "cm.messages": {
        "CLASS_CM": 7, "CLASS_VERSION": 2, "METHOD_SEND": 3, "MESSAGE_BYTES": 232,
        "SERVICE_RC": 0, "SERVICE_UC": 1, "SERVICE_RD": 2, "SERVICE_EXTENDED": 3, "EXTENDED_XRC": 1,
        "OF_REQ": 0, "OF_REP": 1, "OF_LAP": 2, "OF_NONE": 2,
        "REJ_NO_QP": 1, "REJ_NO_RESOURCES": 3, "REJ_TIMEOUT": 4, "REJ_UNSUPPORTED": 5,
        "REJ_INVALID_COMM_ID": 6, "REJ_INVALID_COMM_INSTANCE": 7, "REJ_INVALID_SERVICE_ID": 8,
        "REJ_INVALID_TRANSPORT": 9, "REJ_STALE_CONNECTION": 10, "REJ_INVALID_GID": 12,
        "REJ_INVALID_PATH_MTU": 26, "REJ_CONSUMER_DEFINED": 28,
        "APR_LOADED": 0, "APR_INVALID_COMM_ID": 1, "APR_UNSUPPORTED": 2, "APR_REJECTED": 3,
        "APR_REDIRECTED": 4, "APR_IS_CURRENT": 5, "APR_INVALID_QPN": 6, "APR_INVALID_LID": 7,
        "APR_INVALID_GID": 8, "APR_INVALID_FLOW_LABEL": 9, "APR_INVALID_TRAFFIC_CLASS": 10,
        "APR_INVALID_HOP_LIMIT": 11, "APR_INVALID_PACKET_RATE": 12, "APR_INVALID_SL": 13,
        "FAILOVER_ACCEPTED": 0, "FAILOVER_UNSUPPORTED": 1, "FAILOVER_REJECTED": 2,
        "SIDR_SUCCESS": 0, "SIDR_UNSUPPORTED": 1, "SIDR_REJECTED": 2, "SIDR_NO_QP": 3,
    },
}  # fmt: skip


@pytest.mark.parametrize("module", NUMBERS)
def test_numbers_are_the_standards(module: str) -> None:
    loaded = importlib.import_module(f"softhca.management.{module}")
    assert {name: getattr(loaded, name) for name in NUMBERS[module]} == NUMBERS[module]


# how many components a record has, and how many bits the last has: what an attribute in a record has are
# components of its own (IBTA vol. 1, tables of 15.2.5)
COMPONENTS = {
    0x11: (15, 512), 0x12: (3 + 57, 5), 0x13: (5, 64), 0x14: (2 + 19, 16), 0x15: (4, 512), 0x17: (6, 512),
    0x18: (2 + 5, 4), 0x20: (5, 16), 0x30: (4 + 8, 64), 0x31: (7 + 16 + 8 + 4 + 2, 64), 0x33: (5, 512),
    0x35: (24, 48), 0x36: (5, 512), 0x38: (19, 23), 0x3A: (23, 1408), 0xF3: (4, 288),
}  # fmt: skip


def test_a_records_components_are_as_many_as_the_standard_has() -> None:
    tables = importlib.import_module("softhca.management.administration_tables")
    found = {attribute: (len(widths), widths[-1]) for attribute, widths in tables.COMPONENTS.items()}
    assert found == COMPONENTS
    for attribute, widths in tables.COMPONENTS.items():
        assert sum(widths) == 8 * tables.RECORDS[attribute].LENGTH_BYTES
    whole = 8 * tables.RECORDS[0x31].LENGTH_BYTES
    assert tables.mask_of(0x31, 1 << 36) == (1 << 64) - 1
    assert tables.mask_of(0x31, 1) == ((1 << 64) - 1) << whole - 64


@pytest.mark.parametrize("place", [1, 2, 3])
def test_what_is_of_another_class_version_or_method_is_no_message(place: int) -> None:
    data = bytearray(messages.encode(messages.Rtu(1, 2), 3))
    assert messages.decode(data) == (3, messages.Rtu(1, 2))
    data[place] ^= 0x10
    with pytest.raises(WireError, match="no message"):
        messages.decode(data)
