"""Two adapters with two ports each, or more, and a connection that may move from one pair to another."""

from softhca.driver import services
from softhca.testing.ends import RC, SEND, End, post
from softhca.testing.network import Network
from softhca.transport.migration import REARMED

PSNS = (100, 200)
TIMEOUT, RETRIES = 8, 2
INTERVAL_NS = 2 * 4096 << TIMEOUT


class Scene:
    """Two ends on adapters of so many ``ports``, connected by the first ones; ``lost`` swallows packets by
    port."""

    def __init__(self, kind=RC, link="ipv4", config=None, ports=2):
        self.network = Network(link=link)
        self.network.tamper = self._fate
        self.lost = set()
        self.kind = kind
        self.ends = [End(self.network.add(ports=ports, **(config or {}))) for _ in range(2)]
        self.qps = [end.qp(kind) for end in self.ends]
        for side in (0, 1):
            how = services.Reliability(TIMEOUT, RETRIES) if kind == RC else None
            other = self.qps[1 - side].number
            services.connect(self.qps[side], self.path(side, 1), other, PSNS[1 - side], PSNS[side], 15, how)

    def _fate(self, datagram):
        """What comes from, or goes to, a port that is cut off does not arrive."""
        route = datagram.route
        return None if {(datagram.source, route.port_number)} & self.lost else datagram.data

    def cut(self, port):
        """Nothing passes between the ports ``port`` of both."""
        self.lost |= {(end.node, port) for end in self.ends}

    def path(self, side, port):
        other = self.ends[1 - side].node
        return self.network.addressing.path(other, port, port_num=port, mtu=3)

    def context(self, side):
        return self.ends[side].node.adapter.queue_pairs[self.qps[side].number]

    @property
    def states(self):
        return [self.context(side).migration for side in (0, 1)]

    @property
    def ports(self):
        return [self.context(side).flow.port_number for side in (0, 1)]

    def rearm(self, *sides, port=2, **more):
        for side in sides or (0, 1):
            self.qps[side].modify({
                "alt_ah_attr": self.path(side, port).vector(), "alt_port_num": port, "alt_timeout": TIMEOUT,
                "path_mig_state": REARMED, **more,
            })  # fmt: skip
        self.network.run()

    def events(self, side):
        return [event[0] for event in iter(lambda: self.ends[side].device.next_event(0), None)]

    def send(self, side, count=1):
        """Messages one after the other; which ones have arrived."""
        end, other = self.ends[side], self.ends[1 - side]
        for number in range(count):
            self.qps[1 - side].post_recv(number, [other.sge(1000 + 10 * number, 10)])
        for number in range(count):
            end.memory[10 * number : 10 * number + 10] = bytes([number + 1]) * 10
            post(self.qps[side], SEND, [end.sge(10 * number, 10)])
        assert [each.status for each in end.poll(count)] == [0] * count
        return [bytes(other.memory[1000 + 10 * each.wr_id :][:10])[0] for each in other.poll(count)]
