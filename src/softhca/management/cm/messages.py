"""The messages of the communication manager (IBTA vol. 1, 12.6), as lists of fields.

Each is the data of one management datagram of class `CLASS_CM`, sent with method Send; its attribute says
which.  The last field of each, ``private_data``, is the program's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from softhca.management.constants import BASE_VERSION, COMM_MGT_VERSION, MAD_BYTES
from softhca.management.mad import MadHeader
from softhca.wire.errors import WireError
from softhca.wire.layout import Field, Header, Octets

CLASS_CM = 0x07
CLASS_VERSION = COMM_MGT_VERSION
METHOD_SEND = 0x03
MESSAGE_BYTES = MAD_BYTES - MadHeader.LENGTH_BYTES

# REQ ``transport_service_type``
SERVICE_RC = 0
SERVICE_UC = 1
SERVICE_RD = 2
SERVICE_EXTENDED = 3
EXTENDED_XRC = 1
"""REQ ``extended_transport_type`` with `SERVICE_EXTENDED`."""

# MRA ``message_mraed`` and REJ ``message_rejected``
OF_REQ = 0
OF_REP = 1
OF_LAP = 2  # of MRA
OF_NONE = 2  # of REJ: no message, a time-out

# REJ ``reason`` (12.6.7.2)
REJ_NO_QP = 1
REJ_NO_RESOURCES = 3
REJ_TIMEOUT = 4
REJ_UNSUPPORTED = 5
REJ_INVALID_COMM_ID = 6
REJ_INVALID_COMM_INSTANCE = 7
REJ_INVALID_SERVICE_ID = 8
REJ_INVALID_TRANSPORT = 9
REJ_STALE_CONNECTION = 10
REJ_INVALID_GID = 12
REJ_INVALID_PATH_MTU = 26
REJ_CONSUMER_DEFINED = 28

# APR ``ap_status`` (12.8.2)
APR_LOADED = 0
APR_INVALID_COMM_ID = 1
APR_UNSUPPORTED = 2
APR_REJECTED = 3
APR_REDIRECTED = 4
APR_IS_CURRENT = 5
APR_INVALID_QPN = 6
APR_INVALID_LID = 7
APR_INVALID_GID = 8
APR_INVALID_FLOW_LABEL = 9
APR_INVALID_TRAFFIC_CLASS = 10
APR_INVALID_HOP_LIMIT = 11
APR_INVALID_PACKET_RATE = 12
APR_INVALID_SL = 13

# REP ``failover_accepted``
FAILOVER_ACCEPTED = 0
FAILOVER_UNSUPPORTED = 1
FAILOVER_REJECTED = 2

# SIDR_REP ``status``
SIDR_SUCCESS = 0
SIDR_UNSUPPORTED = 1
SIDR_REJECTED = 2
SIDR_NO_QP = 3


def _path(name: str) -> tuple[Field, ...]:
    """A path of REQ: 44 bytes."""
    return (
        Field(f"{name}_local_lid", 16),
        Field(f"{name}_remote_lid", 16),
        Field(f"{name}_local_gid", 128, True),
        Field(f"{name}_remote_gid", 128, True),
        Field(f"{name}_flow_label", 20),
        Field(f"{name}_reserved6", 6),
        Field(f"{name}_packet_rate", 6),
        Field(f"{name}_traffic_class", 8),
        Field(f"{name}_hop_limit", 8),
        Field(f"{name}_sl", 4),
        Field(f"{name}_subnet_local", 1),
        Field(f"{name}_reserved3", 3),
        Field(f"{name}_ack_timeout", 5),
        Field(f"{name}_reserved3b", 3),
    )


_PLAIN: dict[type[CmMessage], Any] = {}
"""Messages with nothing but their defaults."""


class CmMessage(Header):
    """Base of the messages, of which REQ has 53 fields: what is read, or differs from another one in some, is
    made at once, not attribute by attribute as frozen dataclasses make theirs.
    """

    PRIVATE_BYTES: ClassVar[int]

    @classmethod
    def of(cls, **values: Any) -> Self:
        """A message with these values, and else those that it has where nothing is said; TypeError for a name
        that it has not.
        """
        plain: Self | None = _PLAIN.get(cls)
        if plain is None:
            plain = _PLAIN[cls] = cls()
        return plain.changed(**values)

    @classmethod
    def decode(cls, buffer: Octets, offset: int = 0) -> Self:
        """As `Header.decode`."""
        message = cls.__new__(cls)
        message.__dict__.update(cls.values_at(buffer, offset))
        return message

    def changed(self, **values: Any) -> Self:
        """The same message with other values; TypeError for a name that it has not."""
        if not values.keys() <= self.__dict__.keys():
            raise TypeError(f"{type(self).__name__} has no {sorted(values.keys() - self.__dict__.keys())}")
        message = self.__new__(type(self))
        message.__dict__.update(self.__dict__, **values)
        return message


_IDS = (Field("local_comm_id", 32), Field("remote_comm_id", 32))


@dataclass(frozen=True)
class Req(CmMessage):
    """A request for a connection (12.6.5): what the requester's end is, and by which path."""

    LENGTH_BYTES: ClassVar[int] = MESSAGE_BYTES
    PRIVATE_BYTES: ClassVar[int] = 92
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("local_comm_id", 32),
        Field("reserved32", 32),
        Field("service_id", 64),
        Field("local_ca_guid", 64),
        Field("reserved32b", 32),
        Field("local_qkey", 32),
        Field("local_qpn", 24),
        Field("responder_resources", 8),
        Field("local_eecn", 24),
        Field("initiator_depth", 8),
        Field("remote_eecn", 24),
        Field("remote_cm_response_timeout", 5),
        Field("transport_service_type", 2),
        Field("end_to_end_flow_control", 1),
        Field("starting_psn", 24),
        Field("local_cm_response_timeout", 5),
        Field("retry_count", 3),
        Field("partition_key", 16),
        Field("path_mtu", 4),
        Field("rdc_exists", 1),
        Field("rnr_retry_count", 3),
        Field("max_cm_retries", 4),
        Field("srq", 1),
        Field("extended_transport_type", 3),
        *_path("primary"),
        *_path("alternate"),
        Field("private_data", 92 * 8, True),
    )

    local_comm_id: int = 0
    reserved32: int = 0
    service_id: int = 0
    local_ca_guid: int = 0
    reserved32b: int = 0
    local_qkey: int = 0
    local_qpn: int = 0
    responder_resources: int = 0
    local_eecn: int = 0
    initiator_depth: int = 0
    remote_eecn: int = 0
    remote_cm_response_timeout: int = 0
    transport_service_type: int = SERVICE_RC
    end_to_end_flow_control: int = 0
    starting_psn: int = 0
    local_cm_response_timeout: int = 0
    retry_count: int = 0
    partition_key: int = 0xFFFF
    path_mtu: int = 0
    rdc_exists: int = 0
    rnr_retry_count: int = 0
    max_cm_retries: int = 0
    srq: int = 0
    extended_transport_type: int = 0
    primary_local_lid: int = 0
    primary_remote_lid: int = 0
    primary_local_gid: bytes = bytes(16)
    primary_remote_gid: bytes = bytes(16)
    primary_flow_label: int = 0
    primary_reserved6: int = 0
    primary_packet_rate: int = 0
    primary_traffic_class: int = 0
    primary_hop_limit: int = 0
    primary_sl: int = 0
    primary_subnet_local: int = 0
    primary_reserved3: int = 0
    primary_ack_timeout: int = 0
    primary_reserved3b: int = 0
    alternate_local_lid: int = 0
    alternate_remote_lid: int = 0
    alternate_local_gid: bytes = bytes(16)
    alternate_remote_gid: bytes = bytes(16)
    alternate_flow_label: int = 0
    alternate_reserved6: int = 0
    alternate_packet_rate: int = 0
    alternate_traffic_class: int = 0
    alternate_hop_limit: int = 0
    alternate_sl: int = 0
    alternate_subnet_local: int = 0
    alternate_reserved3: int = 0
    alternate_ack_timeout: int = 0
    alternate_reserved3b: int = 0
    private_data: bytes = bytes(92)


@dataclass(frozen=True)
class Mra(CmMessage):
    """Message receipt acknowledgement (12.6.6): the answer takes longer, 4.096 µs × 2^``service_timeout``."""

    LENGTH_BYTES: ClassVar[int] = MESSAGE_BYTES
    PRIVATE_BYTES: ClassVar[int] = 222
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        *_IDS,
        Field("message_mraed", 2),
        Field("reserved6", 6),
        Field("service_timeout", 5),
        Field("reserved3", 3),
        Field("private_data", 222 * 8, True),
    )

    local_comm_id: int = 0
    remote_comm_id: int = 0
    message_mraed: int = OF_REQ
    reserved6: int = 0
    service_timeout: int = 0
    reserved3: int = 0
    private_data: bytes = bytes(222)


@dataclass(frozen=True)
class Rej(CmMessage):
    """A rejection (12.6.7), for ``reason``; the first ``reject_info_length`` bytes of ``ari`` say more."""

    LENGTH_BYTES: ClassVar[int] = MESSAGE_BYTES
    PRIVATE_BYTES: ClassVar[int] = 148
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        *_IDS,
        Field("message_rejected", 2),
        Field("reserved6", 6),
        Field("reject_info_length", 7),
        Field("reserved1", 1),
        Field("reason", 16),
        Field("ari", 72 * 8, True),
        Field("private_data", 148 * 8, True),
    )

    local_comm_id: int = 0
    remote_comm_id: int = 0
    message_rejected: int = OF_REQ
    reserved6: int = 0
    reject_info_length: int = 0
    reserved1: int = 0
    reason: int = 0
    ari: bytes = bytes(72)
    private_data: bytes = bytes(148)


@dataclass(frozen=True)
class Rep(CmMessage):
    """The reply that accepts a request (12.6.8): what the replier's end is."""

    LENGTH_BYTES: ClassVar[int] = MESSAGE_BYTES
    PRIVATE_BYTES: ClassVar[int] = 196
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        *_IDS,
        Field("local_qkey", 32),
        Field("local_qpn", 24),
        Field("reserved8", 8),
        Field("local_eecn", 24),
        Field("reserved8b", 8),
        Field("starting_psn", 24),
        Field("reserved8c", 8),
        Field("responder_resources", 8),
        Field("initiator_depth", 8),
        Field("target_ack_delay", 5),
        Field("failover_accepted", 2),
        Field("end_to_end_flow_control", 1),
        Field("rnr_retry_count", 3),
        Field("srq", 1),
        Field("reserved4", 4),
        Field("local_ca_guid", 64),
        Field("private_data", 196 * 8, True),
    )

    local_comm_id: int = 0
    remote_comm_id: int = 0
    local_qkey: int = 0
    local_qpn: int = 0
    reserved8: int = 0
    local_eecn: int = 0
    reserved8b: int = 0
    starting_psn: int = 0
    reserved8c: int = 0
    responder_resources: int = 0
    initiator_depth: int = 0
    target_ack_delay: int = 0
    failover_accepted: int = 0
    end_to_end_flow_control: int = 0
    rnr_retry_count: int = 0
    srq: int = 0
    reserved4: int = 0
    local_ca_guid: int = 0
    private_data: bytes = bytes(196)


@dataclass(frozen=True)
class Rtu(CmMessage):
    """Ready to use (12.6.9): the reply has come, the connection is established."""

    LENGTH_BYTES: ClassVar[int] = MESSAGE_BYTES
    PRIVATE_BYTES: ClassVar[int] = 224
    LAYOUT: ClassVar[tuple[Field, ...]] = (*_IDS, Field("private_data", 224 * 8, True))

    local_comm_id: int = 0
    remote_comm_id: int = 0
    private_data: bytes = bytes(224)


@dataclass(frozen=True)
class Dreq(CmMessage):
    """A request to disconnect (12.6.10); ``remote_qpn_eecn`` is the receiver's queue pair."""

    LENGTH_BYTES: ClassVar[int] = MESSAGE_BYTES
    PRIVATE_BYTES: ClassVar[int] = 220
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        *_IDS,
        Field("remote_qpn_eecn", 24),
        Field("reserved8", 8),
        Field("private_data", 220 * 8, True),
    )

    local_comm_id: int = 0
    remote_comm_id: int = 0
    remote_qpn_eecn: int = 0
    reserved8: int = 0
    private_data: bytes = bytes(220)


@dataclass(frozen=True)
class Drep(CmMessage):
    """The reply to DREQ (12.6.11)."""

    LENGTH_BYTES: ClassVar[int] = MESSAGE_BYTES
    PRIVATE_BYTES: ClassVar[int] = 224
    LAYOUT: ClassVar[tuple[Field, ...]] = (*_IDS, Field("private_data", 224 * 8, True))

    local_comm_id: int = 0
    remote_comm_id: int = 0
    private_data: bytes = bytes(224)


@dataclass(frozen=True)
class Lap(CmMessage):
    """A request to load another alternate path (12.8.1)."""

    LENGTH_BYTES: ClassVar[int] = MESSAGE_BYTES
    PRIVATE_BYTES: ClassVar[int] = 168
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        *_IDS,
        Field("reserved32", 32),
        Field("remote_qpn_eecn", 24),
        Field("remote_cm_response_timeout", 5),
        Field("reserved3", 3),
        Field("reserved32b", 32),
        Field("alternate_local_lid", 16),
        Field("alternate_remote_lid", 16),
        Field("alternate_local_gid", 128, True),
        Field("alternate_remote_gid", 128, True),
        Field("alternate_flow_label", 20),
        Field("reserved4", 4),
        Field("alternate_traffic_class", 8),
        Field("alternate_hop_limit", 8),
        Field("reserved2", 2),
        Field("alternate_packet_rate", 6),
        Field("alternate_sl", 4),
        Field("alternate_subnet_local", 1),
        Field("reserved3b", 3),
        Field("alternate_ack_timeout", 5),
        Field("reserved3c", 3),
        Field("private_data", 168 * 8, True),
    )

    local_comm_id: int = 0
    remote_comm_id: int = 0
    reserved32: int = 0
    remote_qpn_eecn: int = 0
    remote_cm_response_timeout: int = 0
    reserved3: int = 0
    reserved32b: int = 0
    alternate_local_lid: int = 0
    alternate_remote_lid: int = 0
    alternate_local_gid: bytes = bytes(16)
    alternate_remote_gid: bytes = bytes(16)
    alternate_flow_label: int = 0
    reserved4: int = 0
    alternate_traffic_class: int = 0
    alternate_hop_limit: int = 0
    reserved2: int = 0
    alternate_packet_rate: int = 0
    alternate_sl: int = 0
    alternate_subnet_local: int = 0
    reserved3b: int = 0
    alternate_ack_timeout: int = 0
    reserved3c: int = 0
    private_data: bytes = bytes(168)


@dataclass(frozen=True)
class Apr(CmMessage):
    """The answer to LAP (12.8.2)."""

    LENGTH_BYTES: ClassVar[int] = MESSAGE_BYTES
    PRIVATE_BYTES: ClassVar[int] = 148
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        *_IDS,
        Field("additional_information_length", 8),
        Field("ap_status", 8),
        Field("reserved16", 16),
        Field("additional_information", 72 * 8, True),
        Field("private_data", 148 * 8, True),
    )

    local_comm_id: int = 0
    remote_comm_id: int = 0
    additional_information_length: int = 0
    ap_status: int = 0
    reserved16: int = 0
    additional_information: bytes = bytes(72)
    private_data: bytes = bytes(148)


@dataclass(frozen=True)
class SidrReq(CmMessage):
    """A request for the datagram queue pair of a service (12.11.1)."""

    LENGTH_BYTES: ClassVar[int] = MESSAGE_BYTES
    PRIVATE_BYTES: ClassVar[int] = 216
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("request_id", 32),
        Field("partition_key", 16),
        Field("reserved16", 16),
        Field("service_id", 64),
        Field("private_data", 216 * 8, True),
    )

    request_id: int = 0
    partition_key: int = 0xFFFF
    reserved16: int = 0
    service_id: int = 0
    private_data: bytes = bytes(216)


@dataclass(frozen=True)
class SidrRep(CmMessage):
    """The answer to SIDR_REQ (12.11.2): the queue pair and its Q_Key, or why there is none."""

    LENGTH_BYTES: ClassVar[int] = MESSAGE_BYTES
    PRIVATE_BYTES: ClassVar[int] = 136
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("request_id", 32),
        Field("status", 8),
        Field("additional_information_length", 8),
        Field("reserved16", 16),
        Field("qpn", 24),
        Field("reserved8", 8),
        Field("service_id", 64),
        Field("qkey", 32),
        Field("additional_information", 72 * 8, True),
        Field("private_data", 136 * 8, True),
    )

    request_id: int = 0
    status: int = SIDR_SUCCESS
    additional_information_length: int = 0
    reserved16: int = 0
    qpn: int = 0
    reserved8: int = 0
    service_id: int = 0
    qkey: int = 0
    additional_information: bytes = bytes(72)
    private_data: bytes = bytes(136)


Message = Req | Mra | Rej | Rep | Rtu | Dreq | Drep | Lap | Apr | SidrReq | SidrRep

ATTRIBUTES: dict[int, type[Message]] = {
    0x0010: Req,
    0x0011: Mra,
    0x0012: Rej,
    0x0013: Rep,
    0x0014: Rtu,
    0x0015: Dreq,
    0x0016: Drep,
    0x0017: SidrReq,
    0x0018: SidrRep,
    0x0019: Lap,
    0x001A: Apr,
}
_KIND, _TRANSACTION_ID, _ATTRIBUTE = slice(1, 4), slice(8, 16), slice(16, 18)
_MESSAGE = bytes((CLASS_CM, CLASS_VERSION, METHOD_SEND))
_FRONT = struct.Struct(">8sQH6s")
"""The header, of which messages differ in transaction ID and attribute; what is behind that is 0."""
_BEGINNING = bytes((BASE_VERSION, *_MESSAGE, 0, 0, 0, 0))
_REMOTE_COMM_ID = slice(MadHeader.LENGTH_BYTES + 4, MadHeader.LENGTH_BYTES + 8)
ATTRIBUTE_OF: dict[type[Message], int] = {kind: number for number, kind in ATTRIBUTES.items()}


def encode(message: Message, transaction_id: int) -> bytes:
    """The management datagram of ``message``; WireError when a value does not fit its field."""
    return _FRONT.pack(_BEGINNING, transaction_id, ATTRIBUTE_OF[type(message)], bytes(6)) + message.encode()


def connection_of(data: bytes) -> int:
    """The connection of its receiver's that a datagram names; 0: none."""
    kind = ATTRIBUTES.get(int.from_bytes(data[_ATTRIBUTE], "big"))
    if len(data) < MAD_BYTES or kind is None or kind in (Req, SidrReq, SidrRep):
        return 0
    return int.from_bytes(data[_REMOTE_COMM_ID], "big")


def decode(data: Octets) -> tuple[int, Message]:
    """Transaction ID and message of a management datagram; WireError for one that is none of these."""
    if len(data) < MAD_BYTES:
        raise WireError(f"a MAD needs {MAD_BYTES} bytes, not {len(data)}")
    if bytes(data[_KIND]) != _MESSAGE:
        raise WireError("this is no message of the communication manager")
    number = int.from_bytes(data[_ATTRIBUTE], "big")
    kind = ATTRIBUTES.get(number)
    if kind is None:
        raise WireError(f"the communication manager has no message {number:#06x}")
    return int.from_bytes(data[_TRANSACTION_ID], "big"), kind.decode(data, MadHeader.LENGTH_BYTES)


def padded(kind: type[Message], private_data: bytes) -> bytes:
    """``private_data`` as long as a message of ``kind`` has them; ValueError: they are too long."""
    if len(private_data) > kind.PRIVATE_BYTES:
        raise ValueError(
            f"{kind.__name__.upper()} has {kind.PRIVATE_BYTES} bytes of private data, not {len(private_data)}"
        )
    return private_data.ljust(kind.PRIVATE_BYTES, b"\0")
