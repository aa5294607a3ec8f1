"""Control commands and the hosts that give them: what goes with a host, what it is told, and what waits."""

import errno
import os

from command_end import VECTOR, call, census, refused, run

from softhca.adapter.resources import Kind
from softhca.memory.regions import REFUSED_KEY
from softhca.queues import control_fields as control
from softhca.queues.layout import EVENT_ENTRIES
from softhca.testing.ends import UD, WRITE, End, pair, post


def test_a_host_that_leaves_takes_all_that_it_owned():
    world, left, left_qp, right, _right_qp = pair()
    other = End(left.node)
    other.qp()
    srq = left.device.create_srq(left.pd, 4, 1)
    left.qp(srq=srq)
    group = b"\xff\x0e" + bytes(13) + b"\1"
    listener = left.qp(UD)
    left.device.attach_mcast(listener.number, group)
    left.device.create_ah(left.pd, VECTOR)
    left.device.register_agent(1, 0x32, 1, {1}, 4)
    left.device.create_srq(left.pd, 4, 1, 0, left.cq, left.device.open_xrcd())
    left.device.create_ee(left.device.alloc_rdd())
    post(left_qp, WRITE, [left.sge(0, 5000)], va=right.va, rkey=right.key.rkey)
    key = left.key.lkey
    left.device.close()
    adapter = left.node.adapter
    assert {kind: adapter.resources.count(kind) for kind in Kind} == {
        Kind.FLOW: 0,
        Kind.QP: 1,
        Kind.RWQ_IND_TABLE: 0,
        Kind.WQ: 0,
        Kind.AH: 0,
        Kind.SRQ: 0,
        Kind.XRCD: 0,
        Kind.CM: 0,
        Kind.EEC: 0,
        Kind.RDD: 0,
        Kind.CQ: 1,
        Kind.MW: 0,
        Kind.DM: 0,
        Kind.FAST_MR: 0,
        Kind.MR: 1,
        Kind.ARENA: 1,
        Kind.PD: 1,
        Kind.AGENT: 0,
    }
    assert adapter.regions.find(key, left.pd, left.va, 1, 0) is None
    assert adapter.regions.refusal == REFUSED_KEY
    assert adapter.groups.members(group) == []
    assert list(adapter.hosts) == [2]
    world.run(limit_ns=10**9)
    assert other.device.query_device()["max_qp"] == 16_384
    world.close()
    assert {adapter.resources.count(kind) for kind in Kind} == {0}
    assert adapter.queue_pairs == adapter.handles == {}


def test_what_a_host_had_means_nothing_once_it_has_left(end):
    adapter, before = end.node.adapter, len(os.listdir("/proc/self/fd"))
    other = End(end.node)
    file = {"device": 1, "inode": 2}
    call(other, control.OPEN_XRCD, **file, flags=control.XRCD_FILE | control.XRCD_CREATE)
    call(end, control.OPEN_XRCD, **file, flags=control.XRCD_FILE)
    other.device.alloc_dm(4096)
    lkey = other.key.lkey
    assert adapter.regions.live_key(lkey)
    other.device.close()
    assert adapter.regions.live_key(lkey) is None
    assert len(os.listdir("/proc/self/fd")) == before
    assert census(end)[Kind.XRCD] == 1


def test_the_domain_of_a_file_goes_with_the_last_host_that_has_it(end):
    other = End(end.node)
    file = {"device": 1, "inode": 2}
    call(other, control.OPEN_XRCD, **file, flags=control.XRCD_FILE | control.XRCD_CREATE)
    other.device.close()
    refused(end, errno.EAGAIN, call, end, control.OPEN_XRCD, **file, flags=control.XRCD_FILE)


def test_a_peer_that_left_is_noticed_and_everything_flushed():
    world, left, left_qp, right, _ = pair(timeout=8, retry_cnt=2)
    right.device.close()
    for wr_id in range(3):
        post(left_qp, WRITE, [left.sge(0, 10)], wr_id=wr_id, va=right.va, rkey=right.key.rkey)
    assert [(c.wr_id, c.status) for c in left.poll(3)] == [(0, 12), (1, 5), (2, 5)]
    assert left_qp.query()["qp_state"] == 6
    world.close()


def test_what_waits_to_be_told_goes_with_its_element(end):
    srq, qp, cq = end.device.create_srq(end.pd, 4, 1), end.qp(), end.device.create_cq(4)
    host = end.node.adapter.hosts[1]
    for _ in range(EVENT_ENTRIES):
        host.report_event(control.EVENT_PORT_ACTIVE, 1)
    told = [(kind, cq.number) for kind in sorted(control.CQ_EVENTS)]
    told += [(kind, srq.number) for kind in sorted(control.SRQ_EVENTS)]
    told += [(kind, qp.number) for kind in sorted(control.QP_EVENTS)]
    assert len(told) == 11
    for kind, number in told:
        host.report_event(kind, number)
    host.report_event(control.EVENT_CQ_ERR, end.cq.number)
    call(end, control.DESTROY_CQ, cq=cq.number)
    assert host.events.waiting() == 10
    call(end, control.DESTROY_SRQ, srq=srq.number)
    assert host.events.waiting() == 8
    call(end, control.DESTROY_QP, qp_num=qp.number)
    assert host.events.waiting() == 1


def test_a_doorbell_of_a_queue_pair_that_went_is_the_next_ones(end):
    host = end.node.adapter.hosts[1]
    first, second = end.qp(), end.qp()
    slots = list(host.queue_pairs)
    assert [queue_pair.number for queue_pair in slots] == [first.number, second.number]
    first.destroy()
    assert host.queue_pairs == [None, slots[1]]
    third = end.qp()
    assert [queue_pair.number for queue_pair in host.queue_pairs] == [third.number, second.number]


def test_what_elements_of_a_host_tell_stands_in_its_ring_and_it_is_notified(end):
    srq, cq = end.device.create_srq(end.pd, 4, 1), end.device.create_cq(4)
    adapter = end.node.adapter
    host = adapter.hosts[1]
    queue = adapter.resources.find(Kind.CQ, cq.number, 1).element
    shared = adapter.resources.find(Kind.SRQ, srq.number, 1).element
    for _ in range(EVENT_ENTRIES):
        host.report_event(control.EVENT_PORT_ACTIVE, 1)
    tell = (
        (host.completion_event, queue), (host.overflow, queue),
        (host.limit_reached, shared), (host.srq_error, shared),
    )  # fmt: skip
    adapter.take_notifications()
    for number, (say, element) in enumerate(tell, 1):
        say(element)
        assert host.events.waiting() == number
        assert adapter.take_notifications() == [1]
        assert adapter.take_notifications() == []


def test_a_command_that_waits_is_known_until_it_is_served(end):
    adapter = end.node.adapter
    assert (adapter.ring(0), adapter.commanded) == (False, 0)
    end.device.session.channel.commands.send(control.ALLOC_PD, 77, {})
    assert (adapter.ring(0), adapter.commanded) == (False, 1)
    assert (adapter.ring(0), adapter.commanded) == (False, 1)
    assert (adapter.command(0), adapter.commanded) == (True, 0)
    assert (adapter.ring(0), adapter.command(0), adapter.commanded) == (False, False, 0)


def test_a_command_that_is_written_behind_the_look_at_the_doorbells_waits_for_the_next_one(end):
    adapter, commands = end.node.adapter, end.device.session.channel.commands
    commands.send(control.ALLOC_PD, 77, {})
    adapter.ring(0)
    commands.send(control.ALLOC_PD, 78, {})
    assert adapter.command(0)
    assert end.device.session.channel.replies.take().tag == 77
    assert end.device.session.channel.replies.take() is None
    assert adapter.kick(0)
    assert end.device.session.channel.replies.take().tag == 78


def test_data_access_is_allowed_or_not_and_nothing_else(end):
    assert [run(end, control.SET_DATA_ACCESS, allowed=word)[0] for word in (2, 255)] == [errno.EINVAL] * 2
    tpt = end.node.adapter.regions.tpt
    for allowed, was in ((0, 1), (0, 0), (1, 0), (1, 1)):
        assert run(end, control.SET_DATA_ACCESS, allowed=allowed) == (0, {"was_allowed": was})
        assert bool(tpt.stopped) == (not allowed)


def test_a_host_that_goes_stops_data_access_no_longer(end):
    other_host = end.node.open()
    tpt = end.node.adapter.regions.tpt
    assert other_host.set_data_access(False)
    assert run(end, control.SET_DATA_ACCESS, allowed=1) == (0, {"was_allowed": 1})
    assert tpt.stopped
    other_host.close()
    assert not tpt.stopped
