"""What an adapter says of itself, under the names of ``ibv_device_attr`` and ``ibv_port_attr``."""

from __future__ import annotations

from typing import Any

from softhca.adapter.config import NATIVE, TYPE_2A, AdapterConfig
from softhca.adapter.port import PORT_DOWN, Port
from softhca.adapter.profile import ATOMIC_OPTION, READ_OPTION, WRITE_OPTION, Profile
from softhca.queues.control_fields import (
    MAX_RWQ_IND_TABLE_ENTRIES,
    QPT_RAW_PACKET,
    RX_HASH_FIELDS,
    RX_HASH_TOEPLITZ,
)
from softhca.transport.pacing import LEAST_RATE_KBPS, MOST_RATE_KBPS
from softhca.transport.replay import resources_for
from softhca.transport.services import SERVICES
from softhca.transport.states import FRAMES, RC, RD, UC, UD, XRC
from softhca.wire.route import V4_MAPPED_PREFIX

VENDOR_ID = 0x02C5  # no registered vendor: locally administered space
VENDOR_PART_ID = 1
ATOMIC_NONE = 0
ATOMIC_HCA = 1
PHYS_POLLING = 2
PHYS_LINK_UP = 5
LINK_LAYER_INFINIBAND = 1
LINK_LAYER_ETHERNET = 2
MTU_4096 = 5
GID_TYPE_IB = 0
GID_TYPE_ROCE_V2 = 2
VL_0 = 1  # codes of max_vl_num
VL_0_TO_14 = 5
MAX_MESSAGE_BYTES = 1 << 31

# ibv_device_cap_flags
CAP_BAD_PKEY_CNTR = 1 << 1
CAP_AUTO_PATH_MIG = 1 << 4
CAP_CURR_QP_STATE_MOD = 1 << 7
CAP_PORT_ACTIVE_EVENT = 1 << 10
CAP_SYS_IMAGE_GUID = 1 << 11
CAP_RC_RNR_NAK_GEN = 1 << 12
CAP_MEM_WINDOW = 1 << 17
CAP_XRC = 1 << 20
CAP_MEM_MGT_EXTENSIONS = 1 << 21
CAP_MEM_WINDOW_TYPE_2A = 1 << 23
CAP_MEM_WINDOW_TYPE_2B = 1 << 24
CAP_FLUSH_GLOBAL = 1 << 38  # this and the next one: of the extended ones
CAP_ATOMIC_WRITE = 1 << 40
DEVICE_CAPS = (
    CAP_BAD_PKEY_CNTR
    | CAP_AUTO_PATH_MIG
    | CAP_CURR_QP_STATE_MOD
    | CAP_PORT_ACTIVE_EVENT
    | CAP_SYS_IMAGE_GUID
    | CAP_RC_RNR_NAK_GEN
    | CAP_MEM_WINDOW
    | CAP_MEM_MGT_EXTENSIONS
)

# ibv_odp_general_caps, ibv_odp_transport_cap_bits
ODP_SUPPORT = 1 << 0
ODP_SUPPORT_IMPLICIT = 1 << 1
ODP_SEND = 1 << 0
ODP_RECV = 1 << 1
ODP_WRITE = 1 << 2
ODP_READ = 1 << 3
ODP_ATOMIC = 1 << 4
ODP_SRQ_RECV = 1 << 5
ODP_FLUSH = 1 << 6
ODP_ATOMIC_WRITE = 1 << 7
_ODP_MESSAGES = ODP_SEND | ODP_RECV | ODP_SRQ_RECV
_ODP_OPTIONS = {WRITE_OPTION: ODP_WRITE, READ_OPTION: ODP_READ, ATOMIC_OPTION: ODP_ATOMIC}

# ibv_port_cap_flags
PORT_CAP_CM = 1 << 16
PORT_CAP_IP_BASED_GIDS = 1 << 26


def guid_of(gid: bytes) -> int:
    """The EUI-64 that stands for an adapter whose first GID is ``gid``: never 0, the local bit set.

    An IPv4 address is the GUID's low half; of an IPv6 address the interface identifier is taken.
    """
    if gid.startswith(V4_MAPPED_PREFIX):
        return 0x0200_00FF_0000_0000 | int.from_bytes(gid[12:], "big")
    return int.from_bytes(gid[8:], "big") | 0x0200_0000_0000_0000


def device_attributes(config: AdapterConfig) -> dict[str, Any]:
    """``ibv_device_attr`` by name; counts and bytes as there.  ``profile`` is softhca's own: text for
    `Profile.of`.
    """
    profile = config.profile
    outstanding = 0
    if profile.has(READ_OPTION) or profile.has(ATOMIC_OPTION):
        outstanding = config.max_qp_rd_atom
    has_rd = RD in profile.services
    extended = 0
    if profile.has(WRITE_OPTION) and RC in profile.services:
        extended = CAP_ATOMIC_WRITE | CAP_FLUSH_GLOBAL
    guid = guid_of(config.gids[0])
    if config.framing == NATIVE:
        guid = int.from_bytes(config.gids[0][8:], "big")
    guid = config.node_guid or guid
    return {
        "fw_ver": config.firmware.encode("ascii"),
        "node_guid": guid,
        "sys_image_guid": guid,
        "max_mr_size": config.max_mr_size_bytes,
        "page_size_cap": 4096,
        "vendor_id": VENDOR_ID,
        "vendor_part_id": VENDOR_PART_ID,
        "hw_ver": 1,
        "max_qp": config.max_qp,
        "max_qp_wr": config.max_qp_wr,
        "device_cap_flags": DEVICE_CAPS
        | (CAP_XRC if XRC in profile.services else 0)
        | (CAP_MEM_WINDOW_TYPE_2A if config.type_2 == TYPE_2A else CAP_MEM_WINDOW_TYPE_2B),
        "device_cap_flags_ex": extended,
        "max_sge": config.max_sge,
        "max_sge_rd": config.max_sge,
        "max_cq": config.max_cq,
        "max_cqe": config.max_cqe,
        "max_mr": config.max_mr,
        "max_pd": config.max_pd,
        "max_qp_rd_atom": outstanding,
        "max_ee_rd_atom": outstanding if has_rd else 0,
        "max_res_rd_atom": resources_for(outstanding) * config.max_qp,
        "max_qp_init_rd_atom": outstanding,
        "max_ee_init_rd_atom": outstanding if has_rd else 0,
        "atomic_cap": ATOMIC_HCA if profile.has(ATOMIC_OPTION) else ATOMIC_NONE,
        "max_ee": config.max_ee if has_rd else 0,
        "max_rdd": config.max_rdd if has_rd else 0,
        "max_mw": config.max_mw,
        "max_raw_ipv6_qp": config.max_qp if config.framing == NATIVE else 0,
        "max_raw_ethy_qp": config.max_qp if config.framing == NATIVE or _has_frames(config) else 0,
        "max_mcast_grp": config.max_mcast_grp,
        "max_mcast_qp_attach": config.max_mcast_qp_attach,
        "max_total_mcast_qp_attach": config.max_mcast_grp * config.max_mcast_qp_attach,
        "max_ah": config.max_ah,
        "max_fmr": 0,
        "max_map_per_fmr": 0,
        "max_srq": config.max_srq,
        "max_srq_wr": config.max_srq_wr,
        "max_srq_sge": config.max_srq_sge,
        "max_inline_data": config.max_inline_bytes,
        "max_pkeys": config.pkey_table_length,
        "profile": str(profile).encode("ascii"),
        "local_ca_ack_delay": 15,
        "phys_port_cnt": len(config.ports),
        **pacing_attributes(config),
        **scaling_attributes(config),
    }


def pacing_attributes(config: AdapterConfig) -> dict[str, int]:
    """``ibv_packet_pacing_caps``, by names of `control_fields`: the least and greatest rate limit in kbit/s,
    and bit n set for each ibv_qp_type that has one: all that send by themselves (RD has EE contexts for it).
    """
    services = {RC, UC, UD, XRC} & config.profile.services
    kinds = {kind for service in services for kind in SERVICES[service].qp_types}
    if config.framing == NATIVE or _has_frames(config):
        kinds.add(QPT_RAW_PACKET)
    return {
        "qp_rate_limit_min": LEAST_RATE_KBPS,
        "qp_rate_limit_max": MOST_RATE_KBPS,
        "qp_rate_limit_qpts": sum(1 << kind for kind in kinds),
    }


def scaling_attributes(config: AdapterConfig) -> dict[str, int]:
    """``ibv_rss_caps`` and ``max_wq_type_rq``, by names of `control_fields`: 0 where there are no frames."""
    if not _has_frames(config) or any(port.framing == NATIVE for port in config.ports):
        return {}
    return {
        "max_wq_type_rq": config.max_wq,
        "max_rwq_indirection_tables": config.max_rwq_ind_table,
        "max_rwq_indirection_table_size": MAX_RWQ_IND_TABLE_ENTRIES,
        "rss_qpts": 1 << QPT_RAW_PACKET,
        "rx_hash_fields_mask": RX_HASH_FIELDS,
        "rx_hash_function": RX_HASH_TOEPLITZ,
    }


def _has_frames(config: AdapterConfig) -> bool:
    """Whether raw packet queue pairs send Ethernet frames."""
    return config.ethernet_frames and FRAMES in config.profile.services


def odp_attributes(profile: Profile, reachable: bool) -> dict[str, int]:
    """``ibv_odp_caps``, by names of `control_fields`: what regions of a host's own memory may be used for,
    for each service.  Nothing where that memory is not ``reachable``."""
    options = sum(bit for option, bit in _ODP_OPTIONS.items() if profile.has(option))
    written = ODP_ATOMIC_WRITE | ODP_FLUSH if options & ODP_WRITE else 0
    caps = {
        "rc_odp_caps": (RC, _ODP_MESSAGES | options | written),
        "uc_odp_caps": (UC, _ODP_MESSAGES | options & ODP_WRITE),
        "ud_odp_caps": (UD, _ODP_MESSAGES),
        "xrc_odp_caps": (XRC, (_ODP_MESSAGES | options) & ~ODP_RECV),
    }
    told = {name: bits if service in profile.services else 0 for name, (service, bits) in caps.items()}
    told["odp_general_caps"] = ODP_SUPPORT | ODP_SUPPORT_IMPLICIT
    return told if reachable else dict.fromkeys(told, 0)


def port_attributes(port: Port, bad_pkeys: int, bad_qkeys: int) -> dict[str, int]:
    """``ibv_port_attr`` by name; ``bad_pkeys`` and ``bad_qkeys`` are packets refused for their key."""
    config, own = port.config, port.own
    return {
        "state": port.state,
        "max_mtu": MTU_4096,
        "active_mtu": own.active_mtu,
        "gid_tbl_len": config.gid_table_length,
        "port_cap_flags": PORT_CAP_CM if port.native else PORT_CAP_CM | PORT_CAP_IP_BASED_GIDS,
        "max_msg_sz": MAX_MESSAGE_BYTES,
        "bad_pkey_cntr": bad_pkeys,
        "qkey_viol_cntr": bad_qkeys,
        "pkey_tbl_len": config.pkey_table_length,
        "lid": port.lid,
        "sm_lid": port.sm_lid,
        "lmc": port.lmc,
        "max_vl_num": VL_0_TO_14 if port.native else VL_0,
        "sm_sl": port.sm_sl,
        "subnet_timeout": port.subnet_timeout,
        "init_type_reply": 0,
        "active_width": own.active_width,
        "active_speed": own.active_speed,
        "phys_state": PHYS_POLLING if port.native and port.state == PORT_DOWN else PHYS_LINK_UP,
        "link_layer": LINK_LAYER_INFINIBAND if port.native else LINK_LAYER_ETHERNET,
        "flags": 0,
        "port_cap_flags2": 0,
    }
