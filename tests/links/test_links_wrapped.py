"""A link on top of another one says what that one says; and the groups, counters and faults of links keep
their bounds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from softhca.links import netlink, paths
from softhca.links.fault_counters import FaultCounters, counters_of, read_reports
from softhca.links.faults import Crash, Faults, FaultsError, Partition
from softhca.links.groups import GroupSockets
from softhca.links.interfaces import index_of_interface
from softhca.links.sockets import bound_socket
from softhca.links.wrapped import WrappedLink
from softhca.wire.framing import ROCE_V6
from softhca.wire.route import V4_MAPPED_PREFIX

GROUP = V4_MAPPED_PREFIX + bytes((239, 9, 4, 7))


class Noting:
    """A link that notes what it is asked, and answers with what nothing else would."""

    framing = ROCE_V6
    counts = False
    other = "kept"

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {"counters": {"one": 1}, "shown_counters": {"two": 2}}
        answers.update(preserves_bursts=True, expire=True, receive=True)

        def answer(*arguments: Any) -> Any:
            self.asked.append((name, *arguments))
            return answers.get(name, 41)

        return answer


@pytest.mark.parametrize(("name", "arguments", "answer"), [
    ("send", ("burst",), 41), ("receive", ("arrival",), True), ("abandon", ("burst",), None),
    ("fileno", (), 41), ("listen_for_frames", (), None), ("group_fileno", (), 41), ("join", (b"gid",), None),
    ("leave", (b"gid",), None),
    ("next_deadline", (), 41), ("expire", (5,), True), ("preserves_bursts", (b"gid",), True),
    ("counters", (), {"one": 1}), ("shown_counters", (), {"two": 2}), ("close", (), None),
])  # fmt: skip
def test_what_a_wrapped_link_is_asked_is_asked_below(
    name: str, arguments: tuple[Any, ...], answer: Any
) -> None:
    below = Noting()
    wrapped = WrappedLink(below)
    assert getattr(wrapped, name)(*arguments) == answer
    assert below.asked == [(name, *arguments)]


def test_a_wrapped_link_sees_packets_of_the_same_framing() -> None:
    below = Noting()
    wrapped = WrappedLink(below)
    assert (wrapped.framing, wrapped.sees_packets, wrapped.other) == (ROCE_V6, True, "kept")
    assert not wrapped.counts
    wrapped.counts = True
    assert below.counts
    with pytest.raises(AttributeError):
        WrappedLink.__new__(WrappedLink).other  # noqa: B018, it has no link yet


@pytest.fixture
def groups() -> Any:
    made = GroupSockets(bytes((127, 0, 0, 1)), index_of_interface("lo"), 0, 1 << 16, gro=False)
    yield made
    made.close()


def test_who_leaves_a_group_keeps_nothing_of_it(groups: GroupSockets) -> None:
    before = len(os.listdir("/proc/self/fd"))
    groups.join(GROUP)
    assert len(groups) == 1
    groups.leave(GROUP)
    assert (len(groups), groups._gids, groups._sockets) == (0, {}, {})
    assert len(os.listdir("/proc/self/fd")) == before


def test_frames_are_waited_for_as_long_as_there_is_no_group(groups: GroupSockets) -> None:
    endpoint = bound_socket("127.0.0.1", 0)
    groups.add_frames(endpoint, b"own")
    groups.join(GROUP)
    groups.leave(GROUP)
    assert len(groups) == 1
    groups.close()
    assert endpoint.fileno() < 0


def test_a_group_on_an_interface_that_there_is_not_leaves_no_socket() -> None:
    made = GroupSockets(bytes((192, 0, 2, 1)), 1 << 20, 0, 1 << 16, gro=False)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="device"):
        made.join(GROUP)
    assert len(os.listdir("/proc/self/fd")) == before
    made.close()


def test_counters_in_a_file_begin_at_nothing_and_keep_no_descriptor(tmp_path: Path) -> None:
    place = tmp_path / "one.faults"
    place.write_bytes(b"\xff" * 64)
    before = len(os.listdir("/proc/self/fd"))
    counters = FaultCounters(place)
    assert set(counters.as_dict().values()) == {0}
    # the mapping has a descriptor of its own
    assert len(os.listdir("/proc/self/fd")) == before + 1


def test_an_address_with_any_sign_is_reported(tmp_path: Path) -> None:
    counters_of("a_name", {"SOFTHCA_FAULTS_REPORTS": str(tmp_path)}).count("lost", 2)
    assert [(one.address, one.counts["lost"]) for one in read_reports(tmp_path.iterdir())] == [("a-name", 2)]


def test_faults_have_bounds_that_are_taken() -> None:
    assert Partition(250, 1, 0, 1) != Partition(1, 250, 0, 1)
    assert Crash(250, 0, 1).adapter * Faults(burst_loss=1.0).burst_loss == 250
    for make in (
        lambda: Partition(251, 1, 0), lambda: Partition(1, 251, 0), lambda: Partition(1, 2, 3, 3),
        lambda: Crash(251, 0), lambda: Crash(1, 3, 3), lambda: Faults(burst_loss=1.5),
        lambda: Faults(loss=-0.1),
    ):  # fmt: skip
        with pytest.raises(FaultsError):
            make()


@pytest.mark.parametrize(("text", "name", "value"), [
    ("bandwidth=3kB/s", "bandwidth_bytes_per_s", 3_000), ("bandwidth=3/s", "bandwidth_bytes_per_s", 3),
    ("bandwidth=1.5MB/s", "bandwidth_bytes_per_s", 1_500_000), ("delay=2.3us", "delay_ns", 2_300),
    ("delay=1s", "delay_ns", 10**9), ("skew=12", "skew_ppm", 12),
])  # fmt: skip
def test_a_unit_is_what_it_says(text: str, name: str, value: int) -> None:
    assert getattr(Faults.parse(text), name) == value


def test_a_number_beyond_all_is_one_line() -> None:
    with pytest.raises(FaultsError, match="expected something like 10us"):
        Faults.parse(f"delay={'9' * 400}.5ns")


def test_only_an_ipv4_address_is_the_loopback_s_by_its_first_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_route(*_: Any) -> None:
        raise OSError

    monkeypatch.setattr(netlink, "route", no_route)
    assert paths.cutting(bytes(16), b"\x7f" + bytes(15)) == paths.UNKNOWN
    assert paths.cutting(bytes(4), b"\x7f\x00\x00\x09") == paths.UNCUT
    assert paths.cutting(bytes(16), bytes(15) + b"\x01") == paths.UNCUT
