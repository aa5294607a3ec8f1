"""The queue pair's state machine: every cell of the table, attributes, draining."""

from errno import EINVAL

import pytest

from softhca.queues import cqe, wqe
from softhca.queues.control_fields import EVENT_SQ_DRAINED
from softhca.queues.states import POSTING
from softhca.testing.transport_pair import Faults
from softhca.transport.ee_context import EndToEndContext, RdDomain
from softhca.transport.states import (
    BEHAVIOUR,
    ERR,
    INIT,
    NAMES,
    RANGES,
    RAW,
    RC,
    RD,
    RD_EEC,
    RESET,
    RTR,
    RTS,
    SERVICES,
    SQD,
    SQE,
    TRANSITIONS,
    UC,
    UD,
    XRC,
    XRC_TARGET,
    check,
    check_values,
    transition,
)

STATES = range(7)
VALUES = {
    "pkey_index": 0, "port_num": 1, "qp_access_flags": 14, "qkey": 5, "ah_attr": {"sl": 3},
    "alt_ah_attr": {},
    "path_mtu": 3, "dest_qp_num": 9, "rq_psn": 1, "sq_psn": 2, "max_dest_rd_atomic": 1, "max_rd_atomic": 1,
    "min_rnr_timer": 1, "timeout": 14, "retry_cnt": 7, "rnr_retry": 7, "cur_qp_state": None,
    "path_mig_state": 0,
    "en_sqd_async_notify": 1,
}  # fmt: skip
# The table of the standard in short: what may follow, by service
FOLLOW = {
    RC: {(0, 1), (1, 1), (1, 2), (2, 3), (3, 3), (3, 4), (4, 4), (4, 3)},
    UC: {(0, 1), (1, 1), (1, 2), (2, 3), (3, 3), (3, 4), (4, 4), (4, 3), (5, 3)},
    UD: {(0, 1), (1, 1), (1, 2), (2, 3), (3, 3), (3, 4), (4, 4), (4, 3), (5, 3)},
    XRC: {(0, 1), (1, 1), (1, 2), (2, 3), (3, 3), (3, 4), (4, 4), (4, 3)},
    XRC_TARGET: {(0, 1), (1, 1), (1, 2), (2, 3), (3, 3), (3, 4), (4, 4), (4, 3)},
    RAW: {(0, 1), (1, 1), (1, 2), (2, 3), (3, 3), (3, 4), (4, 4), (4, 3), (5, 3)},
    RD: {(0, 1), (1, 1), (1, 2), (2, 3), (3, 3), (3, 4), (4, 4), (4, 3), (5, 3)},
    RD_EEC: {(0, 1), (1, 1), (1, 2), (2, 3), (3, 3), (3, 4), (4, 4), (4, 3)},
}


def in_state(pair, service, state):
    """A queue pair that stands in ``state``."""
    p = pair(service=service, connect=False)
    if service == RD_EEC:
        p.left.qp = EndToEndContext(p.a, 5, p.left.qp.row, RdDomain(1))
    if state in (RESET, ERR):
        if state == ERR:
            p.left.qp.modify({"qp_state": ERR})
        return p
    p.connect(p.left, p.right, 0, 0, until={SQD: RTS, SQE: RTS}.get(state, state))
    if state == SQD:
        assert p.left.qp.modify({"qp_state": SQD}) == 0
    elif state == SQE:
        p.left.post(wqe.SEND, [(1, 1, 1)])
        p.run()
        p.left.sent()
    assert p.left.qp.state == state
    return p


def reachable(service, state):
    return state != SQE or service not in (RC, XRC, XRC_TARGET, RD_EEC)


@pytest.mark.parametrize("service", SERVICES)
def test_transitions_are_those_of_the_standard(service):
    cells = {cell for cell, services in TRANSITIONS.items() if service in services}
    assert cells == FOLLOW[service]


@pytest.mark.parametrize(
    ("service", "state", "target"),
    [(service, a, b) for service in SERVICES for a in STATES for b in STATES if reachable(service, a)],
)
def test_every_cell_moves_with_its_attributes_or_is_refused_and_changes_nothing(pair, service, state, target):
    p = in_state(pair, service, state)
    qp = p.left.qp
    rules = transition(service, state, target)
    names = rules.required if rules is not None else ()
    attributes = {name: VALUES[name] for name in names}
    before = qp.query()
    code = qp.modify({"qp_state": target, **attributes}, p.now, route=p.route(p.a.gid, p.b.gid))
    if (state, target) in FOLLOW[service] or target in (RESET, ERR):
        assert code == 0
        assert qp.state == target
    else:
        assert code == EINVAL
        assert qp.query() == before


@pytest.mark.parametrize(
    ("cell", "service"), [(c, s) for c, services in TRANSITIONS.items() for s in services]
)
def test_required_attributes_must_be_there_and_others_must_not(cell, service):
    rules = TRANSITIONS[cell][service]
    assert check(service, *cell, rules.required | rules.optional) == 0
    for name in rules.required:
        assert check(service, *cell, rules.required - {name}) == EINVAL
    for name in VALUES.keys() - rules.required - rules.optional:
        assert check(service, *cell, rules.required | {name}) == EINVAL
    assert not rules.required & rules.optional


@pytest.mark.parametrize("name", sorted(RANGES))
def test_values_outside_their_field_are_refused(name):
    least, greatest = RANGES[name]
    assert check_values({name: least}) == check_values({name: greatest}) == 0
    assert check_values({name: least - 1}) == check_values({name: greatest + 1}) == EINVAL
    assert check_values({name: "1"}) == EINVAL


@pytest.mark.parametrize("target", [-1, 7, None, "RTS"])
def test_states_that_do_not_exist_are_refused(pair, target):
    p = pair(connect=False)
    assert p.left.qp.modify({"qp_state": target}) == EINVAL


def test_behaviour_has_a_row_a_state_and_names():
    assert len(BEHAVIOUR) == len(NAMES) == 7
    assert [row.receive for row in BEHAVIOUR] == [False, False, True, True, True, True, False]
    assert [row.transmit for row in BEHAVIOUR] == [False, False, False, True, True, False, False]
    assert [row.start_send for row in BEHAVIOUR] == [False, False, False, True, False, False, False]
    assert [row.post_send for row in POSTING] == [False, False, False, True, True, True, True]
    assert [row.post_receive for row in POSTING] == [False, True, True, True, True, True, True]
    assert [row.flush_send for row in BEHAVIOUR] == [False] * 5 + [True, True]
    assert [row.flush_receive for row in BEHAVIOUR] == [False] * 6 + [True]


def test_wrong_current_state_is_refused(pair):
    p = pair()
    assert p.left.qp.modify({"qp_state": RTS, "cur_qp_state": RTR}) == EINVAL
    assert p.left.qp.modify({"qp_state": RTS, "cur_qp_state": RTS, "min_rnr_timer": 9}) == 0
    assert p.left.qp.min_rnr_timer == 9


def test_address_vector_needs_its_route(pair):
    p = pair(connect=False)
    p.connect(p.left, p.right, 0, 0, until=INIT)
    attributes = p.attributes(RTR, p.left, p.right, 0, 0)
    assert p.left.qp.modify(attributes) == EINVAL
    assert p.left.qp.state == INIT


def test_query_returns_what_was_set(pair):
    p = pair(
        pmtu=2048, left_psn=77, right_psn=88, timeout=14, retry_cnt=5, rnr_retry=6, rd_atomic=3, access=6
    )
    values = p.left.qp.query()
    expected = {
        "qp_state": RTS, "cur_qp_state": RTS, "path_mtu": 4, "sq_psn": 77, "rq_psn": 88, "timeout": 14,
        "retry_cnt": 5, "rnr_retry": 6, "max_rd_atomic": 3, "max_dest_rd_atomic": 3, "qp_access_flags": 6,
        "dest_qp_num": p.right.number, "port_num": 1, "pkey_index": 0, "min_rnr_timer": 1, "sq_draining": 0,
    }  # fmt: skip
    assert {name: values[name] for name in expected} == expected


@pytest.mark.parametrize("pmtu", [256, 512, 1024, 2048, 4096])
def test_path_mtu_is_the_enumeration_of_the_standard(pair, pmtu):
    p = pair(pmtu=pmtu)
    assert p.left.qp.path_mtu_bytes == pmtu
    assert 128 << p.left.qp.query()["path_mtu"] == pmtu


def test_sqd_finishes_what_is_under_way_begins_nothing_and_tells(pair):
    p = pair(pmtu=256)
    source, target = p.left.region(200_000, fill=b"x" * 200_000), p.right.region(200_000)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target, wr_id=1)
    p.left.post(wqe.RDMA_WRITE, inline=b"y", remote=target, wr_id=2)
    p.step()
    assert p.left.qp.modify({"qp_state": SQD, "en_sqd_async_notify": 1}, p.now) == 0
    assert p.left.qp.query()["sq_draining"] == 1
    assert p.a.events == []
    p.run()
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [(1, 0)]
    assert p.a.events == [(EVENT_SQ_DRAINED, p.left.number)]
    assert p.left.qp.query()["sq_draining"] == 0
    assert target.data == source.data
    assert p.left.qp.modify({"qp_state": RTS}, p.now) == 0
    p.run()
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [(2, 0)]
    assert target.data[:1] == b"y"


def test_a_queue_pair_that_fails_while_it_drains_drains_no_more(pair):
    p = pair(pmtu=256)
    source, target = p.left.region(200_000), p.right.region(200_000)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.step()
    assert p.left.qp.modify({"qp_state": SQD}, p.now) == 0
    assert p.left.qp.modify({"qp_state": ERR}, p.now) == 0
    assert p.left.qp.query()["sq_draining"] == 0


def test_sqd_at_rest_is_drained_at_once_and_silent_when_nobody_asked(pair):
    p = pair()
    assert p.left.qp.modify({"qp_state": SQD}) == 0
    assert p.a.events == []
    assert p.left.qp.query()["sq_draining"] == 0
    assert p.left.qp.modify({"qp_state": RTS}) == 0
    assert p.left.qp.modify({"qp_state": SQD, "en_sqd_async_notify": 1}) == 0
    assert p.a.events == [(EVENT_SQ_DRAINED, p.left.number)]


def test_sqd_retries_what_is_under_way(pair):
    lost = []
    p = pair(
        faults=Faults(
            rule=lambda way, packet: (
                len(lost) if way == "ab" and not lost.append(1) and len(lost) > 1 else int(way == "ba")
            )
        )
    )
    target = p.right.region(8)
    p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target)
    p.step()
    p.left.qp.modify({"qp_state": SQD, "en_sqd_async_notify": 1}, p.now)
    p.run()
    assert [c.status for c in p.left.sent()] == [0]
    assert p.a.events == [(EVENT_SQ_DRAINED, p.left.number)]


def test_responder_goes_on_in_sqd(pair):
    p = pair()
    p.right.qp.modify({"qp_state": SQD})
    target = p.right.region(8)
    p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target)
    p.run()
    assert [c.status for c in p.left.sent()] == [0]


@pytest.mark.parametrize("service", [UC, UD])
def test_failed_send_of_an_unreliable_service_leads_to_sqe_and_back(pair, service):
    p = in_state(pair, service, SQE)
    p.left.post(wqe.SEND, inline=b"x", wr_id=5)
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [(5, cqe.WC_WR_FLUSH_ERR)]
    assert p.left.qp.modify({"qp_state": RTS}) == 0
    assert p.left.qp.state == RTS
