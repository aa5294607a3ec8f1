"""Completion queues, channels and shared receive queues, and what they refuse."""

import errno

import pytest
from verbs_fake_driver import FakeCompletion, FakeDriver

from softhca.verbs import enums as e
from softhca.verbs.cq import (
    CQ,
    CQEX,
    WC,
    CompChannel,
    CqInitAttrEx,
    PollCqAttr,
    cqe_flags_to_str,
    cqe_opcode_to_str,
    cqe_status_to_str,
    create_wc_flags_to_str,
)
from softhca.verbs.device import Context
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr, SrqInitAttrEx
from softhca.verbs.wr import SGE, RecvWR

FIELDS = dict(
    wr_id=1,
    status=2,
    opcode=3,
    vendor_err=4,
    byte_len=5,
    imm_data=0x01020304,
    qp_num=6,
    src_qp=7,
    pkey_index=8,
    slid=9,
    sl=10,
    dlid_path_bits=11,
)


def test_poll_gives_count_and_completions_in_order(context: Context) -> None:
    cq = CQ(context, 4)
    assert cq.poll() == (0, [])
    cq.handle.completions.extend(FakeCompletion(wr_id=number) for number in range(3))
    assert [wc.wr_id for wc in cq.poll(2)[1]] == [0, 1]
    count, wcs = cq.poll(5)
    assert (count, [wc.wr_id for wc in wcs]) == (1, [2])


def test_every_field_of_a_completion_arrives(context: Context) -> None:
    cq = CQ(context, 4)
    cq.handle.completions.append(FakeCompletion(**FIELDS, wc_flags=e.IBV_WC_WITH_INV))
    wc = cq.poll()[1][0]
    assert {name: getattr(wc, name) for name in FIELDS} == FIELDS
    assert wc.wc_flags == e.IBV_WC_WITH_INV


def test_an_immediate_is_in_network_order_and_an_invalidated_key_is_not(context: Context) -> None:
    cq = CQ(context, 4)
    cq.handle.completions.extend(FakeCompletion(imm_data=0x01020304, wc_flags=flags) for flags in (2, 8, 3))
    assert [wc.imm_data for wc in cq.poll(3)[1]] == [0x04030201, 0x01020304, 0x04030201]


def test_polling_errors_keep_their_errno(context: Context, driver: FakeDriver) -> None:
    driver.refusals["poll"] = errno.EIO
    with pytest.raises(PyverbsRDMAError) as caught:
        CQ(context, 4).poll()
    assert caught.value.error_code == errno.EIO


def test_sizes_vectors_and_resizing(context: Context) -> None:
    cq = CQ(context, 4)
    assert cq.cqe == 4
    cq.resize(9)
    assert cq.cqe == 9
    cq.handle.completions.extend([FakeCompletion()] * 3)
    for call in (
        lambda: cq.resize(2),
        lambda: CQ(context, 0),
        lambda: CQ(context, 1, comp_vector=1),
        lambda: CQ(context, 1, comp_vector=-1),
    ):
        with pytest.raises(PyverbsRDMAError) as caught:
            call()
        assert caught.value.error_code == errno.EINVAL
    assert cq.cqe == 9


def test_a_closed_cq_refuses_use(context: Context) -> None:
    cq = CQ(context, 4)
    cq.close()
    for use in (cq.poll, cq.req_notify, lambda: cq.resize(1), lambda: cq.cqe, lambda: cq.number):
        with pytest.raises(PyverbsUserError, match="closed"):
            use()


def test_arming_says_whether_only_solicited(context: Context) -> None:
    cq = CQ(context, 4)
    cq.req_notify()
    cq.req_notify(solicited_only=1)
    assert cq.handle.armed == [False, True]


def test_an_event_is_counted_and_acknowledged(context: Context, driver: FakeDriver) -> None:
    channel = CompChannel(context)
    cq = CQ(context, 4, None, channel)
    assert cq.comp_channel is channel
    driver.fired.extend([cq.handle, cq.handle])
    channel.get_cq_event(cq)
    channel.get_cq_event(cq, timeout_s=1)
    assert [call[2] for call in driver.calls] == [None, 1]
    assert cq.handle.channel is driver.calls[0][1] is not None
    assert cq.num_events == 2
    with pytest.raises(PyverbsUserError):
        cq.ack_events(3)
    cq.ack_events(2)
    assert cq.num_events == 0


def test_waiting_ends_in_time_and_another_cqs_event_is_an_error(context: Context, driver: FakeDriver) -> None:
    channel = CompChannel(context)
    cq, other = CQ(context, 4, channel=channel), CQ(context, 4, channel=channel)
    with pytest.raises(PyverbsRDMAError) as caught:
        channel.get_cq_event(cq, timeout_s=0)
    assert caught.value.error_code == errno.ETIMEDOUT
    driver.fired.append(other.handle)
    with pytest.raises(PyverbsRDMAError, match="unexpected CQ") as caught:
        channel.get_cq_event(cq)
    assert caught.value.error_code == errno.EINVAL
    assert (cq.num_events, other.num_events) == (0, 0)


def test_a_channel_serves_its_own_context_only(context: Context) -> None:
    with Context(name="fake1") as other, pytest.raises(PyverbsUserError, match="another context"):
        CQ(other, 4, channel=CompChannel(context))
    channel = CompChannel(context)
    channel.close()
    with pytest.raises(PyverbsUserError, match="closed"):
        CQ(context, 4, channel=channel)


def test_an_extended_cq_walks_completions(context: Context) -> None:
    cq = CQEX(context, CqInitAttrEx(cqe=7, wc_flags=e.IBV_WC_STANDARD_FLAGS))
    assert cq.cqe == 7
    assert cq.start_poll(PollCqAttr()) == errno.ENOENT
    cq.handle.completions.extend([FakeCompletion(**FIELDS, wc_flags=2), FakeCompletion(wr_id=20)])
    assert cq.start_poll() == 0
    assert (cq.wr_id, cq.status, cq.read_opcode(), cq.read_vendor_err(), cq.read_wc_flags()) == (
        1,
        2,
        3,
        4,
        2,
    )
    assert (cq.read_byte_len(), cq.read_imm_data(), cq.read_qp_num(), cq.read_src_qp()) == (
        5,
        0x04030201,
        6,
        7,
    )
    assert (cq.read_slid(), cq.read_sl(), cq.read_dlid_path_bits()) == (9, 10, 11)
    assert cq.poll_next() == 0
    assert cq.wr_id == 20
    assert cq.poll_next() == errno.ENOENT
    assert cq.wr_id == 20
    cq.end_poll()
    assert cq.start_poll() == errno.ENOENT


def test_an_extended_cq_gives_only_the_fields_that_were_asked_for(context: Context) -> None:
    cq = CQEX(
        context, CqInitAttrEx(wc_flags=e.IBV_WC_EX_WITH_BYTE_LEN | e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
    )
    cq.handle.completions.append(FakeCompletion(byte_len=5, timestamp_ns=77))
    cq.start_poll()
    assert (cq.read_byte_len(), cq.read_timestamp()) == (5, 77)
    for read in (
        cq.read_imm_data,
        cq.read_qp_num,
        cq.read_src_qp,
        cq.read_slid,
        cq.read_sl,
        cq.read_dlid_path_bits,
    ):
        with pytest.raises(PyverbsUserError, match="IBV_WC_EX_WITH"):
            read()


READS = {
    "read_byte_len": e.IBV_WC_EX_WITH_BYTE_LEN, "read_imm_data": e.IBV_WC_EX_WITH_IMM,
    "read_qp_num": e.IBV_WC_EX_WITH_QP_NUM, "read_src_qp": e.IBV_WC_EX_WITH_SRC_QP,
    "read_slid": e.IBV_WC_EX_WITH_SLID, "read_sl": e.IBV_WC_EX_WITH_SL,
    "read_dlid_path_bits": e.IBV_WC_EX_WITH_DLID_PATH_BITS,
    "read_timestamp": e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
    "read_completion_wallclock_ns": e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
}  # fmt: skip


@pytest.mark.parametrize("asked", READS)
def test_each_field_of_an_extended_cq_is_asked_for_by_its_own_flag(context: Context, asked: str) -> None:
    cq = CQEX(context, CqInitAttrEx(wc_flags=READS[asked]))
    cq.handle.completions.append(FakeCompletion(**FIELDS))
    cq.start_poll()
    for name in READS:
        if name == asked:
            getattr(cq, name)()
        else:
            with pytest.raises(PyverbsUserError, match="made without"):
                getattr(cq, name)()


def test_an_extended_cq_out_of_order_is_misuse(context: Context) -> None:
    cq = CQEX(context)
    for use in (cq.poll_next, lambda: cq.wr_id, lambda: cq.status, cq.read_opcode):
        with pytest.raises(PyverbsUserError):
            use()
    cq.handle.completions.append(FakeCompletion())
    cq.start_poll()
    with pytest.raises(PyverbsUserError, match="end_poll"):
        cq.start_poll()
    cq.end_poll()
    with pytest.raises(PyverbsUserError):
        cq.status  # noqa: B018


@pytest.mark.parametrize(
    "arguments",
    [
        {"wc_flags": e.IBV_WC_EX_WITH_CVLAN},
        {"wc_flags": e.IBV_WC_EX_WITH_TM_INFO},
        {"comp_mask": 4},
        {"comp_mask": 1, "flags": 4},
    ],
)
def test_what_an_extended_cq_cannot_do_is_eopnotsupp(context: Context, driver: FakeDriver, arguments) -> None:
    with pytest.raises(PyverbsRDMAError) as caught:
        CQEX(context, CqInitAttrEx(**arguments))
    assert caught.value.error_code == errno.EOPNOTSUPP
    assert driver.live == []


@pytest.mark.parametrize(
    "flags",
    [e.IBV_CREATE_CQ_ATTR_SINGLE_THREADED, e.IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
     e.IBV_CREATE_CQ_ATTR_SINGLE_THREADED | e.IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN],
)  # fmt: skip
def test_single_threaded_and_ignore_overrun_are_accepted(context: Context, flags: int) -> None:
    attr = CqInitAttrEx(comp_mask=e.IBV_CQ_INIT_ATTR_MASK_FLAGS, flags=flags)
    assert CQEX(context, attr).cqe == 100
    assert "100" in str(attr)


def test_an_srq_takes_a_chain_and_tells_the_bad_one(context: Context) -> None:
    srq = SRQ(PD(context), SrqInitAttr(SrqAttr(max_wr=2, max_sge=3)))
    assert (srq.handle.max_wr, srq.handle.max_sge) == (2, 3)
    chain = [RecvWR(wr_id, 1, [SGE(16 * wr_id, 4, 9)]) for wr_id in range(3)]
    chain[0].next_wr, chain[1].next_wr = chain[1], chain[2]
    bad = RecvWR()
    with pytest.raises(PyverbsRDMAError) as caught:
        srq.post_recv(chain[0], bad)
    assert caught.value.error_code == errno.ENOMEM
    assert (bad.wr_id, bad.sg_list) == (2, ((32, 4, 9),))
    assert srq.handle.posted == [(0, ((0, 4, 9),)), (1, ((16, 4, 9),))]


def test_an_srq_is_modified_by_mask_and_queried(context: Context, driver: FakeDriver) -> None:
    srq = SRQ(PD(context), SrqInitAttr(SrqAttr(5, 1, srq_limit=3)))
    assert srq.query().srq_limit == 0
    srq.modify(SrqAttr(max_wr=99, srq_limit=2), e.IBV_SRQ_LIMIT)
    assert driver.calls[-1] == ("modify_srq", None, 2)
    srq.modify(SrqAttr(max_wr=8, srq_limit=4), e.IBV_SRQ_MAX_WR)
    assert driver.calls[-1] == ("modify_srq", 8, None)
    found = srq.query()
    assert (found.max_wr, found.max_sge, found.srq_limit) == (8, 1, 2)
    assert srq.get_srq_num() == srq.handle.number
    for mask in (0, 4):
        with pytest.raises(PyverbsRDMAError) as caught:
            srq.modify(SrqAttr(), mask)
        assert caught.value.error_code == errno.EINVAL


def test_an_srq_is_made_by_a_context_with_a_pd(context: Context) -> None:
    attr = SrqInitAttrEx(max_wr=3)
    with pytest.raises(PyverbsRDMAError) as caught:
        SRQ(context, attr)
    assert caught.value.error_code == errno.EINVAL
    attr.comp_mask = e.IBV_SRQ_INIT_ATTR_PD | e.IBV_SRQ_INIT_ATTR_TYPE
    with pytest.raises(PyverbsRDMAError) as caught:
        SRQ(context, attr)
    assert caught.value.error_code == errno.EINVAL, "it says that there is a domain"
    attr.pd = PD(context)
    assert SRQ(context, attr).handle.pd == attr.pd.number
    attr.srq_type = e.IBV_SRQT_XRC
    with pytest.raises(PyverbsRDMAError) as caught:
        SRQ(context, attr)
    assert caught.value.error_code == errno.EINVAL, "it has no XRC domain"
    attr.srq_type = e.IBV_SRQT_TM
    with pytest.raises(PyverbsRDMAError) as caught:
        SRQ(context, attr)
    assert caught.value.error_code == errno.EOPNOTSUPP
    attr.srq_type = e.IBV_SRQT_BASIC
    with Context(name="fake1") as other, pytest.raises(PyverbsUserError):
        SRQ(other, attr)


def test_completions_as_text() -> None:
    text = str(WC(wr_id=5, status=10, opcode=128, wc_flags=3))
    assert "Remote access error" in text
    assert "Receive" in text
    assert "IBV_WC_GRH IBV_WC_WITH_IMM" in text
    assert cqe_status_to_str(24) == "Unknown CQE status (24)"
    assert cqe_status_to_str(-1) == "Unknown CQE status (-1)"
    assert cqe_opcode_to_str(77) == "Unknown CQE opcode (77)"
    assert cqe_flags_to_str(8) == "IBV_WC_WITH_INV "
    assert create_wc_flags_to_str(1) == "IBV_WC_EX_WITH_BYTE_LEN "
