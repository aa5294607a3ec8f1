"""Enumerations of work queues, flows, tag matching and counters, with libibverbs' names and values."""

from enum import IntEnum, IntFlag


class ibv_ops_wr_opcode(IntEnum):
    """Operations on a tag-matching SRQ."""

    IBV_WR_TAG_ADD = 0
    IBV_WR_TAG_DEL = 1
    IBV_WR_TAG_SYNC = 2


class ibv_ops_flags(IntFlag):
    """Flags of operations on a tag-matching SRQ."""

    IBV_OPS_SIGNALED = 1 << 0
    IBV_OPS_TM_SYNC = 1 << 1


class ibv_tm_cap_flags(IntFlag):
    """Tag-matching capabilities."""

    IBV_TM_CAP_RC = 1 << 0


class ibv_tmh_op(IntEnum):
    """Operations of the tag-matching header."""

    IBV_TMH_NO_TAG = 0
    IBV_TMH_RNDV = 1
    IBV_TMH_FIN = 2
    IBV_TMH_EAGER = 3


class ibv_wq_type(IntEnum):
    """Types of work queue."""

    IBV_WQT_RQ = 0


class ibv_wq_init_attr_mask(IntFlag):
    """Valid fields of work queue creation."""

    IBV_WQ_INIT_ATTR_FLAGS = 1 << 0


class ibv_wq_flags(IntFlag):
    """Flags of a work queue."""

    IBV_WQ_FLAGS_CVLAN_STRIPPING = 1 << 0
    IBV_WQ_FLAGS_SCATTER_FCS = 1 << 1
    IBV_WQ_FLAGS_DELAY_DROP = 1 << 2
    IBV_WQ_FLAGS_PCI_WRITE_END_PADDING = 1 << 3


class ibv_wq_state(IntEnum):
    """States of a work queue."""

    IBV_WQS_RESET = 0
    IBV_WQS_RDY = 1
    IBV_WQS_ERR = 2
    IBV_WQS_UNKNOWN = 3


class ibv_wq_attr_mask(IntFlag):
    """Work queue attributes to modify."""

    IBV_WQ_ATTR_STATE = 1 << 0
    IBV_WQ_ATTR_CURR_STATE = 1 << 1
    IBV_WQ_ATTR_FLAGS = 1 << 2


class ibv_rx_hash_function_flags(IntFlag):
    """Receive hash functions."""

    IBV_RX_HASH_FUNC_TOEPLITZ = 1 << 0


class ibv_rx_hash_fields(IntFlag):
    """Packet fields of the receive hash."""

    IBV_RX_HASH_SRC_IPV4 = 1 << 0
    IBV_RX_HASH_DST_IPV4 = 1 << 1
    IBV_RX_HASH_SRC_IPV6 = 1 << 2
    IBV_RX_HASH_DST_IPV6 = 1 << 3
    IBV_RX_HASH_SRC_PORT_TCP = 1 << 4
    IBV_RX_HASH_DST_PORT_TCP = 1 << 5
    IBV_RX_HASH_SRC_PORT_UDP = 1 << 6
    IBV_RX_HASH_DST_PORT_UDP = 1 << 7


class ibv_flow_flags(IntFlag):
    """Flags of a flow rule."""

    IBV_FLOW_ATTR_FLAGS_DONT_TRAP = 1 << 1
    IBV_FLOW_ATTR_FLAGS_EGRESS = 1 << 2


class ibv_flow_attr_type(IntEnum):
    """Types of flow rules."""

    IBV_FLOW_ATTR_NORMAL = 0
    IBV_FLOW_ATTR_ALL_DEFAULT = 1
    IBV_FLOW_ATTR_MC_DEFAULT = 2
    IBV_FLOW_ATTR_SNIFFER = 3


class ibv_flow_spec_type(IntEnum):
    """What a flow specification matches or does."""

    IBV_FLOW_SPEC_ETH = 32
    IBV_FLOW_SPEC_IPV4 = 48
    IBV_FLOW_SPEC_IPV6 = 49
    IBV_FLOW_SPEC_IPV4_EXT = 50
    IBV_FLOW_SPEC_ESP = 52
    IBV_FLOW_SPEC_TCP = 64
    IBV_FLOW_SPEC_UDP = 65
    IBV_FLOW_SPEC_VXLAN_TUNNEL = 80
    IBV_FLOW_SPEC_GRE = 81
    IBV_FLOW_SPEC_MPLS = 96
    IBV_FLOW_SPEC_INNER = 256
    IBV_FLOW_SPEC_ACTION_TAG = 0x1000
    IBV_FLOW_SPEC_ACTION_DROP = 0x1001
    IBV_FLOW_SPEC_ACTION_HANDLE = 0x1002
    IBV_FLOW_SPEC_ACTION_COUNT = 0x1003


class ibv_counter_description(IntEnum):
    """What a flow counter counts."""

    IBV_COUNTER_PACKETS = 0
    IBV_COUNTER_BYTES = 1


class ibv_read_counters_flags(IntFlag):
    """How counters are read."""

    IBV_READ_COUNTERS_ATTR_PREFER_CACHED = 1 << 0


class ibv_query_qp_data_in_order_flags(IntFlag):
    """How data-in-order is asked."""

    IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS = 1 << 0


class ibv_query_qp_data_in_order_caps(IntFlag):
    """What data-in-order promises."""

    IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG = 1 << 0
    IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES = 1 << 1


class ibv_qp_attach_comp_cntr_op(IntFlag):
    """Operations that a completion counter counts."""

    IBV_QP_ATTACH_COMP_CNTR_OP_SEND = 1 << 0
    IBV_QP_ATTACH_COMP_CNTR_OP_RECV = 1 << 1
    IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ = 1 << 2
    IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ = 1 << 3
    IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE = 1 << 4
    IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE = 1 << 5
