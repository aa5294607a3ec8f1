"""Control commands that no driver would send, and rings that their host breaks."""

import errno
from types import SimpleNamespace

import pytest
from command_end import INIT, RTR, call, census, refused
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.adapter.commands import HANDLERS
from softhca.adapter.resources import Kind
from softhca.driver.session import prefixed
from softhca.machine.primitives import store64
from softhca.queues import control_fields as control
from softhca.queues.control_fields import COMMANDS
from softhca.queues.layout import EVENT_ENTRIES, RING_HEAD_AT
from softhca.queues.qp_attributes import MASK
from softhca.queues.ring import plan
from softhca.testing.addressing import gid
from softhca.testing.ends import RC, UD, End
from softhca.testing.network import Network
from suite_plan import random_inputs


def test_a_ring_is_no_longer_than_the_adapters_limit(end):
    """The limits are 64 work requests, 16 shared receives and 1,000 completions."""
    pages = end.device.session.memory.allocate(64, contiguous=True)

    def ring(entries, entry_bytes, body_bytes=0):
        body_bytes = body_bytes or entries * entry_bytes
        frames = [(pages[0], plan(entries, body_bytes))]
        return {"entries": entries, "body_bytes": body_bytes, "frames": frames}

    numbers = {"qp_type": RC, "pd": end.pd, "send_cq": end.cq.number, "recv_cq": end.cq.number}
    numbers.update(max_send_wr=2, max_recv_wr=2, max_send_sge=1, max_recv_sge=1)
    for side, other, size in (("send_", "recv_", 80), ("recv_", "send_", 32)):
        fits = prefixed(other, ring(2, 112 - size))
        for wrong in (ring(65, size), ring(1, size), ring(2, size, 4 * size), ring(2, size, size)):
            refused(
                end, errno.EINVAL, call, end, control.CREATE_QP, **numbers, **fits, **prefixed(side, wrong)
            )
        call(end, control.CREATE_QP, **numbers, **fits, **prefixed(side, ring(64, size)))
    for wrong in (ring(17, 32), ring(3, 32), ring(4, 32, 4 * 32 + 1), ring(4, 16, 4 * 32 - 1)):
        fields = {"pd": end.pd, "max_wr": 4, "max_sge": 1, **wrong}
        refused(end, errno.EINVAL, call, end, control.CREATE_SRQ, **fields)
    call(end, control.CREATE_SRQ, pd=end.pd, max_wr=4, max_sge=1, **ring(16, 32))
    for wrong in (ring(1001, 48), ring(4, 48, 4 * 48 + 1), ring(4, 48, 4 * 48 - 1)):
        refused(end, errno.EINVAL, call, end, control.CREATE_CQ, **wrong)
        refused(end, errno.EINVAL, call, end, control.RESIZE_CQ, cq=end.cq.number, **wrong)
    call(end, control.CREATE_CQ, **ring(1000, 48))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError, errno.EINVAL),
        (OverflowError, errno.EINVAL),
        (TypeError, errno.EINVAL),
        (KeyError, errno.EINVAL),
        (IndexError, errno.EINVAL),
        (MemoryError, errno.ENOMEM),
        (OSError(errno.EBUSY, "busy"), errno.EBUSY),
        (OSError, errno.EIO),
    ],
)
def test_whatever_a_command_fails_with_is_a_refusal(end, monkeypatch, error, code):
    def fail(*_):
        raise error

    monkeypatch.setitem(HANDLERS, control.ALLOC_PD, fail)
    refused(end, code, end.device.alloc_pd)


WORDS = {"u8": 8, "u16": 16, "u32": 32, "u64": 64}


@st.composite
def commands_of(draw, numbers, frames):
    """A command whose fields are often right and sometimes anything."""
    command = draw(st.sampled_from(sorted(COMMANDS)))
    values = {}
    for name, kind in COMMANDS[command][1]:
        if kind in WORDS:
            top = (1 << WORDS[kind]) - 1
            likely = [value for value in numbers.get(name, (0, 1, 2, 3, 4096)) if value <= top]
            values[name] = draw(
                st.one_of(st.sampled_from(likely), st.sampled_from(likely), st.integers(0, 8),
                          st.integers(0, top), st.sampled_from([top, top >> 1, top ^ 0xFF]))
            )
        elif kind == "gid":
            values[name] = draw(st.sampled_from([gid(1), gid(2), bytes(16), b"\xff\x0e" + bytes(14)]))
        elif kind == "runs":
            word = st.integers(0, 0xFFFFFFFF)
            run = st.one_of(st.sampled_from(frames), st.tuples(word, word))
            values[name] = draw(st.lists(run, max_size=3))
    return command, values


@settings(max_examples=random_inputs(60), deadline=None)
@given(st.data())
def test_every_command_with_any_fields_has_one_reply(data):
    world = Network()
    end = End(world.add(1, max_qp=4, max_cq=4, max_qp_wr=8, max_cqe=64, max_mr=4, max_ah=4))
    qp = end.qp(send=4, receive=4)
    qp.modify(INIT)
    if data.draw(st.booleans()):
        qp.modify(RTR)
    srq = end.device.create_srq(end.pd, 4, 1)
    channel = end.device.session.channel
    first = end.device.session.memory.allocate(16, contiguous=True)[0]
    (slot,) = end.node.adapter.hosts[1].arenas
    pages = end.node.adapter.hosts[1].arenas[slot].element[1]
    numbers = {
        "pd": [end.pd], "lkey": [end.key.lkey], "qp_num": [qp.number], "element": [qp.number, 1],
        "cq": [end.cq.number], "send_cq": [end.cq.number], "recv_cq": [end.cq.number],
        "srq": [srq.number, 0], "slot": [slot, 500], "pages": [pages, 5000],
        "address": [end.device.session.memory.attached(slot * 4096)[2]],
        "entries": [4], "send_entries": [4], "recv_entries": [4], "body_bytes": [4 * 48, 4 * 32],
        "send_body_bytes": [4 * 80], "recv_body_bytes": [4 * 32],
        "max_send_wr": [4], "max_recv_wr": [4], "max_send_sge": [1], "max_recv_sge": [1],
        "max_inline_data": [0], "create_flags": [0], "xrcd": [0], "comp_vector": [0], "flags": [0, 1, 7],
        "channel": [0, 1],
        "qp_type": [RC, UD], "qp_state": range(7), "attr_mask": [*MASK.values(), 0x1FFFFF, 0xBFFF],
        "length": [4096, 8192], "access": [0, 15], "page_offset": [0], "va": [0, (1 << 64) - 4096],
        "is_global": [1], "sgid_index": [0], "port_num": [1], "ah_port_num": [1], "ah_is_global": [1],
        "ah_sgid_index": [0],
    }
    frames = [(first, 3), (first, 1), (first + 4, 2), (first, 12)]
    for tag in range(data.draw(st.integers(1, 12))):
        command, values = data.draw(commands_of(numbers, frames))
        before = census(end)
        channel.commands.send(command, tag, values)
        end.node.adapter.kick(world.now)
        reply = channel.replies.take()
        assert (reply.tag, reply.command) == (tag, command)
        assert channel.replies.take() is None
        if reply.errno:
            assert census(end) == before
    world.close()
    assert set(census(end).values()) == {0}


@settings(max_examples=random_inputs(200), deadline=None)
@given(st.data())
def test_no_command_whatever_raises_in_the_engine(data):
    end, replies = COMMAND_END, COMMAND_END.device.session.channel.replies
    channel = end.device.session.channel
    raw = data.draw(st.binary(min_size=1, max_size=200))
    if data.draw(st.booleans()):
        number = data.draw(st.sampled_from(sorted(set(COMMANDS) - {control.DETACH_ARENA})))
        values = {}
        for name, kind in COMMANDS[number][1]:
            if kind in ("u8", "u16", "u32", "u64"):
                bits = int(kind[1:])
                values[name] = data.draw(st.one_of(st.integers(0, 5), st.integers(0, (1 << bits) - 1)))
            elif kind == "runs":
                word = st.integers(0, 0xFFFFFFFF)
                values[name] = data.draw(st.lists(st.tuples(word, word), max_size=3))
            elif kind == "gid":
                values[name] = data.draw(st.sampled_from([gid(1), gid(2), bytes(16), b"\xff" * 16]))
        channel.commands.send(number, 1, values)
    else:
        channel.commands._push(raw)
    end.node.adapter.kick(end.network.now)
    assert replies.take() is not None
    assert replies.take() is None


@pytest.fixture(autouse=True, scope="module")
def _command_world():
    global COMMAND_END
    world = Network()
    COMMAND_END = End(world.add(1))
    yield
    world.close()


def test_a_host_that_breaks_its_command_ring_is_served_no_more_and_others_are(end):
    other = End(end.node)
    layout = end.device.session.channel.commands.producer.layout
    store64(layout.control, 1 << 40)
    qp = other.qp()
    end.node.adapter.kick(end.network.now)
    host = end.node.adapter.hosts[1]
    assert host.commands.broken
    assert_is_out(end, host)
    assert other.device.query_device()["max_qp"] == 4
    assert not end.node.adapter.hosts[2].failed
    qp.destroy()
    store64(layout.control, 0)


def test_a_host_that_breaks_its_reply_ring_has_no_command_carried_out_without_a_reply(end):
    channel, adapter, host = end.device.session.channel, end.node.adapter, end.node.adapter.hosts[1]
    domains = adapter.resources.count(Kind.PD)
    store64(channel.replies.consumer.layout.control + RING_HEAD_AT, 0xC1C1C1C1C1C1C1C1)
    channel.commands.send(control.ALLOC_PD, 1, {})
    assert not adapter.kick(end.network.now)
    assert host.replies.broken
    assert adapter.resources.count(Kind.PD) == domains
    assert_is_out(end, host)
    store64(channel.replies.consumer.layout.control + RING_HEAD_AT, 0)


def assert_is_out(end, host):
    """The host is told once, and neither its commands nor its doorbells are looked at any more."""
    channel, adapter, rung = end.device.session.channel, end.node.adapter, []
    assert host.failed
    adapter.take_notifications()
    adapter.kick(end.network.now)
    assert adapter.take_notifications() == []
    assert [channel.events.take(), channel.events.take()] == [(control.EVENT_DEVICE_FATAL, 0, 0), None]
    host.queue_pairs.append(SimpleNamespace(doorbell=rung.append))
    channel.doorbells.ring(len(host.queue_pairs) - 1)
    channel.commands.send(control.ALLOC_PD, 1, {})
    adapter.kick(end.network.now)
    adapter.expire(end.network.now)
    assert channel.replies.take() is None
    assert rung == []


@pytest.mark.parametrize("serve", ["kick", "expire"])
def test_a_host_that_breaks_its_doorbells_is_served_no_more(end, serve):
    adapter, host = end.node.adapter, end.node.adapter.hosts[1]
    store64(end.device.session.channel.doorbells.control, 1 << 40)
    assert not host.failed
    getattr(adapter, serve)(end.network.now)
    assert_is_out(end, host)


def test_a_host_that_breaks_its_event_ring_is_served_no_more(end):
    adapter, host = end.node.adapter, end.node.adapter.hosts[1]
    store64(host.events.producer.layout.control + 64, 1 << 40)
    for _ in range(EVENT_ENTRIES + 1):
        host.report_event(control.EVENT_PORT_ACTIVE, 1)
    adapter.kick(end.network.now)
    assert host.failed
    assert host.events.waiting() == 0
