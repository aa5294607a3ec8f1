"""The plain socket programs come to an end, on both sides, and count what they moved."""

import multiprocessing

import pytest
from bench import memory, python_sockets


@pytest.mark.parametrize("spinning", [False, True])
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_ping_pong_ends_with_its_other_end(protocol, spinning):
    found = python_sockets.latency(protocol, 8, 0.02, spinning).latency_us
    assert 0 < found["min"] <= found["p50"] <= found["p99"] <= found["max"]
    assert not multiprocessing.active_children()


def test_what_has_arrived_counts():
    figure = python_sockets.bandwidth(4096, 0.02)
    assert figure.bandwidth_bytes_per_s == pytest.approx(figure.rate_per_s * 4096)
    assert figure.rate_per_s > 0
    assert not multiprocessing.active_children()


def test_a_copy_is_counted_in_bytes_of_its_size():
    figure = memory.memcpy(1024, 0.01)
    assert figure.bandwidth_bytes_per_s == pytest.approx(figure.rate_per_s * 1024)
