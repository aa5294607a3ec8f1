"""What an adapter is made with: addresses, limits, names.  A value that cannot work is refused when it is
made.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from softhca.adapter.profile import Profile
from softhca.transport.congestion import DcqcnSettings
from softhca.transport.uniform import UniformBursts
from softhca.transport.window import BURST_OVERHEAD_BYTES, FULL_BURST_BYTES
from softhca.wire.vxlan import MOST_VNI

MTU_BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
"""ibv_mtu to bytes."""

ROCE = "roce"
NATIVE = "native"
"""What a port's packets are framed in: UDP and IP by GID (version 4 or 6, as the GID is), or LRH and VCRC by
LID.
"""

TYPE_2A = "2A"
TYPE_2B = "2B"
"""Memory windows of type 2: for the queue pair that bound them, B in its domain besides (10.6.7.2.3)."""

DEFAULT_GID_PREFIX = 0xFE80_0000_0000_0000
LID_LAST_UNICAST = 0xBFFF
LID_LAST_MULTICAST = 0xFFFE
LID_PERMISSIVE = 0xFFFF
LMC_LAST = 7
MANAGEMENT_LANE = 15

MINIMUM_WINDOW_BYTES = FULL_BURST_BYTES + BURST_OVERHEAD_BYTES
MAXIMUM_WINDOW_BYTES = 1 << 30

HCA_PROFILE = Profile()
DEFAULT_PKEY = 0xFFFF
QPN_MASK = 0xFFFFFF
MULTICAST_QPN = 0xFFFFFF
GID_TABLE_LENGTH = 16
GID_ENTRIES = 4
"""Filled entries of a RoCE port's table, as NICs with one address have: two link-local ones and two of that
address, for RoCE v1 and v2.
"""

PKEY_TABLE_LENGTH = 16
MAX_PORTS = 255


def native_gid(guid: int, prefix: int = DEFAULT_GID_PREFIX) -> bytes:
    """The GID of a native port: the subnet's 64-bit prefix and the port's GUID (IBTA vol. 1, 4.1.1)."""
    return prefix.to_bytes(8, "big") + guid.to_bytes(8, "big")


def check_lid(lid: int, lmc: int) -> None:
    """ValueError unless ``lid`` can be the base of 2^``lmc`` unicast LIDs; 0: none is assigned yet."""
    if not 0 <= lmc <= LMC_LAST:
        raise ValueError(f"LMC {lmc}: expected 0…{LMC_LAST}")
    if lid & ((1 << lmc) - 1) or not 0 <= lid <= LID_LAST_UNICAST:
        raise ValueError(f"LID {lid:#x}: expected 1…{LID_LAST_UNICAST:#x} with its low {lmc} bits 0, or 0")


def check_prefix(prefix: int) -> None:
    """ValueError unless ``prefix`` can be a subnet's."""
    if not 0 < prefix < 0xFF << 56:
        raise ValueError(f"GID prefix {prefix:#x}: expected 64 bits of a unicast address")


DEFAULT_VNI = 1
"""The VXLAN segment of adapters that are told none."""


@dataclass(frozen=True, slots=True)
class PortConfig:
    """What a port has of its own; the fields mean what they mean in `AdapterConfig`.  ValueError likewise."""

    gids: tuple[bytes, ...]
    pkeys: tuple[int, ...] = (DEFAULT_PKEY,)
    active_mtu: int = 3
    active_width: int = 2
    active_speed: int = 32
    framing: str = ROCE
    lid: int = 0
    lmc: int = 0
    sm_lid: int = 0

    def __post_init__(self) -> None:
        _check_port(self, GID_TABLE_LENGTH, PKEY_TABLE_LENGTH)


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """Addresses and limits of one adapter.  ValueError when a value is out of range.

    The fields of `PortConfig` are those of port 1; ``further_ports`` has what ports 2 and up have of their
    own.  No two ports have a GID, or a LID, in common.

    ``gids`` are the port's RoCE v2 addresses (16 bytes, IPv4-mapped or IPv6); node GUIDs derive from the
    first, unless ``node_guid`` says another one. ``pkeys`` is the P_Key table, ``active_mtu`` an
    ``ibv_mtu``, ``rate_width``/``rate_speed`` the figures of ``ibv_port_attr``.  The ``max_`` limits are
    those of ``ibv_device_attr``.

    The GIDs of a RoCE port fill ``gid_entries`` of its table's entries, in their order again and again, and
    one each at least; those of a native port one each.

    ``framing`` is `ROCE` or `NATIVE`.  The GIDs of a native port (`native_gid`) have one prefix, its
    subnet's; ``lid``, ``lmc`` and ``sm_lid`` are what it begins with, until a subnet manager says otherwise
    (`Port.set_info`).  With LID 0 it begins in the state INIT and sends nothing.

    ``type_2`` says which memory windows of type 2 the adapter has, ``2A`` or ``2B``; fast regions count as
    regions, of ``max_fast_pages`` at most.

    ``max_sources`` bounds what is remembered of senders that no connection leads to (`adapter.sources`).
    ``strict_source_port``: a connected queue pair takes packets from the UDP source port with which its peer
    began, and from no other.

    ``profile`` says what of the transport there is: an HCA's everything, or what a TCA has.

    ``max_agent`` bounds the management agents that hosts register, ``max_cm`` their channels of connections;
    ``host_subnet_management`` lets hosts have
    agents on queue pair 0, which configures ports.

    ``connection_instances``: connections that its communication managers make with peers of this package have
    instance numbers (`management.cm.instances`).

    ``ee_error_cache`` is how many work requests on failing end-to-end contexts are set aside at most (see
    `transport.ee_error_cache`); 0: none is, and any error stops the send queue of a reliable datagram queue
    pair.

    ``max_host_bytes`` limits what the queues and agents of one host may cost the adapter beyond the host's
    own memory.

    ``window_bytes`` limits what is in flight to one destination; 0: as a peer with the default socket buffer
    takes it (`DestinationWindow`).

    ``congestion``: connections of RoCE ports have DCQCN with these numbers (`transport.congestion`); None:
    they neither mark what they send as ECN-capable nor tell of marks.

    ``ethernet_frames``: RoCE ports have raw packet queue pairs, which send and receive Ethernet frames;
    ``vni`` is the VXLAN segment of the RoCE ports, whose Ethernet frames go to the adapters with the GIDs
    ``vteps`` (`adapter.segment`).

    ``uniform_bursts``: which RDMA WRITEs and READs leave RoCE ports as messages whose packets have one length
    (`transport.uniform`); None: none.
    """

    gids: tuple[bytes, ...]
    pkeys: tuple[int, ...] = (DEFAULT_PKEY,)
    active_mtu: int = 3
    firmware: str = "0.1.0"
    active_width: int = 2
    active_speed: int = 32
    gid_table_length: int = GID_TABLE_LENGTH
    gid_entries: int = GID_ENTRIES
    pkey_table_length: int = PKEY_TABLE_LENGTH
    max_host: int = 256
    max_host_bytes: int = 256 << 20
    max_pd: int = 32_768
    max_mr: int = 131_072
    max_mw: int = 131_072
    max_mr_size_bytes: int = 1 << 40
    max_cq: int = 16_384
    max_cqe: int = 4_194_304
    max_qp: int = 16_384
    max_qp_wr: int = 32_768
    max_sge: int = 256
    max_inline_bytes: int = 4096
    max_srq: int = 16_384
    max_srq_wr: int = 32_768
    max_srq_sge: int = 256
    max_ah: int = 65_536
    max_qp_rd_atom: int = 128
    max_mcast_grp: int = 8192
    max_mcast_qp_attach: int = 248
    max_sources: int = 1024
    strict_source_port: bool = False
    max_windows: int = 4096
    window_bytes: int = 0
    congestion: DcqcnSettings | None = None
    uniform_bursts: UniformBursts | None = None
    framing: str = ROCE
    lid: int = 0
    lmc: int = 0
    sm_lid: int = 0
    profile: Profile = HCA_PROFILE
    type_2: str = TYPE_2B
    max_fast_pages: int = 65_536
    max_agent: int = 256
    max_cm: int = 256
    max_xrcd: int = 4096
    max_dm: int = 256
    max_flow: int = 4096
    max_wq: int = 16_384
    max_rwq_ind_table: int = 4096
    max_rdd: int = 4096
    max_ee: int = 16_384
    ee_error_cache: int = 4096
    host_subnet_management: bool = False
    connection_instances: bool = True
    ethernet_frames: bool = True
    vni: int = DEFAULT_VNI
    vteps: tuple[bytes, ...] = ()
    further_ports: tuple[PortConfig, ...] = ()
    node_guid: int = 0

    def __post_init__(self) -> None:
        _check_port(self, self.gid_table_length, self.pkey_table_length)
        self._check_further_ports()
        if not 1 <= self.gid_entries <= self.gid_table_length:
            raise ValueError(f"gid_entries = {self.gid_entries}: expected 1…{self.gid_table_length}")
        if not 0 <= self.vni <= MOST_VNI:
            raise ValueError(f"vni = {self.vni}: expected 0…{MOST_VNI}")
        if self.window_bytes and not MINIMUM_WINDOW_BYTES <= self.window_bytes <= MAXIMUM_WINDOW_BYTES:
            expected = f"0 or {MINIMUM_WINDOW_BYTES}…{MAXIMUM_WINDOW_BYTES}"
            raise ValueError(f"window_bytes = {self.window_bytes}: expected {expected}")
        if self.type_2 not in (TYPE_2A, TYPE_2B):
            raise ValueError(f"memory windows of type {self.type_2!r}: expected {TYPE_2A!r} or {TYPE_2B!r}")
        if not 0 <= self.ee_error_cache <= 1 << 20:
            raise ValueError(f"ee_error_cache = {self.ee_error_cache}: expected 0…{1 << 20}")
        for field in fields(self):
            if field.name.startswith("max_") and not 0 < getattr(self, field.name) <= _CEILINGS.get(
                field.name, 1 << 24
            ):
                raise ValueError(
                    f"{field.name} = {getattr(self, field.name)}: "
                    f"expected 1…{_CEILINGS.get(field.name, 1 << 24)}"
                )

    def _check_further_ports(self) -> None:
        if len(self.further_ports) >= MAX_PORTS:
            raise ValueError(f"an adapter has {MAX_PORTS} ports at most, not {1 + len(self.further_ports)}")
        gids = [gid for port in self.ports for gid in port.gids]
        if len(set(gids)) != len(gids):
            raise ValueError("a GID is given to two ports")
        lids = [lid for port in self.ports if port.lid for lid in range(port.lid, port.lid + (1 << port.lmc))]
        if len(set(lids)) != len(lids):
            raise ValueError("a LID is given to two ports")

    @property
    def ports(self) -> tuple[AdapterConfig | PortConfig, ...]:
        """What each port has of its own, port 1 first."""
        return (self, *self.further_ports)


def _check_port(port: AdapterConfig | PortConfig, most_gids: int, most_pkeys: int) -> None:
    """ValueError unless this can be a port."""
    if not port.gids or len(port.gids) > most_gids:
        raise ValueError(f"a port has 1…{most_gids} GIDs, not {len(port.gids)}")
    for gid in port.gids:
        if len(gid) != 16 or not any(gid) or gid[0] == 0xFF:
            raise ValueError(f"GID {gid.hex()}: expected 16 bytes of a unicast address")
    if len(set(port.gids)) != len(port.gids):
        raise ValueError("a GID is given twice")
    if not port.pkeys or len(port.pkeys) > most_pkeys:
        raise ValueError(f"a port has 1…{most_pkeys} P_Keys, not {len(port.pkeys)}")
    for pkey in port.pkeys:
        if not 0 <= pkey <= 0xFFFF or not pkey & 0x7FFF:
            raise ValueError(f"P_Key {pkey:#x}: its low 15 bits are 1…0x7fff")
    if port.active_mtu not in MTU_BYTES:
        raise ValueError(f"active_mtu {port.active_mtu}: expected an ibv_mtu, 1…5")
    _check_framing(port)


def _check_framing(port: AdapterConfig | PortConfig) -> None:
    if port.framing not in (ROCE, NATIVE):
        raise ValueError(f"framing {port.framing!r}: expected {ROCE!r} or {NATIVE!r}")
    if port.framing == ROCE:
        if port.lid or port.lmc or port.sm_lid:
            raise ValueError("a RoCE port has no LIDs (A17)")
        return
    check_lid(port.lid, port.lmc)
    check_lid(port.sm_lid, 0)
    check_prefix(int.from_bytes(port.gids[0][:8], "big"))
    for gid in port.gids:
        if gid[:8] != port.gids[0][:8] or not any(gid[8:]):
            raise ValueError(f"GID {gid.hex()}: expected the subnet's prefix and a GUID")


_CEILINGS = {
    "max_host_bytes": 1 << 40,
    "max_mr_size_bytes": 1 << 44,
    "max_qp": (1 << 23) - 2,
    "max_wq": (1 << 23) - 2,
    "max_pd": (1 << 24) - 1,
    "max_qp_rd_atom": 255,
    "max_sge": 1024,
    "max_srq_sge": 1024,
    "max_inline_bytes": 1 << 16,
    "max_qp_wr": 1 << 20,
    "max_srq_wr": 1 << 20,
}
