"""What packets go through the rings of peers on this host: those of all services, also of adapters in a
process of their own; and in which order."""

import pytest
from runtime_pair import REMOTE_EVERYTHING, End, take
from runtime_served import serving, until

from softhca.driver import registry
from softhca.driver.services import Reliability, connect, path_to, start_datagrams
from softhca.runtime import devices, same_host_limits
from softhca.wire.route import ROCE_V4, Route

RC, UC, UD = 2, 3, 4
SEND, WRITE, READ = 2, 0, 4
QKEY = 0x1234
MESSAGES = 40
GRH_BYTES = 40

pytestmark = pytest.mark.skipif(bool(same_host_limits.unsupported()), reason="no same-host paths here")


class Embedded:
    """A device whose adapter is in this process, as a test sees it."""

    def __init__(self, name):
        self.driver = registry.open_device(name)
        self.engine = devices.find(name).engine
        self.loop, self.same_host, self.link = self.engine.loop, self.engine.same_host, self.engine.link


class Served:
    """A device whose adapter is served by another thread, as it is in a process of its own."""

    def __init__(self, name, server):
        devices.add(f"{name}=unix:{server.path}")
        self.driver = registry.open_device(name)
        self.loop, self.same_host, self.link = server.loop, server.same_host, server.links[0]


@pytest.fixture(params=["embedded", "served", "both served"])
def sides(request, loopback_address):
    """Two devices that may have same-host paths, the receiving one as the parameter says."""
    devices.add(f"near=udp:{loopback_address()}?same_host=1,far=udp:{loopback_address()}?same_host=1")
    with serving(loopback_address(), "one", True) as one, serving(loopback_address(), "two", True) as two:
        if request.param == "embedded":
            made = Embedded("near"), Embedded("far")
        elif request.param == "served":
            made = Embedded("near"), Served("far", one)
        else:
            made = Served("near", two), Served("far", one)
        yield made
        for side in made:
            side.driver.close()
    for name in ("near", "far"):
        devices.remove(name)


def met(*sides):
    """Until each has a ring to the other, for whoever asks."""

    def rings():
        found = []
        for side, other in (sides, sides[::-1]):
            side.driver.progress()
            with side.loop.lock:
                found.append(side.same_host.ports[1].link_of(Route(ROCE_V4, side.link.gid, other.link.gid)))
        return all(found)

    until(rings)


class UnreliableEnd(End):
    def __init__(self, driver, kind):
        super().__init__(driver, 1 << 16)
        self.qp.destroy()
        self.qp = driver.create_qp(self.pd, kind, self.cq, self.cq, None, 128, 128, 4, 4, 0, True)


def bursts(side):
    return side.link.counters()["bursts_sent"]


def taken_from_rings(side):
    return sum(receiver.bursts for receiver in side.same_host.receivers)


def joined(sides, kind):
    """Ends of this kind, connected where that is to be done; and the address handle of the peer."""
    ends = [UnreliableEnd(side.driver, kind) for side in sides]
    if kind == UD:
        for end in ends:
            start_datagrams(end.qp, QKEY)
        return ends, ends[0].driver.create_ah(ends[0].pd, path_to(ends[0].driver, sides[1].link.gid).vector())
    for end, peer, side in zip(ends, ends[::-1], reversed(sides), strict=True):
        connect(end.qp, path_to(end.driver, side.link.gid), peer.qp.number, 1, 1, REMOTE_EVERYTHING,
                Reliability() if kind == RC else None)
    return ends, 0


def talk(ends, kind, ah, first=0):
    """Messages of numbers, one after the other; which have come, and in what order."""
    client, server = ends
    at = GRH_BYTES if kind == UD else 0
    heard = []
    for number in range(first, first + MESSAGES):
        server.qp.post_recv(number, [(server.address, 200, server.key.lkey)])
        client.memory[:4] = number.to_bytes(4, "little")
        client.qp.post_send(SEND, 2, 0, number, 0, 0, 0, 0, ah, server.qp.number, QKEY,
                            [(client.address, 100, client.key.lkey)], None)
        client.qp.ring()
        assert take(client.cq, 1)[0].status == 0
        assert take(server.cq, 1)[0].status == 0
        heard.append(int.from_bytes(server.memory[at : at + 4], "little"))
    return heard


@pytest.mark.parametrize("kind", [RC, UC, UD])
def test_packets_of_all_services_go_through_the_rings(sides, kind):
    met(*sides)
    ends, ah = joined(sides, kind)
    talk(ends, kind, ah)  # whatever was under way at first has come
    before = [bursts(side) for side in sides], taken_from_rings(sides[1])
    assert talk(ends, kind, ah, 100) == list(range(100, 100 + MESSAGES))
    assert [bursts(side) for side in sides] == before[0]
    assert taken_from_rings(sides[1]) - before[1] >= MESSAGES


@pytest.mark.parametrize("kind", [RC, UC, UD])
def test_nothing_is_lost_when_packets_change_over_to_the_ring(sides, kind):
    """It is looked for with the first packet, and found some packets later."""
    ends, ah = joined(sides, kind)
    assert talk(ends, kind, ah) == list(range(MESSAGES))
    met(*sides)
    assert talk(ends, kind, ah, MESSAGES) == list(range(MESSAGES, 2 * MESSAGES))


@pytest.mark.parametrize("sides", ["served", "both served"], indirect=True)
def test_rdma_beside_an_adapter_of_another_process_goes_by_packets_through_the_ring(sides):
    met(*sides)
    ends, _ = joined(sides, RC)
    client, server = ends
    talk(ends, RC, 0)
    before = bursts(sides[0])
    client.memory[:8] = b"12345678"
    for operation, expected in ((WRITE, b"12345678"), (READ, b"abcdefgh")):
        client.qp.post_send(operation, 2, 0, 1, server.address, server.key.rkey, 0, 0, 0, 0, 0,
                            [(client.address, 8, client.key.lkey)], None)
        client.qp.ring()
        assert take(client.cq, 1)[0].status == 0
        assert bytes((server if operation == WRITE else client).memory[:8]) == expected
        server.memory[:8] = b"abcdefgh"
    assert bursts(sides[0]) == before
