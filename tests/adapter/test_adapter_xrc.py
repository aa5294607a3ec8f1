"""XRC: initiators and targets, and the domains whose shared receive queues targets serve (IBTA annex A14)."""

import errno
import gc

import pytest

from softhca.adapter.resources import Kind
from softhca.adapter.xrc_domains import XrcDomains
from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.queues import control_fields as control
from softhca.queues import wqe
from softhca.queues.control_fields import QPT_XRC_RECV, QPT_XRC_SEND, XRCD_CREATE, XRCD_EXCLUSIVE
from softhca.queues.layout import (
    WC_REM_ACCESS_ERR,
    WC_REM_INV_REQ_ERR,
    WC_RETRY_EXC_ERR,
    WC_SUCCESS,
    WC_WR_FLUSH_ERR,
)
from softhca.queues.states import ERR
from softhca.testing import SENT, Network
from softhca.testing.ends import ALL_RIGHTS, End, post
from softhca.transport.acknowledgement import Sender
from softhca.transport.sending import SendQueue
from softhca.transport.xrc import MOST_QUEUES
from softhca.wire.opcodes import XRC
from softhca.wire.xrceth import Xrceth

MEMORY_BYTES = 1 << 19
"""Too much for one burst, or one window."""

LENGTH = 3000
"""Three packets."""


class Queue:
    """A shared receive queue of a domain, with a protection domain, memory and a completion queue of its own,
    as a process of its own would have."""

    def __init__(self, node, domain):
        self.end = End(node, MEMORY_BYTES)
        self.domain = domain(self.end.device)
        self.srq = self.end.device.create_srq(self.end.pd, 16, 2, 0, self.end.cq, self.domain)
        self.number = self.srq.number

    def receive(self, wr_id=0, length=LENGTH):
        self.srq.post(wr_id, [self.end.sge(0, length)])


class Scene:
    """An initiator, and a target in a domain with two queues."""

    def __init__(self, faults="", seed=0):
        self.network = Network(faults, seed=seed) if faults else Network()
        self.left = End(self.network.add(), MEMORY_BYTES, work_requests=32)
        right = self.network.add()
        with open(__file__, "rb") as file:
            self.queues = [Queue(right, lambda device: device.open_xrcd(file.fileno())) for _ in range(2)]
            self.owner = right.open()
            self.domain = self.owner.open_xrcd(file.fileno(), create=False)
        self.right = right
        self.initiator = self.make_initiator()
        self.target = self.make_target()
        self.connect()

    def make_initiator(self):
        cq = self.left.cq
        return self.left.device.create_qp(self.left.pd, QPT_XRC_SEND, cq, None, None, 32, 0, 2, 0, 64, True)

    def make_target(self):
        return self.owner.create_qp(
            0, QPT_XRC_RECV, None, None, None, 9, 9, 9, 9, 9, True, xrcd=self.domain
        )

    def connect(self):
        how = services.Reliability(timeout=8, retry_cnt=2)
        ends = ((self.initiator, self.target, self.right), (self.target, self.initiator, self.left.node))
        for (qp, peer, node), psns in zip(ends, ((100, 0xFFFFFE), (0xFFFFFE, 100)), strict=True):
            path = self.network.addressing.path(node, sl=0, mtu=self.left.node.adapter.config.active_mtu)
            services.connect(qp, path, peer.number, psns[1], psns[0], ALL_RIGHTS, how)

    def send(self, queue, length=LENGTH, opcode=wqe.SEND, **fields):
        number = queue.number if isinstance(queue, Queue) else queue
        post(self.initiator, opcode, [self.left.sge(0, length)], qpn=number, **fields)

    def statuses(self, count=1):
        return [done.status for done in self.left.poll(count)]

    def close(self):
        self.network.close()


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.close()


def content(k, length=LENGTH):
    return bytes((i * 7 + k) & 0xFF for i in range(length))


def test_one_connection_serves_the_queues_of_several_hosts(scene):
    scene.network.observers.append(lambda datagram: seen.append(datagram) if datagram.event == SENT else None)
    seen = []
    for k, queue in enumerate(scene.queues):
        queue.receive(70 + k)
        scene.left.memory[:LENGTH] = content(k)
        scene.send(queue, wr_id=k)
        assert scene.statuses() == [WC_SUCCESS]
        (done,) = queue.end.poll(1)
        assert (done.wr_id, done.status, done.byte_len) == (70 + k, WC_SUCCESS, LENGTH)
        assert done.qp_num == scene.target.number
        assert queue.end.memory[:LENGTH] == content(k)
    packets = [datagram.packet.transport for datagram in seen]
    requests = [packet for packet in packets if packet.bth.dest_qp == scene.target.number]
    assert len(requests) >= 2
    assert {packet.bth.opcode >> 5 for packet in packets} == {XRC}
    headers = [header for packet in requests for header in packet.extensions]
    named = {header.xrc_srq for header in headers if isinstance(header, Xrceth)}
    assert named == {queue.number for queue in scene.queues}
    answers = [packet for packet in packets if packet.bth.dest_qp == scene.initiator.number]
    assert answers
    assert not any(isinstance(header, Xrceth) for packet in answers for header in packet.extensions)


def test_a_key_counts_in_the_protection_domain_of_the_queue_that_the_request_names(scene):
    one, two = scene.queues
    scene.left.memory[:8] = b"for two!"
    there = {"va": two.end.va + 512, "rkey": two.end.key.rkey}
    scene.send(two, 8, wqe.RDMA_WRITE, **there)
    assert scene.statuses() == [WC_SUCCESS]
    assert two.end.memory[512:520] == b"for two!"
    post(scene.initiator, wqe.RDMA_READ, [scene.left.sge(64, 8)], qpn=two.number, **there)
    assert scene.statuses() == [WC_SUCCESS]
    assert scene.left.memory[64:72] == b"for two!"
    atomic = {"qpn": two.number, "compare": 1, **there}
    post(scene.initiator, wqe.ATOMIC_FETCH_AND_ADD, [scene.left.sge(128, 8)], **atomic)
    assert scene.statuses() == [WC_SUCCESS]
    assert two.end.memory[512:520] == b"gor two!"
    before = bytes(two.end.memory)
    scene.send(one, 8, wqe.RDMA_WRITE, **there)
    assert scene.statuses() == [WC_REM_ACCESS_ERR]
    assert bytes(two.end.memory) == before


@pytest.mark.parametrize("opcode", [wqe.RDMA_READ, wqe.ATOMIC_FETCH_AND_ADD])
def test_what_is_read_is_read_in_that_domain_too(scene, opcode):
    one, two = scene.queues
    fields = {"va": two.end.va, "rkey": two.end.key.rkey, "qpn": one.number}
    post(scene.initiator, opcode, [scene.left.sge(64, 8)], **fields)
    assert scene.statuses() == [WC_REM_ACCESS_ERR]


def test_an_answer_in_the_midst_of_other_queues_requests_goes_on(scene):
    one, two = scene.queues
    two.end.memory[:LENGTH] = content(3)
    fields = {"va": two.end.va, "rkey": two.end.key.rkey, "qpn": two.number}
    post(scene.initiator, wqe.RDMA_READ, [scene.left.sge(8192, LENGTH)], ring=False, **fields)
    scene.send(one, 8, wqe.RDMA_WRITE, va=one.end.va, rkey=one.end.key.rkey)
    assert scene.statuses(2) == [WC_SUCCESS] * 2
    assert scene.left.memory[8192 : 8192 + LENGTH] == content(3)


def test_an_immediate_of_a_write_completes_in_the_queue_that_it_names(scene):
    one, two = scene.queues
    two.receive(5)
    scene.send(two, LENGTH, wqe.RDMA_WRITE_WITH_IMM, va=two.end.va, rkey=two.end.key.rkey, imm=77)
    assert scene.statuses() == [WC_SUCCESS]
    (done,) = two.end.poll(1)
    assert (done.wr_id, done.imm_data, done.byte_len) == (5, 77, LENGTH)
    assert one.end.cq.poll(1) == []


def test_a_queue_that_the_domain_has_not_is_an_invalid_request(scene):
    scene.send(0x123456)
    assert scene.statuses() == [WC_REM_INV_REQ_ERR]


def test_a_queue_without_receives_is_waited_for(scene):
    scene.send(scene.queues[0])
    scene.network.elapse(3_000_000)
    scene.queues[0].receive(1)
    assert scene.statuses() == [WC_SUCCESS]


@pytest.mark.parametrize("faults", ["loss=10%", "reorder=20%,duplicate=20%"])
def test_messages_to_several_queues_survive_faults(faults):
    scene = Scene(faults, seed=3)
    for k in range(16):
        scene.queues[k % 3 % 2].receive(k)
    for k in range(16):
        scene.send(scene.queues[k % 3 % 2], wr_id=k)
    assert [done.wr_id for done in scene.left.poll(16)] == list(range(16))
    for which, queue in enumerate(scene.queues):
        wanted = [k for k in range(16) if k % 3 % 2 == which]
        assert [done.wr_id for done in queue.end.poll(len(wanted))] == wanted
    scene.close()


@pytest.mark.parametrize("opcode", [wqe.RDMA_READ, wqe.ATOMIC_FETCH_AND_ADD])
def test_what_is_asked_for_again_is_answered_in_the_domain_of_its_own_queue(opcode):
    """Whatever queue the request behind it names."""
    scene = Scene("duplicate=50%,reorder=20%", seed=5)
    one, two = scene.queues
    there = {"va": two.end.va, "rkey": two.end.key.rkey, "qpn": two.number}
    for _ in range(12):
        post(scene.initiator, opcode, [scene.left.sge(8192, 8)], ring=False, **there)
        scene.send(one, 8, wqe.RDMA_WRITE, va=one.end.va, rkey=one.end.key.rkey)
        assert scene.statuses(2) == [WC_SUCCESS] * 2
    target = scene.right.adapter.queue_pairs[scene.target.number]
    assert target.counters.duplicates
    assert target.counters.key_refusals == 0
    scene.close()


def targets_of(domain):
    """Those that a domain keeps, whether it is compiled or not."""
    found = gc.get_referents(domain)
    found += [value for each in found if isinstance(each, dict) for value in each.values()]
    return [target for each in found if isinstance(each, set) for target in each]


@pytest.mark.parametrize("end", ["reset", "destroy"])
def test_a_target_that_is_gone_is_no_longer_in_its_domain(scene, end):
    scene.queues[0].receive()
    scene.send(scene.queues[0])
    assert scene.statuses() == [WC_SUCCESS]
    sink = scene.right.adapter.queue_pairs[scene.target.number].receive_engine().sink
    assert sink in targets_of(sink.domain)
    if end == "reset":
        scene.target.modify({"qp_state": 0})
    else:
        scene.target.destroy()
    assert sink not in targets_of(sink.domain)


def test_an_initiator_has_a_rate_limit_and_a_target_none(scene):
    scene.initiator.modify({"rate_limit": 8_000, "max_burst_sz": 1})  # a byte a microsecond
    scene.queues[0].receive()
    begin = scene.network.now
    scene.send(scene.queues[0])
    assert scene.statuses() == [WC_SUCCESS]
    assert scene.network.now - begin > (LENGTH - 1024) * 1_000
    with pytest.raises(DriverError) as refused:
        scene.target.modify({"rate_limit": 8_000})
    assert refused.value.errno == errno.EINVAL


def test_a_queue_is_destroyed_under_an_idle_target(scene):
    one, two = scene.queues
    for queue in scene.queues:
        queue.receive()
        scene.send(queue)
    assert scene.statuses(2) == [WC_SUCCESS] * 2
    sink = scene.right.adapter.queue_pairs[scene.target.number].receive_engine().sink
    assert set(sink.queues) == {one.number, two.number}
    one.srq.destroy()
    assert set(sink.queues) == {two.number}
    two.receive(4)
    scene.send(two)
    assert scene.statuses() == [WC_SUCCESS]
    scene.send(one)
    assert scene.statuses() == [WC_REM_INV_REQ_ERR]


def test_a_target_remembers_a_bounded_number_of_queues(scene):
    end = scene.queues[0].end
    sink = None
    for k in range(MOST_QUEUES + 2):
        srq = end.device.create_srq(end.pd, 1, 1, 0, end.cq, scene.queues[0].domain)
        srq.post(k, [end.sge(0, 8)])
        scene.send(srq.number, 8)
        assert scene.statuses() == [WC_SUCCESS]
        assert len(end.poll(1)) == 1
        sink = sink or scene.right.adapter.queue_pairs[scene.target.number].receive_engine().sink
        assert len(sink.queues) == k % MOST_QUEUES + 1


def test_a_queue_that_is_destroyed_under_a_message_ends_the_connection_and_no_memory_is_touched(scene):
    queue = scene.queues[0]
    queue.srq.post(9, [queue.end.sge(0, MEMORY_BYTES)])
    scene.left.memory[:] = b"x" * MEMORY_BYTES
    scene.send(queue, MEMORY_BYTES)
    sink = scene.right.adapter.queue_pairs[scene.target.number].receive_engine().sink
    scene.network.run(lambda: any(each.acquired for each in sink.queues.values()))
    queue.srq.destroy()
    (flushed,) = queue.end.cq.poll(1)
    assert (flushed.wr_id, flushed.status) == (9, WC_WR_FLUSH_ERR)
    before = bytes(queue.end.memory)
    assert scene.statuses() == [WC_RETRY_EXC_ERR]
    assert bytes(queue.end.memory) == before
    assert scene.target.query()["qp_state"] == ERR


def test_a_message_does_not_change_its_queue(scene):
    one, two = scene.queues
    for queue in scene.queues:
        queue.srq.post(9, [queue.end.sge(0, MEMORY_BYTES)])
    initiator = scene.left.node.adapter.queue_pairs[scene.initiator.number]
    sender = initiator.requester = Sender(initiator, SendQueue(initiator))  # names what the test says
    sender.begin(initiator.sq_psn)
    sender.start(0)
    sender.writer.xrc_srq = one.number
    scene.send(one, MEMORY_BYTES)
    sink = scene.right.adapter.queue_pairs[scene.target.number].receive_engine().sink
    scene.network.run(lambda: any(each.acquired for each in sink.queues.values()))
    sender.writer.xrc_srq = two.number
    assert scene.statuses() == [WC_REM_INV_REQ_ERR]
    (failed,) = one.end.cq.poll(1)
    assert (failed.wr_id, failed.status) == (9, WC_REM_INV_REQ_ERR)
    assert two.end.cq.poll(1) == []


def test_a_host_that_is_gone_takes_its_queues_with_it(scene):
    one, two = scene.queues
    one.receive()
    scene.send(one)
    assert scene.statuses() == [WC_SUCCESS]
    one.end.device.close()
    two.receive()
    scene.send(two)
    assert scene.statuses() == [WC_SUCCESS]
    scene.send(one.number)
    assert scene.statuses() == [WC_REM_INV_REQ_ERR]


def test_who_makes_a_file_s_domain_and_who_joins(scene, tmp_path):
    device = scene.owner
    with open(tmp_path / "domain", "wb") as file:
        number = file.fileno()
        with pytest.raises(DriverError) as refused:
            device.open_xrcd(number, create=False)
        assert refused.value.errno == errno.EAGAIN
        first = device.open_xrcd(number, exclusive=True)
        with pytest.raises(DriverError) as refused:
            device.open_xrcd(number, exclusive=True)
        assert refused.value.errno == errno.EINVAL
        second = device.open_xrcd(number, create=False)
        device.close_xrcd(first)
        third = device.open_xrcd(number, create=False)
        device.close_xrcd(second)
        device.close_xrcd(third)
        with pytest.raises(DriverError) as refused:
            device.open_xrcd(number, create=False)
        assert refused.value.errno == errno.EAGAIN
    with pytest.raises(DriverError) as refused:
        device.open_xrcd(number)
    assert refused.value.errno == errno.EBADF


def test_domains_without_a_file_are_their_makers_alone(scene):
    queue = scene.queues[0]
    private = queue.end.device.open_xrcd()
    srq = queue.end.device.create_srq(queue.end.pd, 4, 1, 0, queue.end.cq, private)
    scene.send(srq.number)
    assert scene.statuses() == [WC_REM_INV_REQ_ERR]


def test_what_is_in_use_is_not_closed(scene):
    queue = scene.queues[0]
    for close in (
        lambda: queue.end.device.close_xrcd(queue.domain), queue.end.cq.destroy,
        lambda: scene.owner.close_xrcd(scene.domain),
    ):
        with pytest.raises(DriverError) as refused:
            close()
        assert refused.value.errno == errno.EBUSY
    scene.target.destroy()
    scene.owner.close_xrcd(scene.domain)


def test_ends_have_only_the_queues_that_they_use(scene):
    assert scene.initiator.caps == {
        "max_send_wr": 32, "max_recv_wr": 0, "max_send_sge": 2, "max_recv_sge": 0, "max_inline_data": 64,
    }
    assert set(scene.target.caps.values()) == {0}
    for refused in (
        lambda: scene.initiator.post_recv(1, []), lambda: scene.target.post_recv(1, []),
        lambda: post(scene.target, wqe.SEND, []),
    ):
        with pytest.raises(DriverError) as info:
            refused()
        assert info.value.errno == errno.EINVAL


@pytest.mark.parametrize(
    "give",
    [
        lambda s: s.left.device.create_qp(
            s.left.pd, QPT_XRC_SEND, s.left.cq, s.left.cq, None, 4, 0, 1, 0, 0, True
        ),
        lambda s: s.owner.create_qp(0, QPT_XRC_RECV, None, None, None, 0, 0, 0, 0, 0, True),
        lambda s: s.owner.create_qp(
            s.owner.alloc_pd(), QPT_XRC_RECV, None, None, None, 0, 0, 0, 0, 0, True, xrcd=s.domain
        ),
        lambda s: s.owner.create_srq(s.owner.alloc_pd(), 4, 1, 0, None, s.domain),
    ],
    ids=["initiator with a receive queue", "target without a domain", "target with a domain of memory",
         "ordinary queue in a domain"],
)
def test_what_does_not_belong_to_a_type_is_refused(scene, give):
    with pytest.raises(DriverError) as refused:
        give(scene)
    assert refused.value.errno == errno.EINVAL


def connect(scene, qp, node, peer, psn=5):
    """Bring ``qp`` to RTS towards the queue pair ``peer`` of ``node``."""
    path = scene.network.addressing.path(node, sl=0, mtu=scene.left.node.adapter.config.active_mtu)
    services.connect(qp, path, peer, psn, psn, ALL_RIGHTS, services.Reliability(timeout=8, retry_cnt=1))


def test_requests_for_an_initiator_are_dropped(scene):
    device = scene.queues[0].end
    one = scene.make_initiator()
    other = device.device.create_qp(device.pd, QPT_XRC_SEND, device.cq, None, None, 4, 0, 1, 0, 0, True)
    connect(scene, one, scene.right, other.number)
    connect(scene, other, scene.left.node, one.number)
    post(one, wqe.SEND, [scene.left.sge(0, 8)], qpn=scene.queues[0].number)
    assert scene.statuses() == [WC_RETRY_EXC_ERR]
    assert scene.right.adapter.queue_pairs[other.number].counters.drops_opcode == 2


def test_answers_for_a_target_are_dropped(scene):
    domain = scene.left.device.open_xrcd()
    wrong = scene.left.device.create_qp(
        0, QPT_XRC_RECV, None, None, None, 0, 0, 0, 0, 0, True, xrcd=domain
    )
    initiator, target = scene.make_initiator(), scene.make_target()
    connect(scene, initiator, scene.right, target.number)
    connect(scene, target, scene.left.node, wrong.number)
    connect(scene, wrong, scene.right, target.number)
    scene.queues[0].receive()
    post(initiator, wqe.SEND, [scene.left.sge(0, 8)], qpn=scene.queues[0].number)
    assert scene.statuses() == [WC_RETRY_EXC_ERR]
    assert len(scene.queues[0].end.poll(1)) == 1
    assert scene.left.node.adapter.queue_pairs[wrong.number].counters.drops_unexpected_response == 2


def test_who_wants_a_file_s_domain_alone_has_none_that_is_there():
    domains, key = XrcDomains(), (1, 2)
    domain = domains.open(key, XRCD_CREATE)
    for flags in (XRCD_EXCLUSIVE, XRCD_CREATE | XRCD_EXCLUSIVE):
        with pytest.raises(OSError, match="O_EXCL"):
            domains.open(key, flags)
    assert domains.open(key, 0) is domain


def test_a_file_is_its_inode_on_its_device_and_its_domain_lasts_as_long_as_one_has_it_open():
    domains = XrcDomains()
    first = domains.open((1, 2), XRCD_CREATE)
    assert domains.open((1, 2), XRCD_CREATE) is first
    assert domains.open((2, 2), XRCD_CREATE) is not first
    domains.close((1, 2))
    assert domains.open((1, 2), 0) is first
    domains.close((1, 2))
    domains.close((1, 2))
    with pytest.raises(OSError, match="no XRC domain") as refused:
        domains.open((1, 2), 0)
    assert refused.value.errno == errno.EAGAIN


def test_a_host_names_a_file_by_device_and_inode_with_flags_that_there_are():
    with Network() as world:
        node = world.add(1, max_xrcd=2)
        session, resources = node.open().session, node.adapter.resources
        make, create = control.OPEN_XRCD, control.XRCD_FILE | XRCD_CREATE
        with pytest.raises(DriverError, match="there are no such flags") as refused:
            session.call(make, flags=8 | XRCD_CREATE)
        assert refused.value.errno == errno.EINVAL
        files = ({"device": 1, "inode": 5}, {"device": 2, "inode": 5})
        opened = [session.call(make, flags=create, **file)["xrcd"] for file in files]
        domains = [resources.get(Kind.XRCD, number).element.domain for number in opened]
        assert domains[0] is not domains[1]
        with pytest.raises(DriverError, match="max_xrcd = 2") as refused:
            session.call(make, flags=create, **files[0])  # the file is not open once more
        assert refused.value.errno == errno.ENOMEM
        session.call(control.CLOSE_XRCD, xrcd=opened[0])
        with pytest.raises(DriverError, match="the file has no XRC domain") as refused:
            session.call(make, flags=control.XRCD_FILE, **files[0])
        assert refused.value.errno == errno.EAGAIN
