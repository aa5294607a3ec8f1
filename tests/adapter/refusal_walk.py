"""Every command as it is right, and with one field after the other that is wrong.

`walk` makes the commands of a host in an order in which each is right, and around each of them the same with
one field changed to what a careless or hostile program may write.  It tells what was refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from softhca.adapter.resources import NAMES, Kind
from softhca.driver.errors import DriverError
from softhca.memory.regions import ON_DEMAND
from softhca.queues import control_fields as control
from softhca.queues import qp_attributes
from softhca.queues.cqe import CQE_BYTES
from softhca.queues.layout import CM_ENTRY_BYTES, MAD_BYTES, MAD_ENTRY_BYTES
from softhca.queues.states import INIT, RTR, RTS
from softhca.queues.wqe import receive_bytes, send_bytes
from softhca.testing.addressing import gid
from softhca.testing.ends import ALL_RIGHTS, RC, UD, End

NUMBERS = {"u8": 0xFF, "u16": 0xFFFF, "u32": 0xFFFFFFFF, "u64": (1 << 64) - 1}
HERE = gid(1)


class Refusal(NamedTuple):
    """What a command was refused with, and the field that was changed to get there."""

    command: str
    field: str
    value: Any
    errno: int
    text: str


def hostile(kind: str, right: Any, near: bool = True) -> Iterator[Any]:
    """Values for a field of a kind that is right as it is; ``near``: those among them that may be another
    object's number.
    """
    if kind in NUMBERS:
        most = NUMBERS[kind]
        values = {0, 9, 99, most >> 1, most - 1, most, 1 << 24}
        if near:
            values |= {1, 2, 7, (right or 0) + 1, (right or 0) ^ 0x40}
        yield from sorted(value for value in values if 0 <= value <= most and value != right)
    elif kind == "gid":
        yield from (bytes(16), gid(9), b"\xff" * 16, bytes(15) + b"\1")
    elif kind == "bytes":
        yield from (b"", b"\xff", bytes(300), b"\xff" * 256)
    elif kind == "runs":
        yield from ((), [(0, 1)], [(1 << 31, 1)], [(1, 1), (1, 1 << 20)])


class Walk:
    """One host's; ``found`` is what was refused."""

    def __init__(self, end: End) -> None:
        self.end = end
        self.session = end.device.session
        self.found: list[Refusal] = []
        self.done: set[int] = set()

    def call(self, command: int, **fields: Any) -> Any:
        """A command that is right."""
        self.done.add(command)
        return self.session.call(command, **fields)

    def ring(self, entries: int, entry_bytes: int, prefix: str = "") -> dict[str, Any]:
        """Fields of a new ring."""
        _, fields = self.session.reserve_ring(entries, entries * entry_bytes)
        return {prefix + name: value for name, value in fields.items()}

    def wrong(self, command: int, fields: dict[str, Any], near: bool = True) -> None:
        """The command with each of its fields changed."""
        name, known, _ = control.COMMANDS[command]
        for field, kind in known:
            for value in hostile(kind, fields.get(field), near):
                self.attempt(name, command, field, value, {**fields, field: value})

    def attempt(self, name: str, command: int, field: str, value: Any, fields: dict[str, Any]) -> None:
        """One of them."""
        try:
            self.session.call(command, **fields)
        except DriverError as error:
            text = error.message.removeprefix(name + ": ")
            self.found.append(Refusal(name, field, value, error.errno, text))

    def free(self, kind: Kind, command: int, first: int = 0) -> None:
        """Destroy what wrong commands have made that were right, from the number ``first`` on."""
        resources = self.end.node.adapter.resources
        for each in resources.owned(self.end.node.adapter.hosts[1].number):
            if each.kind is kind and each.number >= first:
                self.session.call(command, **{NAMES[kind]: each.number})

    def step(self, command: int, last: bool = False, **fields: Any) -> Any:
        """The right one and the wrong ones; ``last``: what it names is gone afterwards."""
        if last:
            self.wrong(command, fields, near=False)
            return self.call(command, **fields)
        reply = self.call(command, **fields)
        self.wrong(command, fields)
        return reply


def modify(**attributes: Any) -> dict[str, Any]:
    """Fields of MODIFY_QP or MODIFY_EE."""
    mask, fields = qp_attributes.pack(attributes)
    return {"attr_mask": mask, **fields}


DATAGRAMS = (
    modify(qp_state=INIT, pkey_index=0, port_num=1, qkey=1),
    modify(qp_state=RTR),
    modify(qp_state=RTS, sq_psn=0),
)
PATH = {"dgid": HERE, "is_global": 1, "port_num": 1, "hop_limit": 1}


def queues(walk: Walk) -> None:
    """Domains, completion queues, shared receive queues, queue pairs, address handles."""
    pd = walk.step(control.ALLOC_PD)["pd"]
    cq = walk.step(control.CREATE_CQ, **walk.ring(8, CQE_BYTES))["cq"]
    walk.step(control.RESIZE_CQ, cq=cq, **walk.ring(16, CQE_BYTES))
    xrcd = walk.step(control.OPEN_XRCD, flags=0)["xrcd"]
    srq = walk.step(control.CREATE_SRQ, pd=pd, max_wr=4, max_sge=2, **walk.ring(4, receive_bytes(2)))["srq"]
    shared = walk.step(
        control.CREATE_SRQ, srq_type=1, pd=pd, max_wr=4, max_sge=2, cq=cq, xrcd=xrcd,
        **walk.ring(4, receive_bytes(2)),
    )["srq"]  # fmt: skip
    walk.step(control.MODIFY_SRQ, srq=srq, attr_mask=control.SRQ_LIMIT, srq_limit=1)
    walk.step(control.QUERY_SRQ, srq=srq)
    caps = {"max_send_wr": 4, "max_recv_wr": 4, "max_send_sge": 2, "max_recv_sge": 2, "max_inline_data": 16}
    rings = {**walk.ring(4, send_bytes(2, 16), "send_"), **walk.ring(4, receive_bytes(2), "recv_")}
    made = {"pd": pd, "send_cq": cq, "recv_cq": cq, **caps, **rings}
    qp, ud = (walk.step(control.CREATE_QP, qp_type=kind, **made)["qp_num"] for kind in (RC, UD))
    target = walk.step(control.CREATE_QP, qp_type=control.QPT_XRC_RECV, xrcd=xrcd)["qp_num"]
    to_init = modify(qp_state=INIT, pkey_index=0, port_num=1, qp_access_flags=ALL_RIGHTS)
    for each in (qp, target):
        walk.step(control.MODIFY_QP, qp_num=each, **to_init)
    walk.step(control.MODIFY_QP, qp_num=ud, **DATAGRAMS[0])
    made_anew = [walk.call(control.CREATE_QP, qp_type=kind, **made)["qp_num"] for kind in (RC, UD, UD)]
    walk.call(control.MODIFY_QP, qp_num=made_anew[0], **to_init)
    walk.step(control.MODIFY_QP, qp_num=made_anew[0], **modify(
        qp_state=RTR, ah_attr=PATH, path_mtu=3, dest_qp_num=5, rq_psn=0, max_dest_rd_atomic=1,
        min_rnr_timer=1, alt_ah_attr=PATH, alt_port_num=1))  # fmt: skip
    for each, steps in zip(made_anew[1:], (1, 2), strict=True):
        for before in DATAGRAMS[:steps]:
            walk.call(control.MODIFY_QP, qp_num=each, **before)
        walk.step(control.MODIFY_QP, qp_num=each, **DATAGRAMS[steps])
    walk.step(control.QUERY_QP, qp_num=qp)
    walk.step(control.QUERY_COUNTERS, scope=1, element=qp)
    walk.step(control.ATTACH_MCAST, qp_num=ud, gid=b"\xff\x0e" + bytes(13) + b"\1")
    walk.wrong(control.DETACH_MCAST, {"qp_num": ud, "gid": b"\xff\x0e" + bytes(13) + b"\1"})
    walk.wrong(control.ATTACH_RAW, {"qp_num": ud, "service": 0x1234})
    frames = walk.call(control.CREATE_QP, qp_type=control.QPT_RAW_PACKET, **made)["qp_num"]
    rule = {"port_num": 1, "value": bytes(64), "mask": bytes(64)}
    walk.wrong(control.CREATE_FLOW, {"qp_num": ud, **rule})
    flow = walk.step(control.CREATE_FLOW, qp_num=frames, **rule)["flow"]
    walk.step(control.DESTROY_FLOW, last=True, flow=flow)
    walk.free(Kind.FLOW, control.DESTROY_FLOW)
    walk.wrong(control.DETACH_RAW, {"qp_num": ud, "service": 0x1234})
    scaling(walk, pd, cq)
    ah = walk.step(control.CREATE_AH, pd=pd, **PATH)["ah"]
    walk.wrong(control.DEALLOC_PD, {"pd": pd})
    walk.step(control.DESTROY_AH, last=True, ah=ah)
    for each in (ud, *made_anew, target, qp):
        walk.step(control.DESTROY_QP, last=True, qp_num=each)
    walk.free(Kind.QP, control.DESTROY_QP)
    walk.step(control.DESTROY_SRQ, last=True, srq=srq)
    walk.step(control.DESTROY_SRQ, last=True, srq=shared)
    walk.free(Kind.SRQ, control.DESTROY_SRQ)
    walk.step(control.CLOSE_XRCD, last=True, xrcd=xrcd)
    walk.step(control.DESTROY_CQ, last=True, cq=cq)


def scaling(walk: Walk, pd: int, cq: int) -> None:
    """Work queues, a table of them, a queue pair that receives by it."""
    made = {"pd": pd, "cq": cq, "max_wr": 4, "max_sge": 2}
    wq, other = (
        walk.step(control.CREATE_WQ, **made, **walk.ring(4, receive_bytes(2)))["wq_num"] for _ in range(2)
    )
    ready = {"wq_num": wq, "attr_mask": control.WQ_STATE, "wq_state": control.WQS_RDY}
    walk.wrong(control.MODIFY_WQ, {**ready, "attr_mask": 3, "curr_wq_state": control.WQS_ERR})
    walk.step(control.MODIFY_WQ, **ready)
    table = walk.step(control.CREATE_RWQ_IND_TABLE, log_ind_tbl_size=1, wqs=[(wq, 1), (other, 1)])
    asked = {"pd": pd, "rx_hash_function": 1, "rx_hash_fields_mask": 3, "rx_hash_key": bytes(40), **table}
    qp = walk.step(control.CREATE_RSS_QP, **asked)["qp_num"]
    walk.attempt("CREATE_RSS_QP", control.CREATE_RSS_QP, "", 0, {**asked, "rx_hash_fields_mask": 0})
    walk.wrong(control.DESTROY_WQ, {"wq_num": wq})
    walk.attempt("DESTROY_WQ", control.DESTROY_WQ, "", 0, {"wq_num": wq})
    walk.attempt("DESTROY_RWQ_IND_TABLE", control.DESTROY_RWQ_IND_TABLE, "", 0, table)
    walk.free(Kind.QP, control.DESTROY_QP, qp)
    walk.step(control.DESTROY_RWQ_IND_TABLE, last=True, **table)
    walk.free(Kind.RWQ_IND_TABLE, control.DESTROY_RWQ_IND_TABLE)
    walk.step(control.DESTROY_WQ, last=True, wq_num=wq)
    walk.free(Kind.WQ, control.DESTROY_WQ)


def memory(walk: Walk) -> None:
    """Regions of all kinds, windows, device memory, arenas."""
    pd = walk.call(control.ALLOC_PD)["pd"]
    (frame,) = walk.session.memory.allocate(1)
    region = {"pd": pd, "access": 15, "va": 0x10000, "length": 4096, "frames": [(frame, 1)]}
    lkey = walk.step(control.REG_MR, **region)["lkey"]
    on_demand = walk.step(
        control.REG_MR, pd=pd, access=15 | ON_DEMAND, va=0x10000, address=0x10000, length=4096
    )["lkey"]
    walk.step(control.REREG_MR, lkey=lkey, flags=control.REREG_ACCESS, **{**region, "access": 1})
    lkey = walk.call(control.REG_MR, **region)["lkey"]
    walk.wrong(control.REREG_MR, {"lkey": lkey, "flags": control.REREG_TRANSLATION, **region})
    walk.step(control.REREG_MR, lkey=on_demand, flags=control.REREG_ACCESS, access=1 | ON_DEMAND)
    on_demand = walk.call(
        control.REG_MR, pd=pd, access=15 | ON_DEMAND, va=0x10000, address=0x10000, length=4096
    )["lkey"]
    walk.step(control.IMPORT_MR, pd=pd, mr=on_demand)
    walk.step(control.DEREG_MR, last=True, lkey=on_demand)
    held = walk.call(
        control.REG_MR, pd=pd, access=ON_DEMAND, va=0x10000, address=0x10000, length=4096, held=1
    )["lkey"]
    walk.wrong(control.REREG_MR, {"lkey": held, "flags": control.REREG_ACCESS, "access": 1 | ON_DEMAND})
    walk.call(control.DEREG_MR, lkey=held)
    mw = walk.step(control.ALLOC_MW, pd=pd, type=1)["mw"]
    walk.step(control.DEALLOC_MW, last=True, mw=mw)
    null = walk.step(control.ALLOC_NULL_MR, pd=pd)["lkey"]
    walk.wrong(control.REREG_MR, {"lkey": null, "flags": control.REREG_ACCESS, "access": 1})
    walk.call(control.DEREG_MR, lkey=null)
    mr = walk.step(control.ALLOC_FAST_MR, pd=pd, max_pages=4)["mr"]
    walk.step(control.DEREG_FAST_MR, last=True, mr=mr)
    walk.step(control.SET_DATA_ACCESS, allowed=1)
    descriptor = os.memfd_create("walk", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, 4096)
    walk.wrong(control.REG_PAGED, {"pd": pd, "access": 1, "descriptor": descriptor})
    walk.wrong(control.ALLOC_DM, {"descriptor": descriptor, "length": 4096})
    device_memory = walk.end.device.alloc_dm(4096)
    walk.step(control.FREE_DM, last=True, dm=device_memory.number)
    for kind in (control.MEMORY_SHARED, control.MEMORY_FOREIGN, control.MEMORY_PASSED):
        fields = {"slot": 99, "pages": 1, "address": descriptor, "memory": kind}
        walk.wrong(control.ATTACH_ARENA, fields)
    walk.wrong(control.DETACH_ARENA, {"slot": 99, "pages": 1})
    walk.wrong(control.EXPORT_CONTEXT, {"descriptor": descriptor})
    walk.wrong(control.IMPORT_CONTEXT, {"descriptor": descriptor})
    os.close(descriptor)
    walk.wrong(control.IMPORT_PD, {"pd": pd})
    walk.wrong(control.UNIMPORT_PD, {"pd": pd})


def management(walk: Walk) -> None:
    """Questions, agents, connections, reliable datagrams."""
    walk.step(control.QUERY_DEVICE)
    walk.step(control.QUERY_PORT, port_num=1)
    walk.step(control.QUERY_GID, port_num=1, index=0)
    walk.step(control.QUERY_PKEY, port_num=1, index=0)
    walk.step(control.QUERY_COUNTERS, scope=0, element=1)
    asked = {"port_num": 1, "mgmt_class": 0x32, "class_version": 1, "methods_low": 8}
    agent = walk.step(control.REGISTER_AGENT, **asked, **walk.ring(4, MAD_ENTRY_BYTES))["agent"]
    mad = bytes([1, 0x32, 1, 2]).ljust(MAD_BYTES, b"\0")
    sent = {"agent": agent, "timeout_ms": 1, "dgid": HERE, "is_global": 1, "qpn": 1, "qkey": 0x80010000}
    walk.step(control.SEND_MAD, mad=mad, **sent)
    walk.step(control.UNREGISTER_AGENT, last=True, agent=agent)
    connections(walk)
    rdd = walk.step(control.ALLOC_RDD)["rdd"]
    ee = walk.step(control.CREATE_EE, rdd=rdd)["ee_num"]
    walk.step(control.MODIFY_EE, ee_num=ee, **modify(qp_state=INIT, pkey_index=0, port_num=1))
    walk.step(control.QUERY_EE, ee_num=ee)
    walk.step(control.QUERY_COUNTERS, scope=2, element=ee)
    walk.wrong(control.DEALLOC_RDD, {"rdd": rdd})
    walk.step(control.DESTROY_EE, last=True, ee_num=ee)
    walk.step(control.DEALLOC_RDD, last=True, rdd=rdd)


def connections(walk: Walk) -> None:
    """The communication manager's; nobody answers."""
    cm = walk.step(control.OPEN_CM, port_num=1, **walk.ring(16, CM_ENTRY_BYTES))["cm"]
    listener = walk.step(control.CM_LISTEN, cm=cm, backlog=4, service_id=0x1234)["id"]
    path = {"cm": cm, "service_id": 7, "dgid": gid(5), "cm_response_timeout": 20, "hop_limit": 1}
    pair = {"qp_num": 5, "qp_type": RC, "starting_psn": 1}
    asked = walk.step(control.CM_CONNECT, **path, **pair, path_mtu=3)["id"]
    walk.step(control.CM_RESOLVE, **path)
    element = {"cm": cm, "id": asked}
    walk.wrong(control.CM_REPLY, {**element, **pair})
    for command in (
        control.CM_READY, control.CM_DISCONNECT, control.CM_ESTABLISH, control.CM_ANSWER,
        control.CM_LOAD_PATH, control.CM_ANSWER_PATH,
    ):  # fmt: skip
        walk.wrong(command, element)
        walk.attempt(control.COMMANDS[command][0], command, "", None, dict(element))
    walk.wrong(control.CM_LOAD_PATH, {**element, "dgid": gid(5), "own_gid": HERE})
    walk.wrong(control.CM_REJECT, {**element, "reason": 28})
    walk.step(control.CM_DESTROY, last=True, cm=cm, id=listener)
    walk.step(control.CLOSE_CM, last=True, cm=cm)


PARTS: tuple[Callable[[Walk], None], ...] = (queues, memory, management)
