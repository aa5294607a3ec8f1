"""End to end: two contexts, two adapters, real UDP sockets; the adapters in this process and in their own."""

import ctypes
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from runtime_pair import RemoteOperation, connected, take

from machine_speed import limit_s
from softhca.runtime import devices
from softhca.runtime.clock import NS_PER_S, now_ns

OPERATIONS = list(RemoteOperation)
BOUND_S = limit_s(20)
IDLE = Path(__file__).parents[2] / "benchmarks" / "idle.py"
FLUSHED = 5  # ibv_wc_status
ACCESS_ERROR = 10
RTS = 3  # ibv_qp_state


@pytest.mark.parametrize("length_bytes", [0, 1, 1024, 4097, 300_000])
def test_a_send_arrives_whole(verbs_pair, length_bytes):
    with connected(verbs_pair, max(length_bytes, 1)) as link:
        link.source[:length_bytes] = bytes(i % 251 for i in range(length_bytes))
        link.post_receive(7, length_bytes)
        link.send(8, length_bytes)
        (received,) = take(link.server_cq, 1)
        (sent,) = take(link.client_cq, 1)
        assert (received.wr_id, received.status, received.byte_len) == (7, 0, length_bytes)
        assert (sent.wr_id, sent.status) == (8, 0)
        assert link.target[:length_bytes] == link.source[:length_bytes]


@pytest.mark.parametrize("operation", OPERATIONS, ids=[operation.name for operation in OPERATIONS])
def test_the_target_of_a_one_sided_operation_takes_no_part(verbs_pair, operation):
    with connected(verbs_pair, 64) as link:
        link.prepare(operation)
        link.one_sided(operation, 5)
        (done,) = take(link.client_cq, 1)
        assert (done.wr_id, done.status) == (5, 0)
        link.check(operation)


def test_many_messages_arrive_in_order(verbs_pair):
    with connected(verbs_pair, 1024) as link:
        for number in range(300):
            link.source[:4] = number.to_bytes(4, "big")
            link.post_receive(number, 1024)
            link.send(number, 1024)
            (received,) = take(link.server_cq, 1)
            (sent,) = take(link.client_cq, 1)
            assert (received.wr_id, sent.wr_id) == (number, number)
            assert link.target[:4] == number.to_bytes(4, "big")


def wakeups(name):
    """How often something woke up to serve a device."""
    device = devices.find(name)
    if device.mode == "embedded":
        return device.engine.progress.wakeups
    return device._channels[0].resources()["sleeps"]


def test_connected_devices_sleep_when_there_is_nothing_to_do(verbs_pair):
    with connected(verbs_pair, 4096) as link:
        for number in range(50):
            link.one_sided(RemoteOperation.WRITE, number, 4096)
            take(link.client_cq, 1)
        # acknowledgement timers that are still armed run out first
        until(lambda: max(wakeups_within(0.5, *verbs_pair.names)) <= 2)


def wakeups_within(seconds, *names):
    """How often each device was woken up within some time."""
    before = [wakeups(name) for name in names]
    threading.Event().wait(seconds)
    # the look itself wakes an adapter process, once
    return [wakeups(name) - early for name, early in zip(names, before, strict=True)]


def test_an_idle_device_takes_next_to_no_processor_time():
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run([sys.executable, str(IDLE), "--seconds", "1"], capture_output=True, text=True,
                          timeout=limit_s(120), check=True, env={**os.environ, "PYTHONPATH": path})
    shares = dict(re.findall(r"(embedded|process) +\| +([0-9.]+)%", done.stdout))
    assert sorted(shares) == ["embedded", "process"]
    assert all(float(share) < 5 for share in shares.values()), shares


def test_one_that_waits_for_its_completion_channel_is_woken(verbs_pair):
    driver = verbs_pair.server.driver
    cq = driver.create_cq(16, "channel")
    with connected(verbs_pair, 4096, cq) as link:
        for number in range(20):
            link.post_receive(number, 4096)
            cq.arm()
            threading.Timer(0.005, link.send, (number, 4096)).start()
            assert driver.wait_completion("channel", 20) is cq
            assert [wc.wr_id for wc in cq.poll(4)] == [number]
            take(link.client_cq, 1)


def until(condition):
    """Let other threads and processes run until ``condition()``; bounded."""
    pause = threading.Event()
    limit_ns = now_ns() + BOUND_S * NS_PER_S
    while not condition():
        assert now_ns() < limit_ns, "nothing happened"
        pause.wait(0.001)


def sleeps(name):
    """Whether whoever serves a device is asleep, with nothing to wake it up soon."""
    device = devices.find(name)
    if device.mode == "embedded":
        return device.engine.loop.sleeper.wakeup_ns > now_ns() + NS_PER_S
    return all(ctypes.c_uint64.from_address(channel._flag_address).value for channel in device._channels)


def test_a_receive_that_is_posted_after_an_error_nobody_told_of_is_flushed(verbs_pair):
    driver, server = verbs_pair.server.driver, verbs_pair.names[1]
    cq = driver.create_cq(16, "channel")
    with connected(verbs_pair, 64, cq) as link:
        link.client.qp.post_send(0, 2, 0, 1, 1, 1, 0, 0, 0, 0, 0, link.client.element(8), None)
        link.client.qp.ring()
        assert take(link.client_cq, 1)[0].status == ACCESS_ERROR
        cq.arm()
        found = []
        waiter = threading.Thread(target=lambda: found.append(driver.wait_completion("channel", BOUND_S)))
        waiter.start()
        try:
            if verbs_pair.mode == "embedded":
                until(lambda: devices.find(server).engine.loop.sleeper.waiters)
            until(lambda: sleeps(server))
            link.server.qp.state = RTS  # as if nothing had told this side
            link.post_receive(9, 8)
            until(lambda: not waiter.is_alive())
        finally:
            waiter.join()
        assert found == [cq]
        assert [(wc.wr_id, wc.status) for wc in cq.poll(4)] == [(9, FLUSHED)]
