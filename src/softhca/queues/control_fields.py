"""What the host can ask of an adapter: commands, their fields and their replies' fields, as literal data.

A field is (name, kind); names are the verbs' (``ibv_qp_attr``, ``ibv_device_attr`` …).  Kinds: ``u8 u16 u32
u64``; ``gid`` 16 bytes; ``bytes`` any bytes; ``runs`` a list of (first frame, count), for page lists;
``counters`` a list of (name, value).  A field that a message does not name is 0, or empty.
"""

from collections.abc import Mapping

Fields = tuple[tuple[str, str], ...]

QUERY_DEVICE = 1
QUERY_PORT = 2
QUERY_GID = 3
QUERY_PKEY = 4
ATTACH_ARENA = 5
DETACH_ARENA = 6
ALLOC_PD = 7
DEALLOC_PD = 8
REG_MR = 9
REREG_MR = 10
DEREG_MR = 11
CREATE_CQ = 12
RESIZE_CQ = 13
DESTROY_CQ = 14
CREATE_QP = 15
MODIFY_QP = 16
QUERY_QP = 17
DESTROY_QP = 18
CREATE_SRQ = 19
MODIFY_SRQ = 20
QUERY_SRQ = 21
DESTROY_SRQ = 22
CREATE_AH = 23
DESTROY_AH = 24
ATTACH_MCAST = 25
DETACH_MCAST = 26
QUERY_COUNTERS = 27
ATTACH_RAW = 28
DETACH_RAW = 29
ALLOC_MW = 30
DEALLOC_MW = 31
ALLOC_FAST_MR = 32
DEREG_FAST_MR = 33
REG_PAGED = 34
SET_DATA_ACCESS = 35
REGISTER_AGENT = 36
UNREGISTER_AGENT = 37
SEND_MAD = 38
OPEN_XRCD = 39
CLOSE_XRCD = 40
OPEN_CM = 41
CLOSE_CM = 42
CM_LISTEN = 43
CM_CONNECT = 44
CM_REPLY = 45
CM_READY = 46
CM_REJECT = 47
CM_DISCONNECT = 48
CM_ESTABLISH = 49
CM_RESOLVE = 50
CM_ANSWER = 51
CM_DESTROY = 52
ALLOC_RDD = 53
DEALLOC_RDD = 54
CREATE_EE = 55
MODIFY_EE = 56
QUERY_EE = 57
DESTROY_EE = 58
EXPORT_CONTEXT = 59
IMPORT_CONTEXT = 60
IMPORT_PD = 61
UNIMPORT_PD = 62
IMPORT_MR = 63
CM_LOAD_PATH = 64
CM_ANSWER_PATH = 65
ALLOC_DM = 66
FREE_DM = 67
CREATE_FLOW = 68
DESTROY_FLOW = 69
ALLOC_NULL_MR = 70
CREATE_WQ = 71
MODIFY_WQ = 72
DESTROY_WQ = 73
CREATE_RWQ_IND_TABLE = 74
DESTROY_RWQ_IND_TABLE = 75
CREATE_RSS_QP = 76

# The text that a refusal carries: which attribute, and which rule it breaks.
REASON_BYTES = 255

# Device memory of one host, all together.
MAX_DM_BYTES = 1 << 20

# ATTACH_ARENA ``memory``: frames of the host's memfd; a buffer of the host's own at ``address``; or a memfd
# of so many pages that was passed, whose number stands in ``address``.
MEMORY_SHARED = 0
MEMORY_FOREIGN = 1
MEMORY_PASSED = 2

# QUERY_COUNTERS ``scope``.
COUNTERS_PORT = 0
COUNTERS_QP = 1
COUNTERS_EE = 2

# Asynchronous events by ibv_event_type's numbers; EVENT_COMPLETION is a completion queue's notification.
EVENT_CQ_ERR = 0
EVENT_QP_FATAL = 1
EVENT_QP_REQ_ERR = 2
EVENT_QP_ACCESS_ERR = 3
EVENT_COMM_EST = 4
EVENT_SQ_DRAINED = 5
EVENT_PATH_MIG = 6
EVENT_PATH_MIG_ERR = 7
EVENT_DEVICE_FATAL = 8
EVENT_PORT_ACTIVE = 9
EVENT_PORT_ERR = 10
EVENT_LID_CHANGE = 11
EVENT_PKEY_CHANGE = 12
EVENT_SM_CHANGE = 13
EVENT_SRQ_ERR = 14
EVENT_SRQ_LIMIT_REACHED = 15
EVENT_QP_LAST_WQE_REACHED = 16
EVENT_CLIENT_REREGISTER = 17
EVENT_GID_CHANGE = 18
EVENT_WQ_FATAL = 19
EVENT_COMPLETION = 256
# softhca's own: a UC responder missed packets (o9-131).
EVENT_MESSAGES_LOST = 257
# softhca's own: pages of the pageable memory behind a key are not there, and somebody waits for them.
EVENT_PAGE_FAULT = 258
# softhca's own: an agent's ring has an entry more.
EVENT_MAD = 259
# softhca's own: a connection channel's ring has an entry more.
EVENT_CM = 260

# What an entry of a connection channel tells (cm_header's ``kind``).
CM_REQUEST = 1
CM_REPLIED = 2
CM_ESTABLISHED = 3
CM_REJECTED = 4
CM_UNREACHABLE = 5
CM_DISCONNECT_REQUEST = 6
CM_DISCONNECTED = 7
CM_SIDR_REQUEST = 8
CM_SIDR_REPLY = 9
CM_PATH_REQUEST = 10
CM_PATH_ANSWER = 11
CM_TIMEWAIT_OVER = 12
# ``status`` of CM_PATH_ANSWER, above those of APR: no answer has come.
CM_PATH_NO_ANSWER = 256

# The events of one kind of element, which are forgotten with it.
CQ_EVENTS = frozenset({EVENT_CQ_ERR, EVENT_COMPLETION})
AGENT_EVENTS = frozenset({EVENT_MAD})
CM_EVENTS = frozenset({EVENT_CM})
MR_EVENTS = frozenset({EVENT_PAGE_FAULT})
SRQ_EVENTS = frozenset({EVENT_SRQ_ERR, EVENT_SRQ_LIMIT_REACHED})
QP_EVENTS = frozenset({
    EVENT_QP_FATAL, EVENT_QP_REQ_ERR, EVENT_QP_ACCESS_ERR, EVENT_COMM_EST, EVENT_SQ_DRAINED,
    EVENT_QP_LAST_WQE_REACHED, EVENT_MESSAGES_LOST,
})
WQ_EVENTS = frozenset({EVENT_WQ_FATAL})
# After these a queue pair or a work queue is in the error state.
QP_ERROR_EVENTS = frozenset({EVENT_QP_FATAL, EVENT_QP_REQ_ERR, EVENT_QP_ACCESS_ERR, EVENT_WQ_FATAL})

# CREATE_QP ``qp_type`` (ibv_qp_type).
QPT_RC = 2
QPT_UC = 3
QPT_UD = 4
QPT_RD = 5  # libibverbs has none
QPT_RAW_PACKET = 8
QPT_XRC_SEND = 9
QPT_XRC_RECV = 10

# CREATE_QP ``create_flags``; the number is none that libibverbs has.
CREATE_TELLS_LOSSES = 1 << 31

# CREATE_FLOW ``type`` (ibv_flow_attr_type); a sniffer sees what others get.
FLOW_NORMAL = 0
FLOW_ALL_DEFAULT = 1
FLOW_MC_DEFAULT = 2
FLOW_SNIFFER = 3

# MODIFY_WQ ``attr_mask`` (ibv_wq_attr_mask), and states (ibv_wq_state).
WQ_STATE = 1
WQ_CURR_STATE = 2
WQ_FLAGS = 4
WQS_RESET = 0
WQS_RDY = 1
WQS_ERR = 2

# CREATE_RSS_QP ``rx_hash_function`` (ibv_rx_hash_function_flags), bytes of its key, and
# ``rx_hash_fields_mask`` (ibv_rx_hash_fields): what of a frame is hashed.
RX_HASH_TOEPLITZ = 1
TOEPLITZ_KEY_BYTES = 40
RX_HASH_SRC_IPV4 = 1
RX_HASH_DST_IPV4 = 2
RX_HASH_SRC_IPV6 = 4
RX_HASH_DST_IPV6 = 8
RX_HASH_SRC_PORT_TCP = 16
RX_HASH_DST_PORT_TCP = 32
RX_HASH_SRC_PORT_UDP = 64
RX_HASH_DST_PORT_UDP = 128
RX_HASH_FIELDS = 255

# Entries of one indirection table: a power of two, at most this one.
MAX_RWQ_IND_TABLE_ENTRIES = 1 << 11

# CREATE_SRQ ``srq_type`` (ibv_srq_type).
SRQT_BASIC = 0
SRQT_XRC = 1

# OPEN_XRCD ``flags``: the domain of the file with this device and inode; made where there is none; made anew.
XRCD_FILE = 1
XRCD_CREATE = 2
XRCD_EXCLUSIVE = 4

# REREG_MR ``flags`` (ibv_rereg_mr_flags).
REREG_TRANSLATION = 1
REREG_PD = 2
REREG_ACCESS = 4

# MODIFY_SRQ ``attr_mask`` (ibv_srq_attr_mask).
SRQ_MAX_WR = 1
SRQ_LIMIT = 2


def _all(kind: str, names: str) -> Fields:
    """Fields of one kind."""
    return tuple((name, kind) for name in names.split())


def _prefixed(prefix: str, fields: Fields) -> Fields:
    """The same fields by longer names."""
    return tuple((prefix + name, kind) for name, kind in fields)


ADDRESS_HANDLE: Fields = (
    ("dgid", "gid"), *_all("u32", "flow_label"), *_all("u16", "dlid"),
    *_all("u8", "sgid_index hop_limit traffic_class sl src_path_bits static_rate is_global port_num"),
)

QP_CAPABILITIES: Fields = _all("u32", "max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data")

QP_ATTRIBUTES: Fields = (
    *_all("u8", "qp_state cur_qp_state path_mtu path_mig_state"),
    *_all("u32", "qkey rq_psn sq_psn dest_qp_num qp_access_flags rate_limit"),
    *QP_CAPABILITIES,
    *_all("u16", "pkey_index alt_pkey_index"),
    *_all("u8", "en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num "
                "timeout retry_cnt rnr_retry alt_port_num alt_timeout"),
    *_prefixed("ah_", ADDRESS_HANDLE),
    *_prefixed("alt_ah_", ADDRESS_HANDLE),
)

# They go with ``rate_limit``'s bit of the mask; bytes.
PACING: Fields = (*_all("u32", "max_burst_sz"), *_all("u16", "typical_pkt_sz"))

DEVICE_ATTRIBUTES: Fields = (
    ("fw_ver", "bytes"),
    *_all("u64", "node_guid sys_image_guid max_mr_size page_size_cap device_cap_flags_ex"),
    *_all("u32", "vendor_id vendor_part_id hw_ver max_qp max_qp_wr device_cap_flags max_sge max_sge_rd "
                 "max_cq max_cqe max_mr max_pd max_qp_rd_atom max_ee_rd_atom max_res_rd_atom "
                 "max_qp_init_rd_atom max_ee_init_rd_atom atomic_cap max_ee max_rdd max_mw "
                 "max_raw_ipv6_qp max_raw_ethy_qp max_mcast_grp max_mcast_qp_attach "
                 "max_total_mcast_qp_attach max_ah max_fmr max_map_per_fmr max_srq max_srq_wr "
                 "max_srq_sge max_inline_data odp_general_caps rc_odp_caps uc_odp_caps ud_odp_caps "
                 "xrc_odp_caps qp_rate_limit_min qp_rate_limit_max qp_rate_limit_qpts max_wq_type_rq "
                 "max_rwq_indirection_tables max_rwq_indirection_table_size rss_qpts rx_hash_fields_mask "
                 "rx_hash_function"),
    *_all("u16", "max_pkeys"),
    *_all("u8", "local_ca_ack_delay phys_port_cnt"),
    ("profile", "bytes"),
)

PORT_ATTRIBUTES: Fields = _all(
    "u32", "state max_mtu active_mtu gid_tbl_len port_cap_flags max_msg_sz bad_pkey_cntr qkey_viol_cntr "
           "pkey_tbl_len lid sm_lid lmc max_vl_num sm_sl subnet_timeout init_type_reply active_width "
           "active_speed phys_state link_layer flags port_cap_flags2")

RING: Fields = (("entries", "u32"), ("body_bytes", "u32"), ("frames", "runs"))

MAD_ADDRESS: Fields = (
    ("dgid", "gid"), *_all("u32", "qpn qkey"), *_all("u16", "dlid pkey_index"),
    *_all("u8", "sl path_bits is_global traffic_class"),
)

# Without frames, and with ON_DEMAND in ``access``: the bytes from ``address`` of the host's own memory on.
# ``held`` (with no other right, where the adapter is in the host's process): whoever posts keeps mapped what
# a request names, so that it is copied without asking the operating system.
REGION: Fields = (
    *_all("u32", "pd access page_offset"), *_all("u64", "va length address"),
    *_all("u8", "zero_based held"), ("frames", "runs"),
)

CM_QUEUE_PAIR: Fields = (
    *_all("u32", "qp_num starting_psn"),
    *_all("u8", "qp_type responder_resources initiator_depth retry_cnt rnr_retry srq flow_control"),
)

CM_PATH: Fields = (
    ("dgid", "gid"), *_all("u32", "flow_label"), *_all("u16", "dlid pkey_index"),
    *_all("u8", "sl traffic_class hop_limit path_mtu ack_timeout cm_response_timeout max_cm_retries"),
    *_all("u8", "sgid_index"),
)

# A way to a peer from the port with a GID, or on native links a LID, of its own.
CM_WAY: Fields = (
    ("own_gid", "gid"), ("dgid", "gid"), *_all("u32", "flow_label"), *_all("u16", "own_lid dlid"),
    *_all("u8", "sl traffic_class hop_limit ack_timeout packet_rate"),
)

CM_ELEMENT: Fields = _all("u32", "cm id")

COMMANDS: Mapping[int, tuple[str, Fields, Fields]] = {
    # number: (name, the command's fields, its reply's fields)
    QUERY_DEVICE: ("QUERY_DEVICE", (), DEVICE_ATTRIBUTES),
    QUERY_PORT: ("QUERY_PORT", _all("u8", "port_num"), PORT_ATTRIBUTES),
    QUERY_GID: (
        "QUERY_GID",
        (*_all("u8", "port_num"), *_all("u32", "index")),
        (("gid", "gid"), ("gid_type", "u8")),
    ),
    QUERY_PKEY: ("QUERY_PKEY", (*_all("u8", "port_num"), *_all("u32", "index")), (("pkey", "u16"),)),
    ATTACH_ARENA: ("ATTACH_ARENA", (*_all("u32", "slot pages"), ("address", "u64"), ("memory", "u8")), ()),
    DETACH_ARENA: ("DETACH_ARENA", _all("u32", "slot pages"), ()),
    ALLOC_PD: ("ALLOC_PD", (), _all("u32", "pd")),
    DEALLOC_PD: ("DEALLOC_PD", _all("u32", "pd"), ()),
    REG_MR: ("REG_MR", REGION, _all("u32", "lkey rkey")),
    REREG_MR: ("REREG_MR", (*_all("u32", "lkey flags"), *REGION), _all("u32", "lkey rkey")),
    DEREG_MR: ("DEREG_MR", _all("u32", "lkey"), ()),
    # ``channel``: where its events go, 0: to the event ring.
    CREATE_CQ: (
        "CREATE_CQ", (*_all("u32", "comp_vector flags channel"), *RING), _all("u32", "cq cqe")
    ),
    RESIZE_CQ: ("RESIZE_CQ", (*_all("u32", "cq"), *RING), _all("u32", "cqe")),
    DESTROY_CQ: ("DESTROY_CQ", _all("u32", "cq"), ()),
    CREATE_QP: (
        "CREATE_QP",
        (*_all("u8", "qp_type sq_sig_all"), *_all("u32", "pd send_cq recv_cq srq xrcd create_flags rdd"),
         *QP_CAPABILITIES, *_prefixed("send_", RING), *_prefixed("recv_", RING)),
        (*_all("u32", "qp_num doorbell"), *QP_CAPABILITIES),
    ),
    MODIFY_QP: ("MODIFY_QP", (*_all("u32", "qp_num attr_mask"), *QP_ATTRIBUTES, *PACING), ()),
    QUERY_QP: ("QUERY_QP", _all("u32", "qp_num attr_mask"), QP_ATTRIBUTES),
    DESTROY_QP: ("DESTROY_QP", _all("u32", "qp_num"), ()),
    CREATE_SRQ: (
        "CREATE_SRQ",
        (*_all("u8", "srq_type"), *_all("u32", "pd max_wr max_sge srq_limit cq xrcd"), *RING),
        _all("u32", "srq doorbell max_wr max_sge"),
    ),
    MODIFY_SRQ: ("MODIFY_SRQ", _all("u32", "srq attr_mask max_wr srq_limit"), ()),
    QUERY_SRQ: ("QUERY_SRQ", _all("u32", "srq"), _all("u32", "max_wr max_sge srq_limit")),
    DESTROY_SRQ: ("DESTROY_SRQ", _all("u32", "srq"), ()),
    CREATE_AH: ("CREATE_AH", (*_all("u32", "pd"), *ADDRESS_HANDLE), _all("u32", "ah")),
    DESTROY_AH: ("DESTROY_AH", _all("u32", "ah"), ()),
    ATTACH_MCAST: ("ATTACH_MCAST", (*_all("u32", "qp_num"), ("gid", "gid"), ("lid", "u16")), ()),
    DETACH_MCAST: ("DETACH_MCAST", (*_all("u32", "qp_num"), ("gid", "gid"), ("lid", "u16")), ()),
    ATTACH_RAW: ("ATTACH_RAW", _all("u32", "qp_num service"), ()),
    DETACH_RAW: ("DETACH_RAW", _all("u32", "qp_num service"), ()),
    ALLOC_MW: ("ALLOC_MW", _all("u32", "pd type"), _all("u32", "mw rkey")),
    DEALLOC_MW: ("DEALLOC_MW", _all("u32", "mw"), ()),
    ALLOC_FAST_MR: ("ALLOC_FAST_MR", _all("u32", "pd max_pages"), _all("u32", "mr key")),
    DEREG_FAST_MR: ("DEREG_FAST_MR", _all("u32", "mr"), ()),
    ALLOC_NULL_MR: ("ALLOC_NULL_MR", _all("u32", "pd"), _all("u32", "lkey")),
    REG_PAGED: ("REG_PAGED", (*_all("u32", "pd access descriptor"), ("va", "u64")), _all("u32", "lkey rkey")),
    SET_DATA_ACCESS: ("SET_DATA_ACCESS", _all("u8", "allowed"), _all("u8", "was_allowed")),
    # Bit n of ``methods``: the requests with method n, 128 bits of two words.
    REGISTER_AGENT: (
        "REGISTER_AGENT",
        (*_all("u8", "port_num mgmt_class class_version"), *_all("u64", "methods_low methods_high"), *RING),
        _all("u32", "agent"),
    ),
    UNREGISTER_AGENT: ("UNREGISTER_AGENT", _all("u32", "agent"), ()),
    SEND_MAD: (
        "SEND_MAD",
        (*_all("u32", "agent timeout_ms retries"), *MAD_ADDRESS, ("mad", "bytes")),
        (),
    ),
    OPEN_XRCD: ("OPEN_XRCD", (*_all("u64", "device inode"), ("flags", "u32")), _all("u32", "xrcd")),
    CLOSE_XRCD: ("CLOSE_XRCD", _all("u32", "xrcd"), ()),
    OPEN_CM: ("OPEN_CM", (*_all("u8", "port_num"), *_all("u32", "channel"), *RING), _all("u32", "cm")),
    CLOSE_CM: ("CLOSE_CM", _all("u32", "cm"), ()),
    CM_LISTEN: (
        "CM_LISTEN", (*_all("u32", "cm backlog"), *_all("u64", "service_id")), _all("u32", "id")
    ),
    CM_CONNECT: (
        "CM_CONNECT",
        (*_all("u32", "cm"), *_all("u64", "service_id"), *CM_PATH, *CM_QUEUE_PAIR,
         *_prefixed("alternate_", CM_WAY), ("private_data", "bytes")),
        _all("u32", "id"),
    ),
    # ``failover``: what becomes of the request's alternate path (REP's failover accepted).
    CM_REPLY: (
        "CM_REPLY", (*CM_ELEMENT, *CM_QUEUE_PAIR, *_all("u8", "failover"), ("private_data", "bytes")), ()
    ),
    CM_READY: ("CM_READY", (*CM_ELEMENT, ("private_data", "bytes")), ()),
    CM_REJECT: (
        "CM_REJECT", (*CM_ELEMENT, *_all("u16", "reason"), ("ari", "bytes"), ("private_data", "bytes")), ()
    ),
    CM_DISCONNECT: ("CM_DISCONNECT", (*CM_ELEMENT, ("private_data", "bytes")), ()),
    CM_ESTABLISH: ("CM_ESTABLISH", CM_ELEMENT, ()),
    CM_RESOLVE: (
        "CM_RESOLVE",
        (*_all("u32", "cm"), *_all("u64", "service_id"), *CM_PATH, ("private_data", "bytes")),
        _all("u32", "id"),
    ),
    CM_ANSWER: (
        "CM_ANSWER",
        (*CM_ELEMENT, *_all("u32", "qp_num qkey"), *_all("u8", "status"), ("private_data", "bytes")),
        (),
    ),
    CM_DESTROY: ("CM_DESTROY", CM_ELEMENT, ()),
    # The path that the peer is to load: the way to it, of which the time-outs and retries count as well.
    CM_LOAD_PATH: (
        "CM_LOAD_PATH", (*CM_ELEMENT, *CM_WAY, ("private_data", "bytes")), ()
    ),
    CM_ANSWER_PATH: (
        "CM_ANSWER_PATH",
        (*CM_ELEMENT, *_all("u8", "status"), ("information", "bytes"), ("private_data", "bytes")),
        (),
    ),
    ALLOC_RDD: ("ALLOC_RDD", (), _all("u32", "rdd")),
    DEALLOC_RDD: ("DEALLOC_RDD", _all("u32", "rdd"), ()),
    # The attributes of an end-to-end context are a queue pair's; ``dest_qp_num`` is its peer's number.
    CREATE_EE: ("CREATE_EE", _all("u32", "rdd"), _all("u32", "ee_num")),
    MODIFY_EE: ("MODIFY_EE", (*_all("u32", "ee_num attr_mask"), *QP_ATTRIBUTES), ()),
    QUERY_EE: ("QUERY_EE", _all("u32", "ee_num"), QP_ATTRIBUTES),
    DESTROY_EE: ("DESTROY_EE", _all("u32", "ee_num"), ()),
    CREATE_WQ: ("CREATE_WQ", (*_all("u32", "pd cq max_wr max_sge"), *RING), _all("u32", "wq_num doorbell")),
    MODIFY_WQ: ("MODIFY_WQ", _all("u32", "wq_num attr_mask wq_state curr_wq_state"), ()),
    DESTROY_WQ: ("DESTROY_WQ", _all("u32", "wq_num"), ()),
    # ``wqs``: the table's entries in order, as (a queue's number, how many entries in a row are it).
    CREATE_RWQ_IND_TABLE: (
        "CREATE_RWQ_IND_TABLE",
        (*_all("u32", "log_ind_tbl_size"), ("wqs", "runs")),
        _all("u32", "rwq_ind_tbl"),
    ),
    DESTROY_RWQ_IND_TABLE: ("DESTROY_RWQ_IND_TABLE", _all("u32", "rwq_ind_tbl"), ()),
    CREATE_RSS_QP: (
        "CREATE_RSS_QP",
        (*_all("u32", "pd rwq_ind_tbl rx_hash_function"), ("rx_hash_fields_mask", "u64"),
         ("rx_hash_key", "bytes")),
        _all("u32", "qp_num doorbell"),
    ),
    # ``descriptor``: a passed one.  Who shows the descriptor that a host has exported may import its objects.
    EXPORT_CONTEXT: ("EXPORT_CONTEXT", _all("u32", "descriptor"), ()),
    IMPORT_CONTEXT: ("IMPORT_CONTEXT", _all("u32", "descriptor"), ()),
    IMPORT_PD: ("IMPORT_PD", _all("u32", "pd"), ()),
    UNIMPORT_PD: ("UNIMPORT_PD", _all("u32", "pd"), ()),
    # ``mr``: the L_Key that REG_MR gave, whatever REREG_MR has given since.
    IMPORT_MR: (
        "IMPORT_MR",
        _all("u32", "pd mr"),
        (*_all("u32", "lkey rkey"), *_all("u64", "length")),
    ),
    # ``descriptor``: a passed memfd, sealed, of as many pages as ``length`` takes.
    ALLOC_DM: ("ALLOC_DM", (*_all("u32", "descriptor"), ("length", "u64")), _all("u32", "dm")),
    FREE_DM: ("FREE_DM", _all("u32", "dm"), ()),
    # ``value`` and ``mask``: of a frame's key (`wire.ethernet`); empty for the types that match no fields.
    CREATE_FLOW: (
        "CREATE_FLOW",
        (*_all("u32", "qp_num"), *_all("u16", "priority"), *_all("u8", "port_num type"),
         ("value", "bytes"), ("mask", "bytes")),
        _all("u32", "flow"),
    ),
    DESTROY_FLOW: ("DESTROY_FLOW", _all("u32", "flow"), ()),
    QUERY_COUNTERS: ("QUERY_COUNTERS", (("scope", "u8"), ("element", "u32")), (("counters", "counters"),)),
}
