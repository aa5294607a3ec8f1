"""`peer.py` with words that measure: how fast messages go, and how long one of them takes.

The same file runs on Debian's pyverbs with SoftRoCE and on softhca's.  Every number is the program's own:
what Python and the verbs below it take is in it.
"""

from __future__ import annotations

import time
from typing import Any

import peer
from pyverbs import enums as e
from pyverbs.wr import RecvWR, SendWR

BATCH = 16
"""Work requests that are posted together; the last of them is signaled."""


class SpeedPeer(peer.Peer):
    """One side of a measurement."""

    def _chain(self, count: int, opcode: str, elements: list[Any], spec: dict[str, Any]) -> list[Any]:
        """``count`` requests, the head of their chain last; a completion tells their number."""
        chain: list[Any] = []
        for position in range(count):
            request = SendWR(
                wr_id=count, opcode=peer.OPCODES[opcode], num_sge=1, sg=elements,
                send_flags=0 if position else e.IBV_SEND_SIGNALED,
            )  # fmt: skip
            request.set_wr_rdma(spec["rkey"], spec["address"])
            if chain:
                request.next_wr = chain[-1]
            chain.append(request)
        return chain

    def rate(self, name: str, opcode: str, sg: list[Any], depth: int, seconds: float, **spec: Any) -> Any:
        """Keep ``depth`` requests posted for ``seconds``; how many were done in which time."""
        batch = min(BATCH, depth)
        chain = self._chain(batch, opcode, self.sg(sg), spec)
        queue, cq = self.qps[name], self.cqs[name]
        posted = done = 0
        start_ns = time.perf_counter_ns()
        end_ns = start_ns + int(seconds * 1e9)
        posting = True
        while posting or done < posted:
            posting = posting and time.perf_counter_ns() < end_ns
            while posting and posted - done + batch <= depth:
                queue.post_send(chain[-1])
                posted += batch
            for completion in cq.poll(BATCH)[1]:
                if completion.status:
                    raise ValueError(f"a request completed with status {completion.status}")
                done += completion.wr_id
        return {"operations": done, "elapsed_ns": time.perf_counter_ns() - start_ns}

    def answer(self, name: str, sg: list[Any], count: int) -> Any:
        """Send a message back for each of ``count`` that come."""
        receives, request, receive = self._toss(name, sg)
        for _ in range(count):
            self._caught(receives)
            self.qps[name].post_recv(receive)
            self.qps[name].post_send(request)
            self._caught(self.cqs[name])
        return {}

    def latency(self, name: str, sg: list[Any], count: int) -> Any:
        """Half of the time between sending a message and having the other side's, ``count`` times, sorted."""
        receives, request, receive = self._toss(name, sg)
        samples_ns: list[int] = []
        for _ in range(count):
            before_ns = time.perf_counter_ns()
            self.qps[name].post_send(request)
            self._caught(receives)
            samples_ns.append((time.perf_counter_ns() - before_ns) // 2)
            self.qps[name].post_recv(receive)
            self._caught(self.cqs[name])
        return {"samples_ns": sorted(samples_ns)}

    def _toss(self, name: str, sg: list[Any]) -> tuple[Any, Any, Any]:
        elements = self.sg(sg)
        request = SendWR(
            opcode=e.IBV_WR_SEND, num_sge=1, sg=elements, send_flags=e.IBV_SEND_SIGNALED | e.IBV_SEND_INLINE
        )
        return self.cqs[name + ":receive"], request, RecvWR(num_sge=1, sg=elements)

    @staticmethod
    def _caught(cq: Any) -> None:
        completions: list[Any] = []
        while not completions:
            completions = cq.poll(1)[1]
        if completions[0].status:
            raise ValueError(f"a completion had status {completions[0].status}")


if __name__ == "__main__":
    peer.main(SpeedPeer)
