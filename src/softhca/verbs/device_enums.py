"""Enumerations of devices, ports, memory and events, with libibverbs' names and values."""

from enum import IntEnum, IntFlag


class ibv_transport_type(IntEnum):
    """Transport family of a device."""

    IBV_TRANSPORT_UNKNOWN = -1
    IBV_TRANSPORT_IB = 0
    IBV_TRANSPORT_IWARP = 1
    IBV_TRANSPORT_USNIC = 2
    IBV_TRANSPORT_USNIC_UDP = 3


class ibv_node_type(IntEnum):
    """Kind of node that a device is."""

    IBV_NODE_UNKNOWN = -1
    IBV_NODE_CA = 1
    IBV_NODE_SWITCH = 2
    IBV_NODE_ROUTER = 3
    IBV_NODE_RNIC = 4
    IBV_NODE_USNIC = 5
    IBV_NODE_USNIC_UDP = 6
    IBV_NODE_UNSPECIFIED = 7


class ibv_atomic_cap(IntEnum):
    """Scope in which a device's atomics are atomic."""

    IBV_ATOMIC_NONE = 0
    IBV_ATOMIC_HCA = 1
    IBV_ATOMIC_GLOB = 2


class ibv_port_state(IntEnum):
    """Logical state of a port (PortInfo:PortState)."""

    IBV_PORT_NOP = 0
    IBV_PORT_DOWN = 1
    IBV_PORT_INIT = 2
    IBV_PORT_ARMED = 3
    IBV_PORT_ACTIVE = 4
    IBV_PORT_ACTIVE_DEFER = 5


class ibv_port_cap_flags(IntFlag):
    """Capabilities of a port (PortInfo:CapabilityMask)."""

    IBV_PORT_SM = 1 << 1
    IBV_PORT_NOTICE_SUP = 1 << 2
    IBV_PORT_TRAP_SUP = 1 << 3
    IBV_PORT_OPT_IPD_SUP = 1 << 4
    IBV_PORT_AUTO_MIGR_SUP = 1 << 5
    IBV_PORT_SL_MAP_SUP = 1 << 6
    IBV_PORT_MKEY_NVRAM = 1 << 7
    IBV_PORT_PKEY_NVRAM = 1 << 8
    IBV_PORT_LED_INFO_SUP = 1 << 9
    IBV_PORT_SYS_IMAGE_GUID_SUP = 1 << 11
    IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP = 1 << 12
    IBV_PORT_EXTENDED_SPEEDS_SUP = 1 << 14
    IBV_PORT_CAP_MASK2_SUP = 1 << 15
    IBV_PORT_CM_SUP = 1 << 16
    IBV_PORT_SNMP_TUNNEL_SUP = 1 << 17
    IBV_PORT_REINIT_SUP = 1 << 18
    IBV_PORT_DEVICE_MGMT_SUP = 1 << 19
    IBV_PORT_VENDOR_CLASS_SUP = 1 << 20
    IBV_PORT_DR_NOTICE_SUP = 1 << 21
    IBV_PORT_CAP_MASK_NOTICE_SUP = 1 << 22
    IBV_PORT_BOOT_MGMT_SUP = 1 << 23
    IBV_PORT_LINK_LATENCY_SUP = 1 << 24
    IBV_PORT_CLIENT_REG_SUP = 1 << 25
    IBV_PORT_IP_BASED_GIDS = 1 << 26


class ibv_port_cap_flags2(IntFlag):
    """Capabilities of a port (PortInfo:CapabilityMask2)."""

    IBV_PORT_SET_NODE_DESC_SUP = 1 << 0
    IBV_PORT_INFO_EXT_SUP = 1 << 1
    IBV_PORT_VIRT_SUP = 1 << 2
    IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP = 1 << 3
    IBV_PORT_LINK_WIDTH_2X_SUP = 1 << 4
    IBV_PORT_LINK_SPEED_HDR_SUP = 1 << 5
    IBV_PORT_LINK_SPEED_NDR_SUP = 1 << 10


class ibv_mtu(IntEnum):
    """Path MTU codes: 256 bytes is 1, each next one is twice as large."""

    IBV_MTU_256 = 1
    IBV_MTU_512 = 2
    IBV_MTU_1024 = 3
    IBV_MTU_2048 = 4
    IBV_MTU_4096 = 5


class ibv_event_type(IntEnum):
    """Asynchronous events."""

    IBV_EVENT_CQ_ERR = 0
    IBV_EVENT_QP_FATAL = 1
    IBV_EVENT_QP_REQ_ERR = 2
    IBV_EVENT_QP_ACCESS_ERR = 3
    IBV_EVENT_COMM_EST = 4
    IBV_EVENT_SQ_DRAINED = 5
    IBV_EVENT_PATH_MIG = 6
    IBV_EVENT_PATH_MIG_ERR = 7
    IBV_EVENT_DEVICE_FATAL = 8
    IBV_EVENT_PORT_ACTIVE = 9
    IBV_EVENT_PORT_ERR = 10
    IBV_EVENT_LID_CHANGE = 11
    IBV_EVENT_PKEY_CHANGE = 12
    IBV_EVENT_SM_CHANGE = 13
    IBV_EVENT_SRQ_ERR = 14
    IBV_EVENT_SRQ_LIMIT_REACHED = 15
    IBV_EVENT_QP_LAST_WQE_REACHED = 16
    IBV_EVENT_CLIENT_REREGISTER = 17
    IBV_EVENT_GID_CHANGE = 18
    IBV_EVENT_WQ_FATAL = 19
    IBV_EVENT_DEVICE_SPEED_CHANGE = 20


class ibv_gid_type(IntEnum):
    """Type of a GID table entry."""

    IBV_GID_TYPE_IB = 0
    IBV_GID_TYPE_ROCE_V1 = 1
    IBV_GID_TYPE_ROCE_V2 = 2


class ibv_gid_type_sysfs(IntEnum):
    """Type of a GID table entry as sysfs says it."""

    IBV_GID_TYPE_SYSFS_IB_ROCE_V1 = 0
    IBV_GID_TYPE_SYSFS_ROCE_V2 = 1


class ibv_device_cap_flags(IntFlag):
    """Capabilities of a device."""

    IBV_DEVICE_RESIZE_MAX_WR = 1 << 0
    IBV_DEVICE_BAD_PKEY_CNTR = 1 << 1
    IBV_DEVICE_BAD_QKEY_CNTR = 1 << 2
    IBV_DEVICE_RAW_MULTI = 1 << 3
    IBV_DEVICE_AUTO_PATH_MIG = 1 << 4
    IBV_DEVICE_CHANGE_PHY_PORT = 1 << 5
    IBV_DEVICE_UD_AV_PORT_ENFORCE = 1 << 6
    IBV_DEVICE_CURR_QP_STATE_MOD = 1 << 7
    IBV_DEVICE_SHUTDOWN_PORT = 1 << 8
    IBV_DEVICE_INIT_TYPE = 1 << 9
    IBV_DEVICE_PORT_ACTIVE_EVENT = 1 << 10
    IBV_DEVICE_SYS_IMAGE_GUID = 1 << 11
    IBV_DEVICE_RC_RNR_NAK_GEN = 1 << 12
    IBV_DEVICE_SRQ_RESIZE = 1 << 13
    IBV_DEVICE_N_NOTIFY_CQ = 1 << 14
    IBV_DEVICE_MEM_WINDOW = 1 << 17
    IBV_DEVICE_UD_IP_CSUM = 1 << 18
    IBV_DEVICE_XRC = 1 << 20
    IBV_DEVICE_MEM_MGT_EXTENSIONS = 1 << 21
    IBV_DEVICE_MEM_WINDOW_TYPE_2A = 1 << 23
    IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24
    IBV_DEVICE_RC_IP_CSUM = 1 << 25
    IBV_DEVICE_RAW_IP_CSUM = 1 << 26
    IBV_DEVICE_MANAGED_FLOW_STEERING = 1 << 29


class ibv_odp_general_caps(IntFlag):
    """On-demand paging at all."""

    IBV_ODP_SUPPORT = 1 << 0
    IBV_ODP_SUPPORT_IMPLICIT = 1 << 1


class ibv_odp_transport_cap_bits(IntFlag):
    """Operations that on-demand paging covers."""

    IBV_ODP_SUPPORT_SEND = 1 << 0
    IBV_ODP_SUPPORT_RECV = 1 << 1
    IBV_ODP_SUPPORT_WRITE = 1 << 2
    IBV_ODP_SUPPORT_READ = 1 << 3
    IBV_ODP_SUPPORT_ATOMIC = 1 << 4
    IBV_ODP_SUPPORT_SRQ_RECV = 1 << 5
    IBV_ODP_SUPPORT_FLUSH = 1 << 6
    IBV_ODP_SUPPORT_ATOMIC_WRITE = 1 << 7


class ibv_raw_packet_caps(IntFlag):
    """Raw packet capabilities."""

    IBV_RAW_PACKET_CAP_CVLAN_STRIPPING = 1 << 0
    IBV_RAW_PACKET_CAP_SCATTER_FCS = 1 << 1
    IBV_RAW_PACKET_CAP_IP_CSUM = 1 << 2
    IBV_RAW_PACKET_CAP_DELAY_DROP = 1 << 3


class ibv_fork_status(IntEnum):
    """Support of fork()."""

    IBV_FORK_DISABLED = 0
    IBV_FORK_ENABLED = 1
    IBV_FORK_UNNEEDED = 2


class ibv_values_mask(IntFlag):
    """Real-time values to query."""

    IBV_VALUES_MASK_RAW_CLOCK = 1 << 0


class ibv_access_flags(IntFlag):
    """Rights of a memory region."""

    IBV_ACCESS_LOCAL_WRITE = 1 << 0
    IBV_ACCESS_REMOTE_WRITE = 1 << 1
    IBV_ACCESS_REMOTE_READ = 1 << 2
    IBV_ACCESS_REMOTE_ATOMIC = 1 << 3
    IBV_ACCESS_MW_BIND = 1 << 4
    IBV_ACCESS_ZERO_BASED = 1 << 5
    IBV_ACCESS_ON_DEMAND = 1 << 6
    IBV_ACCESS_HUGETLB = 1 << 7
    IBV_ACCESS_FLUSH_GLOBAL = 1 << 8
    IBV_ACCESS_FLUSH_PERSISTENT = 1 << 9
    IBV_ACCESS_RELAXED_ORDERING = 1 << 20


class ibv_rereg_mr_flags(IntFlag):
    """What a re-registration changes."""

    IBV_REREG_MR_CHANGE_TRANSLATION = 1 << 0
    IBV_REREG_MR_CHANGE_PD = 1 << 1
    IBV_REREG_MR_CHANGE_ACCESS = 1 << 2


class ibv_rereg_mr_err_code(IntEnum):
    """Where a re-registration failed."""

    IBV_REREG_MR_ERR_INPUT = -1
    IBV_REREG_MR_ERR_DONT_FORK_NEW = -2
    IBV_REREG_MR_ERR_DO_FORK_OLD = -3
    IBV_REREG_MR_ERR_CMD = -4
    IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW = -5


class ibv_mr_init_attr_mask(IntFlag):
    """Valid fields of extended registration."""

    IBV_REG_MR_MASK_IOVA = 1 << 0
    IBV_REG_MR_MASK_ADDR = 1 << 1
    IBV_REG_MR_MASK_FD = 1 << 2
    IBV_REG_MR_MASK_FD_OFFSET = 1 << 3
    IBV_REG_MR_MASK_DMAH = 1 << 4
    IBV_REG_MR_MASK_BUF = 1 << 5


class ibv_mw_type(IntEnum):
    """Types of memory windows."""

    IBV_MW_TYPE_1 = 1
    IBV_MW_TYPE_2 = 2


class ibv_placement_type(IntFlag):
    """Placement that a FLUSH guarantees."""

    IBV_FLUSH_GLOBAL = 1 << 0
    IBV_FLUSH_PERSISTENT = 1 << 1


class ibv_selectivity_level(IntEnum):
    """Range that a FLUSH covers."""

    IBV_FLUSH_MR = 1
    IBV_FLUSH_RANGE = 0


class ibv_parent_domain_init_attr_mask(IntFlag):
    """Valid fields of parent domain creation."""

    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS = 1 << 0
    IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 1 << 1
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC = 1 << 2


class ibv_xrcd_init_attr_mask(IntFlag):
    """Valid fields of XRC domain creation."""

    IBV_XRCD_INIT_ATTR_FD = 1 << 0
    IBV_XRCD_INIT_ATTR_OFLAGS = 1 << 1
    IBV_XRCD_INIT_ATTR_RESERVED = 1 << 2


class ibv_tph_mem_type(IntEnum):
    """Memory kinds of TLP processing hints."""

    IBV_TPH_MEM_TYPE_VM = 0
    IBV_TPH_MEM_TYPE_PM = 1


class ibv_dmah_init_attr_mask(IntFlag):
    """Valid fields of DMA handle creation."""

    IBV_DMAH_INIT_ATTR_MASK_CPU_ID = 1 << 0
    IBV_DMAH_INIT_ATTR_MASK_PH = 1 << 1
    IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE = 1 << 2
