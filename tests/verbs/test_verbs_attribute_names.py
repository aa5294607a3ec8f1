"""Wrong calls of a program: each error names the attribute as the program knows it, and changes nothing."""

import errno

import pytest

from softhca.testing import Network
from softhca.testing.verbs import make_end
from softhca.verbs import enums as e
from softhca.verbs.addr import AH, GID, AHAttr, GlobalRoute
from softhca.verbs.cq import CQ, CQEX, CqInitAttrEx
from softhca.verbs.device import DM, AllocDmAttr
from softhca.verbs.mr import DMMR, MR, MW
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr, SrqInitAttrEx
from softhca.verbs.wr import SGE, RecvWR, SendWR

ODP_FLAGS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_ON_DEMAND
INIT = e.IBV_QP_STATE | e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT | e.IBV_QP_ACCESS_FLAGS
RTR = (
    e.IBV_QP_STATE | e.IBV_QP_AV | e.IBV_QP_PATH_MTU | e.IBV_QP_DEST_QPN | e.IBV_QP_RQ_PSN
    | e.IBV_QP_MAX_DEST_RD_ATOMIC | e.IBV_QP_MIN_RNR_TIMER
)  # fmt: skip


@pytest.fixture(scope="module")
def end():
    with Network() as network:
        yield make_end(network.add().context())


def qp(end, kind=e.IBV_QPT_RC, **caps):
    cap = QPCap(**{"max_send_wr": 4, "max_recv_wr": 4, "max_send_sge": 1, "max_recv_sge": 1, **caps})
    return QP(end.pd, QPInitAttr(kind, scq=end.send_cq, rcq=end.recv_cq, cap=cap))


def to_init(end, mask=INIT, **changes):
    """A queue pair is brought to INIT, with something wrong."""
    made = qp(end)
    attr = QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1)
    for name, value in changes.items():
        setattr(attr, name, value)
    made.modify(attr, mask)


def path(end, **changes):
    route = GlobalRoute(dgid=end.context.query_gid(1, 0), sgid_index=changes.pop("sgid_index", 0))
    return AHAttr(gr=route, **{"is_global": 1, "port_num": 1, **changes})


def to_rtr(end, mask=RTR, vector=None, **changes):
    """… and to RTR."""
    made = qp(end)
    made.modify(QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1), INIT)
    attr = QPAttr(qp_state=e.IBV_QPS_RTR, path_mtu=3)
    attr.dest_qp_num = 5
    attr.max_dest_rd_atomic = 1
    attr.ah_attr = path(end, **(vector or {}))
    for name, value in changes.items():
        setattr(attr, name, value)
    made.modify(attr, mask)


def connected(end):
    made = qp(end, max_inline_data=8)
    attr = QPAttr(port_num=1, path_mtu=3)
    attr.dest_qp_num = made.qp_num
    attr.ah_attr = path(end)
    made.to_rts(attr)
    return made


def send(end, num=1, **changes):
    wr = SendWR(num_sge=num, sg=[end.sge(changes.pop("length", 8))] * num)
    for name, value in changes.items():
        setattr(wr, name, value)
    connected(end).post_send(wr)


def receives(end, num=1, posts=1):
    made = qp(end)
    made.modify(QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1), INIT)
    for _ in range(posts):
        made.post_recv(RecvWR(num_sge=num, sg=[end.sge(8)] * num))


def extended(end, **attributes):
    mask = e.IBV_QP_INIT_ATTR_PD | attributes.pop("comp_mask", 0)
    kind = QPEx if "send_ops_flags" in attributes else QP
    init = QPInitAttrEx(
        attributes.pop("qp_type", e.IBV_QPT_RC), scq=end.send_cq, rcq=end.recv_cq, pd=end.pd,
        cap=QPCap(4, 4, 1, 1), comp_mask=mask, **attributes,
    )  # fmt: skip
    kind(end.context, init)


def advise(end, advice=e._IBV_ADVISE_MR_ADVICE_PREFETCH, flags=0, lkey=None, elements=1):
    sge = SGE(end.mr.buf, 8, end.mr.lkey if lkey is None else lkey)
    end.pd.advise_mr(advice, flags, [sge] * elements, elements)


def device_memory(end, access, offset=0, length=64):
    with DM(end.context, AllocDmAttr(64)) as dm:
        DMMR(end.pd, length, access, dm, offset)


def limited_srq(end, limit):
    with SRQ(end.pd, SrqInitAttr(SrqAttr(max_wr=4))) as srq:
        srq.modify(SrqAttr(max_wr=4, srq_limit=limit), e.IBV_SRQ_LIMIT)


def tag_matching(end):
    attr = SrqInitAttrEx(max_wr=4)
    attr.comp_mask = e.IBV_SRQ_INIT_ATTR_TYPE
    attr.srq_type = e.IBV_SRQT_TM
    SRQ(end.context, attr)


BIG = 1 << 30
CALLS = {
    "port_num": [
        lambda end: end.context.query_port(9),
        lambda end: end.context.query_gid(9, 0),
        lambda end: end.context.query_pkey(9, 0),
        lambda end: to_init(end, port_num=9),
        lambda end: to_rtr(end, vector={"port_num": 9}),
        lambda end: AH(end.pd, attr=path(end, port_num=9)),
        lambda end: to_init(end, INIT & ~e.IBV_QP_PORT),
    ],
    "index": [lambda end: end.context.query_gid(1, 9999), lambda end: end.context.query_pkey(1, 9999)],
    "gid_index": [lambda end: end.context.query_gid_ex(1, 5)],
    "pkey": [lambda end: end.context.get_pkey_index(1, 5)],
    "flags": [
        lambda end: end.context.query_gid_table(4, 1),
        lambda end: end.context.query_gid_ex(1, 0, 1),
        lambda end: end.mr.rereg(0),
        lambda end: end.mr.rereg(64),
        lambda end: advise(end, flags=64),
    ],
    "max_entries": [lambda end: end.context.query_gid_table(0)],
    "cqe": [
        lambda end: CQ(end.context, 0),
        lambda end: CQ(end.context, BIG),
        lambda end: end.send_cq.resize(0),
    ],
    "comp_vector": [lambda end: CQ(end.context, 4, comp_vector=7)],
    "wc_flags": [lambda end: CQEX(end.context, CqInitAttrEx(cqe=4, wc_flags=1 << 40))],
    "comp_mask": [
        lambda end: CQEX(end.context, CqInitAttrEx(cqe=4, comp_mask=1 << 9)),
        lambda end: extended(end, comp_mask=1 << 20),
        lambda end: end.context.query_rt_values_ex(0x80),
    ],
    "max_send_wr": [lambda end: qp(end, max_send_wr=BIG)],
    "max_recv_wr": [lambda end: qp(end, max_recv_wr=BIG)],
    "max_send_sge": [lambda end: qp(end, max_send_sge=BIG)],
    "max_recv_sge": [lambda end: qp(end, max_recv_sge=BIG)],
    "max_inline_data": [
        lambda end: qp(end, max_inline_data=BIG),
        lambda end: send(end, length=9, send_flags=e.IBV_SEND_INLINE),
    ],
    "qp_type": [lambda end: qp(end, 98), lambda end: extended(end, qp_type=99)],
    "create_flags": [
        lambda end: extended(end, comp_mask=e.IBV_QP_INIT_ATTR_CREATE_FLAGS, create_flags=1 << 10)
    ],
    "send_ops_flags": [
        lambda end: extended(end, comp_mask=e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, send_ops_flags=1 << 40),
    ],
    "xrcd": [lambda end: QP(end.context, QPInitAttrEx(e.IBV_QPT_XRC_RECV, comp_mask=0))],
    "send_cq": [lambda end: QP(end.pd, QPInitAttr(e.IBV_QPT_RC, rcq=end.recv_cq))],
    "max_wr": [
        lambda end: SRQ(end.pd, SrqInitAttr(SrqAttr(max_wr=0))),
        lambda end: SRQ(end.pd, SrqInitAttr(SrqAttr(max_wr=BIG))),
    ],
    "max_sge": [lambda end: SRQ(end.pd, SrqInitAttr(SrqAttr(max_wr=4, max_sge=BIG)))],
    "srq_limit": [lambda end: limited_srq(end, 5)],
    "srq_type": [lambda end: tag_matching(end)],
    "attr_mask": [lambda end: end.qp.modify(QPAttr(), 1 << 30)],
    "qp_state": [
        lambda end: qp(end).modify(QPAttr(qp_state=e.IBV_QPS_RTR), e.IBV_QP_STATE),
        lambda end: qp(end).post_send(SendWR(num_sge=1, sg=[end.sge(8)])),
        lambda end: qp(end).post_recv(RecvWR(num_sge=1, sg=[end.sge(8)])),
    ],
    "cur_qp_state": [
        lambda end: connected(end).modify(
            QPAttr(qp_state=e.IBV_QPS_RTS, cur_qp_state=e.IBV_QPS_RTR), e.IBV_QP_STATE | e.IBV_QP_CUR_STATE
        )
    ],
    "pkey_index": [
        lambda end: to_init(end, pkey_index=9),
        lambda end: to_init(end, INIT & ~e.IBV_QP_PKEY_INDEX),
    ],
    "qp_access_flags": [
        lambda end: to_init(end, INIT & ~e.IBV_QP_ACCESS_FLAGS),
        lambda end: to_init(end, qp_access_flags=1 << 20),
    ],
    "qkey": [lambda end: to_init(end, INIT | e.IBV_QP_QKEY)],
    "ah_attr": [lambda end: to_rtr(end, RTR & ~e.IBV_QP_AV)],
    "path_mtu": [lambda end: to_rtr(end, path_mtu=0), lambda end: to_rtr(end, path_mtu=6)],
    "dest_qp_num": [
        lambda end: to_rtr(end, dest_qp_num=1 << 24),
        lambda end: to_rtr(end, RTR & ~e.IBV_QP_DEST_QPN),
    ],
    "rq_psn": [lambda end: to_rtr(end, rq_psn=1 << 24)],
    "max_dest_rd_atomic": [lambda end: to_rtr(end, max_dest_rd_atomic=255)],
    "min_rnr_timer": [lambda end: to_rtr(end, min_rnr_timer=32)],
    "timeout": [lambda end: to_rtr(end, RTR | e.IBV_QP_TIMEOUT)],
    "is_global": [
        lambda end: AH(end.pd, attr=path(end, is_global=0)),
        lambda end: to_rtr(end, vector={"is_global": 0}),
    ],
    "sgid_index": [lambda end: AH(end.pd, attr=path(end, sgid_index=9))],
    "sl": [lambda end: AH(end.pd, attr=path(end, sl=16))],
    "dgid": [
        lambda end: AH(
            end.pd,
            attr=AHAttr(
                gr=GlobalRoute(dgid=GID(":".join(["0000"] * 8)), sgid_index=0), is_global=1, port_num=1
            ),
        )
    ],
    "alt_port_num": [lambda end: to_rtr(end, RTR | e.IBV_QP_ALT_PATH, alt_ah_attr=path(end))],
    "length": [lambda end: MR(end.pd, 0, 1), lambda end: device_memory(end, e.IBV_ACCESS_ZERO_BASED, 8)],
    "access": [lambda end: MR(end.pd, 8, e.IBV_ACCESS_REMOTE_WRITE), lambda end: MR(end.pd, 8, 1 << 30)],
    "type": [lambda end: MW(end.pd, 7)],
    "advice": [lambda end: advise(end, advice=9)],
    "lkey": [lambda end: advise(end, lkey=5), advise],
    "num_sge": [
        lambda end: send(end, num=2),
        lambda end: receives(end, num=2),
        lambda end: advise(end, elements=0),
    ],
    "opcode": [lambda end: send(end, opcode=77), lambda end: send(end, opcode=-1)],
    "send_flags": [lambda end: send(end, send_flags=1 << 20)],
    "wr_id": [lambda end: send(end, wr_id=1 << 64)],
}
LISTED = [(name, call) for name, calls in CALLS.items() for call in calls]


def test_there_are_many() -> None:
    assert len(LISTED) >= 75


@pytest.mark.parametrize(
    ("name", "call"), LISTED, ids=[f"{name}-{number}" for number, (name, _) in enumerate(LISTED)]
)
def test_a_wrong_call_names_the_attribute(end, name, call) -> None:
    with pytest.raises(PyverbsRDMAError) as refused:
        call(end)
    text = str(refused.value)
    assert name in text.replace(",", " ").replace(":", " ").split(), text
    assert abs(refused.value.error_code) in (
        errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT, errno.ENODATA, errno.EFAULT, errno.ENOMEM,
    )  # fmt: skip


@pytest.mark.parametrize("posts", [4, 5])
def test_a_full_queue_says_how_much_it_takes(end, posts) -> None:
    if posts == 4:
        receives(end, posts=posts)
        return
    with pytest.raises(PyverbsRDMAError, match="max_wr = 4: the receive queue is full"):
        receives(end, posts=posts)
