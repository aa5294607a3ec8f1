"""The HCA services layer (HSL): what channel drivers and programs use, above the adapters' differences.

*HCA services* find and open adapters, *fabric services* describe paths through the fabric and ask its nodes,
*connection services* take queue pairs through their states, by hand or with what the communication manager
says.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from softhca.driver import registry
from softhca.driver.agents import MadAddress
from softhca.driver.connections import CmAlternatePath, CmChannel, CmEvent, CmPath, CmQueuePair
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.driver.qp import QpHandle
from softhca.queues.control_fields import QPT_XRC_RECV, QPT_XRC_SEND
from softhca.queues.states import INIT, RTR, RTS

LINK_LAYER_ETHERNET = 2
MIG_REARM = 1
"""``ibv_mig_state``."""
_ANSWERS = 4
"""Room for responses while one is waited for."""


@dataclass(frozen=True)
class Path:
    """A path to a peer's port: ``dgid``, from entry ``sgid_index`` of the own table, and how packets travel
    it.

    It begins at the own port ``port_num``.  On native links ``dlid`` leads there, from the own LID with
    ``src_path_bits``, and without ``dgid`` (None) packets have no GRH.
    """

    dgid: bytes | None
    sgid_index: int = 0
    sl: int = 0
    traffic_class: int = 0
    flow_label: int = 0
    hop_limit: int = 64
    mtu: int = 3
    dlid: int = 0
    src_path_bits: int = 0
    port_num: int = 1

    def vector(self) -> dict[str, Any]:
        """The address vector (``ibv_ah_attr``)."""
        if self.dgid is None:
            return {
                "dlid": self.dlid,
                "src_path_bits": self.src_path_bits,
                "sl": self.sl,
                "is_global": 0,
                "port_num": self.port_num,
            }
        return {
            "dgid": self.dgid,
            "dlid": self.dlid,
            "src_path_bits": self.src_path_bits,
            "sgid_index": self.sgid_index,
            "sl": self.sl,
            "traffic_class": self.traffic_class,
            "flow_label": self.flow_label,
            "hop_limit": self.hop_limit,
            "is_global": 1,
            "port_num": self.port_num,
        }


@dataclass(frozen=True)
class Reliability:
    """How an RC or XRC connection copes with loss: ``timeout``, ``min_rnr_timer`` as the standard encodes
    them."""

    timeout: int = 14
    retry_cnt: int = 7
    rnr_retry: int = 7
    min_rnr_timer: int = 12
    max_rd_atomic: int = 16
    max_dest_rd_atomic: int = 16


def adapters() -> list[str]:
    """HCA service: names of the adapters."""
    return registry.names()


def open_adapter(name: str) -> DeviceDriver:
    """HCA service: open one."""
    return registry.open_device(name)


def path_to(device: DeviceDriver, dgid: bytes, port_num: int = 1, **details: int) -> Path:
    """Fabric service: the path to a GID from a port, with the port's MTU."""
    return Path(dgid, mtu=device.query_port(port_num)["active_mtu"], port_num=port_num, **details)


def connect(
    qp: QpHandle,
    path: Path,
    peer_qpn: int,
    peer_psn: int,
    psn: int,
    access: int = 0,
    reliability: Reliability | None = None,
) -> None:
    """Connection service: RESET → INIT → RTR → RTS towards ``peer_qpn``; UC without
    ``reliability``, RC and XRC with.
    """
    qp.modify({"qp_state": INIT, "pkey_index": 0, "port_num": path.port_num, "qp_access_flags": access})
    ready: dict[str, Any] = {
        "qp_state": RTR,
        "ah_attr": path.vector(),
        "path_mtu": path.mtu,
        "dest_qp_num": peer_qpn,
        "rq_psn": peer_psn,
    }
    sending: dict[str, Any] = {"qp_state": RTS, "sq_psn": psn}
    if reliability is not None:
        sending["timeout"] = reliability.timeout
        if qp.qp_type != QPT_XRC_SEND:
            ready["max_dest_rd_atomic"] = reliability.max_dest_rd_atomic
            ready["min_rnr_timer"] = reliability.min_rnr_timer
        if qp.qp_type != QPT_XRC_RECV:
            sending["retry_cnt"] = reliability.retry_cnt
            sending["rnr_retry"] = reliability.rnr_retry
            sending["max_rd_atomic"] = reliability.max_rd_atomic
    qp.modify(ready)
    qp.modify(sending)


@contextlib.contextmanager
def asking(
    device: DeviceDriver,
    port_num: int,
    management_class: int,
    to: MadAddress,
    timeout_ms: int = 500,
    retries: int = 5,
) -> Iterator[Callable[[bytes], bytes]]:
    """Fabric service: what sends management requests of a class to a node, from a port, and gives the
    response to each; it numbers them.  It raises DriverError ETIMEDOUT where nobody answers.
    """
    agent = device.register_agent(port_num, management_class, 1, (), _ANSWERS)
    numbers = itertools.count(1)

    def ask(request: bytes) -> bytes:
        numbered = request[:8] + next(numbers).to_bytes(8, "big") + request[16:]
        return agent.ask(numbered, to, timeout_ms, retries)

    try:
        yield ask
    finally:
        if device.alive:
            agent.unregister()


def path_by(device: DeviceDriver, found: CmPath, port_num: int = 1) -> Path:
    """Fabric service: the path that the communication manager names: by GID on RoCE ports, by LID on native
    ones.
    """
    attributes = device.query_port(port_num)
    is_native = attributes["link_layer"] != LINK_LAYER_ETHERNET
    return Path(
        None if is_native else found.gid,
        sl=found.sl,
        traffic_class=found.traffic_class,
        flow_label=found.flow_label,
        mtu=min(found.path_mtu, attributes["active_mtu"]),
        dlid=found.lid,
        port_num=port_num,
    )


def accept(
    device: DeviceDriver,
    channel: CmChannel,
    request: CmEvent,
    qp: QpHandle,
    own: CmQueuePair,
    access: int = 0,
    min_rnr_timer: int = 12,
) -> None:
    """Connection service: take an RC queue pair to RTS towards who has asked (`CM_REQUEST`).  Receives may be
    posted now, before `CmChannel.reply`.
    """
    peer = request.queue_pair
    how = Reliability(
        request.path.ack_timeout,
        peer.retry_cnt,
        peer.rnr_retry,
        min_rnr_timer,
        min(own.initiator_depth, peer.responder_resources),
        min(own.responder_resources, peer.initiator_depth),
    )
    path = path_by(device, request.path, channel.port)
    connect(qp, path, peer.qp_num, own.starting_psn, peer.starting_psn, access, how)


def complete(
    device: DeviceDriver,
    channel: CmChannel,
    replied: CmEvent,
    path: CmPath,
    qp: QpHandle,
    own: CmQueuePair,
    access: int = 0,
    min_rnr_timer: int = 12,
) -> None:
    """Connection service: take an RC queue pair, which has asked along ``path``, to RTS towards who has
    accepted (`CM_REPLIED`).  Receives may be posted now, before `CmChannel.ready`.
    """
    peer = replied.queue_pair
    how = Reliability(
        path.ack_timeout,
        own.retry_cnt,
        peer.rnr_retry,
        min_rnr_timer,
        min(own.initiator_depth, peer.responder_resources),
        min(own.responder_resources, peer.initiator_depth),
    )
    connect(
        qp,
        path_by(device, path, channel.port),
        peer.qp_num,
        own.starting_psn,
        peer.starting_psn,
        access,
        how,
    )


def load_alternate(device: DeviceDriver, qp: QpHandle, alternate: CmAlternatePath) -> None:
    """Connection service: give a connected queue pair an alternate path, as LAP or REQ has named it, and arm
    it (``IBV_MIG_REARM``).  DriverError ENODEV: no port of the device has its own end; EINVAL: it is the path
    that the queue pair has, which would leave it without a second one; else as `modify`.
    """
    port_num, sgid_index = _port_of(device, alternate)
    there = Path(
        alternate.gid if any(alternate.gid) else None, sgid_index, alternate.sl, alternate.traffic_class,
        alternate.flow_label, alternate.hop_limit, dlid=alternate.lid, port_num=port_num,
    )  # fmt: skip
    _require_another(device, qp, there)
    qp.modify({
        "alt_ah_attr": there.vector(), "alt_port_num": port_num, "alt_timeout": alternate.ack_timeout,
        "path_mig_state": MIG_REARM,
    })  # fmt: skip


def _require_another(device: DeviceDriver, qp: QpHandle, there: Path) -> None:
    """EINVAL where the queue pair's path begins and ends where ``there`` does: by GIDs on RoCE ports, whose
    LIDs say nothing, and by LIDs too on native ones, where another LID of the same port is another path.
    """
    known = qp.query()
    if known["port_num"] != there.port_num:
        return
    names = ["dgid", "sgid_index"] if there.dgid is not None else []
    if device.query_port(there.port_num)["link_layer"] != LINK_LAYER_ETHERNET:
        names += ["dlid", "src_path_bits"]
    current, wanted = known["ah_attr"], there.vector()
    if all(current[name] == wanted[name] for name in names):
        raise DriverError(
            errno.EINVAL, "alt_ah_attr: the queue pair has this path, and needs another one as alternate"
        )


def _port_of(device: DeviceDriver, alternate: CmAlternatePath) -> tuple[int, int]:
    """The number of the port at which a path begins, and the index of its GID."""
    for port_num in range(1, device.query_device()["phys_port_cnt"] + 1):
        port = device.query_port(port_num)
        if not any(alternate.own_gid):
            if alternate.own_lid and port["lid"] == alternate.own_lid:
                return port_num, 0
            continue
        for index in range(port["gid_tbl_len"]):
            if device.query_gid(port_num, index) == alternate.own_gid:
                return port_num, index
    raise DriverError(errno.ENODEV, "sgid_index: no port of the device has the own end of the path")


def start_datagrams(qp: QpHandle, qkey: int, psn: int = 0, port_num: int = 1) -> None:
    """Connection service: a UD queue pair to RTS."""
    qp.modify({"qp_state": INIT, "pkey_index": 0, "port_num": port_num, "qkey": qkey})
    qp.modify({"qp_state": RTR})
    qp.modify({"qp_state": RTS, "sq_psn": psn})
