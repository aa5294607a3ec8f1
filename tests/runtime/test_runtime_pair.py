"""End to end: two contexts, two adapters, real UDP sockets; the adapters in this process and in their own."""

import threading

import pytest
from runtime_pair import RemoteOperation, connected, take

from softhca.runtime import devices

OPERATIONS = list(RemoteOperation)


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
        pause = threading.Event()
        pause.wait(1)  # acknowledgement timers that are still armed run out
        before = [wakeups(name) for name in ("pair0", "pair1")]
        pause.wait(0.5)
        after = [wakeups(name) for name in ("pair0", "pair1")]
        # the look itself wakes an adapter process, once
        assert all(late - early <= 2 for early, late in zip(before, after, strict=True))


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
