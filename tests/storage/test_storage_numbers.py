"""Numbers of SCSI and of SRP are the standards': two ends of one make would agree on any others."""

from __future__ import annotations

from softhca.storage import (
    descriptors,
    initiator_channel,
    logical_unit,
    registered,
    scsi,
    srp,
    target_channel,
)

# SPC-4 and SBC-3: operation codes, service actions, status codes, additional sense codes
SCSI = {
    "TEST_UNIT_READY": 0x00, "REQUEST_SENSE": 0x03, "INQUIRY": 0x12, "MODE_SENSE_6": 0x1A,
    "READ_CAPACITY_10": 0x25, "READ_10": 0x28, "WRITE_10": 0x2A, "SYNCHRONIZE_CACHE_10": 0x35,
    "MODE_SENSE_10": 0x5A, "READ_16": 0x88, "WRITE_16": 0x8A, "SYNCHRONIZE_CACHE_16": 0x91,
    "SERVICE_ACTION_IN_16": 0x9E, "READ_CAPACITY_16": 0x10, "REPORT_LUNS": 0xA0,
    "GOOD": 0x00, "CHECK_CONDITION": 0x02, "BUSY": 0x08, "TASK_SET_FULL": 0x28, "TASK_ABORTED": 0x40,
    "FUA": 0x08, "NACA": 0x04, "RESET_CODE": 0x29, "UNIT_ATTENTION": 0x6,
}  # fmt: skip
SENSES = {
    "NO_SENSE": (0, 0, 0), "MEDIUM_READ_ERROR": (3, 0x11, 0), "MEDIUM_WRITE_ERROR": (3, 0x0C, 0),
    "INVALID_OPCODE": (5, 0x20, 0), "LBA_OUT_OF_RANGE": (5, 0x21, 0), "INVALID_FIELD_IN_CDB": (5, 0x24, 0),
    "NO_LOGICAL_UNIT": (5, 0x25, 0), "INVALID_INFORMATION_UNIT": (5, 0x0E, 3),
    "WRITE_PROTECTED": (7, 0x27, 0),
    "NO_SPACE": (7, 0x27, 7), "UNIT_RESET": (6, 0x29, 3), "TRANSFER_FAILED": (11, 0x4B, 0),
}  # fmt: skip
# SRP (T10, revision 16a) with annex B of the profile of an I/O controller
SRP = {
    "LOGIN_REQ": 0x00, "TSK_MGMT": 0x01, "CMD": 0x02, "I_LOGOUT": 0x03, "LOGIN_RSP": 0xC0, "RSP": 0xC1,
    "LOGIN_REJ": 0xC2, "T_LOGOUT": 0x80, "CRED_REQ": 0x81, "AER_REQ": 0x82, "CRED_RSP": 0x41, "AER_RSP": 0x42,
    "DIRECT_BUFFERS": 2, "INDIRECT_BUFFERS": 4, "SINGLE_CHANNEL": 0, "MULTI_CHANNEL": 1,
    "NO_CHANNEL": 0, "TERMINATED": 1, "MAINTAINED": 2,
    "REJ_UNABLE": 0x10000, "REJ_NO_RESOURCES": 0x10001, "REJ_IU_TOO_LONG": 0x10002,
    "REJ_NO_SUCH_PORT": 0x10003,
    "REJ_FORMAT": 0x10004, "REJ_MULTI_CHANNEL": 0x10005, "REJ_CHANNEL_LIMIT": 0x10006,
    "LOGOUT_NO_REASON": 0, "LOGOUT_INACTIVE": 1, "LOGOUT_INVALID_TYPE": 2, "LOGOUT_SPURIOUS_RESPONSE": 3,
    "LOGOUT_UNSUPPORTED_FORMAT": 5, "SIMPLE": 0, "HEAD_OF_QUEUE": 1, "ORDERED": 2, "ACA": 4,
    "ABORT_TASK": 0x01, "ABORT_TASK_SET": 0x02, "CLEAR_TASK_SET": 0x04, "LUN_RESET": 0x08, "CLEAR_ACA": 0x40,
    "TASK_DONE": 0, "FIELDS_INVALID": 2, "FUNCTION_UNSUPPORTED": 4, "FUNCTION_FAILED": 5,
    "RESPONSE_DATA_BYTES": 4, "IO_CLASS": 0x0100, "IO_SUBCLASS": 0x609E, "PROTOCOL": 0x0108,
    "PROTOCOL_VERSION": 1, "PORT_ID_BYTES": 16,
}  # fmt: skip


def test_numbers_of_scsi() -> None:
    assert {name: getattr(scsi, name) for name in SCSI} == SCSI
    found = {name: getattr(scsi, name) for name in SENSES}
    assert {name: (one.key, one.code, one.qualifier) for name, one in found.items()} == SENSES
    assert scsi.CDB_BYTES == {0: 6, 1: 10, 2: 10, 4: 16, 5: 12}
    assert logical_unit.VPD_PAGES == (0x00, 0x80, 0x83, 0xB0, 0xB1)
    assert logical_unit.NO_UNIT == 0x7F
    assert (logical_unit.CACHING_PAGE, logical_unit.CONTROL_PAGE) == (0x08, 0x0A)
    assert logical_unit.ALL_PAGES == 0x3F


def test_numbers_of_srp() -> None:
    assert {name: getattr(srp, name) for name in SRP} == SRP
    assert (descriptors.NO_DATA, descriptors.DIRECT, descriptors.INDIRECT) == (0, 1, 2)
    assert (descriptors.RANGE_BYTES, descriptors.TABLE_HEAD_BYTES) == (16, 20)
    assert srp.SERVICE_PREFIX == "SRP.T10:"


def test_numbers_of_verbs_that_both_ends_post_by() -> None:
    assert (initiator_channel.SEND_OPCODE, initiator_channel.SIGNALED) == (2, 2)
    target = (target_channel.WRITE_OPCODE, target_channel.SEND_OPCODE, target_channel.READ_OPCODE)
    assert target == (0, 2, 4)
    assert (target_channel.SIGNALED, target_channel.SUCCESS, target_channel.RECEIVED) == (2, 0, 128)
    rights = (registered.LOCAL_WRITE, registered.REMOTE_WRITE, registered.REMOTE_READ)
    assert rights == (1, 2, 4)
