"""DCQCN over real sockets: the bits of ECN leave and arrive in the IP header, and notifications come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from runtime_pair import End, RemoteOperation, join, take

from softhca.adapter import paths
from softhca.driver import registry
from softhca.runtime import devices

NAMES = ("marking0", "marking1")
SIZE = 65_536


@pytest.fixture
def ends(loopback_address: Callable[[], str]) -> Iterator[Callable[[str], list[Any]]]:
    """Two ends on devices with an option, and what takes them down."""
    opened: list[Any] = []

    def make(option: str) -> list[Any]:
        words = [f"{name}=udp:{loopback_address()}?same_host=0&{option}" for name in NAMES]
        devices.add(",".join(words), "embedded")
        opened.extend(registry.open_device(name) for name in NAMES)
        made = [End(driver, SIZE) for driver in opened]
        join(*made)
        return made

    yield make
    for driver in opened:
        driver.close()
    for name in NAMES:
        devices.remove(name)


def write(made: list[Any], times: int) -> None:
    left, right = made
    for number in range(times):
        left.qp.post_send(RemoteOperation.WRITE, 2, 0, number, right.address, right.key.rkey, 0, 0, 0, 0, 0,
                          left.element(SIZE), None)  # fmt: skip
        left.qp.ring()
        (done,) = take(left.cq, 1)
        assert done.status == 0


def counters(made: list[Any]) -> list[dict[str, int]]:
    return [end.driver.query_counters(1) for end in made]


def test_marks_cross_the_wire_and_are_told_of(
    ends: Callable[[str], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "ECT0", 3)  # every packet leaves as if a switch had marked it
    made = ends("congestion=dcqcn")
    write(made, 4)
    left, right = counters(made)
    assert right["transport_packets_marked"] > 0
    assert right["transport_cnps_sent"] > 0
    assert left["transport_cnps_received"] > 0
    for end in made:
        end.close()


@pytest.mark.parametrize("option", ["congestion=off", "congestion=dcqcn&rate=40000"])
def test_without_marks_nothing_is_told(ends: Callable[[str], list[Any]], option: str) -> None:
    made = ends(option)
    write(made, 4)
    for each in counters(made):
        assert each["transport_packets_marked"] == each["transport_cnps_sent"] == 0
        assert each["transport_cnps_received"] == each["transport_cnps_ignored"] == 0
    for end in made:
        end.close()
