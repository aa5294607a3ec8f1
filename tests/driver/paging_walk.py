"""A walker over domains, regions, windows, queue pairs and pageable memory, judged by a model of each call.

``python paging_walk.py --steps 1000000 --seed 1``: two adapters in virtual time; each step is one call, many
wrong on purpose, and must give the status that the model says; a refused one changes nothing.  Bytes are
kept by the model too, and compared.  Requests that meet memory that is held must wait, and must end well
once it is there.  The same seed walks the same way.
"""

from __future__ import annotations

import argparse
import random
import time
from errno import EBUSY, EINVAL, EOPNOTSUPP
from typing import Any

from window_walk import Window, WindowSteps

from softhca.driver.errors import DriverError
from softhca.driver.paging import PageableMemory
from softhca.machine.primitives import load64
from softhca.memory import bits
from softhca.memory import paged_layout as layout
from softhca.memory.bits import PAGE_BYTES
from softhca.testing.ends import ALL_RIGHTS, FETCH_ADD, READ, WRITE, End, connect, post
from softhca.testing.network import Network

LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, MW_BIND, ON_DEMAND = 1, 2, 4, 8, 16, 64
NEEDS = {WRITE: REMOTE_WRITE, READ: REMOTE_READ, FETCH_ADD: REMOTE_ATOMIC}
OK, ACCESS_ERROR = 0, 10
MOST = {"pds": 4, "regions": 10, "memories": 3, "pairs": 3}
RUNNING, QUIESCED, OUT = "running", "quiesced", "swapped out"
MEANWHILE_NS = 700_000


class Memory:
    """A pageable memory and what the model knows of it."""

    def __init__(self, pages: int, rights: int) -> None:
        self.real = PageableMemory(pages * PAGE_BYTES, rights, pager=False, timeout_s=0)
        self.rights = rights & ~ON_DEMAND
        self.lazy = bool(rights & ON_DEMAND)
        self.state = RUNNING
        self.bytes = bytearray(pages * PAGE_BYTES)
        self.absent = set(range(pages)) if self.lazy else set()

    def touched(self, offset: int, length: int) -> range:
        """Pages of a range."""
        return range(offset // PAGE_BYTES, -(-(offset + length) // PAGE_BYTES))

    def picture(self) -> tuple[object, ...]:
        """What no refused call may change."""
        memory = self.real._memory
        words = [load64(memory.mapping.line(number)) for number in range(layout.ATTACHMENTS)]
        table = bytes(memory.mapping.mmap[layout.TABLE : layout.TABLE + 8 * memory.pages])
        return memory.state, memory.mapping.rights(), words, table, memory.frames.free.free_count


class Region:
    """A registration with the target's device: of a pageable memory, or of ``bytes`` of its own."""

    def __init__(self, pd: int, access: int, va: int, key: Any, memory: Memory | None, length: int) -> None:
        self.pd, self.access, self.va, self.key, self.memory = pd, access, va, key, memory
        self.buffer = bytearray(length)
        self.bytes = memory.bytes if memory is not None else bytearray(length)


class Pair:
    """Two connected queue pairs; the target's is in domain ``pd``.  ``place``: where the client's memory is
    theirs.  ``pending``: a request that is held.
    """

    def __init__(self, left: Any, right: Any, pd: int, place: int) -> None:
        self.left, self.right, self.pd, self.place = left, right, pd, place
        self.pending: tuple[Region, int, int, int] | None = None


class Walk(WindowSteps):
    """The walker; ``step`` takes one."""

    OPCODES = (WRITE, READ, FETCH_ADD)

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.network = Network()
        self.client, self.target = End(self.network.add(1)), End(self.network.add(2))
        self.device = self.target.device
        self.pds = [self.target.pd]
        self.regions: list[Region] = []
        self.memories: list[Memory] = []
        self.pairs: list[Pair] = []
        self.windows: list[Window] = []
        self.dead_keys: list[int] = [0x1234_5600]
        self.dead_handles: list[int] = [10**6]
        self.stopped = False
        self.ended: dict[int, int] = {}
        self.serial = 0
        self.seen: dict[str, int] = {}
        self.steps = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("try_")]
        self.weights = [step.__func__.__dict__.get("weight", 4) for step in self.steps]

    def step(self) -> None:
        """One random call."""
        (call,) = self.draw.choices(self.steps, self.weights)
        call()

    def count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1

    def expect(self, code: int, what: str, call: Any, *arguments: Any) -> Any:
        """Call; the errno must be ``code``, and where it is not 0 no memory has changed."""
        before = [memory.picture() for memory in self.memories] if code else None
        self.count(f"{what} {code}")
        given, result = 0, None
        try:
            result = call(*arguments)
        except DriverError as error:
            given = error.errno
        assert given == code, (what, arguments, given, code)
        if code:
            assert [memory.picture() for memory in self.memories] == before, (what, arguments)
        return result

    def chance(self, percent: int) -> bool:
        return self.draw.random() * 100 < percent

    def rights(self) -> tuple[int, bool]:
        """Rights, and whether they can be."""
        access = self.draw.choice((15,) * 6 + (self.draw.randrange(16),))
        return access, bool(access & LOCAL_WRITE or not access & (REMOTE_WRITE | REMOTE_ATOMIC))

    def data(self, length: int) -> bytes:
        self.serial += 1
        return (self.serial & 0xFFFFFFFF).to_bytes(4, "little") * (length // 4 + 1)

    # domains, regions, queue pairs

    def try_alloc_pd(self) -> None:
        if len(self.pds) < MOST["pds"]:
            self.pds.append(self.expect(0, "alloc_pd", self.device.alloc_pd))

    def try_dealloc_pd(self) -> None:
        pd = self.draw.choice([*self.pds, 77_777])
        used = {each.pd for each in (*self.regions, *self.pairs, *self.windows)} | {self.target.pd}
        code = EINVAL if pd == 77_777 else EBUSY if pd in used else 0
        self.expect(code, "dealloc_pd", self.device.dealloc_pd, pd)
        if code == 0:
            self.pds.remove(pd)

    def try_register(self) -> None:
        if len(self.regions) >= MOST["regions"]:
            return
        access, possible = self.rights()
        pd = 77_777 if self.chance(8) else self.draw.choice(self.pds)
        memory = self.draw.choice([*self.memories, None, None])
        length = len(memory.bytes) if memory else self.draw.randrange(1, 9000)
        va = self.draw.randrange(1, 1 << 20) << 12
        region = Region(pd, access, va, None, memory, 0 if memory else length)
        code = EINVAL if pd == 77_777 or not possible else 0
        if memory is None:
            region.access = access = access | MW_BIND * self.chance(70)
            call, how = self.device.reg_mr, (pd, 0, length, access, va, region.buffer)
        else:
            if self.chance(5) and code == 0:
                access, code = access | MW_BIND, EOPNOTSUPP
            call, how = self.device.reg_paged, (pd, memory.real, access, va)
        region.key = self.expect(code, "reg_paged" if memory else "reg_mr", call, *how)
        if code == 0:
            self.regions.append(region)

    def try_deregister(self) -> None:
        if not self.regions or self.chance(20):
            self.expect(EINVAL, "dereg", self.device.dereg_mr, self.draw.choice(self.dead_handles))
            return
        region = self.draw.choice(self.regions)
        if self.windows_of(region):
            self.expect(EBUSY, "dereg", self.device.dereg_mr, region.key.handle)
            return
        self.settle(lambda pair: pair.pending is not None and pair.pending[0] is region)
        self.expect(0, "dereg", self.device.dereg_mr, region.key.handle)
        self.bury(region)

    def bury(self, region: Region) -> None:
        self.regions.remove(region)
        self.dead_keys = [*self.dead_keys, region.key.rkey][-8:]
        self.dead_handles = [*self.dead_handles, region.key.handle][-8:]

    def try_rereg(self) -> None:
        paged = [region for region in self.regions if region.memory is not None]
        if paged:
            region = self.draw.choice(paged)
            flags, pd = self.draw.choice((2, 4, 6)), self.draw.choice(self.pds)
            self.expect(EINVAL, "rereg paged", self.device.rereg_mr, region.key.handle, flags, pd, 0, 0, 1)

    def try_pair(self) -> None:
        self.make_pair(self.draw.choice(self.pds))

    def make_pair(self, pd: int) -> None:
        """A new pair in a domain, in place of an older one where there are enough."""
        if len(self.pairs) == MOST["pairs"]:
            self.end_pair(self.draw.choice(self.pairs))
        left, device, cq = self.client.qp(), self.device, self.target.cq
        right = device.create_qp(pd, 2, cq, cq, None, 4, 4, 1, 1, 0, True)
        taken = {pair.place for pair in self.pairs}
        place = next(each for each in range(0, 1 << 16, 1 << 14) if each not in taken)
        pair = Pair(left, right, pd, place)
        connect((self.client, left), (self.target, right), min_rnr_timer=12, timeout=20)
        self.pairs.append(pair)

    def end_pair(self, pair: Pair) -> None:
        pair.left.destroy()
        pair.right.destroy()
        self.take()
        self.ended.pop(pair.left.number, None)
        self.target.cq.poll(16)
        for window in self.windows:
            if window.pair is pair:
                self.unbind(window)
        self.pairs.remove(pair)
        self.count("pair ends held" if pair.pending else "pair ends")

    # the arbitrator

    def some(self) -> Memory | None:
        return self.draw.choice(self.memories) if self.memories else None

    def busy(self, memory: Memory) -> int:
        return 0 if memory.state == RUNNING else EBUSY

    def try_make_memory(self) -> None:
        rights, possible = self.rights()
        rights |= ON_DEMAND * self.chance(40)
        if not possible or self.chance(10):
            wrong = rights if not possible else rights | 16
            self.expect(EINVAL, "memory", PageableMemory, PAGE_BYTES, wrong)
        elif len(self.memories) < MOST["memories"]:
            self.memories.append(Memory(self.draw.randrange(1, 5), rights))

    def try_close_memory(self) -> None:
        memory = self.some()
        if memory is None or self.chance(70):
            return
        self.settle(lambda pair: pair.pending is not None and pair.pending[0].memory is memory)
        memory.real.close()
        self.memories.remove(memory)
        for region in [region for region in self.regions if region.memory is memory]:
            self.dead_keys = [*self.dead_keys, region.key.rkey][-8:]
            self.request(self.draw.choice((WRITE, READ)), region.key.rkey, region.va, 8, None)
            self.expect(0, "dereg of closed", self.device.dereg_mr, region.key.handle)
            self.bury(region)
        self.count("close memory")

    def try_quiesce(self) -> None:
        if memory := self.some():
            code = self.busy(memory)
            self.expect(code, "quiesce", memory.real.quiesce)
            memory.state = memory.state if code else QUIESCED

    def try_resume(self) -> None:
        if memory := self.some():
            code = {RUNNING: EINVAL, QUIESCED: 0, OUT: EBUSY}[memory.state]
            self.expect(code, "resume", memory.real.resume)
            if code == 0:
                memory.state = RUNNING
                self.released()

    try_resume.weight = 6  # type: ignore[attr-defined]

    def try_swap_out(self) -> None:
        if memory := self.some():
            pages = len(memory.bytes) // PAGE_BYTES
            first = self.draw.randrange(pages)
            count = self.draw.randrange(1, pages - first + 1)
            if self.chance(60) or (not memory.lazy and self.chance(80)):
                first, count = 0, pages
            code = EINVAL if not memory.lazy and count != pages else self.busy(memory)
            self.expect(code, "swap_out", memory.real.swap_out, first * PAGE_BYTES, count * PAGE_BYTES)
            if code == 0 and memory.lazy:
                memory.absent.update(range(first, first + count))
            elif code == 0:
                memory.state = OUT

    def try_swap_in(self) -> None:
        if memory := self.some():
            if memory.lazy:
                code = self.busy(memory) or (0 if memory.absent else EINVAL)
            else:
                code = 0 if memory.state == OUT else EINVAL
            self.expect(code, "swap_in", memory.real.swap_in)
            if code == 0:
                memory.state = RUNNING
                memory.absent.clear()
                self.released()

    try_swap_in.weight = 8  # type: ignore[attr-defined]

    def try_migrate(self) -> None:
        if memory := self.some():
            code = self.busy(memory)
            moved = self.expect(code, "migrate", memory.real.migrate)
            assert code or moved == len(memory.bytes) // PAGE_BYTES - len(memory.absent)

    def try_set_rights(self) -> None:
        if memory := self.some():
            rights, possible = self.rights()
            self.settle(lambda pair: pair.pending is not None and pair.pending[0].memory is memory)
            wanted = rights | ON_DEMAND * (memory.lazy != self.chance(5))
            code = EINVAL if not possible or bool(wanted & ON_DEMAND) != memory.lazy else self.busy(memory)
            self.expect(code, "set_rights", memory.real.set_rights, wanted)
            memory.rights = memory.rights if code else rights

    def try_fetch(self) -> None:
        if memory := self.some():
            first = self.draw.randrange(len(memory.bytes) // PAGE_BYTES)
            code = self.busy(memory)
            brought = self.expect(code, "fetch", memory.real.fetch, first * PAGE_BYTES, 1)
            if code == 0:
                assert brought == (first in memory.absent)
                memory.absent.discard(first)

    def try_data_access(self) -> None:
        allowed = self.chance(85 if self.stopped else 60)
        assert self.expect(0, "data access", self.device.set_data_access, allowed) == (not self.stopped)
        self.stopped = not allowed
        if allowed:
            self.released()

    # bytes

    def try_owner(self) -> None:
        memory = self.some()
        if memory is None:
            return
        size = len(memory.bytes)
        offset, length = self.draw.randrange(size), self.draw.randrange(1, 2 * PAGE_BYTES)
        absent = memory.absent & set(memory.touched(offset, length))
        code = EINVAL if offset + length > size else 0
        if code == 0 and (memory.state == OUT or (absent and memory.state != RUNNING)):
            code = EBUSY
        if any(pair.pending and pair.pending[0].memory is memory for pair in self.pairs) or self.chance(60):
            seen = self.expect(code, "read", memory.real.read, offset, length)
            assert code or seen == memory.bytes[offset : offset + length], "the owner reads other bytes"
        else:
            data = self.data(length)[:length]
            self.expect(code, "write", memory.real.write, offset, data)
            if code == 0:
                memory.bytes[offset : offset + length] = data
        if code == 0:
            memory.absent -= absent

    def try_request(self) -> None:
        if not self.regions:
            return
        region = self.draw.choice(self.regions)
        opcode = self.draw.choice((WRITE, WRITE, READ, FETCH_ADD))
        size = len(region.bytes)
        offset = self.draw.randrange(size + 8) & ~7 if opcode == FETCH_ADD else self.draw.randrange(size)
        length = 8 if opcode == FETCH_ADD else min(self.draw.randrange(1, 9000), size - offset)
        if self.chance(6):
            length = 8 if opcode == FETCH_ADD else size - offset + self.draw.randrange(1, 100)
        if region.va & 7 == 0 or opcode != FETCH_ADD:
            key = self.draw.choice(self.dead_keys) if self.chance(6) else region.key.rkey
            self.request(opcode, key, region.va + offset, length, region)

    try_request.weight = 60  # type: ignore[attr-defined]

    def verdict(self, opcode: int, key: int, va: int, length: int, region: Region | None, pair: Pair,
                window: Window | None = None) -> int:
        """The status that a request must end with."""
        if window is not None:
            assert region is not None
            fits = va - region.va - window.offset + length <= window.length
            mine = window.pd == pair.pd and window.pair in (None, pair)
            return OK if mine and fits and window.access & NEEDS[opcode] else ACCESS_ERROR
        if region is None or key != region.key.rkey or region.pd != pair.pd:
            return ACCESS_ERROR
        rights = region.access & (region.memory.rights if region.memory else ALL_RIGHTS)
        if not rights & NEEDS[opcode] or va - region.va + length > len(region.bytes):
            return ACCESS_ERROR
        return OK

    def request(self, opcode: int, key: int, va: int, length: int, region: Region | None,
                window: Window | None = None) -> None:
        """Post one, and see that it ends as it must, or waits as it must."""
        if region is not None and not any(pair.pd == region.pd for pair in self.pairs):
            self.make_pair(region.pd)
        free = [pair for pair in self.pairs if pair.pending is None]
        if region is not None and self.chance(95):
            free = [pair for pair in free if pair.pd == region.pd]
        # two requests that wait for the same bytes have no order
        others = [pair.pending[0].bytes for pair in self.pairs if pair.pending]
        if not free or (region is not None and any(region.bytes is each for each in others)):
            return
        pair = self.draw.choice(free)
        if window is not None and (window.region is not region or self.chance(80)):
            pair = window.pair if window.pair in free else pair
        if window is not None and window.region is not region:  # it went with a pair that made room
            return
        status = self.verdict(opcode, key, va, length, region, pair, window)
        self.client.memory[pair.place : pair.place + length] = self.data(length)[:length]
        post(pair.left, opcode, [self.client.sge(pair.place, length)], va=va, rkey=key, compare=3)
        if status == OK:
            assert region is not None
            offset = va - region.va
            pair.pending = region, opcode, offset, length
            if self.stopped or (region.memory is not None and region.memory.state != RUNNING):
                self.count("held")
                self.network.run(lambda: self.client.cq.waiting() > 0, MEANWHILE_NS)
                assert self.client.cq.waiting() == 0, "a request went on although its memory is held"
                return
        self.finish(pair, status)

    def take(self) -> None:
        """Take the completions that there are."""
        for done in self.client.cq.poll(16):
            assert done.qp_num not in self.ended, "a request ends twice"
            self.ended[done.qp_num] = done.status

    def finish(self, pair: Pair, status: int) -> None:
        """Wait for the end of a request, bringing pages, and see to its bytes."""
        number = pair.left.number

        def ended() -> bool:
            for memory in self.memories:
                if memory.lazy:
                    memory.real.service()
            self.take()
            return number in self.ended

        assert self.network.run(ended), "a request does not end"
        found = self.ended.pop(number)
        assert found == status, (found, status)
        self.count(f"request {status}")
        if status != OK:
            self.end_pair(pair)
            return
        assert pair.pending is not None
        region, opcode, offset, length = pair.pending
        pair.pending = None
        here = bytes(self.client.memory[pair.place : pair.place + length])
        if opcode == WRITE:
            region.bytes[offset : offset + length] = here
        else:
            assert here == region.bytes[offset : offset + length], "other bytes came back"
        if opcode == FETCH_ADD:
            value = int.from_bytes(here, "little") + 3 & 0xFFFF_FFFF_FFFF_FFFF
            region.bytes[offset : offset + 8] = value.to_bytes(8, "little")
        if region.memory is not None:
            region.memory.absent.difference_update(region.memory.touched(offset, length))
        else:
            assert region.buffer == region.bytes

    def released(self) -> None:
        """Something was let go on: requests that waited for it end, one after the other."""
        for pair in list(self.pairs):
            if pair.pending and not self.stopped:
                memory = pair.pending[0].memory
                if memory is None or memory.state == RUNNING:
                    self.finish(pair, OK)

    def settle(self, concerned: Any) -> None:
        """End the pairs whose held requests stand in the way of what comes."""
        for pair in [pair for pair in self.pairs if concerned(pair)]:
            self.end_pair(pair)

    # what must hold at any time

    def check(self) -> None:
        """Compare everything with the model."""
        for memory in self.memories:
            real = memory.real._memory
            assert real.state == memory.state
            assert memory.real.rights & ~ON_DEMAND == memory.rights
            table = [load64(real.mapping.table + 8 * page) for page in range(real.pages)]
            frames = [entry & bits.FRAME_MASK for entry in table if entry & bits.VALID]
            assert len(set(frames)) == len(frames)
            absent = {page for page, entry in enumerate(table) if not entry & bits.VALID}
            assert absent == (set(range(real.pages)) if memory.state == OUT else memory.absent)
            words = [load64(real.mapping.line(number)) for number in range(layout.ATTACHMENTS)]
            assert not any(word & layout.COUNT_BITS for word in words)
            assert all(bool(word & layout.QUIESCED) == (memory.state != RUNNING) for word in words)
            users = sum(region.memory is memory for region in self.regions)
            assert sum(bool(word & layout.ATTACHED) for word in words) == users
            assert real.frames.free.free_count == 2 * real.pages - (
                real.pages if memory.state == OUT else len(frames))
            waiting = any(pair.pending and pair.pending[0].memory is memory for pair in self.pairs)
            if memory.state != OUT and not memory.absent and not waiting:
                assert memory.real.read(0, len(memory.bytes)) == memory.bytes

    def close(self) -> None:
        for memory in self.memories:
            memory.real.close()
        self.network.close()


def walk(seed: int, steps: int, every: int = 20) -> dict[str, int]:
    """Walk; how often each call gave what.  AssertionError names seed and step."""
    walker = Walk(seed)
    for number in range(steps):
        try:
            walker.step()
            if number % every == 0:
                walker.check()
        except BaseException as error:
            error.add_note(f"seed {seed}, step {number}")
            raise
    walker.check()
    walker.close()
    return walker.seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--walk", type=int, default=20_000, help="steps of each seed")
    arguments = parser.parse_args()
    started, done, seed, total = time.monotonic(), 0, arguments.seed, {}
    while done < arguments.steps:
        count = min(arguments.walk, arguments.steps - done)
        for what, times in walk(seed, count).items():
            total[what] = total.get(what, 0) + times
        done, seed = done + count, seed + 1
    for what in sorted(total):
        print(f"{total[what]:9} {what}")
    print(f"{done} steps of seeds {arguments.seed} … {seed - 1} in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
