"""Enumerations of the connection manager, with librdmacm's names and values; members also stand flat."""

from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING


class rdma_cm_event_type(IntEnum):
    """Events of a connection manager identifier."""

    RDMA_CM_EVENT_ADDR_RESOLVED = 0
    RDMA_CM_EVENT_ADDR_ERROR = 1
    RDMA_CM_EVENT_ROUTE_RESOLVED = 2
    RDMA_CM_EVENT_ROUTE_ERROR = 3
    RDMA_CM_EVENT_CONNECT_REQUEST = 4
    RDMA_CM_EVENT_CONNECT_RESPONSE = 5
    RDMA_CM_EVENT_CONNECT_ERROR = 6
    RDMA_CM_EVENT_UNREACHABLE = 7
    RDMA_CM_EVENT_REJECTED = 8
    RDMA_CM_EVENT_ESTABLISHED = 9
    RDMA_CM_EVENT_DISCONNECTED = 10
    RDMA_CM_EVENT_DEVICE_REMOVAL = 11
    RDMA_CM_EVENT_MULTICAST_JOIN = 12
    RDMA_CM_EVENT_MULTICAST_ERROR = 13
    RDMA_CM_EVENT_ADDR_CHANGE = 14
    RDMA_CM_EVENT_TIMEWAIT_EXIT = 15
    RDMA_CM_EVENT_ADDRINFO_RESOLVED = 16
    RDMA_CM_EVENT_ADDRINFO_ERROR = 17


class rdma_port_space(IntEnum):
    """Port spaces of the connection manager."""

    RDMA_PS_IPOIB = 2
    RDMA_PS_TCP = 262
    RDMA_PS_UDP = 273
    RDMA_PS_IB = 319


class rdma_cm_join_mc_attr_mask(IntFlag):
    """Valid fields of a multicast join."""

    RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1 << 0
    RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 1 << 1


class rdma_cm_mc_join_flags(IntFlag):
    """Membership asked for by a multicast join."""

    RDMA_MC_JOIN_FLAG_FULLMEMBER = 0
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER = 1 << 0


RAI_PASSIVE = 1 << 0
RAI_NUMERICHOST = 1 << 1
RAI_NOROUTE = 1 << 2
RAI_FAMILY = 1 << 3
RAI_SA = 1 << 4
RAI_DNS = 1 << 5

RDMA_OPTION_ID = 0
RDMA_OPTION_ID_ACK_TIMEOUT = 3

for _enumeration in (rdma_cm_event_type, rdma_port_space, rdma_cm_join_mc_attr_mask, rdma_cm_mc_join_flags):
    globals().update(_enumeration.__members__)

if TYPE_CHECKING:

    def __getattr__(name: str) -> int:
        """Flat members, for type checkers."""
