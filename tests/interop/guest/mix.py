"""`peer.py` with a word for a random mix of operations over several queue pairs, in both directions at once.

Both sides make the same plan from the same seed, and each checks what it is told and what it is sent: every
completion, every byte, and what each atomic operation found.
"""

from __future__ import annotations

import random
import struct
import time
from typing import Any

import peer
from pyverbs import enums as e
from pyverbs.wr import SGE, RecvWR, SendWR

KINDS = ("send", "send_imm", "write", "write_imm", "read", "compare_swap", "fetch_add")
CONSUME = ("send", "send_imm", "write_imm")
"""What takes a receive."""
ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
SOURCE_BYTES = 1 << 18
COUNTERS = 8
DEPTH = 32
TURNS_A_CLOCK = 64
MASK = (1 << 64) - 1
NOT_WRITTEN = 0xEE
"""What lies between the slots."""


def operations(seed: str, count: int, mtu: int, empty: bool) -> list[dict[str, Any]]:
    """What one side asks of the other over one queue pair; the slots stand behind each other, with a gap.

    ``empty``: RDMA WRITEs and READs of no bytes are among it.
    """
    choose = random.Random(seed)
    found, landing, back = [], 0, 0
    words = [0] * COUNTERS
    for number in range(count):
        kind = choose.choice(KINDS)
        if number == count - 1:
            kind = "send"  # whoever has received it has all writes before it, too, and may look at its memory
        size = choose.choice((0, 1, 7, 64, mtu - 1, mtu, mtu + 1, 2 * mtu, choose.randrange(5 * mtu)))
        if not empty and kind not in ("send", "send_imm"):
            size = max(size, 1)
        one: dict[str, Any] = {"kind": kind, "size": size, "from": choose.randrange(SOURCE_BYTES - 5 * mtu)}
        if kind in ("write", "write_imm"):
            one["to"] = landing
            landing += size + 8
        elif kind == "read":
            one["to"] = back
            back += size + 8
        elif kind in ("compare_swap", "fetch_add"):
            word = one["word"] = choose.randrange(COUNTERS)
            one |= {"size": 8, "to": back, "found": words[word]}
            back += 16
            one["compare_add"] = words[word] if choose.random() < 0.5 else choose.getrandbits(64)
            one["swap"] = choose.getrandbits(64)
            if kind == "fetch_add":
                words[word] = (words[word] + one["compare_add"]) & MASK
            elif one["compare_add"] == words[word]:
                words[word] = one["swap"]
        one["imm"] = number ^ 0x5A5A0000
        found.append(one)
    return found


class Half:
    """What goes out, or comes in, over one queue pair."""

    def __init__(self, plan: list[dict[str, Any]]) -> None:
        self.plan = plan
        self.consuming = [one for one in plan if one["kind"] in CONSUME]
        self.landing_bytes = 8 + sum(one["size"] + 8 for one in plan if one["kind"] in ("write", "write_imm"))
        self.back_bytes = 8 + sum(one["size"] + 8 for one in plan if one["kind"] not in ("write", *CONSUME))
        self.posted = self.done = 0


class MixPeer(peer.Peer):
    """One side of a mix."""

    def mix_prepare(
        self, names: list[str], seed: str, me: str, other: str, count: int, mtu: int, receives: int,
        empty: bool,
    ) -> Any:
        """Memory for a mix over these queue pairs, and receives; where the peer may write."""
        self.out = {name: Half(operations(f"{seed}/{me}/{name}", count, mtu, empty)) for name in names}
        self.into = {name: Half(operations(f"{seed}/{other}/{name}", count, mtu, empty)) for name in names}
        self.mtu, self.wrong = mtu, []
        self.memory("source", SOURCE_BYTES, ACCESS, seed=len(me))
        self.theirs = peer.pattern(len(other), SOURCE_BYTES)
        self.mine = peer.pattern(len(me), SOURCE_BYTES)
        told = {"source": self._place("source")}
        for name in names:
            for kind, length in (
                ("landing", self.into[name].landing_bytes), ("back", self.out[name].back_bytes),
                ("counters", 8 * COUNTERS), ("in", receives * 5 * mtu),
            ):  # fmt: skip
                self.memory(f"{kind}:{name}", length, ACCESS)
                if kind in ("landing", "back"):
                    self.view(f"{kind}:{name}")[:] = bytes([NOT_WRITTEN]) * length
            told[name] = {kind: self._place(f"{kind}:{name}") for kind in ("landing", "counters")}
            self.receives = receives
            for slot in range(receives):
                self._post_receive(name, slot)
        return told

    def _place(self, name: str) -> dict[str, int]:
        region = self.memories[name]
        return {"address": region.buf, "rkey": region.rkey}

    def _post_receive(self, name: str, slot: int) -> None:
        half = self.into[name]
        if half.posted == len(half.consuming):
            return
        half.posted += 1
        region = self.memories[f"in:{name}"]
        element = SGE(region.buf + slot * 5 * self.mtu, 5 * self.mtu, region.lkey)
        self.qps[name].post_recv(RecvWR(wr_id=slot, num_sge=1, sg=[element]))

    def mix_run(self, there: dict[str, Any], patience_s: float) -> Any:
        """Both directions until all is done; ends as well when nothing completes for ``patience_s``."""
        start_s = heard_s = time.monotonic()
        turns, stalled = 0, False
        received = dict.fromkeys(self.out, 0)
        while not stalled and any(
            self.out[name].done < len(self.out[name].plan)
            or self.into[name].done < len(self.into[name].consuming)
            for name in self.out
        ):
            taken = sum(self._turn(name, there) for name in self.out)
            if self.wrong:
                break
            turns += 1
            if taken:
                heard_s = time.monotonic()
            else:
                time.sleep(peer.NAP_S)
                stalled = time.monotonic() - heard_s > patience_s
        if not self.wrong and not stalled:
            for name in self.out:
                self._check_memory(name)
        return {
            "stalled": stalled, "wrong": self.wrong[:8], "elapsed_s": round(time.monotonic() - start_s, 2),
            "left": {name: self._left(name) for name in received},
        }  # fmt: skip

    def _left(self, name: str) -> dict[str, int]:
        out, into = self.out[name], self.into[name]
        return {
            "asked": out.done, "asking": out.posted - out.done, "all": len(out.plan), "received": into.done,
            "to_receive": len(into.consuming), "qpn": self.qps[name].qp_num,
        }  # fmt: skip

    def _turn(self, name: str, there: dict[str, Any]) -> int:
        out, taken = self.out[name], 0
        while out.posted < len(out.plan) and out.posted - out.done < DEPTH:
            self._ask(name, out.posted, there)
            out.posted += 1
        for completion in self.cqs[name].poll(16)[1]:
            self._told(name, completion)
            taken += 1
        for completion in self.cqs[name + ":receive"].poll(16)[1]:
            self._come(name, completion)
            taken += 1
        return taken

    def _ask(self, name: str, number: int, there: dict[str, Any]) -> None:
        one = self.out[name].plan[number]
        kind, size = one["kind"], one["size"]
        if kind in ("read", "compare_swap", "fetch_add"):
            region, offset = self.memories[f"back:{name}"], one["to"]
        else:
            region, offset = self.memories["source"], one["from"]
        elements = [SGE(region.buf + offset, size, region.lkey)]
        request = SendWR(
            wr_id=number, opcode=peer.OPCODES[kind], num_sge=len(elements), sg=elements,
            send_flags=e.IBV_SEND_SIGNALED, imm_data=one["imm"],
        )  # fmt: skip
        if kind in ("write", "write_imm"):
            where = there[name]["landing"]
            request.set_wr_rdma(where["rkey"], where["address"] + one["to"])
        elif kind == "read":
            where = there["source"]
            request.set_wr_rdma(where["rkey"], where["address"] + one["from"])
        elif kind in ("compare_swap", "fetch_add"):
            where = there[name]["counters"]
            request.set_wr_atomic(
                where["rkey"], where["address"] + 8 * one["word"], one["compare_add"], one["swap"]
            )
        self.qps[name].post_send(request)

    def _told(self, name: str, completion: Any) -> None:
        """One of our requests is complete."""
        out = self.out[name]
        if completion.status or completion.wr_id != out.done:
            self.wrong.append(
                f"{name}: request {completion.wr_id} where {out.done} is due: status {completion.status}"
            )
        out.done += 1

    def _come(self, name: str, completion: Any) -> None:
        """A message of the peer's has come; its receive is posted anew."""
        half = self.into[name]
        if completion.status:
            self.wrong.append(f"{name}: receive {half.done}: status {completion.status}")
            return
        one, slot = half.consuming[half.done], completion.wr_id
        half.done += 1
        if one["kind"] != "send" and completion.imm_data != one["imm"]:
            self.wrong.append(f"{name}: immediate {completion.imm_data:#x}, not {one['imm']:#x}")
        if one["kind"] != "write_imm":
            begin = slot * 5 * self.mtu
            seen = bytes(self.view(f"in:{name}")[begin : begin + one["size"]])
            if completion.byte_len != one["size"] or seen != self.theirs[one["from"] :][: one["size"]]:
                self.wrong.append(f"{name}: message {half.done - 1} of {one['size']} bytes differs")
        self._post_receive(name, slot)

    def _check_memory(self, name: str) -> None:
        """What was written here, what was read from there, and what the atomic operations found."""
        landing = bytearray([NOT_WRITTEN]) * self.into[name].landing_bytes
        for one in self.into[name].plan:
            if one["kind"] in ("write", "write_imm"):
                landing[one["to"] : one["to"] + one["size"]] = self.theirs[one["from"] :][: one["size"]]
        back = bytearray([NOT_WRITTEN]) * self.out[name].back_bytes
        for one in self.out[name].plan:
            if one["kind"] == "read":
                back[one["to"] : one["to"] + one["size"]] = self.theirs[one["from"] :][: one["size"]]
            elif one["kind"] in ("compare_swap", "fetch_add"):
                back[one["to"] : one["to"] + 8] = struct.pack("=Q", one["found"])
        for kind, wanted in (("landing", landing), ("back", back)):
            seen = bytes(self.view(f"{kind}:{name}"))
            if seen != wanted:
                first = next(at for at in range(len(wanted)) if seen[at] != wanted[at])
                self.wrong.append(f"{name}: {kind} differs from byte {first} of {len(wanted)}")


if __name__ == "__main__":
    peer.main(MixPeer)
