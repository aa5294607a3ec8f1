"""What a device and its ports say of themselves: read-only records under libibverbs' names."""

import inspect
from collections.abc import Mapping
from typing import Any

from softhca.queues.control_fields import MAX_DM_BYTES
from softhca.verbs.base import PyverbsObject
from softhca.verbs.device_text import (
    phys_state_to_str,
    port_state_to_str,
    speed_to_str,
    translate_link_layer,
    translate_mtu,
    translate_port_cap_flags,
    translate_port_cap_flags2,
    width_to_str,
)
from softhca.verbs.structures import ReadOnly
from softhca.verbs.utils import be64toh, lines

_Values = Mapping[str, Any]

_EXTENSIONS: _Values = {
    "max_dm_size": MAX_DM_BYTES,
    "completion_timestamp_mask": (1 << 64) - 1,
    "hca_core_clock": 1_000_000,  # kHz: timestamps count nanoseconds
}


class _Fields(type):
    """Gives a record slots for what it annotates; classes that programs derive are like any other."""

    def __new__(mcs, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> "_Fields":
        """A class; `Record` itself and those of this module have slots."""
        if names.get("__module__") == __name__:
            names["__slots__"] = tuple(names.get("__annotations__", ()))
        return super().__new__(mcs, name, bases, names)


class Record(ReadOnly, metaclass=_Fields):
    """Whole numbers under the names that the class annotates; what the device does not say is 0."""

    def __init__(self, values: _Values | None = None) -> None:
        given = values or {}
        kinds = self._kinds()
        self._make({name: int(given.get(name, 0)) for name, kind in kinds.items() if kind is int})

    @classmethod
    def _kinds(cls) -> dict[str, Any]:
        """What the record has, also where a program has derived a class from it."""
        own = next(each for each in cls.__mro__ if each.__module__ == __name__)
        return inspect.get_annotations(own)

    def __str__(self) -> str:
        return lines({name.replace("_", " "): getattr(self, name) for name in self._kinds()}, 24)


class DeviceAttr(Record):
    """``ibv_device_attr``: identity and limits of a device."""

    fw_version: str
    profile: str
    node_guid: int
    sys_image_guid: int
    max_mr_size: int
    page_size_cap: int
    vendor_id: int
    vendor_part_id: int
    hw_ver: int
    max_qp: int
    max_qp_wr: int
    device_cap_flags: int
    max_sge: int
    max_sge_rd: int
    max_cq: int
    max_cqe: int
    max_mr: int
    max_pd: int
    max_qp_rd_atom: int
    max_ee_rd_atom: int
    max_res_rd_atom: int
    max_qp_init_rd_atom: int
    max_ee_init_rd_atom: int
    atomic_caps: int
    max_ee: int
    max_rdd: int
    max_mw: int
    max_raw_ipv6_qps: int
    max_raw_ethy_qp: int
    max_mcast_grp: int
    max_mcast_qp_attach: int
    max_total_mcast_qp_attach: int
    max_ah: int
    max_fmr: int
    max_map_per_fmr: int
    max_srq: int
    max_srq_wr: int
    max_srq_sge: int
    max_pkeys: int
    local_ca_ack_delay: int
    phys_port_cnt: int

    def __init__(self, values: _Values | None = None) -> None:
        super().__init__(values)
        given = values or {}
        # pyverbs names three fields otherwise than C does, and keeps GUIDs as read from big-endian memory
        self._make(
            {
                "fw_version": str(given.get("fw_ver", "")),
                "profile": str(given.get("profile", "")),  # softhca's own
                "atomic_caps": int(given.get("atomic_cap", 0)),
                "max_raw_ipv6_qps": int(given.get("max_raw_ipv6_qp", 0)),
                "node_guid": be64toh(self.node_guid),
                "sys_image_guid": be64toh(self.sys_image_guid),
            }
        )


class ODPCaps(Record):
    """On-demand paging (``ibv_odp_general_caps``, ``ibv_odp_transport_cap_bits``): all 0 where the device
    cannot reach the program's own memory by address.
    """

    general_caps: int
    rc_odp_caps: int
    uc_odp_caps: int
    ud_odp_caps: int
    xrc_odp_caps: int


class PCIAtomicCaps(Record):
    """Atomics of the device on the host bus."""

    fetch_add: int
    swap: int
    compare_swap: int


class TSOCaps(Record):
    """TCP segmentation by the device."""

    max_tso: int
    supported_qpts: int


class RSSCaps(Record):
    """Receive-side scaling."""

    supported_qpts: int
    max_rwq_indirection_tables: int
    rx_hash_fields_mask: int
    rx_hash_function: int
    max_rwq_indirection_table_size: int


class PacketPacingCaps(Record):
    """Rate limits of what queue pairs send, in kbit/s; bit n set for each ``ibv_qp_type`` that has one."""

    qp_rate_limit_min: int
    qp_rate_limit_max: int
    supported_qpts: int


class TMCaps(Record):
    """Tag matching."""

    max_rndv_hdr_size: int
    max_num_tags: int
    flags: int
    max_ops: int
    max_sge: int


class CQModerationCaps(Record):
    """Moderation of completion events."""

    max_cq_count: int
    max_cq_period: int


class CompCntrCaps(Record):
    """Completion counters."""

    max_counters: int
    max_value: int
    supported_qp_attach_ops: int


class DeviceAttrEx(Record):
    """``ibv_device_attr_ex``: the limits, and the capabilities of extensions (0 where there is none)."""

    comp_mask: int
    completion_timestamp_mask: int
    hca_core_clock: int
    device_cap_flags_ex: int
    max_wq_type_rq: int
    raw_packet_caps: int
    max_dm_size: int
    phys_port_cnt_ex: int
    orig_attr: DeviceAttr
    odp_caps: ODPCaps
    tso_caps: TSOCaps
    pci_atomic_caps: PCIAtomicCaps
    rss_caps: RSSCaps
    packet_pacing_caps: PacketPacingCaps
    tm_caps: TMCaps
    cq_mod_caps: CQModerationCaps

    def __init__(self, values: _Values | None = None) -> None:
        given: _Values = {**_EXTENSIONS, **values} if values else {}
        super().__init__(given)
        plain = DeviceAttr(given)
        self._make(
            {
                "orig_attr": plain,
                "device_cap_flags_ex": self.device_cap_flags_ex | plain.device_cap_flags,
                "phys_port_cnt_ex": self.phys_port_cnt_ex or plain.phys_port_cnt,
                "odp_caps": ODPCaps({**given, "general_caps": given.get("odp_general_caps", 0)}),
                "tso_caps": TSOCaps(given.get("tso_caps")),
                "pci_atomic_caps": PCIAtomicCaps(given.get("pci_atomic_caps")),
                "rss_caps": RSSCaps({**given, "supported_qpts": given.get("rss_qpts", 0)}),
                "packet_pacing_caps": PacketPacingCaps(
                    {**given, "supported_qpts": given.get("qp_rate_limit_qpts", 0)}
                ),
                "tm_caps": TMCaps(given.get("tm_caps")),
                "cq_mod_caps": CQModerationCaps(given.get("cq_mod_caps")),
            }
        )


class QueryDeviceExInput(PyverbsObject):
    """Extensible argument of `Context.query_device_ex`; no extension is defined, ``comp_mask`` must be 0."""

    __slots__ = ("comp_mask",)

    def __init__(self, comp_mask: int = 0) -> None:
        self.comp_mask = comp_mask


class PortAttr(Record):
    """``ibv_port_attr``: state and properties of a port; MTUs, widths and speeds are codes."""

    state: int
    max_mtu: int
    active_mtu: int
    gid_tbl_len: int
    port_cap_flags: int
    max_msg_sz: int
    bad_pkey_cntr: int
    qkey_viol_cntr: int
    pkey_tbl_len: int
    lid: int
    sm_lid: int
    lmc: int
    max_vl_num: int
    sm_sl: int
    subnet_timeout: int
    init_type_reply: int
    active_width: int
    active_speed: int
    phys_state: int
    link_layer: int
    flags: int
    port_cap_flags2: int
    active_speed_ex: int

    def __str__(self) -> str:
        return lines(
            {
                "Port state": port_state_to_str(self.state),
                "Max MTU": translate_mtu(self.max_mtu),
                "Active MTU": translate_mtu(self.active_mtu),
                "SM lid": self.sm_lid,
                "Port lid": self.lid,
                "lmc": hex(self.lmc),
                "Link layer": translate_link_layer(self.link_layer),
                "Max message size": hex(self.max_msg_sz),
                "Port cap flags": translate_port_cap_flags(self.port_cap_flags),
                "Port cap flags 2": translate_port_cap_flags2(self.port_cap_flags2),
                "max VL num": self.max_vl_num,
                "Bad Pkey counter": self.bad_pkey_cntr,
                "Qkey violations counter": self.qkey_viol_cntr,
                "GID table len": self.gid_tbl_len,
                "Pkey table len": self.pkey_tbl_len,
                "SM sl": self.sm_sl,
                "Subnet timeout": self.subnet_timeout,
                "Init type reply": self.init_type_reply,
                "Active width": width_to_str(self.active_width),
                "Active speed": speed_to_str(self.active_speed, self.active_speed_ex),
                "Phys state": phys_state_to_str(self.phys_state),
                "Flags": self.flags,
            },
            24,
        )
