"""Queue pairs of real devices: every attribute through modify and query, the states, misuse."""

import errno

import pytest
from traffic import BOUND_S, connected, poll

from softhca.driver.errors import DriverError
from softhca.testing.verbs import ALL_ACCESS, CLIENT_PSN, QKEY, SERVER_PSN, attributes, make_end, vector_to
from softhca.verbs import enums as e
from softhca.verbs.cq import CQ
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr, QPRateLimitAttr
from softhca.verbs.wr import RecvWR, SendWR

RC, UC, UD = e.IBV_QPT_RC, e.IBV_QPT_UC, e.IBV_QPT_UD
RESET, INIT, RTR, RTS, SQD, ERR = (
    e.IBV_QPS_RESET,
    e.IBV_QPS_INIT,
    e.IBV_QPS_RTR,
    e.IBV_QPS_RTS,
    e.IBV_QPS_SQD,
    e.IBV_QPS_ERR,
)


def refused(call, *numbers: int) -> None:
    """The call fails with one of the errnos."""
    with pytest.raises(PyverbsRDMAError) as caught:
        call()
    assert caught.value.error_code in numbers


def move(end, state: int, attr: QPAttr | None = None, mask: int = 0) -> None:
    """Modify to a state, with the attributes of ``mask``."""
    attr = attr or QPAttr()
    attr.qp_state = state
    end.qp.modify(attr, mask | e.IBV_QP_STATE)


def test_a_qp_has_what_it_was_connected_with(verbs_pair) -> None:
    client, server = connected(
        verbs_pair,
        changes={
            "timeout": 13,
            "retry_cnt": 5,
            "rnr_retry": 6,
            "min_rnr_timer": 3,
            "max_rd_atomic": 2,
            "max_dest_rd_atomic": 3,
            "path_mtu": e.IBV_MTU_512,
        },
    )
    attr, init = client.qp.query(0x1FFFFFF)
    assert (attr.qp_state, attr.path_mtu, attr.dest_qp_num) == (RTS, e.IBV_MTU_512, server.qp.qp_num)
    assert (attr.rq_psn, attr.sq_psn) == (SERVER_PSN, CLIENT_PSN)
    assert (attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer) == (13, 5, 6, 3)
    assert (attr.max_rd_atomic, attr.max_dest_rd_atomic, attr.qp_access_flags) == (2, 3, ALL_ACCESS)
    assert (attr.port_num, attr.pkey_index) == (1, 0)
    wanted = vector_to(server)
    assert (attr.ah_attr.dgid, attr.ah_attr.sgid_index, attr.ah_attr.hop_limit) == (wanted.dgid, 0, 64)
    assert (init.qp_type, init.send_cq, init.recv_cq, init.srq) == (RC, client.send_cq, client.recv_cq, None)
    assert init.max_send_wr >= 64
    assert init.max_inline_data >= 128


@pytest.mark.parametrize(
    ("bit", "name", "value"),
    [
        (e.IBV_QP_ACCESS_FLAGS, "qp_access_flags", e.IBV_ACCESS_REMOTE_READ),
        (e.IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", 20),
    ],
)
def test_in_rts_these_attributes_can_be_changed(verbs_pair, bit: int, name: str, value: int) -> None:
    client, _ = connected(verbs_pair)
    attr = QPAttr()
    setattr(attr, name, value)
    client.qp.modify(attr, bit)
    assert getattr(client.qp.query(bit)[0], name) == value


@pytest.mark.parametrize(
    ("bit", "name", "value"),
    [
        (e.IBV_QP_PATH_MTU, "path_mtu", 1),
        (e.IBV_QP_DEST_QPN, "dest_qp_num", 7),
        (e.IBV_QP_RQ_PSN, "rq_psn", 7),
        (e.IBV_QP_SQ_PSN, "sq_psn", 7),
        (e.IBV_QP_QKEY, "qkey", 7),
        (e.IBV_QP_CAP, "cap", QPCap()),
        (e.IBV_QP_TIMEOUT, "timeout", 7),
        (e.IBV_QP_PORT, "port_num", 1),
    ],
)
def test_in_rts_the_others_are_einval_and_change_nothing(verbs_pair, bit: int, name: str, value) -> None:
    client, _ = connected(verbs_pair)
    before = client.qp.query(0)[0]
    attr = QPAttr()
    setattr(attr, name, value)
    refused(lambda: client.qp.modify(attr, bit), errno.EINVAL, errno.EOPNOTSUPP)
    if name != "cap":
        assert getattr(client.qp.query(0)[0], name) == getattr(before, name)
    assert client.state() == RTS


def test_a_rate_limit_is_taken_in_rts_and_told(verbs_pair) -> None:
    client, _ = connected(verbs_pair)
    caps = client.pd.ctx.query_device_ex().packet_pacing_caps
    assert (caps.qp_rate_limit_min, caps.qp_rate_limit_max) == (8, 100_000_000)
    assert caps.supported_qpts >> e.IBV_QPT_RC & caps.supported_qpts >> e.IBV_QPT_RAW_PACKET & 1
    attr = QPAttr()
    attr.rate_limit = 1000
    client.qp.modify(attr, e.IBV_QP_RATE_LIMIT)
    assert client.qp.query(0)[0].rate_limit == 1000
    client.qp.modify_rate_limit(QPRateLimitAttr(rate_limit=8, max_burst_sz=1500, typical_pkt_sz=64))
    assert (client.qp.query(0)[0].rate_limit, client.state()) == (8, RTS)
    for wrong in ({"comp_mask": 1}, {"rate_limit": 7}, {"rate_limit": 100_000_001}, {"max_burst_sz": 1}):
        refused(lambda: client.qp.modify_rate_limit(QPRateLimitAttr(**wrong)), errno.EINVAL)  # noqa: B023
    assert client.qp.query(0)[0].rate_limit == 8
    client.qp.modify_rate_limit(QPRateLimitAttr())
    assert client.qp.query(0)[0].rate_limit == 0
    attr.qp_state = e.IBV_QPS_ERR
    refused(lambda: client.qp.modify(attr, e.IBV_QP_RATE_LIMIT | e.IBV_QP_STATE), errno.EINVAL)
    assert client.state() == RTS
    client.qp.modify(attr, e.IBV_QP_STATE)
    refused(lambda: client.qp.modify_rate_limit(QPRateLimitAttr(rate_limit=9)), errno.EINVAL)
    refused(lambda: client.qp.modify(attr, e.IBV_QP_RATE_LIMIT), errno.EINVAL)


def test_a_datagram_qps_key_can_be_changed(verbs_pair) -> None:
    client, _ = connected(verbs_pair, UD)
    assert client.qp.query(e.IBV_QP_QKEY)[0].qkey == QKEY
    attr = QPAttr()
    attr.qkey = 0x22222222
    client.qp.modify(attr, e.IBV_QP_QKEY)
    assert client.qp.query(e.IBV_QP_QKEY)[0].qkey == 0x22222222


REQUIRED = {
    (RC, INIT): ["PKEY_INDEX", "PORT", "ACCESS_FLAGS"],
    (RC, RTR): ["AV", "PATH_MTU", "DEST_QPN", "RQ_PSN", "MAX_DEST_RD_ATOMIC", "MIN_RNR_TIMER"],
    (RC, RTS): ["SQ_PSN", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "MAX_QP_RD_ATOMIC"],
    (UC, INIT): ["PKEY_INDEX", "PORT", "ACCESS_FLAGS"],
    (UC, RTR): ["AV", "PATH_MTU", "DEST_QPN", "RQ_PSN"],
    (UC, RTS): ["SQ_PSN"],
    (UD, INIT): ["PKEY_INDEX", "PORT", "QKEY"],
    (UD, RTR): [],
    (UD, RTS): ["SQ_PSN"],
}


@pytest.mark.parametrize("kind", [RC, UC, UD], ids=["RC", "UC", "UD"])
def test_each_step_to_rts_needs_all_of_its_attributes(verbs_pair, kind: int) -> None:
    client, server = make_end(verbs_pair.client, kind), make_end(verbs_pair.server, kind)
    attr = attributes(client, server, 1, 2)
    state = RESET
    for target in (INIT, RTR, RTS):
        bits = [getattr(e, "IBV_QP_" + name) for name in REQUIRED[kind, target]]
        for missing in bits:
            mask = sum(int(bit) for bit in bits if bit != missing)
            refused(lambda mask=mask, target=target: move(client, target, attr, mask), errno.EINVAL)
            assert client.state() == state
        move(client, target, attr, sum(int(bit) for bit in bits))
        assert client.state() == client.qp.qp_state == target
        state = target


@pytest.mark.parametrize(
    ("start", "target"),
    [
        (RESET, RTR),
        (RESET, RTS),
        (RESET, SQD),
        (INIT, RTS),
        (INIT, SQD),
        (RTR, INIT),
        (RTR, SQD),
        (RTS, INIT),
        (RTS, RTR),
        (ERR, INIT),
        (ERR, RTS),
    ],
)
def test_states_cannot_be_skipped_nor_walked_back(verbs_pair, start: int, target: int) -> None:
    client, server = make_end(verbs_pair.client), make_end(verbs_pair.server)
    attr = attributes(client, server, 1, 2)
    steps = {
        RESET: [],
        INIT: [client.qp.to_init],
        RTR: [client.qp.to_rtr],
        RTS: [client.qp.to_rts],
        ERR: [client.qp.to_init, lambda _: move(client, ERR)],
    }
    for step in steps[start]:
        step(attr)
    bits = [getattr(e, "IBV_QP_" + name) for name in REQUIRED.get((RC, target), [])]
    refused(lambda: move(client, target, attr, sum(int(bit) for bit in bits)), errno.EINVAL)
    assert client.state() == start


@pytest.mark.parametrize("start", [RESET, INIT, RTR, RTS, ERR])
@pytest.mark.parametrize("target", [RESET, ERR])
def test_reset_and_error_can_be_reached_from_everywhere(verbs_pair, start: int, target: int) -> None:
    client, server = make_end(verbs_pair.client), make_end(verbs_pair.server)
    attr = attributes(client, server, 1, 2)
    for state, step in ((INIT, client.qp.to_init), (RTR, client.qp.to_rtr), (RTS, client.qp.to_rts)):
        if start in (INIT, RTR, RTS) and state <= start:
            step(attr)
    if start == ERR:
        move(client, ERR)
    move(client, target)
    assert client.state() == target


def test_a_drained_send_queue_says_so_and_goes_on(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    attr = QPAttr()
    attr.en_sqd_async_notify = 1
    move(client, SQD, attr, e.IBV_QP_EN_SQD_ASYNC_NOTIFY)
    seen = set()
    while (e.IBV_EVENT_SQ_DRAINED, client.qp.qp_num) not in seen:
        event = verbs_pair.client.get_async_event(timeout_s=BOUND_S)
        seen.add((event.event_type, event.element))
    assert client.qp.query(e.IBV_QP_STATE)[0].sq_draining == 0
    server.receive(4)
    client.send(length=4)
    move(client, RTS)
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS


def test_current_state_is_checked_when_it_is_given(verbs_pair) -> None:
    client, _ = connected(verbs_pair)
    attr = QPAttr(qp_state=RTS, cur_qp_state=SQD)
    refused(lambda: client.qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_CUR_STATE), errno.EINVAL)
    attr.cur_qp_state = RTS
    client.qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_CUR_STATE)


@pytest.mark.parametrize(
    ("name", "value", "target"),
    [
        ("port_num", 2, INIT),
        ("port_num", 0, INIT),
        ("pkey_index", 1000, INIT),
        ("path_mtu", 6, RTR),
        ("path_mtu", 0, RTR),
        ("dest_qp_num", 1 << 24, RTR),
        ("rq_psn", 1 << 24, RTR),
        ("min_rnr_timer", 32, RTR),
        ("max_dest_rd_atomic", 255, RTR),
        ("sq_psn", 1 << 24, RTS),
        ("timeout", 32, RTS),
        ("retry_cnt", 8, RTS),
        ("rnr_retry", 8, RTS),
        ("max_rd_atomic", 255, RTS),
    ],
)
def test_values_out_of_range_are_refused_and_the_state_stays(
    verbs_pair, name: str, value: int, target: int
) -> None:
    client, server = make_end(verbs_pair.client), make_end(verbs_pair.server)
    attr = attributes(client, server, 1, 2)
    if target > INIT:
        client.qp.to_init(attr)
    if target > RTR:
        client.qp.to_rtr(attr)
    setattr(attr, name, value)
    step = {INIT: client.qp.to_init, RTR: client.qp.to_rtr, RTS: client.qp.to_rts}[target]
    before = client.state()
    with pytest.raises((PyverbsRDMAError, PyverbsUserError)):
        step(attr)
    assert client.state() == before


@pytest.mark.parametrize(
    ("state", "may_send", "may_receive"),
    [(RESET, False, False), (INIT, False, True), (RTR, False, True), (RTS, True, True)],
)
def test_work_may_be_posted_only_where_the_standard_allows_it(
    verbs_pair, state: int, may_send: bool, may_receive: bool
) -> None:
    client, server = make_end(verbs_pair.client), make_end(verbs_pair.server)
    attr = attributes(client, server, 1, 2)
    for step in (client.qp.to_init, client.qp.to_rtr, client.qp.to_rts)[:state]:
        step(attr)
    if may_send:
        client.send(length=0)
    else:
        refused(lambda: client.send(length=0), errno.EINVAL)
    if may_receive:
        client.receive()
    else:
        refused(client.receive, errno.EINVAL)


def too_many(end, opcode=e.IBV_WR_SEND) -> SendWR:
    return SendWR(0, opcode, 9, 0, [end.sge(1)] * 9)


MISUSE = {
    "more elements than the queue takes": lambda end: end.qp.post_send(too_many(end)),
    "more receive elements than it takes": lambda end: end.qp.post_recv(RecvWR(0, 9, [end.sge(1)] * 9)),
    "an opcode that there is not": lambda end: end.qp.post_send(SendWR(0, 77, 1, 0, [end.sge(1)])),
    "a segmentation to offload": lambda end: end.qp.post_send(SendWR(0, e.IBV_WR_TSO, 1, 0, [end.sge(1)])),
    "flags that there are not": lambda end: end.send(length=1, flags=1 << 7),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_of_a_queue_is_einval_at_once_and_the_queue_goes_on(verbs_pair, name: str) -> None:
    client, server = connected(verbs_pair)
    server.receive(100)
    refused(lambda: MISUSE[name](client), errno.EINVAL)
    client.send(length=4)
    assert poll(server.recv_cq, 1, client, server)[0].byte_len == 4


@pytest.mark.parametrize(
    ("opcode", "length", "status"),
    [
        (e.IBV_WR_ATOMIC_FETCH_AND_ADD, 4, e.IBV_WC_LOC_LEN_ERR),
        (e.IBV_WR_ATOMIC_CMP_AND_SWP, 7, e.IBV_WC_LOC_LEN_ERR),
        (e.IBV_WR_BIND_MW, 8, e.IBV_WC_MW_BIND_ERR),
    ],
)
def test_a_request_that_cannot_be_done_fails_here_and_the_peer_sees_nothing(
    verbs_pair, opcode: int, length: int, status: int
) -> None:
    client, server = connected(verbs_pair)
    client.send(opcode, length, to=(server.mr.rkey, server.mr.buf), operands=(1, 1))
    assert poll(client.send_cq, 1, client, server)[0].status == status
    assert server.mr.read(64, 0) == bytes(64)
    assert server.state() == RTS


@pytest.mark.parametrize(
    "cap",
    [
        QPCap(1 << 30, 1, 1, 1),
        QPCap(1, 1 << 30, 1, 1),
        QPCap(1, 1, 1 << 20, 1),
        QPCap(1, 1, 1, 1 << 20),
        QPCap(1, 1, 1, 1, 1 << 24),
    ],
    ids=["send_wr", "recv_wr", "send_sge", "recv_sge", "inline"],
)
def test_capabilities_beyond_the_device_are_refused(verbs_pair, cap) -> None:
    end = make_end(verbs_pair.client)
    init = QPInitAttr(RC, scq=end.send_cq, rcq=end.recv_cq, cap=cap)
    refused(lambda: QP(end.pd, init), errno.EINVAL, errno.ENOMEM)


@pytest.mark.parametrize(
    "access",
    [
        e.IBV_ACCESS_REMOTE_WRITE,
        e.IBV_ACCESS_REMOTE_ATOMIC,
        e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ,
        1 << 15,
    ],
    ids=hex,
)
def test_rights_that_cannot_be_are_einval(verbs_pair, access: int) -> None:
    end = make_end(verbs_pair.client)
    refused(lambda: MR(end.pd, 4096, access), errno.EINVAL, errno.EOPNOTSUPP)


@pytest.mark.parametrize("entries", [0, -1, (1 << 31) - 1])
def test_impossible_completion_queues_are_refused(verbs_pair, entries: int) -> None:
    refused(lambda: CQ(verbs_pair.client, entries), errno.EINVAL, errno.ENOMEM)


def test_numbers_that_are_no_whole_ones_are_truncated_and_spoil_nothing(verbs_pair) -> None:
    context = verbs_pair.client
    with CQ(context, 4.9) as cq, PD(context) as pd, MR(pd, 4096.7, e.IBV_ACCESS_LOCAL_WRITE) as mr:
        assert cq.cqe >= 4
        assert mr.length == 4096
        for refused_here in (
            lambda: context.driver.create_cq(4.0),
            lambda: context.driver.alloc_host_memory(4096.0),
            lambda: context.driver.create_srq(pd.number, 4.0, 1),
        ):
            with pytest.raises((TypeError, PyverbsRDMAError, DriverError)):
                refused_here()
        for _ in range(3):
            with CQ(context, 300) as other, MR(pd, 40960, e.IBV_ACCESS_LOCAL_WRITE):
                assert other.poll(1)[1] == []


def test_limits_are_said_and_kept(verbs_pair) -> None:
    attr = verbs_pair.client.query_device()
    assert attr.phys_port_cnt == 1
    assert (
        min(attr.max_qp, attr.max_cq, attr.max_mr, attr.max_pd, attr.max_qp_wr, attr.max_sge, attr.max_cqe)
        > 0
    )
    assert attr.atomic_caps == e.IBV_ATOMIC_HCA
    port = verbs_pair.client.query_port(1)
    assert (port.state, port.link_layer) == (e.IBV_PORT_ACTIVE, e.IBV_LINK_LAYER_ETHERNET)
    refused(lambda: verbs_pair.client.query_port(2), errno.EINVAL)
    refused(lambda: verbs_pair.client.query_gid(1, port.gid_tbl_len), errno.EINVAL)
    assert verbs_pair.client.query_pkey(1, 0) == 0xFFFF
    assert verbs_pair.client.guid != verbs_pair.server.guid


def test_counters_count_what_a_qp_did(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    before = verbs_pair.client.query_counters(port=1)
    server.receive(8)
    client.send(length=8)
    poll(client.send_cq, 1, client, server)
    after = verbs_pair.client.query_counters(port=1)
    assert set(before) == set(after)
    assert any(after[name] > before[name] for name in after)
    assert any(verbs_pair.client.query_counters(qp=client.qp.qp_num).values())
