"""A queue pair of any service: the input sets, changes and lifts its limit, posts, and lets time pass.

After each input: nothing was raised but refusals of limits that there are not; between two changes no stretch
of time has carried more than the rate and one burst; what is told is what was set; and all that was posted is
done once nothing is limited any more.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

from fuzz_choices import Choices

from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.testing.addressing import gid
from softhca.testing.datagram import Datagram
from softhca.testing.ends import RAW, RC, SEND, UC, UD, End, connect, post
from softhca.testing.network import Network
from softhca.transport.pacing import DEPTH_NS, LEAST_RATE_KBPS, MOST_RATE_KBPS, TURN_NS

STEPS = 24
MOST_POSTED = 12
QKEY = 0x1234567
LENGTHS = (14, 60, 512, 1_000, 1_024)
RATES = (0, 8, 800, 8_000, 1_000_000, 100_000_000, 7, 100_000_001, 0xFFFFFFFF)
BURSTS = (0, 0, 1, 1_500, 19_999, 20_000, 64_000, 0xFFFFFFFF)
VXLAN_BYTES = 8


class World:
    """Two adapters, and what left the first one since the limit was changed."""

    def __init__(self) -> None:
        self.network = Network()
        vteps = (gid(1), gid(2))
        self.ends = [End(self.network.add(vteps=vteps, active_mtu=3), 4_096, entries=64) for _ in range(2)]
        self.sent: list[tuple[int, int]] = []
        self.beyond = 0
        self.network.observers.append(self._watch)

    def _watch(self, datagram: Datagram) -> None:
        if datagram.event == "sent" and datagram.source is self.ends[0].node:
            self.sent.append((datagram.time_ns, len(datagram.data) - self.beyond))


_world: list[World] = []


def finish() -> None:
    """Close the world."""
    while _world:
        _world.pop().network.close()


def queue_pairs(world: World, kind: int) -> tuple[list[Any], int]:
    """Two that can talk, and the address handle of the first one where it needs one."""
    ends = world.ends
    qps = [end.qp(kind) for end in ends]
    handle = 0
    if kind == RAW:
        for qp in qps:
            for attributes in ({"qp_state": 1, "port_num": 1}, {"qp_state": 2}, {"qp_state": 3}):
                qp.modify(attributes)
    elif kind == UD:
        for qp in qps:
            services.start_datagrams(qp, QKEY)
        vector = {"dgid": ends[1].node.gid, "is_global": 1, "port_num": 1}
        handle = ends[0].device.create_ah(ends[0].pd, vector)
    else:
        connect((ends[0], qps[0]), (ends[1], qps[1]), kind)
    return qps, handle


def one_input(data: bytes) -> None:
    choices = Choices(data)
    if not _world:
        _world.append(World())
    world = _world[0]
    network, left, right = world.network, *world.ends
    kind = choices.pick((RC, UC, UD, RAW))
    world.beyond = VXLAN_BYTES if kind == RAW else 0
    qps, handle = queue_pairs(world, kind)
    world.sent.clear()
    rate = burst = posted = 0
    try:
        for _ in range(STEPS):
            if not choices.more:
                break
            what = choices.below(3)
            if what == 0 and posted < MOST_POSTED:
                qps[1].post_recv(0, [right.sge(0, 4_096)])
                qps[1].ring()
                place = left.sge(0, choices.pick(LENGTHS))
                post(qps[0], SEND, [place], ah=handle, qpn=qps[1].number, qkey=QKEY)
                posted += 1
            elif what == 1:
                network.elapse(choices.number(2) << choices.below(10))
            else:
                check(world.sent, rate, burst)
                world.sent.clear()
                rate, burst = limited(qps[0], choices, (rate, burst))
        check(world.sent, rate, burst)
        qps[0].modify({"rate_limit": 0})
        assert [each.status for each in left.poll(posted)] == [0] * posted
    finally:
        if handle:
            left.device.destroy_ah(handle)
        for qp in qps:
            qp.destroy()
        network.run()
        right.cq.poll(64)


def limited(qp: Any, choices: Choices, before: tuple[int, int]) -> tuple[int, int]:
    """The rate and burst that are in force after they were asked for."""
    rate, burst, typical = choices.pick(RATES), choices.pick(BURSTS), choices.below(3)
    there = LEAST_RATE_KBPS <= rate <= MOST_RATE_KBPS or rate == burst == typical == 0
    try:
        qp.modify({"rate_limit": rate, "max_burst_sz": burst, "typical_pkt_sz": typical})
    except DriverError as error:
        assert (error.errno, there) == (errno.EINVAL, False)
    else:
        assert there
        before = rate, burst
    assert qp.query()["rate_limit"] == before[0]
    return before


def check(sent: list[tuple[int, int]], rate: int, burst: int) -> None:
    """A bucket that runs out at the rate never holds more than one burst, and a packet where that is more."""
    if not rate:
        return
    longest = max((n for _, n in sent), default=0)
    most = max(burst, longest)
    if not burst:
        most = rate * DEPTH_NS // 8_000_000 + max(longest, rate * TURN_NS // 8_000_000) + 1
    filled, last = 0, 0
    for now, n in sent:
        filled = max(0, filled - (now - last) * rate) + n * 8_000_000
        last = now
        assert filled <= (most + 1) * 8_000_000, (rate, burst, n, now)


def seeds() -> Iterator[bytes]:
    """Posts under a limit that is changed, of each service."""
    for kind in range(4):
        changed = bytes((1, 255, 255, 5, 2, 4, 0, 0))
        yield bytes((kind, 2, 3, 1, 0)) + bytes((0, 4)) * 8 + changed + bytes((0, 3)) * 4
        yield bytes((kind, 2, 2, 3, 1)) + bytes((0, 4, 1, 0, 64, 9)) * 4 + bytes((2, 6, 2, 0, 2, 0, 0, 0))
        yield bytes((kind, 2, 5, 5, 0)) + bytes((0, 2)) * 12
