"""The HCA services layer: what stands above the adapters' differences.

*HCA services* find and open adapters, *fabric services* describe paths through the fabric, *connection
services* take queue pairs through their states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from softhca.driver import registry
from softhca.driver.device import DeviceDriver
from softhca.driver.qp import QpHandle
from softhca.queues.control_fields import QPT_XRC_RECV, QPT_XRC_SEND
from softhca.queues.states import INIT, RTR, RTS


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


def start_datagrams(qp: QpHandle, qkey: int, psn: int = 0, port_num: int = 1) -> None:
    """Connection service: a UD queue pair to RTS."""
    qp.modify({"qp_state": INIT, "pkey_index": 0, "port_num": port_num, "qkey": qkey})
    qp.modify({"qp_state": RTR})
    qp.modify({"qp_state": RTS, "sq_psn": psn})
