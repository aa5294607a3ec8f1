"""Queue pairs over a recording device: creation, states by service, posting, batches, misuse."""

import errno
import socket

import pytest
from verbs_fake_driver import OTHER_GID, FakeDriver

from softhca.machine.primitives import address_of
from softhca.verbs import enums as e
from softhca.verbs.addr import AH, GID, AHAttr, GlobalRoute
from softhca.verbs.cq import CQ, CQEX
from softhca.verbs.device import Context
from softhca.verbs.extensions import SOFTHCA_QPT_RD
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import QP, DataBuffer, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR, send_flags_to_str

ALL_OPS = 0x2FF


@pytest.fixture
def pd(context: Context) -> PD:
    return PD(context)


@pytest.fixture
def cq(context: Context) -> CQ:
    return CQ(context, 100)


def make(pd: PD, cq: CQ, kind: int = e.IBV_QPT_RC, **arguments) -> QP:
    cap = arguments.pop("cap", QPCap(max_send_wr=2, max_recv_wr=2, max_send_sge=2, max_inline_data=64))
    return QP(pd, QPInitAttr(qp_type=kind, scq=cq, rcq=cq, cap=cap, **arguments))


def handle_to(pd: PD) -> AH:
    return AH(pd, attr=AHAttr(is_global=1, gr=GlobalRoute(dgid=GID.from_bytes(OTHER_GID), hop_limit=9)))


def test_creation_passes_everything_on_and_gives_back_what_the_device_gave(
    context: Context, pd: PD, cq: CQ
) -> None:
    other = CQEX(context)
    init = QPInitAttr(e.IBV_QPT_UC, scq=cq, rcq=other, cap=QPCap(1, 2, 3, 4, 5), sq_sig_all=0)
    qp = QP(pd, init)
    made = qp.handle
    assert (made.pd, made.type, made.signal_all) == (pd.number, 3, False)
    assert made.queues == (cq.handle, other.handle, None)
    assert (
        init.cap.as_dict()
        == made.caps
        == {"max_send_wr": 2, "max_recv_wr": 2, "max_send_sge": 3, "max_recv_sge": 4, "max_inline_data": 5}
    )
    assert (qp.qp_num, qp.qp_type, qp.qp_state) == (made.number, 3, e.IBV_QPS_RESET)
    assert "UC" in str(qp)
    assert "UC" in str(init)


def test_by_default_a_qp_is_ud_and_signals_all(pd: PD, cq: CQ) -> None:
    qp = QP(pd, QPInitAttr(scq=cq, rcq=cq))
    assert (qp.qp_type, qp.handle.signal_all) == (e.IBV_QPT_UD, True)
    assert qp.handle.caps["max_recv_wr"] == 0
    assert QP(pd, QPInitAttr(scq=cq, rcq=cq, cap=QPCap())).handle.caps["max_recv_wr"] == 10


def test_an_srq_is_used_and_of_the_same_context(pd: PD, cq: CQ) -> None:
    srq = SRQ(pd, SrqInitAttr(SrqAttr()))
    assert make(pd, cq, srq=srq).handle.queues[2] is srq.handle
    with Context(name="fake1") as other:
        foreign = CQ(other, 1)
        for arguments in (
            {"scq": foreign, "rcq": cq},
            {"scq": cq, "rcq": foreign},
            {"scq": cq, "rcq": cq, "srq": SRQ(PD(other), SrqInitAttr(SrqAttr()))},
        ):
            with pytest.raises(PyverbsUserError, match="different contexts"):
                QP(pd, QPInitAttr(e.IBV_QPT_RC, **arguments))


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        ({}, errno.EINVAL),
        ({"scq": True}, errno.EINVAL),
        ({"rcq": True}, errno.EINVAL),
        ({"rcq": True, "qp_type": e.IBV_QPT_XRC_SEND}, errno.EINVAL),
        ({"scq": True, "rcq": True, "qp_type": e.IBV_QPT_XRC_RECV}, errno.EINVAL),
        ({"scq": True, "rcq": True, "qp_type": e.IBV_QPT_DRIVER}, errno.EOPNOTSUPP),
    ],
)
def test_what_makes_no_qp_is_refused(pd: PD, cq: CQ, driver: FakeDriver, arguments, number: int) -> None:
    arguments = {name: cq if value is True else value for name, value in arguments.items()}
    with pytest.raises(PyverbsRDMAError) as caught:
        QP(pd, QPInitAttr(**arguments))
    assert caught.value.error_code == number
    assert "qp" not in dict(driver.live)


def test_wrong_types_are_misuse(context: Context, pd: PD, cq: CQ) -> None:
    for call in (
        lambda: QPInitAttr(scq=pd),
        lambda: QPInitAttr(rcq=5),
        lambda: QPInitAttr(srq=cq),
        lambda: QP(cq, QPInitAttr()),
        lambda: QP(pd, QPCap()),
        lambda: QP(context, QPInitAttr(scq=cq, rcq=cq)),
        lambda: make(pd, cq).modify(QPCap(), 1),
        lambda: make(pd, cq).post_send(RecvWR()),
        lambda: make(pd, cq).post_recv(SendWR(num_sge=1, sg=[SGE(0, 0, 0)])),
        lambda: make(pd, cq).post_send(None),
    ):
        with pytest.raises(TypeError, match="incorrect type"):
            call()


INIT_RC = {"qp_state", "pkey_index", "port_num", "qp_access_flags"}
RTR_UC = {"qp_state", "ah_attr", "path_mtu", "dest_qp_num", "rq_psn"}
STEPS = {
    e.IBV_QPT_RC: (
        INIT_RC,
        RTR_UC | {"max_dest_rd_atomic", "min_rnr_timer"},
        {"qp_state", "sq_psn", "timeout", "retry_cnt", "rnr_retry", "max_rd_atomic"},
    ),
    e.IBV_QPT_UC: (INIT_RC, RTR_UC, {"qp_state", "sq_psn"}),
    e.IBV_QPT_UD: ({"qp_state", "pkey_index", "port_num", "qkey"}, {"qp_state"}, {"qp_state", "sq_psn"}),
    e.IBV_QPT_XRC_SEND: (
        INIT_RC, RTR_UC, {"qp_state", "sq_psn", "timeout", "retry_cnt", "rnr_retry", "max_rd_atomic"},
    ),
    e.IBV_QPT_RAW_PACKET: ({"qp_state", "port_num"}, {"qp_state"}, {"qp_state"}),
    SOFTHCA_QPT_RD: (
        {"qp_state", "qkey", "qp_access_flags"}, {"qp_state", "min_rnr_timer"}, {"qp_state"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", STEPS)
def test_to_rts_sets_for_each_step_exactly_what_the_standard_requires(pd: PD, cq: CQ, kind: int) -> None:
    qp = make(pd, cq, kind)
    qp.to_rts(QPAttr())
    assert [set(step) for step in qp.handle.modified] == list(STEPS[kind])
    assert [step["qp_state"] for step in qp.handle.modified] == [1, 2, 3]
    assert qp.qp_state == e.IBV_QPS_RTS


def test_each_step_begins_where_the_qp_is(pd: PD, cq: CQ) -> None:
    qp, attr = make(pd, cq), QPAttr()
    qp.to_init(attr)
    assert qp.qp_state == attr.qp_state == e.IBV_QPS_INIT
    qp.to_rtr(attr)
    qp.to_rts(attr)
    assert [step["qp_state"] for step in qp.handle.modified] == [1, 2, 3]


@pytest.mark.parametrize(("before", "states"), [(0, [1, 2, 3]), (1, [2, 3]), (2, [3]), (3, [1, 2, 3])])
def test_to_rts_goes_by_way_of_rtr_unless_the_qp_is_there(
    pd: PD, cq: CQ, before: int, states: list[int]
) -> None:
    qp, attr = make(pd, cq), QPAttr()
    for step in (qp.to_init, qp.to_rtr, qp.to_rts)[:before]:
        step(attr)
    qp.handle.modified.clear()
    qp.to_rts(attr)
    assert [step["qp_state"] for step in qp.handle.modified] == states


@pytest.mark.parametrize(
    ("kind", "state"),
    [(e.IBV_QPT_RC, 1), (e.IBV_QPT_UC, 1), (e.IBV_QPT_XRC_SEND, 1), (e.IBV_QPT_UD, 3),
     (e.IBV_QPT_RAW_PACKET, 3), (SOFTHCA_QPT_RD, 3)],
)  # fmt: skip
def test_with_attributes_a_new_qp_goes_as_far_as_it_can(pd: PD, cq: CQ, kind: int, state: int) -> None:
    assert QP(pd, QPInitAttr(kind, scq=cq, rcq=cq), QPAttr()).qp_state == state


def test_a_refused_step_leaves_the_state(pd: PD, cq: CQ, driver: FakeDriver) -> None:
    qp = make(pd, cq)
    driver.refusals["modify_qp"] = errno.EINVAL
    with pytest.raises(PyverbsRDMAError) as caught:
        qp.to_init(QPAttr())
    assert caught.value.error_code == errno.EINVAL
    assert qp.qp_state == e.IBV_QPS_RESET


NUMBERS = {
    e.IBV_QP_STATE: "qp_state",
    e.IBV_QP_CUR_STATE: "cur_qp_state",
    e.IBV_QP_ACCESS_FLAGS: "qp_access_flags",
    e.IBV_QP_EN_SQD_ASYNC_NOTIFY: "en_sqd_async_notify",
    e.IBV_QP_PKEY_INDEX: "pkey_index",
    e.IBV_QP_PORT: "port_num",
    e.IBV_QP_QKEY: "qkey",
    e.IBV_QP_PATH_MTU: "path_mtu",
    e.IBV_QP_TIMEOUT: "timeout",
    e.IBV_QP_RETRY_CNT: "retry_cnt",
    e.IBV_QP_RNR_RETRY: "rnr_retry",
    e.IBV_QP_RQ_PSN: "rq_psn",
    e.IBV_QP_MAX_QP_RD_ATOMIC: "max_rd_atomic",
    e.IBV_QP_MIN_RNR_TIMER: "min_rnr_timer",
    e.IBV_QP_SQ_PSN: "sq_psn",
    e.IBV_QP_MAX_DEST_RD_ATOMIC: "max_dest_rd_atomic",
    e.IBV_QP_PATH_MIG_STATE: "path_mig_state",
    e.IBV_QP_DEST_QPN: "dest_qp_num",
}


@pytest.mark.parametrize(("bit", "name"), NUMBERS.items(), ids=NUMBERS.values())
def test_each_mask_bit_carries_its_attribute_and_it_comes_back(pd: PD, cq: CQ, bit: int, name: str) -> None:
    qp, attr = make(pd, cq), QPAttr()
    setattr(attr, name, 5)
    qp.modify(attr, bit)
    assert qp.handle.modified == [{name: 5}]
    assert getattr(qp.query(bit)[0], name) == 5


def test_address_vectors_and_capabilities_go_as_dicts(pd: PD, cq: CQ) -> None:
    qp, attr = make(pd, cq), QPAttr()
    route = GlobalRoute(GID.from_bytes(OTHER_GID), 1, 2, 3, 4)
    attr.ah_attr = attr.alt_ah_attr = AHAttr(5, 6, 7, 8, 1, 1, route)
    attr.cap = QPCap(1, 2, 3, 4, 5)
    qp.modify(attr, e.IBV_QP_AV | e.IBV_QP_ALT_PATH | e.IBV_QP_CAP)
    vector = {
        "dgid": OTHER_GID,
        "flow_label": 1,
        "sgid_index": 2,
        "hop_limit": 3,
        "traffic_class": 4,
        "dlid": 5,
        "sl": 6,
        "src_path_bits": 7,
        "static_rate": 8,
        "is_global": 1,
        "port_num": 1,
    }
    assert qp.handle.modified == [
        {
            "ah_attr": vector,
            "alt_ah_attr": vector,
            "alt_pkey_index": 0,
            "alt_port_num": 0,
            "alt_timeout": 0,
            "cap": {
                "max_send_wr": 1,
                "max_recv_wr": 2,
                "max_send_sge": 3,
                "max_recv_sge": 4,
                "max_inline_data": 5,
            },
        }
    ]
    assert qp.query(0)[0].ah_attr.as_dict() == vector


def test_query_gives_the_live_state_and_what_the_qp_was_made_of(pd: PD, cq: CQ) -> None:
    qp = make(pd, cq, sq_sig_all=0)
    qp.handle.attributes["qp_state"] = e.IBV_QPS_ERR
    assert qp.qp_state == e.IBV_QPS_RESET
    assert qp.query(e.IBV_QP_CAP)[0].qp_state == e.IBV_QPS_ERR
    assert qp.qp_state == e.IBV_QPS_RESET  # nobody has asked for it
    attr, init = qp.query(e.IBV_QP_STATE)
    assert qp.qp_state == attr.qp_state == e.IBV_QPS_ERR
    assert (init.send_cq, init.recv_cq, init.qp_type, init.sq_sig_all, init.max_send_wr) == (cq, cq, 2, 0, 3)
    assert attr.cap.max_inline_data == 64
    assert "Error" in str(attr)


def test_unknown_mask_bits_are_refused_before_the_device(pd: PD, cq: CQ) -> None:
    qp = make(pd, cq)
    with pytest.raises(PyverbsRDMAError) as caught:
        qp.modify(QPAttr(), 1 << 30)
    assert caught.value.error_code == errno.EINVAL
    assert qp.handle.modified == []


def test_a_send_carries_every_field(pd: PD, cq: CQ) -> None:
    qp, ah = make(pd, cq, e.IBV_QPT_UD), handle_to(pd)
    wr = SendWR(
        7,
        e.IBV_WR_SEND_WITH_IMM,
        2,
        socket.htonl(0x01020304),
        [SGE(1, 2, 3), SGE(4, 5, 6)],
        e.IBV_SEND_SOLICITED | e.IBV_SEND_FENCE,
    )
    wr.set_wr_ud(ah, 8, 9)
    wr.set_wr_atomic(10, 11, 12, 13)
    qp.post_send(wr)
    assert qp.handle.sent == [
        {
            "opcode": 3,
            "flags": 5,
            "imm": 0x01020304,
            "wr_id": 7,
            "remote_va": 11,
            "rkey": 10,
            "compare": 12,
            "swap": 13,
            "ah": ah.number,
            "qpn": 8,
            "qkey": 9,
            "sges": ((1, 2, 3), (4, 5, 6)),
            "inline": None,
        }
    ]
    assert qp.handle.rings == 1


def test_a_key_to_invalidate_is_not_swapped(pd: PD, cq: CQ) -> None:
    qp = make(pd, cq)
    qp.post_send(SendWR(opcode=e.IBV_WR_SEND_WITH_INV, imm_data=0x01020304))
    assert (qp.handle.sent[0]["imm"], qp.handle.sent[0]["sges"]) == (0x01020304, ())


def test_a_chain_rings_once(pd: PD, cq: CQ) -> None:
    qp = make(pd, cq)
    second = SendWR(2, num_sge=1, sg=[SGE(0, 1, 2)])
    qp.post_send(SendWR(1, num_sge=1, sg=[SGE(0, 1, 2)], next_wr=second))
    assert [each["wr_id"] for each in qp.handle.sent] == [1, 2]
    assert qp.handle.rings == 1


def chain(count: int) -> SendWR:
    following = None
    for wr_id in reversed(range(count)):
        following = SendWR(wr_id, num_sge=1, sg=[SGE(wr_id, 1, 2)], next_wr=following)
    return following


def test_at_a_refusal_the_ones_before_are_rung_and_bad_wr_is_the_refused_one(pd: PD, cq: CQ) -> None:
    qp = make(pd, cq)
    bad = SendWR(opcode=e.IBV_WR_LOCAL_INV)
    with pytest.raises(PyverbsRDMAError) as caught:
        qp.post_send(chain(5), bad)
    assert caught.value.error_code == errno.ENOMEM
    assert (bad.wr_id, bad.opcode, bad.sg_list, bad.next_wr.wr_id) == (3, 2, ((3, 1, 2),), 4)
    assert (len(qp.handle.sent), qp.handle.rings) == (3, 1)
    with pytest.raises(PyverbsRDMAError):
        qp.post_send(chain(1))
    assert qp.handle.rings == 1


def changed(request):
    """A work request with a number that cannot be; what is assigned is checked when it is posted."""
    request.wr_id = -1
    return request


def test_unknown_flags_and_numbers_that_do_not_fit_are_refused(pd: PD, cq: CQ) -> None:
    qp = make(pd, cq)
    with pytest.raises(PyverbsRDMAError) as caught:
        qp.post_send(SendWR(num_sge=1, sg=[SGE(0, 1, 2)], send_flags=e.IBV_SEND_IP_CSUM))
    assert caught.value.error_code == errno.EINVAL
    for call in (
        lambda: qp.post_send(changed(SendWR(0, num_sge=1, sg=[SGE(0, 1, 2)]))),
        lambda: qp.post_recv(changed(RecvWR())),
    ):
        with pytest.raises(PyverbsUserError):
            call()
    assert qp.handle.sent == qp.handle.received == []
    assert qp.handle.rings == 0


def test_inline_data_is_taken_at_once(pd: PD, cq: CQ) -> None:
    qp, memory = make(pd, cq), bytearray(b"0123456789")
    base = address_of(memory)
    qp.post_send(SendWR(num_sge=1, sg=[SGE(base + 1, 3, 0)], send_flags=e.IBV_SEND_INLINE))
    qp.post_send(SendWR(num_sge=2, sg=[SGE(base + 8, 2, 0), SGE(base, 1, 0)], send_flags=e.IBV_SEND_INLINE))
    memory[:] = bytes(10)
    assert [each["inline"] for each in qp.handle.sent] == [b"123", b"890"]


def test_a_closed_address_handle_is_refused(pd: PD, cq: CQ) -> None:
    qp, ah = make(pd, cq, e.IBV_QPT_UD), handle_to(pd)
    wr = SendWR(num_sge=1, sg=[SGE(0, 1, 2)])
    wr.set_wr_ud(ah, 1, 2)
    ah.close()
    with pytest.raises(PyverbsUserError, match="AH is closed"):
        qp.post_send(wr)
    assert (qp.handle.sent, qp.handle.rings) == ([], 0)


def test_receives_go_in_chains_and_tell_the_bad_one(pd: PD, cq: CQ) -> None:
    qp = make(pd, cq)
    third = RecvWR(3)
    bad = RecvWR()
    with pytest.raises(PyverbsRDMAError) as caught:
        qp.post_recv(RecvWR(1, 1, [SGE(5, 6, 7)], RecvWR(2, next_wr=third)), bad)
    assert caught.value.error_code == errno.ENOMEM
    assert bad.wr_id == 3
    assert qp.handle.received == [(1, ((5, 6, 7),)), (2, ())]


def test_a_closed_qp_refuses_use(pd: PD, cq: CQ) -> None:
    qp = make(pd, cq)
    qp.close()
    for use in (
        lambda: qp.post_send(chain(1)),
        lambda: qp.post_recv(RecvWR()),
        lambda: qp.to_init(QPAttr()),
        lambda: qp.query(0),
        lambda: qp.modify(QPAttr(), 1),
    ):
        with pytest.raises(PyverbsUserError, match="closed"):
            use()


def test_work_requests_need_data_and_honest_counts() -> None:
    for arguments in (
        {},
        {"num_sge": 1},
        {"sg": [SGE(0, 0, 0)]},
        {"num_sge": 0, "opcode": e.IBV_WR_RDMA_READ},
    ):
        with pytest.raises(PyverbsUserError, match="at least one SGE"):
            SendWR(**arguments)
    with pytest.raises(IndexError, match="num_sge is 2"):
        SendWR(num_sge=2, sg=[SGE(0, 0, 0)])
    with pytest.raises(PyverbsUserError):
        RecvWR(num_sge=1)
    wr = RecvWR(num_sge=2, sg=[SGE(1, 1, 1), SGE(2, 2, 2)])
    wr.num_sge = 1
    assert wr.sg_list == ((1, 1, 1),)
    wr.num_sge = 2
    assert wr.sg_list == ((1, 1, 1), (2, 2, 2))
    for count in (3, -1):
        with pytest.raises(IndexError):
            wr.num_sge = count
    wr.sg_list = SGE(9, 9, 9)
    assert (wr.sg_list, wr.num_sge) == (((9, 9, 9),), 1)


def test_elements_are_copied_when_the_request_is_made() -> None:
    sge = SGE(1, 2, 3)
    wr = SendWR(num_sge=1, sg=[sge])
    sge.addr = 99
    assert wr.sg_list == ((1, 2, 3),)


def test_a_ring_of_requests_is_refused() -> None:
    first, second = RecvWR(1), RecvWR(2)
    first.next_wr = second
    with pytest.raises(PyverbsUserError, match="ring"):
        second.next_wr = first
    with pytest.raises(PyverbsUserError, match="ring"):
        first.next_wr = first
    assert second.next_wr is None
    head = chain(2)
    with pytest.raises(PyverbsUserError, match="ring"):
        head.next_wr.next_wr = head


def test_requests_as_text() -> None:
    memory = bytearray(b"abc")
    sge = SGE(address_of(memory), 3, 255)
    assert sge.read(2, 1) == b"bc"
    assert "0xff" in str(sge)
    assert "IBV_SEND_SIGNALED" in str(SendWR(num_sge=1, sg=[sge]))
    assert "Num SGE" in str(RecvWR())
    assert send_flags_to_str(9) == "IBV_SEND_FENCE IBV_SEND_INLINE "


@pytest.fixture
def batch_qp(context: Context, pd: PD, cq: CQ) -> QPEx:
    return QPEx(
        context,
        QPInitAttrEx(
            e.IBV_QPT_RC,
            scq=cq,
            rcq=cq,
            pd=pd,
            cap=QPCap(9, 1),
            send_ops_flags=ALL_OPS,
            comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        ),
    )


def test_a_batch_posts_each_operation_with_its_own_values(batch_qp: QPEx, pd: PD) -> None:
    qp, ah, memory = batch_qp, handle_to(pd), bytearray(b"inline data")
    qp.wr_start()
    qp.wr_id, qp.wr_flags = 1, e.IBV_SEND_SIGNALED
    qp.wr_rdma_write_imm(2, 3, 0x01020304)
    qp.wr_set_sge(SGE(4, 5, 6))
    qp.wr_id, qp.wr_flags = 7, 0
    qp.wr_atomic_cmp_swp(8, 9, 10, 11)
    qp.wr_set_sge_list(1, [SGE(12, 8, 13), SGE(0, 0, 0)])
    qp.wr_send()
    qp.wr_set_ud_addr(ah, 14, 15)
    qp.wr_set_inline_data(address_of(memory), 6)
    qp.wr_send_inv(0x55)
    qp.wr_set_inline_data_list(2, [DataBuffer(address_of(memory), 2), DataBuffer(address_of(memory) + 7, 4)])
    qp.wr_rdma_read(16, 17)
    qp.wr_atomic_fetch_add(18, 19, 20)
    qp.wr_local_inv(21)
    qp.wr_send_imm(22)
    qp.wr_rdma_write(23, 24)
    assert qp.handle.sent == []
    qp.wr_complete()
    sent = qp.handle.sent
    assert qp.handle.rings == 1
    assert [each["opcode"] for each in sent] == [1, 5, 2, 9, 4, 6, 7, 3, 0]
    first = {
        "opcode": 1,
        "flags": 2,
        "imm": 0x01020304,
        "wr_id": 1,
        "remote_va": 3,
        "rkey": 2,
        "compare": 0,
        "swap": 0,
        "ah": 0,
        "qpn": 0,
        "qkey": 0,
        "sges": ((4, 5, 6),),
        "inline": None,
    }
    assert sent[0] == first
    assert [sent[1][name] for name in ("wr_id", "flags", "rkey", "remote_va", "compare", "swap", "sges")] == [
        7,
        0,
        8,
        9,
        10,
        11,
        ((12, 8, 13),),
    ]
    assert [sent[2][name] for name in ("ah", "qpn", "qkey", "inline", "flags")] == [
        ah.number,
        14,
        15,
        b"inline",
        0,
    ]
    assert (sent[3]["imm"], sent[3]["inline"]) == (0x55, b"indata"[:2] + b"data")
    assert (sent[4]["rkey"], sent[4]["remote_va"]) == (16, 17)
    assert (sent[5]["rkey"], sent[5]["remote_va"], sent[5]["compare"]) == (18, 19, 20)
    assert (sent[6]["imm"], sent[7]["imm"], sent[8]["rkey"], sent[8]["remote_va"]) == (21, 22, 23, 24)


def test_an_aborted_batch_posts_nothing(batch_qp: QPEx) -> None:
    batch_qp.wr_start()
    batch_qp.wr_send()
    batch_qp.wr_abort()
    with pytest.raises(PyverbsUserError):
        batch_qp.wr_complete()
    batch_qp.wr_start()
    batch_qp.wr_complete()
    assert (batch_qp.handle.sent, batch_qp.handle.rings) == ([], 0)


def test_batch_calls_out_of_order_are_misuse(batch_qp: QPEx) -> None:
    for use in (
        batch_qp.wr_send,
        batch_qp.wr_complete,
        lambda: batch_qp.wr_set_sge(SGE(0, 0, 0)),
        lambda: batch_qp.wr_rdma_read(0, 0),
    ):
        with pytest.raises(PyverbsUserError, match="no batch"):
            use()
    batch_qp.wr_start()
    with pytest.raises(PyverbsUserError, match="inside a batch"):
        batch_qp.wr_start()
    with pytest.raises(PyverbsUserError, match="no operation"):
        batch_qp.wr_set_sge(SGE(0, 0, 0))
    batch_qp.wr_send()
    for use in (
        lambda: batch_qp.wr_set_sge_list(1, []),
        lambda: batch_qp.wr_set_inline_data_list(1, []),
    ):
        with pytest.raises(PyverbsUserError):
            use()
    for use in (lambda: batch_qp.wr_set_ud_addr(None, 1, 1), lambda: batch_qp.wr_set_sge(None)):
        with pytest.raises(TypeError):
            use()


def test_a_batch_that_does_not_fit_posts_what_fits_and_says_so(batch_qp: QPEx) -> None:
    batch_qp.wr_start()
    for _ in range(11):
        batch_qp.wr_send()
    with pytest.raises(PyverbsRDMAError) as caught:
        batch_qp.wr_complete()
    assert caught.value.error_code == errno.ENOMEM
    assert (len(batch_qp.handle.sent), batch_qp.handle.rings) == (10, 1)
    batch_qp.wr_start()
    batch_qp.wr_flags = 16
    batch_qp.wr_send()
    with pytest.raises(PyverbsRDMAError) as caught:
        batch_qp.wr_complete()
    assert caught.value.error_code == errno.EINVAL
    assert batch_qp.handle.rings == 1


def test_operations_that_were_not_asked_for_are_misuse(context: Context, pd: PD, cq: CQ) -> None:
    init = QPInitAttrEx(
        e.IBV_QPT_RC, scq=cq, rcq=cq, pd=pd, send_ops_flags=e.IBV_QP_EX_WITH_SEND, comp_mask=65
    )
    qp = QPEx(context, init)
    qp.wr_start()
    qp.wr_send()
    with pytest.raises(PyverbsUserError, match="IBV_QP_EX_WITH_RDMA_READ"):
        qp.wr_rdma_read(0, 0)
    init.comp_mask = e.IBV_QP_INIT_ATTR_PD
    with pytest.raises(PyverbsUserError, match="SEND_OPS_FLAGS"):
        QPEx(context, init).wr_start()


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        ({"comp_mask": e.IBV_QP_INIT_ATTR_XRCD | e.IBV_QP_INIT_ATTR_PD}, errno.EOPNOTSUPP),
        ({"comp_mask": e.IBV_QP_INIT_ATTR_MAX_TSO_HEADER | e.IBV_QP_INIT_ATTR_PD}, errno.EOPNOTSUPP),
        ({"comp_mask": 5, "create_flags": e.IBV_QP_CREATE_SOURCE_QPN}, errno.EOPNOTSUPP),
        ({"comp_mask": 65, "send_ops_flags": e.IBV_QP_EX_WITH_TSO}, errno.EOPNOTSUPP),
        ({"comp_mask": 0}, errno.EINVAL),
    ],
)
def test_what_an_extended_qp_cannot_do_is_refused(
    context: Context, pd: PD, cq: CQ, driver: FakeDriver, arguments, number: int
) -> None:
    with pytest.raises(PyverbsRDMAError) as caught:
        QPEx(context, QPInitAttrEx(e.IBV_QPT_RC, scq=cq, rcq=cq, pd=pd, **arguments))
    assert caught.value.error_code == number
    assert "qp" not in dict(driver.live)


def test_extended_attributes_keep_their_places(pd: PD) -> None:
    for name in ("hash_conf", "ind_table"):
        given = object()
        assert getattr(QPInitAttrEx(**{name: given}), name) is given
    with pytest.raises(TypeError, match="xrcd"):
        QPInitAttrEx(xrcd=object())
    init = QPInitAttrEx(2, None, None, None, None, None, 1, 7, pd, None, 2, 3, 4)
    assert (init.comp_mask, init.pd, init.create_flags, init.max_tso_header, init.source_qpn) == (
        7,
        pd,
        2,
        3,
        4,
    )
    assert "IBV_QP_INIT_ATTR_XRCD" in str(init)
    assert "IBV_QP_CREATE_BLOCK_SELF_MCAST_LB" in str(init)
    assert QPInitAttrEx().sq_sig_all == 0


def test_capabilities_are_copied_in_and_out() -> None:
    cap = QPCap(max_send_wr=3)
    init = QPInitAttr(cap=cap)
    cap.max_send_wr = 9
    init.cap.max_send_wr = 9
    assert init.max_send_wr == 3
    init.max_send_wr, init.max_recv_wr, init.max_send_sge, init.max_recv_sge, init.max_inline_data = (
        1,
        2,
        3,
        4,
        5,
    )
    assert list(init.cap.as_dict().values()) == [1, 2, 3, 4, 5]
    init.cap = QPCap()
    assert init.max_recv_wr == 10
    assert "max send wrs" in str(init.cap)
