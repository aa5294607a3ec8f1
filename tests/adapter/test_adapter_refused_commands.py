"""Commands as a host may write them that has no driver's checks before it: what each is refused with, what it
costs, and what it leaves as it was."""

import errno

import pytest

from softhca.adapter.config import PortConfig
from softhca.adapter.profile import Profile
from softhca.driver.errors import DriverError
from softhca.machine.primitives import address_of
from softhca.queues import control_fields as control
from softhca.queues.control import encode_command
from softhca.queues.cqe import CQE_BYTES
from softhca.queues.states import INIT
from softhca.queues.wqe import receive_bytes, send_bytes
from softhca.testing.addressing import gid
from softhca.testing.ends import ALL_RIGHTS, LOCAL_WRITE, RAW, RC, UC, UD, End
from softhca.testing.network import Network
from softhca.wire import drops

VECTOR = {"dgid": gid(2), "is_global": 1, "port_num": 1, "hop_limit": 1}
TO_INIT = {"qp_state": INIT, "pkey_index": 0, "port_num": 1, "qp_access_flags": 0}
TO_RTR = {
    "qp_state": 2, "ah_attr": VECTOR, "path_mtu": 1, "dest_qp_num": 5, "rq_psn": 0, "max_dest_rd_atomic": 1,
    "min_rnr_timer": 1,
}  # fmt: skip
TO_RTS = {"qp_state": 3, "sq_psn": 9, "timeout": 14, "retry_cnt": 7, "rnr_retry": 7, "max_rd_atomic": 1}


@pytest.fixture
def world():
    with Network() as made:
        yield made


@pytest.fixture
def end(world):
    return End(world.add(1, max_srq_wr=16, max_srq_sge=4, max_qp_rd_atom=16))


def call(end, command, **fields):
    return end.device.session.call(command, **fields)


def refused(code, act, *arguments, **fields):
    """The text that something is refused with, for this reason."""
    with pytest.raises(DriverError) as caught:
        act(*arguments, **fields)
    assert caught.value.errno == code, caught.value
    return caught.value.message


def ring(end, entries, entry_bytes, body_bytes=0):
    """Fields of a new ring of the end's host."""
    return end.device.session.reserve_ring(entries, body_bytes or entries * entry_bytes)[1]


def prefixed(prefix, fields):
    return {prefix + name: value for name, value in fields.items()}


def shared(end, entries=4, sges=1, **fields):
    """CREATE_SRQ with a ring that fits."""
    given = {"pd": end.pd, "max_wr": entries, "max_sge": sges, **ring(end, entries, receive_bytes(sges))}
    return call(end, control.CREATE_SRQ, **{**given, **fields})["srq"]


# what a port says


def test_each_port_has_keys_of_its_own(world):
    end = End(world.add(1, further_ports=(PortConfig(gids=(gid(77),), pkeys=(0x8123, 0x7FFF)),)))
    asked = [call(end, control.QUERY_PKEY, port_num=port, index=index)["pkey"]
             for port in (1, 2) for index in (0, 1)]  # fmt: skip
    assert asked == [0xFFFF, 0, 0x8123, 0x7FFF]


@pytest.mark.parametrize(("link", "kind"), [("ipv4", 2), ("ipv6", 2), ("native", 0)])
def test_a_gid_is_one_of_roce_or_of_infiniband(link, kind):
    with Network(link=link) as world:
        end = End(world.add(1))
        assert call(end, control.QUERY_GID, port_num=1, index=0)["gid_type"] == kind


def test_a_port_counts_violations_by_their_kind_and_in_32_bits(end):
    adapter = end.node.adapter
    adapter.counters.drops_qkey = 1 << 32 | 5
    for reason in (drops.DROP_PKEY, drops.DROP_PKEY, drops.DROP_SOURCE):
        adapter.port.counters.drop(reason)
    found = call(end, control.QUERY_PORT, port_num=1)
    assert (found["qkey_viol_cntr"], found["bad_pkey_cntr"]) == (5, 2)


def test_a_table_has_no_key_beyond_either_end(end):
    port = end.node.adapter.port
    assert [port.pkey(index) for index in (-1, 0, 1, 1 << 16)] == [0, 0xFFFF, 0, 0]


def test_a_command_that_cannot_be_read_is_answered_with_what_is_wrong_with_it(end):
    channel = end.device.session.channel
    whole = encode_command(control.ALLOC_PD, 77, {})
    unknown = whole.replace(control.ALLOC_PD.to_bytes(4, "little"), b"\xff\xff\0\0", 1)
    for body, code in ((unknown, errno.EOPNOTSUPP), (whole[:5], errno.EINVAL)):
        assert channel.commands.producer.push(address_of(body, writable=False), len(body))
        end.node.adapter.kick(0)
        assert channel.replies.take().errno == code


# memory


def test_a_region_is_changed_in_something_that_there_is(end):
    given = {"lkey": end.key.lkey, "pd": end.pd, "access": ALL_RIGHTS, "frames": []}
    for flags in (0, 8, 8 | control.REREG_ACCESS):
        assert "flags" in refused(errno.EINVAL, call, end, control.REREG_MR, flags=flags, **given)
    assert call(end, control.REREG_MR, flags=control.REREG_ACCESS, **given)["lkey"]


def test_a_region_keeps_its_rights_where_only_its_domain_changes(end):
    adapter, other = end.node.adapter, end.device.alloc_pd()
    assert adapter.regions.live_key(end.key.lkey).access & ALL_RIGHTS == ALL_RIGHTS
    for flags, access, kept in (
        (control.REREG_PD, LOCAL_WRITE, ALL_RIGHTS), (control.REREG_ACCESS, LOCAL_WRITE, LOCAL_WRITE)
    ):  # fmt: skip
        key = call(end, control.REREG_MR, lkey=end.key.lkey, flags=flags, pd=other, access=access, frames=[])
        assert adapter.regions.live_key(key["lkey"]).access & ALL_RIGHTS == kept
        call(end, control.REREG_MR, lkey=key["lkey"], flags=control.REREG_PD, pd=end.pd, access=0, frames=[])


# what queues cost


def cost_of_queues(world, **queue):
    """What a queue costs the adapter, by its own account."""
    end = End(world.add(**queue))
    resources = end.node.adapter.resources
    before = resources.cost(1)

    def costs(make):
        make(end)
        return resources.cost(1) - before

    return before, costs


@pytest.mark.parametrize(
    "make",
    [
        lambda end: end.device.create_cq(4096),
        lambda end: end.device.create_srq(end.pd, 4096, 2),
        lambda end: end.qp(send=4096, receive=4096),
    ],
    ids=["cq", "srq", "qp"],
)
def test_a_queue_that_its_host_cannot_afford_is_refused(world, make):
    before, costs = cost_of_queues(world)
    cost = costs(make)
    assert cost > 0
    for less, code in ((0, 0), (1, errno.ENOMEM)):
        end = End(world.add(max_host_bytes=before + cost - less))
        if code:
            refused(code, make, end)
            assert end.node.adapter.resources.cost(1) == before
        else:
            make(end)


def test_a_queue_that_grows_costs_the_difference(world):
    _, costs = cost_of_queues(world)
    small = costs(lambda end: end.device.create_cq(256))
    before, costs = cost_of_queues(world)
    large = costs(lambda end: end.device.create_cq(4096))
    for less, code in ((0, 0), (1, errno.ENOMEM)):
        end = End(world.add(max_host_bytes=before + large - less))
        cq = end.device.create_cq(256)
        assert end.node.adapter.resources.cost(1) == before + small
        if code:
            refused(code, cq.resize, 4096)
            assert end.node.adapter.resources.cost(1) == before + small
        else:
            cq.resize(4096)
            assert end.node.adapter.resources.cost(1) == before + large


def test_a_completion_queue_has_no_flags_and_one_vector(end):
    for wrong in ({"flags": 1}, {"comp_vector": 1}, {"flags": 1, "comp_vector": 1}):
        assert "comp_vector" in refused(
            errno.EINVAL, call, end, control.CREATE_CQ, **ring(end, 4, CQE_BYTES), **wrong
        )


# shared receive queues


@pytest.mark.parametrize("wrong", [{"max_wr": 0}, {"max_wr": 17}, {"max_sge": 0}, {"max_sge": 5}])
def test_a_shared_receive_queue_is_within_the_adapters_limits(end, wrong):
    assert "max_wr, max_sge" in refused(errno.EINVAL, shared, end, **wrong)
    shared(end, entries=16, sges=4)


def test_a_shared_receive_queues_body_may_be_that_of_its_shortest_entries(end):
    for entry_bytes, fits in ((receive_bytes(1), True), (receive_bytes(1) - 1, False)):
        given = {"sges": 4, **ring(end, 4, 0, 4 * entry_bytes)}
        if fits:
            shared(end, **given)
        else:
            assert "body_bytes" in refused(errno.EINVAL, shared, end, **given)


def test_a_shared_receive_queue_holds_its_domain(end):
    pd = end.device.alloc_pd()
    number = shared(end, pd=pd)
    refused(errno.EBUSY, end.device.dealloc_pd, pd)
    call(end, control.DESTROY_SRQ, srq=number)
    end.device.dealloc_pd(pd)


def test_a_limit_is_set_with_the_queue_or_by_name_and_not_otherwise(end):
    srq, events = end.device.create_srq(end.pd, 4, 1), end.device.session.channel.events
    for number in range(4):
        srq.post(number, [end.sge(0, 8)])
    asked = {"srq": srq.number}

    def limit():
        return call(end, control.QUERY_SRQ, **asked)["srq_limit"]

    call(end, control.MODIFY_SRQ, **asked, attr_mask=control.SRQ_LIMIT, srq_limit=4)
    assert limit() == 4
    call(end, control.MODIFY_SRQ, **asked, attr_mask=0, srq_limit=1)
    for mask in (control.SRQ_MAX_WR, 4, control.SRQ_LIMIT | 4):
        assert "attr_mask" in refused(
            errno.EINVAL, call, end, control.MODIFY_SRQ, **asked, attr_mask=mask, srq_limit=1
        )
    refused(errno.EINVAL, call, end, control.MODIFY_SRQ, **asked, attr_mask=control.SRQ_LIMIT, srq_limit=5)
    assert limit() == 4
    assert events.take() is None
    refused(errno.EINVAL, shared, end, srq_limit=5)
    shared(end)
    assert events.take() is None
    number = shared(end, srq_limit=4)
    told = events.take()
    assert (told.kind, told.element) == (control.EVENT_SRQ_LIMIT_REACHED, number), "it has fewer"


def test_a_queue_of_an_xrc_domain_is_an_xrc_adapters(world):
    end = End(world.add(1, profile=Profile.of("tca+uc")))
    assert "no XRC" in refused(errno.EOPNOTSUPP, shared, end, srq_type=control.SRQT_XRC)
    assert "srq_type = 2" in refused(errno.EOPNOTSUPP, shared, end, srq_type=2)


# queue pairs


def made(end, kind=RC, **fields):
    """CREATE_QP with rings that fit."""
    given = {
        "qp_type": kind, "pd": end.pd, "send_cq": end.cq.number, "recv_cq": end.cq.number, "max_send_wr": 2,
        "max_recv_wr": 2, "max_send_sge": 1, "max_recv_sge": 1, **prefixed("send_", ring(end, 2, 80)),
        **prefixed("recv_", ring(end, 2, receive_bytes(1))),
    }  # fmt: skip
    return call(end, control.CREATE_QP, **{**given, **fields})


def test_a_queue_pair_is_made_of_what_its_service_has(end):
    rdd = call(end, control.ALLOC_RDD)["rdd"]
    for kind in (RC, UC, UD):
        assert "rdd" in refused(errno.EINVAL, made, end, kind, rdd=rdd)
        assert "xrcd" in refused(errno.EINVAL, made, end, kind, xrcd=1)
        made(end, kind)
    srq = shared(end)
    assert "srq" in refused(errno.EINVAL, made, end, control.QPT_RD, rdd=rdd, srq=srq)


def test_creation_flags_are_those_of_the_service(end):
    for flag in (1, 1 << 8, 1 << 9, 1 << 30):
        assert "no such flag" in refused(errno.EOPNOTSUPP, made, end, UC, create_flags=flag)
    for kind in (RC, UD):
        assert "UC" in refused(errno.EINVAL, made, end, kind, create_flags=control.CREATE_TELLS_LOSSES)
    number = made(end, UC, create_flags=control.CREATE_TELLS_LOSSES)["qp_num"]
    assert end.node.adapter.queue_pairs[number].tells_losses
    assert not end.node.adapter.queue_pairs[made(end, UC)["qp_num"]].tells_losses


def test_where_no_frames_leave_there_are_no_queue_pairs_of_frames(world):
    for frames in (False, True):
        end = End(world.add(ethernet_frames=frames))
        if frames:
            made(end, RAW)
        else:
            assert "Ethernet" in refused(errno.EOPNOTSUPP, made, end, RAW)


def test_queue_pairs_say_what_they_were_made_with(end):
    sizes = {"max_send_wr": 3, "max_recv_wr": 5, "max_send_sge": 2, "max_recv_sge": 4, "max_inline_data": 100}
    rings = {
        **prefixed("send_", ring(end, 3, send_bytes(2, 100))),
        **prefixed("recv_", ring(end, 5, receive_bytes(4))),
    }  # fmt: skip
    number = made(end, **sizes, **rings)["qp_num"]
    found = call(end, control.QUERY_QP, qp_num=number)
    assert {name: found[name] for name in sizes} == sizes


@pytest.mark.parametrize("wrong", [0, 6, 255])
def test_a_path_mtu_is_one_that_there_is(end, wrong):
    qp = end.qp()
    qp.modify(TO_INIT)
    assert "path_mtu" in refused(errno.EINVAL, qp.modify, {**TO_RTR, "path_mtu": wrong})
    qp.modify(TO_RTR)


def test_a_path_mtu_is_within_its_own_ports(world):
    narrow = PortConfig(gids=(gid(77),), active_mtu=2)
    end = End(world.add(1, active_mtu=5, further_ports=(narrow,)))
    for port, most in ((1, 5), (2, 2)):
        qp = end.qp()
        qp.modify({**TO_INIT, "port_num": port})
        path = {**TO_RTR, "ah_attr": {**VECTOR, "port_num": port}}
        if most < 5:
            assert "active_mtu = 2" in refused(errno.EINVAL, qp.modify, {**path, "path_mtu": most + 1})
        qp.modify({**path, "path_mtu": most})


def test_as_many_reads_are_asked_for_and_answered_as_the_adapter_has(end):
    qp = end.qp()
    qp.modify(TO_INIT)
    wrong = {"max_dest_rd_atomic": 17}
    assert "max_dest_rd_atomic = 17" in refused(errno.EINVAL, qp.modify, {**TO_RTR, **wrong})
    qp.modify({**TO_RTR, "max_dest_rd_atomic": 16})
    assert "max_rd_atomic = 17" in refused(errno.EINVAL, qp.modify, {**TO_RTS, "max_rd_atomic": 17})
    qp.modify({**TO_RTS, "max_rd_atomic": 16})


def test_a_step_that_a_state_does_not_have_says_which_rule_it_breaks(end):
    qp = end.qp()
    text = refused(errno.EINVAL, qp.modify, TO_RTR)
    qp.modify(TO_INIT)
    assert refused(errno.EINVAL, qp.modify, TO_RTS) != text
    alternate = {"alt_ah_attr": VECTOR, "alt_port_num": 1, "alt_timeout": 8, "alt_pkey_index": 0}
    assert "alt" in refused(errno.EINVAL, qp.modify, alternate)
    assert call(end, control.QUERY_QP, qp_num=qp.number)["qp_state"] == INIT
