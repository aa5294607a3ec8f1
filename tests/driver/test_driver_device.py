"""The driver by itself: misuse refused before anything crosses, numbers, forks, the registry."""

import errno
import os
import signal
import threading
from types import SimpleNamespace

import pytest

from machine_speed import limit_s
from softhca.driver import abstraction, command_descriptors, registry, services
from softhca.driver.errors import DriverError, refusal
from softhca.testing.addressing import gid
from softhca.testing.ends import READ, SEND, End, connect, pair, post
from softhca.testing.network import Network


@pytest.fixture
def end():
    """One end with one adapter."""
    world = Network()
    yield End(world.add(1))
    world.close()


def code_of(call, *arguments, **options):
    with pytest.raises(DriverError) as refused:
        call(*arguments, **options)
    assert refused.value.message in str(refused.value)
    return refused.value.errno


def test_the_device_says_what_it_is(end):
    device = end.device.query_device()
    assert device["fw_ver"] == "0.1.0"
    assert device["profile"] == "hca"
    assert device["node_guid"] == end.device.guid == 0x0200_00FF_C000_0201
    assert (device["max_qp"], device["atomic_cap"], device["phys_port_cnt"]) == (16_384, 1, 1)
    assert end.device.query_port(1)["state"] == 4
    assert end.device.alive


@pytest.mark.parametrize(("error", "doing", "code", "text"), [
    (OSError(errno.EBUSY, "in use"), "", errno.EBUSY, "in use"),
    (OSError(errno.EBUSY, "in use"), "closing", errno.EBUSY, "closing: in use"),
    (OSError("no number"), "", errno.EIO, "no number"),
])  # fmt: skip
def test_an_error_from_below_keeps_its_number_and_words(error, doing, code, text):
    found = refusal(error, doing)
    assert (found.errno, found.message) == (code, text)


@pytest.mark.parametrize(
    ("state", "may_send", "may_receive"), [(0, False, False), (1, False, True), (6, True, True)]
)
def test_posting_obeys_the_state(end, state, may_send, may_receive):
    qp = end.qp()
    if state == 1:
        qp.modify({"qp_state": 1, "pkey_index": 0, "port_num": 1, "qp_access_flags": 0})
    if state == 6:
        qp.modify({"qp_state": 6})
    if may_send:
        post(qp, SEND, [], wr_id=1)
    else:
        assert code_of(post, qp, SEND, []) == errno.EINVAL
    if may_receive:
        qp.post_recv(2, [])
    else:
        assert code_of(qp.post_recv, 2, []) == errno.EINVAL
    if state == 6:
        assert [(c.wr_id, c.status) for c in end.poll(2)] == [(1, 5), (2, 5)]


def test_a_work_request_that_cannot_be_is_refused_and_not_posted():
    world, left, left_qp, _, _ = pair()
    too_many = [left.sge(0, 1)] * 3
    assert code_of(post, left_qp, SEND, too_many) == errno.EINVAL
    assert code_of(left_qp.post_recv, 1, too_many) == errno.EINVAL
    assert code_of(post, left_qp, SEND, [], inline=bytes(65)) == errno.EINVAL
    assert code_of(post, left_qp, 10, []) == errno.EINVAL
    assert code_of(post, left_qp, SEND, [(1, 2)]) == errno.EINVAL
    world.run(limit_ns=10**9)
    assert left.cq.poll(10) == []
    world.close()


def test_flags_are_those_of_ibv_send_flags():
    world, left, _, right, _ = pair()
    left_qp, right_qp = left.qp(signal_all=False), right.qp()
    connect((left, left_qp), (right, right_qp))
    target = {"va": right.va, "rkey": right.key.rkey}
    post(left_qp, READ, [left.sge(0, 8)], wr_id=1, flags=0, **target)
    post(left_qp, READ, [left.sge(0, 8)], wr_id=2, flags=1, **target)  # FENCE
    post(left_qp, READ, [left.sge(0, 8)], wr_id=3, flags=2, **target)  # SIGNALED
    assert [c.wr_id for c in left.poll(3)] == [3]
    world.close()


def test_a_receive_queue_is_full_at_its_size(end):
    qp = end.qp(receive=2)
    qp.modify({"qp_state": 1, "pkey_index": 0, "port_num": 1, "qp_access_flags": 0})
    qp.post_recv(1, [])
    qp.post_recv(2, [])
    assert code_of(qp.post_recv, 3, []) == errno.ENOMEM


def test_a_queue_of_no_requests_takes_none(end):
    qp = end.qp(send=0, receive=0)
    qp.modify({"qp_state": 6})
    assert code_of(post, qp, SEND, []) == errno.ENOMEM
    assert code_of(qp.post_recv, 3, []) == errno.ENOMEM


def test_a_closed_device_refuses_everything(end):
    qp = end.qp()
    memory = end.device.session.memory
    end.device.close()
    end.device.close()
    assert not end.device.alive
    for call in (
        end.device.alloc_pd,
        end.device.progress,
        end.device.look,
        end.device.query_device,
        qp.query,
        qp.ring,
        end.cq.arm,
        lambda: end.cq.poll(1),
        lambda: qp.post_recv(1, []),
        lambda: post(qp, SEND, []),
        lambda: end.device.next_event(0),
        lambda: end.device.wait_completion("channel", 0),
    ):
        assert code_of(call) == errno.EIO
    assert memory.fd < 0


def test_a_forked_child_may_not_use_what_it_inherited(end):
    qp = end.qp()
    abstraction.adopt(end.device)
    child = os.fork()
    if child == 0:
        outcome = 1
        try:
            end.device.alloc_pd()
        except DriverError as error:
            outcome = 0 if error.errno == errno.EIO and "fork" in error.message else 2
        try:
            qp.post_recv(1, [])
            outcome = 3
        except DriverError as error:
            outcome = outcome or (0 if error.errno == errno.EIO else 4)
        if end.device.alive:
            outcome = 5
        os._exit(outcome)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert end.device.alive
    end.device.alloc_pd()
    end.device.close()


def test_a_forked_child_waits_for_no_region_that_the_parent_is_about_to_end(end):
    """A thread of the parent is inside of a deregistration, and has the lock of all."""
    registrar = end.device._registrar
    abstraction.adopt(end.device)
    taken, over = threading.Event(), threading.Event()

    def hold():
        with registrar._changing:
            taken.set()
            assert over.wait(limit_s(60))

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(limit_s(60))
    try:
        child = os.fork()
        if child == 0:
            signal.alarm(int(limit_s(60)))  # ends who waits for ever
            refused = 0
            for call in (
                lambda: end.device.dereg_mr(end.key.handle),
                lambda: end.device.rereg_mr(end.key.handle, 1, end.pd, 0, 0, 1),
            ):
                try:
                    call()
                except DriverError as error:
                    refused += error.errno == errno.EIO
            os._exit(2 - refused)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        over.set()
        holder.join()


# the registry and the layers above


@pytest.fixture
def offered(end, monkeypatch):
    """One device in an otherwise empty registry."""
    monkeypatch.setattr(registry, "_openers", {})
    monkeypatch.setattr(registry, "_discovered", True)
    registry.register("test0", end.node.open)
    return end


def test_a_registered_device_can_be_opened_by_name(offered):
    assert registry.names() == services.adapters() == ["test0"]
    device = services.open_adapter("test0")
    assert device in abstraction.open_devices()
    assert services.path_to(device, gid(2)).mtu == 3
    device.close()
    assert device not in abstraction.open_devices()


def test_an_unknown_device_is_refused_by_name(offered):
    with pytest.raises(DriverError, match="nothing0") as refused:
        registry.open_device("nothing0")
    assert refused.value.errno == errno.ENODEV
    registry.unregister("test0")
    assert registry.names() == []


class Joined:
    """A device that a command descriptor stands for; ``refuses``: it imports no context."""

    def __init__(self, refuses):
        self.refuses, self.imported, self.closed = refuses, [], 0

    def import_context(self, descriptor):
        self.imported.append(descriptor)
        if self.refuses is not None:
            raise self.refuses

    def close(self):
        self.closed += 1


@pytest.mark.parametrize("refuses", [None, DriverError(errno.EINVAL, "no context"), KeyboardInterrupt()])
def test_a_device_whose_context_cannot_be_imported_is_closed(offered, monkeypatch, refuses):
    joined, asked = Joined(refuses), []
    place = command_descriptors.MeetingPlace("test0", "socket")
    monkeypatch.setattr(registry.command_descriptors, "read", lambda descriptor: place)
    runtime = SimpleNamespace(join=lambda *place: asked.append(place) or joined)
    monkeypatch.setattr(registry, "importlib", SimpleNamespace(import_module=lambda name: runtime))
    if refuses is None:
        assert registry.import_device(7) is joined
    else:
        with pytest.raises(type(refuses)):
            registry.import_device(7)
    assert (asked, joined.imported) == ([("test0", "socket")], [7])
    assert joined.closed == (refuses is not None)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.EADDRINUSE, "taken"), errno.EADDRINUSE),
        (ValueError("no such word"), errno.EINVAL),
    ],
)
def test_what_an_opener_raises_becomes_a_driver_error(offered, error, code):
    def opener():
        raise error

    registry.register("broken0", opener)
    with pytest.raises(DriverError) as refused:
        registry.open_device("broken0")
    assert refused.value.errno == code


def test_the_environments_devices_are_discovered_once(monkeypatch):
    class Discovery:
        loads = 0

        @classmethod
        def load(cls):
            cls.loads += 1
            registry.register("found0", lambda: None)

    monkeypatch.setattr(registry, "_openers", {})
    monkeypatch.setattr(registry, "_discovered", False)
    monkeypatch.setattr(registry.importlib, "import_module", lambda name: Discovery)
    assert registry.names() == ["found0"]
    assert registry.names() == ["found0"]
    assert Discovery.loads == 1


def test_a_malformed_environment_is_an_error_of_the_driver(monkeypatch):
    class Discovery:
        @staticmethod
        def load():
            raise ValueError("SOFTHCA_DEVICES: nonsense")

    monkeypatch.setattr(registry, "_discovered", False)
    monkeypatch.setattr(registry.importlib, "import_module", lambda name: Discovery)
    with pytest.raises(DriverError, match="nonsense") as refused:
        registry.names()
    assert refused.value.errno == errno.EINVAL
