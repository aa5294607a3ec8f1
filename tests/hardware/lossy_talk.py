"""The adapter in gates and the software adapter move messages both ways over a link that loses, repeats,
delays and spoils packets; each byte is looked at, and the same seed gives the same packets.

``python tests/hardware/lossy_talk.py --seeds 20`` plays on compiled gates.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from pathlib import Path

from softhca.hardware import CLOCK_NS
from softhca.hardware.message_host import (
    READ_MESSAGE,
    SEND_IMMEDIATE,
    SEND_MESSAGE,
    WRITE_IMMEDIATE,
    WRITE_MESSAGE,
    MessageHost,
)
from softhca.simulation.native_peer import NativePeer
from softhca.testing.ends import READ, SEND, SEND_IMM, WRITE, WRITE_IMM, post

QPS, PD, LID, MTU, ALL_RIGHTS = (1, 2), 7, 5, 256, 7
VA, ROOM, LONGEST = 0x7000_0000_0F23, 4000, 900
SIDE = 1000
"""Bytes of each kind of message: those of the gates, then those of the peer."""
STEP_CLOCKS, MOST_CLOCKS = 64, 3_000_000
LOG_TIMEOUT = 5
MESSAGES = 6
LOST, TWICE, LATE, SPOILT = 0.05, 0.03, 0.03, 0.02
LATE_CLOCKS = 3000


class LossyTalk:
    """A seed's messages: on each queue pair each side asks for `MESSAGES`, one after the other."""

    def __init__(self, bench, seed: int, faults: float = 1.0) -> None:
        self.bench, self.seed, self.faults = bench, seed, faults
        self.dice = random.Random(seed)
        self.host = MessageHost(bench)
        self.peer = NativePeer(lambda data: self._cross(data, self.bench.arrive))
        self.digest = hashlib.sha256()
        self.late: list[tuple[int, bytes, object]] = []
        self.packets = self.suffered = 0
        self.done: dict[tuple[str, int], int] = {}
        self.waits: dict[tuple[str, int], tuple] = {}

    def _cross(self, data: bytes, deliver) -> None:
        """A packet on the link."""
        self.packets += 1
        self.digest.update(data)
        fate = self.dice.random() / self.faults
        kinds = (LOST, LOST + TWICE, LOST + TWICE + LATE, LOST + TWICE + LATE + SPOILT)
        self.suffered += fate < kinds[-1]
        if fate < kinds[0]:
            return
        if fate < kinds[1]:
            deliver(data)
        elif fate < kinds[2]:
            self.late.append((self.bench.clock + self.dice.randrange(LATE_CLOCKS), data, deliver))
            return
        elif fate < kinds[3]:
            place = self.dice.randrange(8 * len(data))
            data = (int.from_bytes(data, "big") ^ 1 << place).to_bytes(len(data), "big")
        deliver(data)

    async def script(self, context) -> None:
        await self._prepare(context)
        wanted = {(who, qp): MESSAGES for who in ("gates", "peer") for qp in QPS}
        for who, qp in wanted:
            await self._ask(context, who, qp)
        while self.done != wanted:
            if self.bench.clock > MOST_CLOCKS:
                raise AssertionError(f"seed {self.seed}: {self.done} of {wanted} after {MOST_CLOCKS} clocks")
            await self.bench.wait(context, STEP_CLOCKS)
            for data in self.bench.take_departed():
                self._cross(data, self.peer.receive)
            due = [one for one in self.late if one[0] <= self.bench.clock]
            self.late = [one for one in self.late if one[0] > self.bench.clock]
            for _, data, deliver in due:
                deliver(data)
            self.peer.elapse((self.bench.clock - self._told) * CLOCK_NS)
            self._told = self.bench.clock
            await self._completions(context)

    async def _prepare(self, context) -> None:
        await self.host.start(context)
        self.region = self.host.region(VA, ROOM * len(QPS), PD, ALL_RIGHTS)
        self.qps = {}
        for qp in QPS:
            psns = 100 + qp, 0xFFFFFE - qp
            peer = self.peer.connect(
                LID, qp, psns, MTU, timeout=LOG_TIMEOUT, retry_cnt=7, rnr_retry=7, min_rnr_timer=1
            )
            await self.host.connect(
                context, qp, pd=PD, peer=peer.number, lids=(LID, self.peer.lid), psns=psns, mtu=MTU,
                timeout=LOG_TIMEOUT,
            )  # fmt: skip
            self.qps[qp] = peer
            self.done["gates", qp] = self.done["peer", qp] = 0
        self._told = self.bench.clock

    async def _ask(self, context, who: str, qp: int) -> None:
        """The next message of a side: in its own quarter of both memories."""
        dice, end = self.dice, self.peer.end
        number = self.done[who, qp]
        kind = dice.choice(("send", "send with", "write", "write with", "read"))
        length = dice.randrange(1, LONGEST)
        data = dice.randbytes(length)
        base = ROOM * (qp - 1) + (0 if who == "gates" else 2 * SIDE)
        here, there = base + dice.randrange(8), base + SIDE + dice.randrange(8)  # gates' place, peer's place
        source_is_gates = (who == "gates") != (kind == "read")
        if source_is_gates:
            self.host.write_bytes(self.region, here, data)
            end.memory[there : there + length] = bytes(length)
        else:
            end.memory[there : there + length] = data
            self.host.write_bytes(self.region, here, bytes(length))
        takes = kind != "read" and kind != "write"
        immediate = dice.getrandbits(32) if "with" in kind else None
        self.waits[who, qp] = kind, length, data, here, there, immediate, takes, number
        if who == "gates":
            if takes:
                self.qps[qp].post_recv(1000 + number, [end.sge(there, length)])
            opcode = {
                "send": SEND_MESSAGE, "send with": SEND_IMMEDIATE, "write": WRITE_MESSAGE,
                "write with": WRITE_IMMEDIATE, "read": READ_MESSAGE,
            }[kind]  # fmt: skip
            half = dice.randrange(length + 1)
            pieces = self.region.piece(here, half), self.region.piece(here + half, length - half)
            await self.host.post_send(
                context, qp, opcode, pieces, work=number, va=end.va + there, key=end.key.rkey,
                immediate=immediate or 0,
            )  # fmt: skip
            return
        if takes:
            await self.host.post_receive(context, qp, (self.region.piece(here, length),), work=1000 + number)
        opcode = {"send": SEND, "send with": SEND_IMM, "write": WRITE, "write with": WRITE_IMM, "read": READ}
        post(self.qps[qp], opcode[kind], [end.sge(there, length)], wr_id=number, va=VA + here,
             rkey=self.region.key, imm=immediate or 0)  # fmt: skip

    async def _completions(self, context) -> None:
        found = [(one.qp, one.work, one.status, one.immediate, "gates") for one in self.host.poll()]
        numbers = {peer.number: qp for qp, peer in self.qps.items()}
        for one in self.peer.end.cq.poll(16):
            found.append((numbers[one.qp_num], one.wr_id, one.status, one.imm_data, "peer"))
        for qp, work, status, immediate, side in found:
            assert status == 0, f"seed {self.seed}: {side} {qp} {work} status {status}"
            asked_by = side if work < 1000 else {"gates": "peer", "peer": "gates"}[side]
            kind, _, _, _, _, wanted, takes, number = self.waits[asked_by, qp]
            if work >= 1000:
                assert (takes, work) == (True, 1000 + number)
                if wanted is not None:
                    assert immediate == wanted, f"seed {self.seed}: {immediate} is not {wanted}"
                self.waits[asked_by, qp] = (*self.waits[asked_by, qp][:6], False, number)
            else:
                assert work == number
                self.waits[asked_by, qp] = (kind + " asked", *self.waits[asked_by, qp][1:])
            kind, length, data, here, there, _, takes, _ = self.waits[asked_by, qp]
            if "asked" in kind and not takes:
                self._look(asked_by, qp, kind, length, data, here, there)
                self.done[asked_by, qp] += 1
                if self.done[asked_by, qp] < MESSAGES:
                    await self._ask(context, asked_by, qp)

    def _look(self, who, qp, kind, length, data, here, there) -> None:
        """Both sides have the bytes."""
        gates = self.host.read_bytes(self.region, here, length)
        peer = bytes(self.peer.end.memory[there : there + length])
        assert gates == peer == data, f"seed {self.seed}: {kind} of the {who} on {qp} has other bytes"


def main() -> int:
    from softhca.hardware import fast_bench

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--folder", type=Path, default=Path("build/gates"))
    given = parser.parse_args()
    bench = fast_bench.FastBench(fast_bench.build(given.folder))
    begin, seed, clocks, packets, suffered = time.monotonic(), given.first, 0, 0, 0
    while seed < given.first + given.seeds and time.monotonic() - begin < given.seconds:
        bench.begin()
        talk = LossyTalk(bench, seed)
        bench.run(talk.script)
        clocks, packets = clocks + bench.clock, packets + talk.packets
        suffered, seed = suffered + talk.suffered, seed + 1
    took = time.monotonic() - begin
    print(f"{seed - given.first} seeds, {packets} packets, {suffered} of them lost, twice, late or spoilt")
    print(f"{clocks} clocks in {took:.0f} s, {packets / took:.0f} packets a second: all bytes are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
