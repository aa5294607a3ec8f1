"""Control commands: what they refuse, and that a refusal changes nothing."""

import errno
import sys

import pytest
from command_end import INIT, RTR, RTS, VECTOR, call, census, refused

from softhca.adapter.commands import HANDLERS, execute
from softhca.adapter.resources import Kind
from softhca.driver.errors import DriverError
from softhca.queues import control_fields as control
from softhca.testing.addressing import gid
from softhca.testing.ends import RC, UD


def late(number, frame):
    """A signal handler, which is called with the frame that it has interrupted."""
    raise {"time": TimeoutError, "value": ValueError}[number]


@pytest.mark.parametrize("kind", ["time", "value"])
def test_what_a_signal_handler_raises_in_a_command_is_no_refusal(end, monkeypatch, kind):
    monkeypatch.setitem(
        HANDLERS, control.ALLOC_PD, lambda adapter, host, fields, now: late(kind, sys._getframe())
    )
    with pytest.raises((TimeoutError, ValueError)):
        execute(end.node.adapter, None, control.ALLOC_PD, {}, 0)


def test_queries_answer_for_port_one_only(end):
    for query in (
        end.device.query_port,
        lambda port: end.device.query_gid(port, 0),
        lambda port: end.device.query_pkey(port, 0),
    ):
        query(1)
        for port in (0, 2, 255, 256, -1):
            refused(end, errno.EINVAL, query, port)


def test_tables_end_where_the_port_says(end):
    port = end.device.query_port(1)
    assert end.device.query_gid(1, 0) == gid(1)
    assert end.device.query_gid(1, port["gid_tbl_len"] - 1) == bytes(16)
    assert end.device.query_pkey(1, 0) == 0xFFFF
    assert end.device.query_pkey(1, port["pkey_tbl_len"] - 1) == 0
    refused(end, errno.EINVAL, end.device.query_gid, 1, port["gid_tbl_len"])
    refused(end, errno.EINVAL, end.device.query_pkey, 1, port["pkey_tbl_len"])


def test_what_is_in_use_cannot_go(end):
    srq = end.device.create_srq(end.pd, 8, 1)
    qp = end.qp(srq=srq)
    refused(end, errno.EBUSY, end.device.dealloc_pd, end.pd)
    refused(end, errno.EBUSY, end.cq.destroy)
    refused(end, errno.EBUSY, srq.destroy)
    qp.destroy()
    end.cq.destroy()
    refused(end, errno.EBUSY, end.device.dealloc_pd, end.pd)
    srq.destroy()
    end.device.dereg_mr(end.key.handle)
    end.device.dealloc_pd(end.pd)
    assert set(census(end).values()) == {0}


def test_an_address_handle_holds_its_domain(end):
    pd = end.device.alloc_pd()
    ah = end.device.create_ah(pd, {"dgid": gid(2), "is_global": 1, "port_num": 1})
    assert end.node.adapter.address_handle(ah).pd == pd
    refused(end, errno.EBUSY, end.device.dealloc_pd, pd)
    end.device.destroy_ah(ah)
    assert end.node.adapter.address_handle(ah) is None
    end.device.dealloc_pd(pd)


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (Kind.PD, lambda end: end.device.alloc_pd()),
        (Kind.CQ, lambda end: end.device.create_cq(1)),
        (Kind.QP, lambda end: end.qp()),
        (Kind.SRQ, lambda end: end.device.create_srq(end.pd, 1, 1)),
        (Kind.AH, lambda end: end.device.create_ah(end.pd, {"dgid": gid(2), "is_global": 1, "port_num": 1})),
        (Kind.MR, lambda end: end.device.reg_mr(end.pd, 0, 10, 1, buffer=bytearray(10))),
    ],
)
def test_the_limits_of_the_adapter_are_kept(end, kind, make):
    limit = {Kind.SRQ: 2, Kind.AH: 2}.get(kind, 4)
    while census(end)[kind] < limit:
        make(end)
    refused(end, errno.ENOMEM, make, end)


def test_a_number_that_does_not_exist_is_refused(end):
    device = end.device
    refused(end, errno.EINVAL, device.dealloc_pd, 99)
    for command, field in (
        (control.DESTROY_CQ, "cq"),
        (control.DESTROY_QP, "qp_num"),
        (control.DESTROY_SRQ, "srq"),
        (control.DESTROY_AH, "ah"),
        (control.DEREG_MR, "lkey"),
        (control.QUERY_QP, "qp_num"),
        (control.QUERY_SRQ, "srq"),
    ):
        refused(end, errno.EINVAL, call, end, command, **{field: 0xABCDE})
    refused(end, errno.EINVAL, device.query_counters, qp=0xABCDE)
    refused(end, errno.EINVAL, device.dereg_mr, 0xABCDE)
    refused(end, errno.EINVAL, device.create_qp, 99, RC, end.cq, end.cq, None, 1, 1, 1, 1, 0, False)


def test_another_hosts_numbers_mean_nothing(end):
    other_host = end.node.open()
    for command, fields in (
        (control.DESTROY_CQ, {"cq": end.cq.number}),
        (control.DEALLOC_PD, {"pd": end.pd}),
        (control.DEREG_MR, {"lkey": end.key.lkey}),
    ):
        with pytest.raises(DriverError) as error:
            other_host.session.call(command, **fields)
        assert error.value.errno == errno.EINVAL
    assert end.memory is not None
    end.device.dereg_mr(end.key.handle)


@pytest.mark.parametrize(
    ("capability", "value"),
    [
        ("send", 65),
        ("receive", 65),
        ("sge", 5),
        ("inline", 129),
        ("send", -1),
    ],
)
def test_capabilities_beyond_the_limits_are_refused(end, capability, value):
    refused(end, errno.EINVAL, end.qp, **{capability: value})


def test_the_adapter_checks_capabilities_itself(end):
    fields = {
        "qp_type": RC,
        "pd": end.pd,
        "send_cq": end.cq.number,
        "recv_cq": end.cq.number,
        "max_send_wr": 65,
    }
    refused(end, errno.EINVAL, call, end, control.CREATE_QP, **fields)
    fields["max_send_wr"] = 1
    refused(end, errno.EINVAL, call, end, control.CREATE_QP, **fields)  # there are no rings
    refused(end, errno.EINVAL, call, end, control.CREATE_CQ, entries=1001)
    refused(end, errno.EINVAL, call, end, control.CREATE_CQ, entries=4, body_bytes=4 * 48, frames=[(1, 2)])
    refused(
        end, errno.EFAULT, call, end, control.CREATE_CQ, entries=4, body_bytes=4 * 48, frames=[(0xFFFFFF0, 3)]
    )
    refused(end, errno.EINVAL, call, end, control.CREATE_SRQ, pd=end.pd, max_wr=17, max_sge=1)


@pytest.mark.parametrize("kind", [0, 1, 7, 255])
def test_other_queue_pair_types_are_not_supported(end, kind):
    refused(end, errno.EOPNOTSUPP, end.qp, kind)


@pytest.mark.parametrize("entries", [0, -1, 1001])
def test_a_completion_queue_has_a_sensible_size(end, entries):
    refused(end, errno.EINVAL, end.device.create_cq, entries)


@pytest.mark.parametrize(
    ("max_wr", "max_sge", "limit"), [(0, 1, 0), (17, 1, 0), (1, 0, 0), (1, 5, 0), (4, 1, 5)]
)
def test_a_shared_receive_queue_has_a_sensible_size(end, max_wr, max_sge, limit):
    refused(end, errno.EINVAL, end.device.create_srq, end.pd, max_wr, max_sge, limit)


# queue pair attributes


@pytest.mark.parametrize(
    "change",
    [
        {"port_num": 2},
        {"port_num": 0},
        {"pkey_index": 1},
        {"qkey": 1},
        {"nonsense": 1},
        {"qp_state": 7},
        {"qp_state": 3},
        {"cur_qp_state": 3},
    ],
)
def test_wrong_attributes_for_init_change_nothing(end, change):
    qp = end.qp()
    refused(end, errno.EINVAL, qp.modify, {**INIT, **change})
    assert qp.query()["qp_state"] == qp.state == 0
    qp.modify(INIT)


@pytest.mark.parametrize(
    "change",
    [
        {"path_mtu": 4},
        {"path_mtu": 0},
        {"max_dest_rd_atomic": 17},
        {"min_rnr_timer": 32},
        {"rq_psn": 1 << 24},
        {"ah_attr": {**VECTOR, "sgid_index": 4}},
        {"ah_attr": {**VECTOR, "dgid": bytes(16)}},
        {"ah_attr": {**VECTOR, "port_num": 3}},
        {"ah_attr": {**VECTOR, "sl": 16}},
        {"sq_psn": 1},
    ],
)
def test_wrong_attributes_for_rtr_change_nothing(end, change):
    qp = end.qp()
    qp.modify(INIT)
    refused(end, errno.EINVAL, qp.modify, {**RTR, **change})
    assert qp.query()["qp_state"] == 1
    qp.modify(RTR)
    qp.modify(RTS)
    attributes = qp.query()
    assert {name: attributes[name] for name in RTS} == RTS
    assert attributes["ah_attr"]["dgid"] == gid(2)
    assert attributes["max_send_wr"] == 16


def test_an_alternate_path_is_loaded_and_goes_with_a_reset(end):
    qp = end.qp()
    qp.modify(INIT)
    qp.modify({**RTR, "alt_ah_attr": VECTOR, "alt_port_num": 1, "alt_timeout": 7})
    assert (qp.query()["alt_port_num"], qp.query()["alt_timeout"]) == (1, 7)
    qp.modify({"qp_state": 0})
    assert (qp.query()["alt_port_num"], qp.query()["alt_timeout"]) == (0, 0)


def test_a_datagram_queue_pair_has_the_ports_mtu(end):
    qp = end.qp(UD)
    qp.modify({"qp_state": 1, "pkey_index": 0, "port_num": 1, "qkey": 3})
    assert end.node.adapter.queue_pairs[qp.number].path_mtu_bytes == 1024


# multicast


def test_groups_are_of_datagram_queue_pairs_and_bounded(end):
    group = b"\xff\x0e" + bytes(13) + b"\1"
    connected, first = end.qp(), end.qp(UD)
    refused(end, errno.EINVAL, end.device.attach_mcast, connected.number, group)
    refused(end, errno.EINVAL, end.device.attach_mcast, first.number, gid(5))
    end.device.attach_mcast(first.number, group)
    end.device.attach_mcast(first.number, group)
    refused(end, errno.ENOMEM, end.device.attach_mcast, first.number, group[:-1] + b"\2")
    end.device.attach_mcast(end.qp(UD).number, group)
    refused(end, errno.ENOMEM, end.device.attach_mcast, end.qp(UD).number, group)
    refused(end, errno.EINVAL, end.device.detach_mcast, connected.number, group)
    first.destroy()
    assert [qp.number for qp in end.node.adapter.groups.members(group)] != [first.number]
    assert len(end.node.adapter.groups.members(group)) == 1
