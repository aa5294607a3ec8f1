"""What single commands count against, and what goes with a host or an element."""

import errno

import pytest
from rd_trio import Trio

from softhca.adapter import commands
from softhca.adapter.commands import execute
from softhca.adapter.resources import Kind
from softhca.queues import control_fields as control
from softhca.queues.control_fields import XRCD_CREATE, XRCD_EXCLUSIVE
from softhca.queues.layout import WC_REM_OP_ERR, WC_SUCCESS
from softhca.testing.ends import RC, READ, SEND, WRITE, End, pair, post
from softhca.testing.network import Network
from softhca.testing.reliable_datagrams import send
from softhca.transport.states import ERR, RTS
from softhca.wire import opcodes
from softhca.wire.burst import Burst


def caller(node):
    """Commands of the first host of a node: errno and reply."""
    adapter = node.adapter
    return lambda command, **fields: execute(adapter, adapter.hosts[1], command, fields, 0)[:2]


@pytest.fixture
def world():
    with Network() as network:
        yield network


def test_what_a_turn_sends_counts_against_its_level_while_a_lower_one_waits():
    network, left, qp, right, _ = pair(RC, Network(), 1 << 16, {"active_mtu": 5})
    adapter = left.node.adapter
    scheduler = adapter.port.scheduler
    flow = adapter.queue_pairs[qp.number].flow
    flow.service_level = 3
    post(qp, WRITE, [left.sge(0, 4096)], va=right.va, rkey=right.key.rkey)
    adapter.kick(network.now)
    scheduler.put(adapter.port.management[1])  # of level 0, with nothing to say
    burst = Burst()
    assert adapter.transmit(1, burst, network.now)
    assert scheduler.high_bytes == burst.length > 0
    network.close()


def test_a_domain_of_reliable_datagrams_counts_among_the_domains(world):
    end = End(world.add(1, max_rdd=2, max_ee=1))
    do = caller(end.node)
    (first, reply), (second, other), (third, _) = (do(control.ALLOC_RDD) for _ in range(3))
    assert [first, second, third] == [0, 0, errno.ENOMEM]
    assert do(control.CREATE_EE, rdd=reply["rdd"])[0] == 0
    assert do(control.DEALLOC_RDD, rdd=other["rdd"])[0] == 0
    assert do(control.ALLOC_RDD)[0] == 0


def test_a_table_of_work_queues_counts_among_the_tables(world):
    end = End(world.add(1, max_rwq_ind_table=1, max_wq=4, ethernet_frames=True))
    queue = end.device.create_wq(end.pd, end.cq, 4, 1)
    do = caller(end.node)
    fields = {"log_ind_tbl_size": 0, "wqs": [(queue.number, 1)]}
    assert [do(control.CREATE_RWQ_IND_TABLE, **fields)[0] for _ in range(2)] == [0, errno.ENOMEM]


@pytest.mark.parametrize("flags", [0, XRCD_CREATE, XRCD_CREATE | XRCD_EXCLUSIVE])
def test_a_domain_without_a_file_is_of_its_host_alone(world, flags):
    end = End(world.add(1))
    do = caller(end.node)
    replies = [do(control.OPEN_XRCD, flags=flags, device=1, inode=2) for _ in range(2)]
    assert [code for code, _ in replies] == [0, 0]
    found = [end.node.adapter.resources.get(Kind.XRCD, reply["xrcd"]).element for _, reply in replies]
    assert found[0].domain is not found[1].domain


def test_a_shared_receive_queue_has_no_doorbell(world, monkeypatch):
    end = End(world.add(1))
    told = []
    handle = commands.HANDLERS[control.CREATE_SRQ]

    def handler(*arguments):
        told.append(handle(*arguments))
        return told[-1]

    monkeypatch.setitem(commands.HANDLERS, control.CREATE_SRQ, handler)
    end.device.create_srq(end.pd, 16, 2, 0)
    assert [reply["doorbell"] for reply in told] == [0xFFFFFFFF]


def test_an_end_to_end_context_that_goes_waits_for_no_memory(trio):
    three = trio()
    adapter = three.left.node.adapter
    number, context = next(iter(adapter.ee_contexts.items()))
    adapter.memory_waiters.put(context.flow, 0)
    assert len(adapter.memory_waiters) == 1
    assert caller(three.left.node)(control.DESTROY_EE, ee_num=number)[0] == 0
    assert len(adapter.memory_waiters) == 0


def test_the_end_to_end_contexts_of_a_host_go_with_it():
    three = Trio()
    adapter = three.left.node.adapter
    contexts = list(adapter.ee_contexts.values())
    assert contexts
    adapter.detach_host(1)
    assert adapter.ee_contexts == {}
    assert all(context.flow.closed for context in contexts)


def test_a_wrong_receive_of_a_reliable_datagram_ends_its_queue_pair_and_not_the_context(trio):
    three = trio()
    right = three.rights[0]
    three.peers[0].post_recv(1, [(right.va, 64, 12345)])
    send(three.qp, SEND, [three.left.sge(0, 10)], three.ees[0], three.peers[0], wr_id=7)
    assert three.done(1) == [(7, WC_REM_OP_ERR)]
    assert right.node.adapter.queue_pairs[three.peers[0].number].state == ERR
    assert three.theirs[0].query()["qp_state"] == RTS


def test_a_read_of_a_message_that_is_over_is_not_answered_again(trio):
    three = trio()
    right = three.rights[0]
    for number in range(2):
        send(three.qp, READ, [three.left.sge(0, 64)], three.ees[0], three.peers[0], wr_id=number,
             va=right.va, rkey=right.key.rkey)  # fmt: skip
        assert three.done(1) == [(number, WC_SUCCESS)]
    reads = [
        sent for sent in three.packets
        if sent.packet.transport.bth.opcode == opcodes.RD_RDMA_READ_REQUEST
    ]  # fmt: skip
    assert len(reads) == 2
    context = next(iter(right.node.adapter.ee_contexts.values()))
    sent = context.counters.packets_sent
    three.inject(reads[0])
    three.network.run()
    assert (context.counters.drops_resources, context.counters.packets_sent) == (1, sent)
    three.inject(reads[1])
    three.network.run()
    assert (context.counters.drops_resources, context.counters.packets_sent) == (1, sent + 1)
