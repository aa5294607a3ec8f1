"""The adapter in gates and a software adapter on a native link of their own, in the same virtual time."""

from __future__ import annotations

from softhca.driver import services
from softhca.driver.services import Path
from softhca.hardware import CLOCK_NS
from softhca.hardware.message_host import MessageHost
from softhca.hardware.subsystem import Subsystem
from softhca.hardware.subsystem_bench import SubsystemBench
from softhca.testing.ends import ALL_RIGHTS, End
from softhca.testing.network import Network

GATES_LID, QP, PD = 5, 2, 7
STEP_CLOCKS = 8
PATIENCE_CLOCKS = 12_000
MTU_CODES = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}


class CoSimulation:
    """``host`` is the gates' software, ``end`` the other one's, ``peers`` its queue pairs by the numbers of
    those in gates that they are connected with.

    ``packets`` are those of both sides as they left: (who sent it, bytes LRH … VCRC).  ``change`` may give
    others in their place, or None.
    """

    def __init__(self, qps=(QP,), vis=4, mtu=256, latency=1, psns=(100, 0xFFFFFE), **reliability):
        self.bench = SubsystemBench(Subsystem(vis, 1, 1024, 4), latency=latency, limit=1 << 24)
        self.host = MessageHost(self.bench)
        self.network = Network(link="native")
        self.end = End(self.network.add())
        self.peers = {qp: self.end.qp() for qp in qps}
        self.mtu, self.psns, self.reliability = mtu, psns, reliability
        self.packets = []
        self.change = lambda who, data: data
        self._departed = 0
        self.network.tamper = self._sent

    def _sent(self, datagram):
        """What the software adapter sends goes to the gates, and nowhere else."""
        data = bytes(datagram.data)
        self.packets.append(("software", data))
        data = self.change("software", data)
        if data is not None:
            self.bench.arrivals.append(data)

    def run(self, script):
        """Play ``script(context)``, all queue pairs connected."""

        async def play(context):
            await self.host.start(context)
            how = services.Reliability(**self.reliability)
            path = Path(None, mtu=MTU_CODES[self.mtu], dlid=GATES_LID)
            for qp, peer in self.peers.items():
                lids = GATES_LID, self.end.node.lid
                await self.host.connect(
                    context, qp, pd=PD, peer=peer.number, lids=lids, psns=self.psns, mtu=self.mtu
                )
                services.connect(peer, path, qp, *self.psns, ALL_RIGHTS, how)
            self.network.run(limit_ns=0)
            await script(context)

        self.bench.run(play)

    async def until(self, context, reached, patience=PATIENCE_CLOCKS):
        """Let both go on until ``reached()`` is true."""
        for _ in range(patience // STEP_CLOCKS):
            for data in self.bench.departed[self._departed :]:
                self.packets.append(("gates", data))
                changed = self.change("gates", data)
                if changed is not None:
                    self.network.inject(self.end.node, changed)
            self._departed = len(self.bench.departed)
            self.network.elapse(STEP_CLOCKS * CLOCK_NS)
            if reached():
                return
            await context.tick().repeat(STEP_CLOCKS)
        raise TimeoutError("nothing goes on any more")

    async def completed(self, context, count=1, peers=0):
        """So many completions of the gates and of the software adapter."""
        found, theirs = [], []

        def enough():
            found.extend(self.host.poll())
            if len(theirs) < peers:
                theirs.extend(self.end.cq.poll(8))
            return len(found) >= count and len(theirs) >= peers

        await self.until(context, enough, PATIENCE_CLOCKS * max(1, count))
        return found, [(done.wr_id, done.status) for done in theirs]
