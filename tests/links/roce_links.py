"""Links on this machine's loopback addresses, bursts between them, and a kernel that answers as told."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import Any

import pytest

from softhca.links.roce_udp import RoceUdpLink
from softhca.wire.burst import Arrival, Burst
from softhca.wire.route import Route

Open = Callable[..., RoceUdpLink]
V4 = ("127.9.1.1", "127.9.1.2")


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
PAIRS = pytest.mark.parametrize(
    "addresses", [V4, pytest.param(("::1", "::1"), marks=needs_ipv6)], ids=["ipv4", "ipv6"])


def route_between(
    sender: RoceUdpLink, receiver: RoceUdpLink, entropy: int = 1, traffic_class: int = 0
) -> Route:
    return Route(sender.framing, sender.gid, receiver.gid, source_port=sender.source_port_for(entropy),
                 destination_port=receiver.port, traffic_class=traffic_class)


def burst_of(route: Route, data: bytes, stride: int) -> Burst:
    burst = Burst()
    burst.data[: len(data)] = memoryview(data)
    burst.length, burst.stride, burst.route = len(data), stride, route
    burst.packets = -(-len(data) // stride) if stride else 1
    return burst


def wait_and_receive(link: RoceUdpLink, arrival: Arrival) -> bytes:
    assert select.select([link], [], [], 5.0)[0], "nothing arrived"
    assert link.receive(arrival)
    return bytes(arrival.data[: arrival.length])


class ScriptedLink(RoceUdpLink):
    """Answers system calls from a script of errors (None: make the call) and notes what was asked."""

    def __init__(self, address: str, port: int = 0, **options: Any) -> None:
        super().__init__(address, port, **options)
        self.script: list[int | None] = []
        self.asked: list[tuple[int, int, int, int]] = []

    def transmit(self, fd: int, address: int, n: int, segment: int, path: Any, route: Route) -> int:
        self.asked.append((fd, address, n, segment))
        error = self.script.pop(0) if self.script else None
        if error is not None:
            return -error
        return super().transmit(fd, address, n, segment, path, route)
