"""Classes, methods, attributes and statuses of management datagrams, by the standard's numbers."""

from __future__ import annotations

MAD_BYTES = 256
BASE_VERSION = 1

SUBNET_QPN = 0
GENERAL_QPN = 1
GENERAL_QKEY = 0x8001_0000
"""The Q_Key of queue pair 1 (IBTA vol. 1, 10.2.5)."""

# management classes (13.4.4)
CLASS_SUBN_LID = 0x01
CLASS_SUBN_ADM = 0x03
CLASS_PERF = 0x04
CLASS_BM = 0x05
CLASS_DEV_MGT = 0x06
CLASS_COMM_MGT = 0x07
COMM_MGT_VERSION = 2
CLASS_SNMP = 0x08
CLASS_CONGESTION = 0x21
CLASS_SUBN_DIRECTED = 0x81
VENDOR_FIRST, VENDOR_LAST = 0x09, 0x0F
VENDOR_OUI_FIRST, VENDOR_OUI_LAST = 0x30, 0x4F

SUBNET_CLASSES = frozenset({CLASS_SUBN_LID, CLASS_SUBN_DIRECTED})
"""Those of queue pair 0; all others are queue pair 1's."""
FABRIC_CLASSES = frozenset({CLASS_PERF, CLASS_SUBN_ADM})
"""Of queue pair 1: classes whose agents, and whose manager, are a served fabric's and no adapter's."""

# methods (13.4.5); those of subnet administration from 0x12 on
METHOD_GET = 0x01
METHOD_SET = 0x02
METHOD_SEND = 0x03
METHOD_TRAP = 0x05
METHOD_REPORT = 0x06
METHOD_TRAP_REPRESS = 0x07
METHOD_GET_TABLE = 0x12
METHOD_GET_TRACE_TABLE = 0x13
METHOD_GET_MULTI = 0x14
METHOD_DELETE = 0x15
RESPONSE = 0x80
"""The R bit: what answers a request has its method with this bit."""
METHOD_GET_RESPONSE = METHOD_GET | RESPONSE
METHOD_GET_TABLE_RESPONSE = METHOD_GET_TABLE | RESPONSE
RESPONSE_METHODS = {METHOD_SET: METHOD_GET_RESPONSE, METHOD_GET_TRACE_TABLE: METHOD_GET_TABLE_RESPONSE}
"""Methods whose response is that of another one; all others have their own (13.4.5, 15.2.2)."""

ANSWERED_METHODS = frozenset({METHOD_GET, METHOD_SET})
"""A refusal is answered where the requester waits for an answer, and silent otherwise (13.4.5)."""
UNANSWERED_METHODS = frozenset({METHOD_SEND, METHOD_TRAP, METHOD_TRAP_REPRESS})
"""What no response belongs to."""

# attributes (13.4.8, 14.2.5)
ATTRIBUTE_CLASS_PORT_INFO = 0x0001
ATTRIBUTE_NOTICE = 0x0002
ATTRIBUTE_NODE_DESCRIPTION = 0x0010
ATTRIBUTE_NODE_INFO = 0x0011
ATTRIBUTE_SWITCH_INFO = 0x0012
ATTRIBUTE_GUID_INFO = 0x0014
ATTRIBUTE_PORT_INFO = 0x0015
ATTRIBUTE_PKEY_TABLE = 0x0016
ATTRIBUTE_SL_TO_VL_TABLE = 0x0017
ATTRIBUTE_VL_ARBITRATION = 0x0018
ATTRIBUTE_LINEAR_FORWARDING = 0x0019
ATTRIBUTE_MULTICAST_FORWARDING = 0x001B
ATTRIBUTE_SM_INFO = 0x0020
ATTRIBUTE_LED_INFO = 0x0031

# attributes of performance management (16.1.3)
ATTRIBUTE_PORT_COUNTERS = 0x0012
ATTRIBUTE_PORT_RCV_ERROR_DETAILS = 0x0015
ATTRIBUTE_PORT_XMIT_DISCARD_DETAILS = 0x0016
ATTRIBUTE_PORT_XMIT_DATA_SL = 0x0036
ATTRIBUTE_PORT_RCV_DATA_SL = 0x0037
ATTRIBUTE_PORT_COUNTERS_EXTENDED = 0x001D

EXTENDED_SPEEDS_BIT = 1 << 31
"""Of PortInfo's attribute modifier: the manager knows extended speeds; the port's number is the last byte."""

# status (13.4.7): busy and redirection are bits, the code of an invalid field three of them
STATUS_OK = 0x0000
STATUS_BUSY = 0x0001
STATUS_REDIRECT = 0x0002
STATUS_BAD_VERSION = 0x0004
STATUS_BAD_METHOD = 0x0008
STATUS_BAD_ATTRIBUTE = 0x000C
STATUS_BAD_VALUE = 0x001C
DIRECTION = 0x8000
"""The D bit of a directed-route packet's status: it is on its way back."""

LID_PERMISSIVE = 0xFFFF


def data_offset(management_class: int) -> int:
    """Where a class has its attributes' data in its datagrams (IBTA vol. 1, chapters 13 to 16)."""
    if management_class in _OFFSETS:
        return _OFFSETS[management_class]
    if VENDOR_FIRST <= management_class <= VENDOR_LAST:
        return 24
    return 40 if VENDOR_OUI_FIRST <= management_class <= VENDOR_OUI_LAST else 64


def data_bytes(management_class: int) -> int:
    """How many bytes of data an attribute of a class has in one datagram."""
    return 64 if management_class in SUBNET_CLASSES else MAD_BYTES - data_offset(management_class)


_OFFSETS = {CLASS_SUBN_ADM: 56, CLASS_COMM_MGT: 24}
