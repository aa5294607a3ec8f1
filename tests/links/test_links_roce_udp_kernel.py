"""What a link does where the kernel cuts bursts, refuses them or has no room."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest
from roce_links import V4, Open, ScriptedLink, burst_of, route_between, wait_and_receive

from softhca.links import paths, roce_udp
from softhca.links.roce_udp import AGAIN, SENT, RoceUdpLink
from softhca.wire.burst import Arrival, Burst
from softhca.wire.route import ROCE_V4, V4_MAPPED_PREFIX, Route


def test_an_ipv4_path_that_cuts_gets_plain_datagrams(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.UNKNOWN)
    left, right = (open_link(address) for address in V4)
    route = route_between(left, right)
    data = random.Random(2).randbytes(3 * 1000 + 7)
    assert left.send(burst_of(route, data, 1000)) == SENT
    assert not left.is_segmenting(route)
    assert (left.send_calls, left.datagrams_sent, left.bytes_sent) == (4, 4, 3007)
    arrival, received = Arrival(), b""
    while len(received) < len(data):
        received += wait_and_receive(right, arrival)
        assert arrival.stride <= 1000
    assert received == data


def test_a_marked_peer_gets_whole_bursts_until_unmarked(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.UNKNOWN)
    left, right = (open_link(address) for address in V4)
    route = route_between(left, right)
    assert not left.is_segmenting(route)
    left.mark_segmenting(right.gid)
    assert left.is_segmenting(route)
    left.send(counted(burst_of(route, bytes(3000), 1000)))
    assert left.send_calls == 1
    left.mark_segmenting(right.gid, False)
    left.send(burst_of(route, bytes(3000), 1000))
    assert left.send_calls == 4


def counted(burst: Burst) -> Burst:
    burst.counted = True
    return burst


def test_where_the_kernel_cuts_bursts_go_whole_when_they_were_made_for_it(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.COUNTING)
    left, right = (open_link(address) for address in V4)
    route = route_between(left, right)
    assert left.send(burst_of(route, bytes(3000), 1000)) == SENT
    assert (route.counted, left.send_calls) == (True, 3)  # its ICRCs were for 0, and so is each datagram
    assert left.send(counted(burst_of(route, bytes(3000), 1000))) == SENT
    assert left.send_calls == 4
    assert route.counted


def test_a_route_whose_path_no_longer_counts_is_told(open_link: Open) -> None:
    left, right = (open_link(address) for address in V4)
    route = route_between(left, right)
    route.counted, route.identification = True, 5
    assert left.send(counted(burst_of(route, bytes(3000), 1000))) == SENT
    assert (route.counted, route.identification, left.send_calls) == (False, 0, 3)


def test_a_refused_burst_is_the_last_that_is_made_for_counted_identifications(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.COUNTING)
    left, right, asked = scripted(open_link, errno.EIO)
    route = route_between(left, right)
    route.counted, route.identification = True, 2
    assert left.send(counted(burst_of(route, bytes(3000), 1000))) == SENT
    assert [n for _, _, n, _ in asked] == [3000, 1000, 1000, 1000]
    assert (route.counted, route.identification, left.is_segmenting(route)) == (False, 0, False)


def test_a_link_told_not_to_count_never_does(open_link: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.COUNTING)
    left, right = (open_link(address) for address in V4)
    left.counts = False
    left.mark_segmenting(right.gid)
    route = route_between(left, right)
    assert left.send(burst_of(route, bytes(3000), 1000)) == SENT
    assert (route.counted, left.send_calls, left.is_segmenting(route)) == (False, 3, False)


def test_paths_are_looked_up_once_and_again_when_forgotten(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[bytes, bytes, int]] = []
    monkeypatch.setattr(paths, "cutting", lambda *question: asked.append(question) or paths.UNCUT)
    left, right = (open_link(address) for address in V4)
    burst = burst_of(route_between(left, right), bytes(10), 10)
    left.send(burst)
    left.send(burst)
    assert asked == [(bytes((127, 9, 1, 1)), bytes((127, 9, 1, 2)))]
    left.forget_paths()
    left.send(burst)
    assert len(asked) == 2


def scripted(open_link: Open, *script: int | None) -> tuple[Any, Any, list[tuple[int, int, int, int]]]:
    """A link with that script, its peer, and the list of what was asked of the kernel."""
    left: Any = open_link("127.9.1.1", kind=ScriptedLink)
    left.script.extend(script)
    return left, open_link("127.9.1.2"), left.asked


@pytest.mark.parametrize("full", [errno.EAGAIN, errno.ENOBUFS])
def test_a_full_socket_keeps_the_burst_and_names_its_socket(open_link: Open, full: int) -> None:
    left, right, asked = scripted(open_link, full)
    burst = burst_of(route_between(left, right), b"keep me" * 3, 7)
    assert left.send(burst) == AGAIN
    assert (left.send_blocked, left.bursts_sent, left.datagrams_sent, left.send_errors) == (1, 0, 0, 0)
    assert left.blocked_fileno == asked[0][0]
    assert left.send(burst) == SENT
    assert left.blocked_fileno == -1
    assert wait_and_receive(right, Arrival()) == b"keep me" * 3


def test_a_burst_that_met_a_full_socket_goes_on_where_it_was(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.UNKNOWN)
    left, right, asked = scripted(open_link, None, None, errno.EAGAIN, errno.EAGAIN)
    data = random.Random(5).randbytes(4500)
    burst = burst_of(route_between(left, right), data, 1000)
    assert [left.send(burst) for _ in range(3)] == [AGAIN, AGAIN, SENT]
    offsets = [address - burst.address for _, address, _, _ in asked]
    assert offsets == [0, 1000, 2000, 2000, 2000, 3000, 4000]
    assert (left.datagrams_sent, left.bytes_sent, left.bursts_sent, left.send_blocked) == (5, 4500, 1, 2)
    arrival, received = Arrival(), b""
    while len(received) < 4500:
        received += wait_and_receive(right, arrival)
    assert received == data
    assert left.send(burst) == SENT  # and from the start when it is sent anew
    assert left.bytes_sent == 9000


def test_an_abandoned_burst_starts_anew(open_link: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.UNKNOWN)
    left, right, asked = scripted(open_link, None, errno.EAGAIN)
    burst = burst_of(route_between(left, right), bytes(2000), 1000)
    assert left.send(burst) == AGAIN
    left.abandon(Burst())
    assert left.blocked_fileno >= 0
    left.abandon(burst)
    assert left.blocked_fileno == -1
    assert left.send(burst) == SENT
    assert [address - burst.address for _, address, _, _ in asked] == [0, 1000, 0, 1000]


def test_progress_belongs_to_its_burst(open_link: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.UNKNOWN)
    left, right, asked = scripted(open_link, None, errno.EAGAIN)
    route = route_between(left, right)
    assert left.send(burst_of(route, bytes(2000), 1000)) == AGAIN
    other = burst_of(route, bytes(2000), 1000)
    assert left.send(other) == SENT
    assert [address - other.address for _, address, _, _ in asked[2:]] == [0, 1000]


@pytest.mark.parametrize("refusal", [errno.EIO, errno.EINVAL, errno.EOPNOTSUPP])
def test_a_kernel_that_refuses_segmentation_gets_plain_datagrams(open_link: Open, refusal: int) -> None:
    left, right, asked = scripted(open_link, refusal)
    route = route_between(left, right)
    data = random.Random(6).randbytes(2500)
    assert left.send(burst_of(route, data, 1000)) == SENT
    assert [n for _, _, n, _ in asked] == [2500, 1000, 1000, 500]
    assert (left.segmentation_refusals, left.send_errors, left.datagrams_sent) == (1, 0, 3)
    assert not left.is_segmenting(route)
    arrival, received = Arrival(), b""
    while len(received) < 2500:
        received += wait_and_receive(right, arrival)
    assert received == data


def test_a_refused_plain_datagram_is_dropped_and_counted(open_link: Open) -> None:
    left, right, asked = scripted(open_link, errno.EINVAL, errno.EPERM)
    route = route_between(left, right)
    assert left.send(burst_of(route, bytes(100), 100)) == -errno.EINVAL
    assert left.segmentation_refusals == 0
    assert left.send(burst_of(route, bytes(300), 100)) == -errno.EPERM
    assert (left.send_errors, left.bursts_sent, len(asked)) == (2, 0, 2)
    assert left.send(burst_of(route, b"after", 5)) == SENT
    assert wait_and_receive(right, Arrival()) == b"after"


def test_an_error_in_the_middle_drops_the_rest_and_forgets_the_place(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.UNKNOWN)
    left, right, asked = scripted(open_link, None, errno.EAGAIN, errno.ENETUNREACH)
    burst = burst_of(route_between(left, right), bytes(3000), 1000)
    assert left.send(burst) == AGAIN
    assert left.send(burst) == -errno.ENETUNREACH
    assert left.datagrams_sent == 1
    assert left.send(burst) == SENT
    assert asked[3][1] == burst.address


def test_what_is_known_of_destinations_is_bounded(open_link: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    monkeypatch.setattr(roce_udp, "_MAX_PATHS", 2)
    monkeypatch.setattr(paths, "leaves_bursts_uncut", lambda _, there: asked.append(there) or False)
    monkeypatch.setattr(paths, "cutting", lambda _, there: asked.append(there) or paths.UNCUT)
    link = open_link("127.9.1.1")
    gids = [V4_MAPPED_PREFIX + bytes((192, 0, 2, number)) for number in range(3)]
    routes = [Route(ROCE_V4, link.gid, gid, source_port=1, destination_port=2) for gid in gids]
    for look, what in ((link.preserves_bursts, gids), (link.is_segmenting, routes)):
        asked.clear()
        for number in (0, 1, 0, 1, 2, 2, 0):
            look(what[number])  # type: ignore[operator]
        assert [each[-1] for each in asked] == [0, 1, 2, 0]


def test_a_path_that_was_refused_is_made_for_no_more(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.COUNTING)
    refusals = [errno.EIO]

    class Refusing(RoceUdpLink):
        def transmit(self, fd: int, address: int, n: int, segment: int, path: Any, route: Route) -> int:
            return -refusals.pop() if refusals else n

    left, right = open_link("127.9.1.1", kind=Refusing), open_link("127.9.1.2")
    route = route_between(left, right)
    for number in range(3):
        burst = burst_of(route, bytes(300), 100)
        burst.counted = route.counted = number == 0
        assert left.send(burst) == SENT
        assert not route.counted
    assert left.segmentation_refusals == 1


def test_the_largest_datagram_is_one_call(open_link: Open) -> None:
    class Counting(RoceUdpLink):
        def transmit(self, fd: int, address: int, n: int, segment: int, path: Any, route: Route) -> int:
            sizes.append(n)
            return n or -errno.EBADMSG

    sizes: list[int] = []
    left, right = open_link("127.9.1.1", kind=Counting), open_link("127.9.1.2")
    for length in (65_486, 65_487, 65_488):
        assert left.send(burst_of(route_between(left, right), bytes(length), length)) == SENT
    assert sizes == [65_486, 65_487, 65_488]


def test_a_mark_counts_where_nothing_else_is_known(open_link: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = (open_link(address) for address in V4)
    left.mark_segmenting(right.gid)
    for known, segmenting, counted in (
        (paths.UNCUT, True, False), (paths.UNKNOWN, True, True), (paths.COUNTING, True, True),
    ):  # fmt: skip
        monkeypatch.setattr(paths, "cutting", lambda *_, known=known: known)
        left.forget_paths()
        route = route_between(left, right)
        assert left.is_segmenting(route) == segmenting
        assert left.send(burst_of(route, bytes(100), 100)) == SENT
        assert route.counted == counted
