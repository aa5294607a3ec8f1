"""Information units of the SCSI RDMA Protocol (T10 SRP, revision 16a) as lists of fields.

LOGIN_REQ travels in the private data of REQ, LOGIN_RSP in that of REP, LOGIN_REJ in that of REJ; all others
are messages of the channel.  Each begins with its type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

# types of information units: requests and responses of either side
LOGIN_REQ = 0x00
TSK_MGMT = 0x01
CMD = 0x02
I_LOGOUT = 0x03
LOGIN_RSP = 0xC0
RSP = 0xC1
LOGIN_REJ = 0xC2
T_LOGOUT = 0x80
CRED_REQ = 0x81
AER_REQ = 0x82
CRED_RSP = 0x41
AER_RSP = 0x42

# LOGIN_REQ ``required_formats``, LOGIN_RSP ``supported_formats``
DIRECT_BUFFERS = 1 << 1
INDIRECT_BUFFERS = 1 << 2

# LOGIN_REQ ``multi_channel_action`` and LOGIN_RSP ``multi_channel_result``
SINGLE_CHANNEL = 0
MULTI_CHANNEL = 1
NO_CHANNEL = 0
TERMINATED = 1
MAINTAINED = 2

# LOGIN_REJ ``reason``
REJ_UNABLE = 0x0001_0000
REJ_NO_RESOURCES = 0x0001_0001
REJ_IU_TOO_LONG = 0x0001_0002
REJ_NO_SUCH_PORT = 0x0001_0003
REJ_FORMAT = 0x0001_0004
REJ_MULTI_CHANNEL = 0x0001_0005
REJ_CHANNEL_LIMIT = 0x0001_0006
REJ_REASONS = {
    REJ_UNABLE: "the channel cannot be established",
    REJ_NO_RESOURCES: "the target has no resources",
    REJ_IU_TOO_LONG: "the requested messages are too long",
    REJ_NO_SUCH_PORT: "there is no such target port",
    REJ_FORMAT: "a required buffer format is not supported",
    REJ_MULTI_CHANNEL: "several channels are not supported",
    REJ_CHANNEL_LIMIT: "there are too many channels",
}

# T_LOGOUT ``reason``
LOGOUT_NO_REASON = 0
LOGOUT_INACTIVE = 1
LOGOUT_INVALID_TYPE = 2
LOGOUT_SPURIOUS_RESPONSE = 3
LOGOUT_UNSUPPORTED_FORMAT = 5

# CMD ``task_attribute``
SIMPLE = 0
HEAD_OF_QUEUE = 1
ORDERED = 2
ACA = 4

# TSK_MGMT ``function``
ABORT_TASK = 0x01
ABORT_TASK_SET = 0x02
CLEAR_TASK_SET = 0x04
LUN_RESET = 0x08
CLEAR_ACA = 0x40

# response codes of RSP, the last byte of 4
TASK_DONE = 0
FIELDS_INVALID = 2
FUNCTION_UNSUPPORTED = 4
FUNCTION_FAILED = 5
RESPONSE_DATA_BYTES = 4

# I/O controller profile of a target (SRP annex B)
IO_CLASS = 0x0100
IO_SUBCLASS = 0x609E
PROTOCOL = 0x0108
PROTOCOL_VERSION = 1
SERVICE_PREFIX = "SRP.T10:"
"""A service's name is this and the target port's identifier extension, 16 hexadecimal digits."""

PORT_ID_BYTES = 16
"""A port's identifier: 8 bytes of extension, 8 of GUID: the I/O controller's, or the initiator's."""


@dataclass(frozen=True, slots=True)
class LoginRequest(Header):
    """An initiator asks for a channel between two ports, with messages of ``max_it_bytes`` to the target."""

    LENGTH_BYTES: ClassVar[int] = 64
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("type", 8),
        Field("reserved56", 56),
        Field("tag", 64),
        Field("max_it_bytes", 32),
        Field("reserved32", 32),
        Field("required_formats", 16),
        Field("request_flags", 6),
        Field("multi_channel_action", 2),
        Field("reserved40", 40),
        Field("initiator_port", 128, True),
        Field("target_port", 128, True),
    )

    type: int = LOGIN_REQ
    reserved56: int = 0
    tag: int = 0
    max_it_bytes: int = 0
    reserved32: int = 0
    required_formats: int = 0
    request_flags: int = 0
    multi_channel_action: int = SINGLE_CHANNEL
    reserved40: int = 0
    initiator_port: bytes = bytes(PORT_ID_BYTES)
    target_port: bytes = bytes(PORT_ID_BYTES)


@dataclass(frozen=True, slots=True)
class ShortLoginRequest(Header):
    """The same behind the header of RDMA CM, which leaves room for so many bytes (Linux's form)."""

    LENGTH_BYTES: ClassVar[int] = 56
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("tag", 64),
        Field("required_formats", 16),
        Field("request_flags", 6),
        Field("multi_channel_action", 2),
        Field("type", 8),
        Field("max_it_bytes", 32),
        Field("initiator_port", 128, True),
        Field("target_port", 128, True),
        Field("reserved64", 64),
    )

    tag: int = 0
    required_formats: int = 0
    request_flags: int = 0
    multi_channel_action: int = SINGLE_CHANNEL
    type: int = LOGIN_REQ
    max_it_bytes: int = 0
    initiator_port: bytes = bytes(PORT_ID_BYTES)
    target_port: bytes = bytes(PORT_ID_BYTES)
    reserved64: int = 0

    @classmethod
    def of(cls, request: LoginRequest) -> ShortLoginRequest:
        """The short form of a login."""
        return cls(**{name: getattr(request, name) for name in _IN_BOTH})

    @property
    def long(self) -> LoginRequest:
        """The long form."""
        return LoginRequest(**{name: getattr(self, name) for name in _IN_BOTH})


_IN_BOTH = (
    "tag", "required_formats", "request_flags", "multi_channel_action", "type", "max_it_bytes",
    "initiator_port", "target_port",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoginResponse(Header):
    """The channel stands: how many requests the target takes, and how long messages may be each way."""

    LENGTH_BYTES: ClassVar[int] = 52
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("type", 8),
        Field("reserved24", 24),
        Field("request_limit_delta", 32),
        Field("tag", 64),
        Field("max_it_bytes", 32),
        Field("max_ti_bytes", 32),
        Field("supported_formats", 16),
        Field("response_flags", 6),
        Field("multi_channel_result", 2),
        Field("reserved200", 200, True),
    )

    type: int = LOGIN_RSP
    reserved24: int = 0
    request_limit_delta: int = 0
    tag: int = 0
    max_it_bytes: int = 0
    max_ti_bytes: int = 0
    supported_formats: int = 0
    response_flags: int = 0
    multi_channel_result: int = NO_CHANNEL
    reserved200: bytes = bytes(25)


@dataclass(frozen=True, slots=True)
class LoginReject(Header):
    """There will be no channel, and why."""

    LENGTH_BYTES: ClassVar[int] = 32
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("type", 8),
        Field("reserved24", 24),
        Field("reason", 32),
        Field("tag", 64),
        Field("reserved64", 64),
        Field("supported_formats", 16),
        Field("reserved48", 48),
    )

    type: int = LOGIN_REJ
    reserved24: int = 0
    reason: int = 0
    tag: int = 0
    reserved64: int = 0
    supported_formats: int = 0
    reserved48: int = 0


@dataclass(frozen=True, slots=True)
class Command(Header):
    """A SCSI command; behind it come the additional CDB and the data buffer descriptors, out before in.

    ``additional_cdb_words`` counts 4 bytes each; ``out_format`` and ``in_format`` say what the descriptors
    are (`descriptors`), the counts of indirect ones how many stand in the message.
    """

    LENGTH_BYTES: ClassVar[int] = 48
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("type", 8),
        Field("solicited", 8),
        Field("reserved24", 24),
        Field("out_format", 4),
        Field("in_format", 4),
        Field("out_count", 8),
        Field("in_count", 8),
        Field("tag", 64),
        Field("reserved32", 32),
        Field("lun", 64, True),
        Field("reserved8", 8),
        Field("reserved5", 5),
        Field("task_attribute", 3),
        Field("reserved8b", 8),
        Field("additional_cdb_words", 6),
        Field("reserved2", 2),
        Field("cdb", 128, True),
    )

    type: int = CMD
    solicited: int = 0
    reserved24: int = 0
    out_format: int = 0
    in_format: int = 0
    out_count: int = 0
    in_count: int = 0
    tag: int = 0
    reserved32: int = 0
    lun: bytes = bytes(8)
    reserved8: int = 0
    reserved5: int = 0
    task_attribute: int = SIMPLE
    reserved8b: int = 0
    additional_cdb_words: int = 0
    reserved2: int = 0
    cdb: bytes = bytes(16)


@dataclass(frozen=True, slots=True)
class TaskManagement(Header):
    """Abort a task (``task_tag``) or all of a logical unit, or reset that."""

    LENGTH_BYTES: ClassVar[int] = 48
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("type", 8),
        Field("solicited", 8),
        Field("reserved48", 48),
        Field("tag", 64),
        Field("reserved32", 32),
        Field("lun", 64, True),
        Field("reserved16", 16),
        Field("function", 8),
        Field("reserved8", 8),
        Field("task_tag", 64),
        Field("reserved64", 64),
    )

    type: int = TSK_MGMT
    solicited: int = 0
    reserved48: int = 0
    tag: int = 0
    reserved32: int = 0
    lun: bytes = bytes(8)
    reserved16: int = 0
    function: int = 0
    reserved8: int = 0
    task_tag: int = 0
    reserved64: int = 0


@dataclass(frozen=True, slots=True)
class Response(Header):
    """The end of a command or of task management; response data and sense data follow, as long as it says.

    ``in_under`` and ``out_under``: so many bytes less than the buffers were moved (residual); ``over``: the
    command would have moved so many more.
    """

    LENGTH_BYTES: ClassVar[int] = 36
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("type", 8),
        Field("solicited", 8),
        Field("reserved16", 16),
        Field("request_limit_delta", 32),
        Field("tag", 64),
        Field("reserved16b", 16),
        Field("reserved2", 2),
        Field("in_under", 1),
        Field("in_over", 1),
        Field("out_under", 1),
        Field("out_over", 1),
        Field("sense_valid", 1),
        Field("response_valid", 1),
        Field("status", 8),
        Field("out_residual", 32),
        Field("in_residual", 32),
        Field("sense_bytes", 32),
        Field("response_bytes", 32),
    )

    type: int = RSP
    solicited: int = 0
    reserved16: int = 0
    request_limit_delta: int = 0
    tag: int = 0
    reserved16b: int = 0
    reserved2: int = 0
    in_under: int = 0
    in_over: int = 0
    out_under: int = 0
    out_over: int = 0
    sense_valid: int = 0
    response_valid: int = 0
    status: int = 0
    out_residual: int = 0
    in_residual: int = 0
    sense_bytes: int = 0
    response_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Short(Header):
    """I_LOGOUT, CRED_RSP and AER_RSP: nothing but a type and a tag."""

    LENGTH_BYTES: ClassVar[int] = 16
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("type", 8),
        Field("reserved56", 56),
        Field("tag", 64),
    )

    type: int = I_LOGOUT
    reserved56: int = 0
    tag: int = 0


@dataclass(frozen=True, slots=True)
class TargetLogout(Header):
    """The target ends the channel, and why."""

    LENGTH_BYTES: ClassVar[int] = 16
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("type", 8),
        Field("solicited", 8),
        Field("reserved16", 16),
        Field("reason", 32),
        Field("tag", 64),
    )

    type: int = T_LOGOUT
    solicited: int = 0
    reserved16: int = 0
    reason: int = 0
    tag: int = 0


@dataclass(frozen=True, slots=True)
class TargetRequest(Header):
    """CRED_REQ, and the front of AER_REQ: the target changes how many requests it takes, and is answered."""

    LENGTH_BYTES: ClassVar[int] = 16
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("type", 8),
        Field("solicited", 8),
        Field("reserved16", 16),
        Field("request_limit_delta", 32),
        Field("tag", 64),
    )

    type: int = CRED_REQ
    solicited: int = 0
    reserved16: int = 0
    request_limit_delta: int = 0
    tag: int = 0


def signed(delta: int) -> int:
    """A change of the request limit, which is a signed 32-bit number."""
    return delta - (1 << 32) if delta >> 31 else delta


def lun_of(number: int) -> bytes:
    """The 8 bytes that name logical unit 0 … 255 (SAM: peripheral device addressing, bus 0)."""
    if not 0 <= number <= 0xFF:
        raise ValueError(f"logical unit {number}: expected 0…255")
    return bytes([0, number]) + bytes(6)


def number_of(lun: bytes) -> int | None:
    """The logical unit that 8 bytes name, by peripheral device or flat space addressing; None: none here."""
    if any(lun[2:]):
        return None
    method = lun[0] >> 6
    if method == 0 and lun[0] == 0:
        return lun[1]
    return (lun[0] & 0x3F) << 8 | lun[1] if method == 1 else None


def service_name(extension: int) -> str:
    """The name of the service of a target port."""
    return f"{SERVICE_PREFIX}{extension:016x}"


def extension_of(name: str) -> int | None:
    """The identifier extension that a service's name says; None where it is no SRP service."""
    digits = name[len(SERVICE_PREFIX) :]
    if not name.startswith(SERVICE_PREFIX) or len(digits) != 16:
        return None
    try:
        return int(digits, 16) if digits.isalnum() else None
    except ValueError:
        return None
