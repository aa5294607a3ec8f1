"""One side of a test: obeys JSON lines from standard input through pyverbs, softhca's or Debian's.

The same file runs on both sides.  Every line is ``{"do": NAME, …}``; the answer is one line, with ``error``
when it was refused.  Objects have names that the asking side chooses.
"""

from __future__ import annotations

import ctypes
import hashlib
import ipaddress
import json
import random
import sys
import time
from typing import Any

from pyverbs import enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.base import inc_rkey
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR, MW, MWBind, MWBindInfo
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

TYPES = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}
OPCODES = {
    "send_invalidate": e.IBV_WR_SEND_WITH_INV,
    "send": e.IBV_WR_SEND, "send_imm": e.IBV_WR_SEND_WITH_IMM, "write": e.IBV_WR_RDMA_WRITE,
    "write_imm": e.IBV_WR_RDMA_WRITE_WITH_IMM, "read": e.IBV_WR_RDMA_READ,
    "compare_swap": e.IBV_WR_ATOMIC_CMP_AND_SWP, "fetch_add": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}  # fmt: skip
MTUS = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
PATTERN_BYTES = 65_521  # a prime: what lands in the wrong place differs
NAP_S = 0.0005


def pattern(seed: int, length: int) -> bytes:
    """``length`` bytes that both sides can make."""
    block = random.Random(seed).randbytes(PATTERN_BYTES)
    return (block * (length // PATTERN_BYTES + 1))[:length]


def gid_text(gid: Any) -> str:
    """A GID as an IPv6 address in its canonical form."""
    return str(ipaddress.IPv6Address(str(getattr(gid, "gid", gid))))


def handle_of(spec: dict[str, Any]) -> AHAttr:
    """The address vector of ``{"gid", "gid_index"}`` and, where they are given, the fields of its GRH."""
    route = GlobalRoute(
        dgid=GID(ipaddress.IPv6Address(spec["gid"]).packed.hex(":", 2)),
        sgid_index=spec["gid_index"],
        hop_limit=spec.get("hop_limit", 64),
        flow_label=spec.get("flow_label", 0),
        traffic_class=spec.get("traffic_class", 0),
    )
    return AHAttr(is_global=1, port_num=1, gr=route)


class Peer:
    """A device and what was made on it."""

    def __init__(self) -> None:
        (device,) = get_device_list()
        self.context = Context(name=device.name.decode())
        self.reset()

    def reset(self) -> dict[str, Any]:
        """Close all but the device, and begin anew."""
        if hasattr(self, "pd"):
            for window in self.windows:  # first: the kernel waits in vain for a queue pair that has one
                window.close()
            for group in (self.handles, self.qps, self.srqs, self.cqs):
                for each in group.values():
                    each.close()
            self.pd.close()
        self.pd = PD(self.context)
        self.memories: dict[str, MR] = {}
        self.windows: list[MW] = []
        self.cqs: dict[str, CQ] = {}
        self.srqs: dict[str, SRQ] = {}
        self.qps: dict[str, QP] = {}
        self.handles: dict[str, AH] = {}
        return {}

    def gids(self) -> dict[str, Any]:
        """The port's GIDs by index; the unused ones are all zero."""
        length = self.context.query_port(1).gid_tbl_len
        found = {}
        for index in range(min(length, 16)):
            try:
                found[gid_text(self.context.query_gid(1, index))] = index
            except PyverbsError:
                break
        return {"gids": found}

    def memory(self, name: str, length: int, access: int, seed: int | None = None) -> dict[str, Any]:
        """Register memory, filled by the pattern of ``seed`` or with zeros."""
        region = self.memories[name] = MR(self.pd, length, access)
        self.view(name)[:] = pattern(seed, length) if seed is not None else bytes(length)
        return {"address": region.buf, "lkey": region.lkey, "rkey": region.rkey}

    def view(self, name: str) -> Any:
        """The bytes of a memory."""
        region = self.memories[name]
        return memoryview((ctypes.c_char * region.length).from_address(region.buf)).cast("B")

    def fill(self, name: str, seed: int) -> dict[str, Any]:
        """Fill a memory anew."""
        self.view(name)[:] = pattern(seed, self.memories[name].length)
        return {}

    def zero(self, name: str) -> dict[str, Any]:
        """Fill a memory with zeros."""
        self.view(name)[:] = bytes(self.memories[name].length)
        return {}

    def forget(self, name: str) -> dict[str, Any]:
        """Deregister memory."""
        self.memories.pop(name).close()
        return {}

    def put(self, name: str, offset: int, data: str) -> dict[str, Any]:
        """Write bytes into a memory."""
        raw = bytes.fromhex(data)
        self.view(name)[offset : offset + len(raw)] = raw
        return {}

    def get(self, name: str, offset: int, length: int) -> dict[str, Any]:
        """Bytes of a memory."""
        return {"data": bytes(self.view(name)[offset : offset + length]).hex()}

    def digest(self, name: str, offset: int, length: int) -> dict[str, Any]:
        """SHA-1 of bytes of a memory."""
        return {"digest": hashlib.sha1(self.view(name)[offset : offset + length]).hexdigest()}

    def pattern_digest(self, seed: int, length: int) -> dict[str, Any]:
        """SHA-1 of a pattern."""
        return {"digest": hashlib.sha1(pattern(seed, length)).hexdigest()}

    def srq(self, name: str, depth: int) -> dict[str, Any]:
        """A shared receive queue."""
        self.srqs[name] = SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=depth, max_sge=4)))
        return {}

    def qp(self, name: str, service: str, depth: int = 64, srq: str = "") -> dict[str, Any]:
        """A queue pair in RESET with completion queues of its own (``NAME`` and ``NAME:receive``)."""
        sends, receives = CQ(self.context, 2 * depth), CQ(self.context, 2 * depth)
        self.cqs[name], self.cqs[name + ":receive"] = sends, receives
        cap = QPCap(max_send_wr=depth, max_recv_wr=depth, max_send_sge=4, max_recv_sge=4, max_inline_data=64)
        init = QPInitAttr(
            qp_type=TYPES[service], scq=sends, rcq=receives, cap=cap, sq_sig_all=0, srq=self.srqs.get(srq)
        )
        self.qps[name] = QP(self.pd, init)
        return {"qpn": self.qps[name].qp_num}

    def connect(self, name: str, service: str, **spec: Any) -> dict[str, Any]:
        """Take a queue pair to RTS."""
        attributes = QPAttr(port_num=1)
        attributes.sq_psn = spec["sq_psn"]
        if service == "UD":
            attributes.qkey = spec["qkey"]
        else:
            attributes.ah_attr = handle_of(spec)
            for field in ("qp_access_flags", "dest_qp_num", "rq_psn"):
                setattr(attributes, field, spec[field])
            attributes.path_mtu = MTUS[spec["mtu"]]
        if service == "RC":
            for field in (
                "max_rd_atomic",
                "max_dest_rd_atomic",
                "min_rnr_timer",
                "timeout",
                "retry_cnt",
                "rnr_retry",
            ):
                setattr(attributes, field, spec[field])
        self.qps[name].to_rts(attributes)
        return {}

    def sg(self, elements: list[Any]) -> list[SGE]:
        """``[[memory, offset, length], …]`` as scatter/gather elements."""
        return [
            SGE(self.memories[m].buf + offset, length, self.memories[m].lkey)
            for m, offset, length in elements
        ]

    def receive(self, name: str, wr_id: int, sg: list[Any], count: int = 1) -> dict[str, Any]:
        """Post receives with numbers from ``wr_id`` to a queue pair or shared receive queue."""
        queue = self.srqs.get(name) or self.qps[name]
        elements = self.sg(sg)
        for number in range(wr_id, wr_id + count):
            request = RecvWR(wr_id=number, num_sge=len(elements), sg=elements)
            queue.post_recv(request)
        return {}

    def send(self, name: str, wr_id: int, opcode: str, sg: list[Any], **spec: Any) -> dict[str, Any]:
        """Post a request, ``count`` times with numbers from ``wr_id``."""
        elements = self.sg(sg)
        flags = e.IBV_SEND_SIGNALED
        for word, bit in (
            ("inline", e.IBV_SEND_INLINE),
            ("solicited", e.IBV_SEND_SOLICITED),
            ("fence", e.IBV_SEND_FENCE),
        ):
            flags |= bit if spec.get(word) else 0
        for number in range(wr_id, wr_id + spec.get("count", 1)):
            request = SendWR(
                wr_id=number, opcode=OPCODES[opcode], num_sge=len(elements), sg=elements, send_flags=flags,
                imm_data=spec.get("imm", 0),
            )  # fmt: skip
            if opcode in ("write", "write_imm", "read"):
                request.set_wr_rdma(spec["rkey"], spec["address"])
            elif opcode in ("compare_swap", "fetch_add"):
                request.set_wr_atomic(spec["rkey"], spec["address"], spec["compare_add"], spec.get("swap", 0))
            elif "qkey" in spec:
                handle = self.handles.get(name)
                if handle is None:
                    handle = self.handles[name] = AH(self.pd, attr=handle_of(spec))
                request.set_wr_ud(handle, spec["qpn"], spec["qkey"])
            self.qps[name].post_send(request)
        return {}

    def poll(self, name: str, count: int, patience_s: float) -> dict[str, Any]:
        """Completions until there are ``count`` or the time is over."""
        cq, found = self.cqs[name], []
        deadline_s = time.monotonic() + patience_s
        while len(found) < count:
            number, completions = cq.poll(count - len(found))
            found += [self.told(each) for each in completions]
            if not number:
                if time.monotonic() > deadline_s:
                    break
                time.sleep(NAP_S)
        return {"completions": found}

    @staticmethod
    def told(completion: Any) -> dict[str, Any]:
        """A completion as numbers."""
        names = ("wr_id", "status", "opcode", "byte_len", "wc_flags", "imm_data", "src_qp", "qp_num")
        return {name: int(getattr(completion, name)) for name in names}

    def to_reset(self, name: str) -> dict[str, Any]:
        """Take a queue pair back to RESET."""
        self.qps[name].modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
        return {}

    def bind(
        self, name: str, kind: int, memory: str, offset: int, length: int, rights: int
    ) -> dict[str, Any]:
        """Bind a new memory window of type ``kind`` by a queue pair; its key."""
        window = MW(self.pd, e.IBV_MW_TYPE_1 if kind == 1 else e.IBV_MW_TYPE_2)
        self.windows.append(window)
        region = self.memories[memory]
        info = MWBindInfo(region, region.buf + offset, length, rights)
        if kind == 1:
            self.qps[name].bind_mw(window, MWBind(info, wr_id=0, send_flags=e.IBV_SEND_SIGNALED))
            return {"rkey": window.rkey}
        request = SendWR(wr_id=0, opcode=e.IBV_WR_BIND_MW, send_flags=e.IBV_SEND_SIGNALED)
        request.set_bind_wr(window, info)
        key = inc_rkey(window.rkey)  # in newer releases the window has it itself, once that is posted
        self.qps[name].post_send(request)
        return {"rkey": key}

    def counters(self) -> dict[str, Any]:
        """Counters of the device, where its verbs have them."""
        ask = getattr(self.context, "query_counters", dict)
        return {"counters": dict(ask())}

    def state(self, name: str) -> dict[str, Any]:
        """The state of a queue pair as the device says it."""
        attributes, _ = self.qps[name].query(e.IBV_QP_STATE)
        return {"state": int(attributes.qp_state)}


def main(kind: type[Peer] = Peer) -> None:
    """Obey the words that ``kind`` knows, until the input ends."""
    peer = kind()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = getattr(peer, asked.pop("do"))(**asked)
        except (PyverbsError, KeyError, TypeError, ValueError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
