"""A receiver knows no ring: where a message goes its sink says, which may choose by the packet."""


import pytest

from softhca.queues import cqe, wqe
from softhca.testing.transport_node import End
from softhca.transport.acknowledgement import Sender
from softhca.transport.receiving import MessageSink, ReceiveQueue
from softhca.transport.responder import Responder
from softhca.transport.sending import SendQueue
from softhca.transport.states import ERR, RC
from softhca.wire import opcodes

PMTU = 256
SIZE = 2 * PMTU + 20
COUNT = 12
EE, QKEY, SOURCE = 0x123456, 0x11223344, 0xABCDEF
TARGETS = (0x2001, 0x2002)
NOWHERE = 0x2003


class Chosen(MessageSink):
    """Several receive queues, of which ``choose`` finds a packet's."""

    def __init__(self, queues, choose):
        super().__init__()
        self.queues = queues
        self.choose = choose

    def receive_queue(self, view):
        return self.queues.get(self.choose(view))

    def flush(self, now):
        for queue in self.queues.values():
            queue.flush(now)

    def reset(self):
        for queue in self.queues.values():
            queue.reset()


class Toward(SendQueue):
    """A send queue whose requests name their target each; one is under way at a time."""

    sender = None
    aim = None

    def next(self, at_rest, now):
        self.waits = not at_rest
        request = super().next(at_rest, now) if at_rest else None
        if request is not None:
            self.aim(self.sender, request.work.remote_qpn)
        return request


class Many:
    """One connection whose messages go to several queues of its far end; which, the packets say."""

    def __init__(self, pair, service, **settings):
        self.service = service
        self.p = p = pair(pmtu=PMTU, **settings)
        left, right = p.left.qp, p.right.qp
        left.service = right.service = service
        shared = [p.b.shared_receive_queue(number) if service == opcodes.XRC else None for number in TARGETS]
        self.ends = [End(p.b, number, RC, srq=srq) for number, srq in zip(TARGETS, shared, strict=True)]
        for number in (*TARGETS, NOWHERE):
            p.by_number[number] = p.right  # as an adapter does that finds an end-to-end context by RDETH
        source = Toward(left)
        self.sender = source.sender = Sender(left, source)
        self.sender.begin(0)
        source.aim = aim_xrc if service == opcodes.XRC else aim_rd
        left.requester = self.sender
        self.sink = Chosen(
            {end.number: ReceiveQueue(end.qp) for end in self.ends},
            by_xrceth if service == opcodes.XRC else by_rdeth_and_deth,
        )
        right.responder = Responder(right, self.sink)
        right.responder.begin(0)
        right.responder.start(p.now)
        self.sender.start(p.now)

    def receive(self, which, count=1):
        """Receives of one of the queues; the memory that they lead to."""
        memory = [self.ends[which].region(SIZE) for _ in range(count)]
        for k, each in enumerate(memory):
            self.ends[which].post_receive([each.sge()], wr_id=100 + k)
        return memory

    def send(self, target, payload, opcode=wqe.SEND, **fields):
        memory = self.p.left.region(len(payload), fill=payload)
        self.p.left.post(opcode, [memory.sge()], qpn=target, ring=False, **fields)

    def run(self):
        self.p.left.qp.doorbell(self.p.now)
        self.p.run()
        return [done.status for done in self.p.left.sent()]


def aim_xrc(sender, target):
    sender.writer.xrc_srq = target


def aim_rd(sender, target):
    sender.writer.ee_context, sender.writer.qkey, sender.writer.source_qp = EE, QKEY, SOURCE
    sender.connection.dest_qp = target


def by_xrceth(view):
    return view.xrc_srq if view.has_xrceth else None


def by_rdeth_and_deth(view):
    known = view.has_rdeth and view.ee_context == EE
    return view.dest_qp if known and view.has_deth and view.qkey == QKEY else None


@pytest.fixture(params=[opcodes.XRC, opcodes.RD], ids=["xrc", "rd"])
def many(request, pair):
    """A pair whose packets are of a service that only this test knows."""
    return lambda **settings: Many(pair, request.param, **settings)


def content(k):
    return bytes([k + 1]) * SIZE


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_one_receiver_serves_the_queues_that_its_packets_name(many, loss):
    m = many()
    m.p.faults.loss = loss
    memory = [m.receive(which, COUNT) for which in (0, 1)]
    for k in range(COUNT):
        m.send(TARGETS[k % 3 % 2], content(k))
    wanted = [[k for k in range(COUNT) if k % 3 % 2 == which] for which in (0, 1)]
    assert m.run() == [0] * COUNT
    for which, end in enumerate(m.ends):
        done = end.received()
        assert [(row.status, row.byte_len, row.qp_num) for row in done] == [
            (0, SIZE, end.number) for _ in wanted[which]
        ]
        for k, each in zip(wanted[which], memory[which][: len(wanted[which])], strict=True):
            assert bytes(each.data) == content(k)
    assert m.p.right.received() == []
    assert m.p.right.qp.responder.epsn == COUNT * 3


def test_an_immediate_of_an_rdma_write_goes_to_the_queue_that_its_last_packet_names(many):
    m = many()
    target = m.p.right.region(SIZE)
    m.receive(0)
    m.receive(1)
    m.send(TARGETS[1], content(0), wqe.RDMA_WRITE_WITH_IMM, remote=target, imm=77)
    assert m.run() == [0]
    (done,) = m.ends[1].received()
    assert (done.status, done.imm_or_key, done.byte_len) == (0, 77, SIZE)
    assert m.ends[0].received() == []
    assert bytes(target.data) == content(0)


def test_a_queue_without_receives_is_waited_for_though_another_one_has_some(many):
    m = many()
    m.receive(0)
    m.send(TARGETS[1], content(0))
    m.p.after(500_000, lambda: m.receive(1))
    assert m.run() == [0]
    assert m.p.right.qp.counters.rnr_naks_sent > 0
    assert len(m.ends[1].received()) == 1
    assert m.ends[0].received() == []


def test_a_message_for_no_queue_is_an_invalid_request(many):
    m = many()
    memory = [m.receive(which)[0] for which in (0, 1)]
    m.send(NOWHERE, content(0))
    assert m.run() == [cqe.WC_REM_INV_REQ_ERR]
    assert m.p.right.qp.state == ERR
    assert all(bytes(each.data) == bytes(SIZE) for each in memory)
    assert all(row.status == cqe.WC_WR_FLUSH_ERR for end in m.ends for row in end.received())


def test_what_was_acquired_is_flushed_where_it_came_from(many):
    m = many()
    m.receive(0)
    m.receive(1)
    m.send(TARGETS[1], content(0))
    m.p.faults.rule = lambda way, packet: int(way == "ba" or packet[9:12] == bytes(3))  # the first alone
    m.p.left.qp.doorbell(m.p.now)
    while not m.sink.queues[TARGETS[1]].acquired:
        assert m.p.step()
    m.p.right.qp.modify({"qp_state": ERR}, m.p.now)
    shares = m.service == opcodes.XRC
    assert [len(end.received()) for end in m.ends] == [0 if shares else 1, 1]
    assert not any(queue.acquired for queue in m.sink.queues.values())


def test_credits_are_the_sinks_to_tell(many):
    m = many()
    m.receive(0)
    m.send(TARGETS[0], content(0))
    assert m.run() == [0]
    assert {row["syndrome"] for row in m.p.decoded("ba")} == {31}
