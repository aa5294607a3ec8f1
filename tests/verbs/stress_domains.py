"""Reliable datagrams, XRC, device memory and management agents, for the thread stress."""

from __future__ import annotations

import itertools
import os
import random
from typing import Any

from stress_frame import Frame

ACCESS = 0xF
QKEY = 0x1234
PERFORMANCE = 0x04
VENDOR = 0x09
DM_LENGTHS = (64, 4096, 12_288)
_BOTH = 3  # what an XRC domain is opened with: descriptor and flags


class Ends:
    """Two connected queue pairs, or EE contexts and queue pairs, that close together."""

    def __init__(self, ends: tuple[Any, Any], contexts: tuple[Any, ...] = ()) -> None:
        self.ends = ends
        self.contexts = contexts

    def close(self) -> None:
        for each in (*self.ends, *self.contexts):
            each.close()


class Device:
    """Device memory, and the word that is all that anybody writes into it."""

    stamps = itertools.count(1)

    def __init__(self, dm: Any, length: int) -> None:
        self.dm = dm
        self.length = length
        self.word = (next(self.stamps) * 0xD1B54A32D192ED03 & (1 << 64) - 1 | 1).to_bytes(8, "little")

    def check(self, found: bytes) -> str:
        foreign = {found[at : at + 8] for at in range(0, len(found), 8)} - {self.word, bytes(8)}
        return f"foreign bytes in device memory: {foreign}" if foreign else ""

    def close(self) -> None:
        self.dm.close()


class Domains(Frame):
    """Actions of a room that has contexts, domains, queues and regions."""

    KINDS = ("rdd", "eec", "datagrams", "xrcd", "xrcsrq", "xrc", "dm", "dmmr", "agent")
    # reliable datagrams

    def do_rdd(self, rng: random.Random) -> None:
        from softhca.verbs.rdd import RDDomain

        if (context := self.any("context", rng)) is not None:
            self.put("rdd", RDDomain(context))

    def do_eec(self, rng: random.Random) -> None:
        from softhca.verbs.eec import EEC

        if (rdd := self.any("rdd", rng)) is not None:
            self.put("eec", EEC(rdd))

    def do_datagrams(self, rng: random.Random) -> None:
        from softhca.verbs.eec import EEC
        from softhca.verbs.extensions import SOFTHCA_QPT_RD
        from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr

        rdd, cq, pd = self.any("rdd", rng), self.any("cq", rng), self.any("pd", rng)
        if rdd is None or cq is None or pd is None or not rdd.ctx is cq.context is pd.ctx:
            return
        contexts = EEC(rdd), EEC(rdd)
        for eec, peer in (contexts, contexts[::-1]):
            attr = connection(pd.ctx, peer.eec_num)
            eec.to_rts(attr)
        made = []
        for _ in range(2):
            cap = QPCap(max_send_wr=rng.randrange(1, 20), max_recv_wr=8, max_inline_data=64)
            init = QPInitAttr(SOFTHCA_QPT_RD, scq=cq, rcq=cq, cap=cap)
            init.rdd = rdd
            attr = QPAttr(port_num=1)
            attr.qkey, attr.min_rnr_timer, attr.qp_access_flags = QKEY, 1, ACCESS
            made.append(QP(pd, init, attr))
        self.put("datagrams", Ends((made[0], made[1]), contexts))
        self.put("eec", contexts[rng.randrange(2)])

    def do_eec_state(self, rng: random.Random) -> None:
        from softhca.verbs import enums as e
        from softhca.verbs.qp import QPAttr

        if (eec := self.any("eec", rng)) is None:
            return
        if rng.random() < 0.5:
            eec.query()
            eec.query_counters()
            return
        attr = QPAttr()
        attr.qp_state = rng.choice((e.IBV_QPS_RESET, e.IBV_QPS_ERR))
        eec.modify(attr, e.IBV_QP_STATE)

    def do_post_datagram(self, rng: random.Random) -> None:
        from softhca.verbs import enums as e
        from softhca.verbs.wr import SGE, RecvWR, SendWR

        (pair, region), eec = self.with_region("datagrams", rng), self.any("eec", rng)
        if pair is None or region is None:
            return
        if eec is None or rng.random() < 0.7:
            eec = pair.contexts[0]
        qp, peer = rng.sample(pair.ends, 2)
        element = SGE(region.mr.buf, 8, region.mr.lkey)
        if rng.random() < 0.2:
            qp.post_recv(RecvWR(rng.randrange(1 << 60), 1, [element]))
            return
        opcode = rng.choice((e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ))
        wr = SendWR(rng.randrange(1 << 60), opcode, 1, sg=[element], send_flags=e.IBV_SEND_SIGNALED)
        wr.set_wr_rd(eec, peer.qp_num, QKEY)
        wr.set_wr_rdma(region.mr.rkey, region.mr.buf + rng.randrange(region.length // 8) * 8)
        qp.post_send(wr)

    # XRC

    def do_xrcd(self, rng: random.Random) -> None:
        from softhca.verbs.xrcd import XRCD, XRCDInitAttr

        if (context := self.any("context", rng)) is not None:
            self.put("xrcd", XRCD(context, XRCDInitAttr(_BOTH, os.O_CREAT, -1)))

    def do_xrcsrq(self, rng: random.Random) -> None:
        from softhca.verbs import enums as e
        from softhca.verbs.srq import SRQ, SrqInitAttrEx

        xrcd, pd, cq = self.any("xrcd", rng), self.any("pd", rng), self.any("cq", rng)
        if xrcd is None or pd is None or cq is None or not xrcd.ctx is pd.ctx is cq.context:
            return
        init = SrqInitAttrEx(max_wr=rng.randrange(1, 20))
        init.srq_type = e.IBV_SRQT_XRC
        init.comp_mask = (
            e.IBV_SRQ_INIT_ATTR_TYPE | e.IBV_SRQ_INIT_ATTR_PD | e.IBV_SRQ_INIT_ATTR_XRCD
            | e.IBV_SRQ_INIT_ATTR_CQ
        )  # fmt: skip
        init.pd, init.xrcd, init.cq = pd, xrcd, cq
        self.put("xrcsrq", SRQ(pd.ctx, init))

    def do_xrc(self, rng: random.Random) -> None:
        from softhca.verbs import enums as e
        from softhca.verbs.qp import QP, QPCap, QPInitAttrEx

        xrcd, pd, cq = self.any("xrcd", rng), self.any("pd", rng), self.any("cq", rng)
        if xrcd is None or pd is None or cq is None or not xrcd.ctx is pd.ctx is cq.context:
            return
        initiator = QP(pd.ctx, QPInitAttrEx(
            e.IBV_QPT_XRC_SEND, scq=cq, cap=QPCap(8, 0, 1, 0), comp_mask=e.IBV_QP_INIT_ATTR_PD, pd=pd
        ))  # fmt: skip
        target = QP(pd.ctx, QPInitAttrEx(
            e.IBV_QPT_XRC_RECV, comp_mask=e.IBV_QP_INIT_ATTR_XRCD, xrcd=xrcd
        ))  # fmt: skip
        initiator.to_rts(connection(pd.ctx, target.qp_num))
        target.to_rts(connection(pd.ctx, initiator.qp_num))
        self.put("xrc", Ends((initiator, target)))

    def do_post_xrc(self, rng: random.Random) -> None:
        from softhca.verbs import enums as e
        from softhca.verbs.wr import SGE, RecvWR, SendWR

        (pair, region), srq = self.with_region("xrc", rng), self.any("xrcsrq", rng)
        if pair is None or region is None or srq is None:
            return
        element = SGE(region.mr.buf, 8, region.mr.lkey)
        if rng.random() < 0.2:
            srq.post_recv(RecvWR(rng.randrange(1 << 60), 1, [element]))
            return
        opcode = rng.choice((e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ))
        wr = SendWR(rng.randrange(1 << 60), opcode, 1, sg=[element], send_flags=e.IBV_SEND_SIGNALED)
        wr.set_qp_type_xrc(srq.get_srq_num())
        wr.set_wr_rdma(region.mr.rkey, region.mr.buf + rng.randrange(region.length // 8) * 8)
        pair.ends[0].post_send(wr)

    # device memory

    def do_dm(self, rng: random.Random) -> None:
        from softhca.verbs.device_memory import DM, AllocDmAttr

        if (context := self.any("context", rng)) is not None:
            length = rng.choice(DM_LENGTHS)
            self.put("dm", Device(DM(context, AllocDmAttr(length)), length))

    def do_dm_region(self, rng: random.Random) -> None:
        from softhca.verbs import enums as e
        from softhca.verbs.mr_kinds import DMMR

        dm, pd = self.any("dm", rng), self.any("pd", rng)
        if dm is not None and pd is not None and pd.ctx is dm.dm.context:
            access = ACCESS | e.IBV_ACCESS_ZERO_BASED
            self.put("dmmr", DMMR(pd, dm.length, access, dm.dm, 0))

    def do_dm_copy(self, rng: random.Random) -> None:
        if (dm := self.any("dm", rng)) is None:
            return
        if rng.random() < 0.5:
            dm.dm.copy_to_dm(0, dm.word * (dm.length // 8), dm.length)
        elif wrong := dm.check(dm.dm.copy_from_dm(0, dm.length)):
            self.violations.append(wrong)
        if (region := self.any("dmmr", rng)) is not None:
            region.read(8, 0)

    # agents

    def do_agent(self, rng: random.Random) -> None:
        from softhca.verbs.mad import MadAgent

        if (context := self.any("context", rng)) is not None:
            methods = (0x01,) if rng.random() < 0.2 else ()
            management_class = VENDOR if methods else PERFORMANCE
            self.put("agent", MadAgent(context, 1, management_class, 1, methods, rng.randrange(1, 20)))

    def do_mad(self, rng: random.Random) -> None:
        from softhca.verbs.mad import Mad, MadAddress, MadHeader

        if (agent := self.any("agent", rng)) is None:
            return
        management_class = rng.choice((PERFORMANCE, VENDOR))
        question = Mad.make(
            MadHeader(
                management_class=management_class,
                method=0x01,
                transaction_id=rng.randrange(1 << 32),
                attribute_id=0x0001,
            )
        )
        to = MadAddress(gid=bytes(agent.context.query_gid(1, 0).raw))
        if rng.random() < 0.3:
            agent.ask(question, to, timeout_ms=rng.choice((1, 20)), retries=1)
        elif rng.random() < 0.5:
            agent.send(question, to, timeout_ms=rng.choice((0, 20)), retries=0)
        else:
            agent.receive(rng.choice((0, 0.001, 0.02)))


def connection(context: Any, number: int) -> Any:
    """What leads to queue pair, or EE context, ``number`` of the same port."""
    from softhca.verbs.addr import AHAttr, GlobalRoute
    from softhca.verbs.qp import QPAttr

    attr = QPAttr(port_num=1)
    attr.qp_access_flags = ACCESS
    attr.path_mtu, attr.dest_qp_num, attr.rq_psn, attr.sq_psn = 3, number, 1, 1
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 1
    attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 1, 10, 1, 0
    gid = context.query_gid(1, 0)
    attr.ah_attr = AHAttr(is_global=1, port_num=1, gr=GlobalRoute(dgid=gid, sgid_index=0))
    return attr
