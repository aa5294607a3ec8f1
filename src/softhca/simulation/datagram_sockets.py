"""Datagram sockets of `softhca.sockets` in a world: their protocol and the state of their receiving half over
real queue pairs of unreliable datagrams.

What stands between them and an application is written here anew: a program that sends datagrams of any
length to any other, as far as it has credit, and takes what arrives late, keeping slots of the pool for a
while.  Whose a message is, is asked for as sockets do, and answered late.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable
from functools import partial

from softhca.driver.device import CqHandle, QpHandle
from softhca.memory.bits import PAGE_BYTES
from softhca.simulation.arena import BASE_VA
from softhca.simulation.generation import GenerationEnd
from softhca.simulation.kinds import UD
from softhca.simulation.mailboxes import Place
from softhca.simulation.node import Node
from softhca.sockets.datagram_credits import Address, SendCredit, Source
from softhca.sockets.datagram_protocol import (
    CREDIT,
    HEADER_BYTES,
    Header,
    cut,
    mtu_bytes,
    page_immediate,
)
from softhca.sockets.datagram_state import Claim, Datagram, DatagramState
from softhca.verbs.addr import GRH_BYTES, source_of_grh

QKEY = 0x1234567
SLOTS = 128
DEPTH = 128
SIGNALED, SEND, SEND_IMM, RECV, WITH_GRH, WITH_IMM = 2, 2, 3, 128, 1, 2
"""ibv_send_flags, ibv_wr_opcode, ibv_wc_opcode, ibv_wc_flags"""
LONGEST_PAUSE_NS = 200_000
MOST_HELD = 4
PATIENCE_NS = 5_000_000
"""So long a datagram waits for credit, at most."""
_PLACE_STEP = 1 << 32


class DatagramSocketEnd(GenerationEnd):
    """One socket: sends ``operations`` datagrams of up to ``largest_bytes`` to the ``others``.

    ``counts`` are the datagrams ``sent`` and ``received``, those that came ``again``, the ``credits`` that
    were told, and how often one that was waited for did not come (``unanswered``).  ``mtu``: an ibv_mtu.
    """

    def __init__(
        self,
        node: Node,
        pd: int,
        number: int,
        dice: random.Random,
        operations: int,
        largest_bytes: int,
        mtu: int,
    ) -> None:
        super().__init__(node, dice)
        self.mtu = mtu
        self.counts: Counter[str] = Counter()
        self.address = (node.number.to_bytes(16, "big"), 1 + number)
        device = node.device
        places = itertools.count(BASE_VA * node.number + (number << 40), _PLACE_STEP)
        self._pool = Place(device, pd, SLOTS * PAGE_BYTES, 1, next(places))
        self._heads = Place(device, pd, SLOTS * GRH_BYTES, 1, next(places))
        size = (largest_bytes // mtu_bytes(mtu) + 2) * mtu_bytes(mtu)
        self._out = Place(device, pd, size + HEADER_BYTES, 1, next(places))
        self._cq: CqHandle = device.create_cq(DEPTH + 2 * SLOTS + 8)
        self.qp: QpHandle = device.create_qp(
            pd, UD, self._cq, self._cq, None, DEPTH, 2 * SLOTS, 2, 2, HEADER_BYTES, False
        )
        self.source: Source = node.gid, self.qp.number
        self.state = DatagramState(SLOTS)
        self.state.free = list(range(SLOTS))
        self.given: dict[bytes, Source] = {}
        self._ways: list[tuple[DatagramSocketEnd, int]] = []
        self._credits: dict[Source, SendCredit] = {}
        self._next: tuple[DatagramSocketEnd, int, bytes] | None = None
        self._sources: dict[Source, Address] = {}
        self._left, self._largest = operations, largest_bytes
        self._numbers = itertools.count(1)
        self._under_way = self._held = 0
        self._taken: set[bytes] = set()
        self._posted: set[int] = set()
        self._pausing = False

    def meet(self, others: Iterable[tuple[DatagramSocketEnd, int]]) -> None:
        """The queue pairs are there: which there are, and by which address handles they are reached."""
        self._ways = list(others)
        self._sources = {other.source: other.address for other, _ in self._ways}
        for source, address in self._sources.items():
            self.state.credits.admit(source, address, self.node.world.now)
        self._post()

    def agree(self) -> None:
        """All have met: how much the others take at first."""
        for other, _ in self._ways:
            window = other.state.credits.admit(self.source, self.address, self.node.world.now)
            credit = SendCredit(self.dice.getrandbits(32), window, PATIENCE_NS)
            self._credits[other.source] = self.state.sending[other.source] = credit

    # what happens

    def turn(self) -> bool:
        if self.stopped:
            return False
        worked = self._poll()
        if self.stopped:
            return True
        for claim in self.state.claims():
            self.later(self._pause_ns(), partial(self._decide, claim))
        self._post()
        worked = (not self._pausing and self._receive()) or worked
        self._tell()
        return self._send() or worked

    def _poll(self) -> bool:
        completions = self._cq.poll(SLOTS)
        for each in completions:
            if each.status:
                self.stopped = True
                self.violate("requests succeed", f"a datagram's request failed with status {each.status}")
            elif each.opcode & RECV:
                slot, length, now_ns = each.wr_id, each.byte_len - GRH_BYTES, self.node.world.now
                self._posted.discard(slot)
                grh = bytes(self._heads.view[slot * GRH_BYTES :][:GRH_BYTES])
                source = source_of_grh(grh) if each.wc_flags & WITH_GRH else bytes(16), each.src_qp
                if each.wc_flags & WITH_IMM:
                    self.state.page_arrived(slot, source, length, each.imm_data, now_ns)
                else:
                    head = self._at(slot * PAGE_BYTES, min(HEADER_BYTES, length))
                    self.state.arrived(slot, source, length, head, now_ns)
            elif each.wr_id:
                self._under_way = 0
        return bool(completions)

    def _decide(self, claim: Claim) -> None:
        true = self._sources.get(claim.source) == claim.address
        self.state.decide(claim, true, self.node.world.now)

    def _pause_ns(self) -> int:
        return self.dice.randrange(LONGEST_PAUSE_NS)

    # receiving

    def _post(self) -> None:
        free, self.state.free = self.state.free, []
        for slot in free:
            if slot in self._posted:
                self.violate("every slot comes back", f"slot {slot} has come back twice")
                continue
            self._posted.add(slot)
            head = (self._heads.va + slot * GRH_BYTES, GRH_BYTES, self._heads.lkey)
            self.qp.post_recv(slot, [head, (self._pool.va + slot * PAGE_BYTES, PAGE_BYTES, self._pool.lkey)])

    def _at(self, offset: int, length: int) -> bytes:
        return bytes(self._pool.view[offset : offset + length])

    def _data(self, found: Datagram) -> bytes:
        """What is in its slots now."""
        left, parts = found.total, []
        for slot in found.pages:
            size = min(found.page_bytes, left)
            parts.append(self._at(slot * PAGE_BYTES, size))
            left -= size
        return b"".join([*parts, self._at(found.first * PAGE_BYTES + HEADER_BYTES, left)])

    def _receive(self) -> bool:
        if not self.state.queue or self._held >= MOST_HELD:
            return False
        found = self.state.queue.popleft()
        data = self._data(found)
        self.counts["received"] += 1
        if self.given.get(data) != found.claim.source:
            self.violate("datagrams arrive whole", f"{len(data)} bytes were not sent here, or by another")
        elif data in self._taken:
            self.counts["again"] += 1
            if not self.node.world.faults.duplication:
                self.violate("datagrams arrive once", f"{len(data)} bytes came again")
        self._taken.add(data)
        self._held += 1
        self.later(self._pause_ns(), lambda: self._release(found, data))
        if self.dice.random() < 0.3:
            self._pausing = True
            self.later(self._pause_ns(), self._go_on)
        return True

    def _go_on(self) -> None:
        self._pausing = False

    def _release(self, found: Datagram, data: bytes) -> None:
        if self._data(found) != data:
            self.violate("pages that are held stay", f"{len(data)} bytes of the pool have changed")
        self._held -= 1
        self.state.give_back(found.slots)

    # sending

    def _tell(self) -> None:
        """Say how far others may send."""
        handles = {other.source: (other, way) for other, way in self._ways}
        for sender, limit, window in self.state.credits.due(self.node.world.now):
            other, way = handles[sender.source]
            header = Header(*self.address, 0, window, CREDIT, self.mtu, limit).encode()
            self._post_send(SEND, SIGNALED, 0, 0, other, way, [], header)
            self.qp.ring()
            self.state.credits.tell(sender, limit)
            self.counts["credits"] += 1

    def _post_send(
        self, opcode: int, flags: int, immediate: int, number: int, other: DatagramSocketEnd, way: int,
        run: list[tuple[int, int]], inline: bytes | None = None,
    ) -> None:  # fmt: skip
        self.qp.post_send(
            opcode, flags, immediate, number, 0, 0, 0, 0, way, other.qp.number, QKEY,
            [(*each, self._out.lkey) for each in run], inline,
        )  # fmt: skip

    def _chosen(self) -> tuple[DatagramSocketEnd, int, bytes]:
        """What goes next; it stays so until it has gone."""
        if self._next is None:
            other, way = self.dice.choice(self._ways)
            data = self.dice.randbytes(self.dice.choice((16, self.dice.randint(16, self._largest))))
            self._next = other, way, data
        return self._next

    def _send(self) -> bool:
        if not self._left or self._under_way:
            return False
        (other, way, data), now_ns = self._chosen(), self.node.world.now
        pages, rest = cut(len(data), self.mtu)
        credit = self._credits[other.source]
        waited, free = credit.stalled(now_ns), credit.free
        if not credit.may_send(pages + 1, now_ns):
            if not waited:
                self.node.world.at(credit.until_ns, self.wake)
            return False
        self.counts["unanswered"] += credit.free and not free
        self._next = None
        self._left -= 1
        other.given[data] = self.source
        number, total = next(self._numbers) & 0xFFFF, len(data)
        header = Header(*self.address, number, total, pages, self.mtu, credit.position).encode()
        credit.spend(pages + 1)
        self._out.view[:HEADER_BYTES] = header
        self._out.view[HEADER_BYTES : HEADER_BYTES + total] = data
        size, start = mtu_bytes(self.mtu), self._out.va + HEADER_BYTES
        runs = [[(self._out.va, HEADER_BYTES), (start + total - rest, rest)][: 1 + bool(rest)]]
        runs += [[(start + at, min(size, total - at))] for at in range(0, pages * size, size)]
        for index, run in enumerate(runs):
            immediate = page_immediate(number, index - 1) if index else 0
            flags = SIGNALED if index == pages else 0
            self._post_send(SEND_IMM if index else SEND, flags, immediate, number, other, way, run)
        self.qp.ring()
        self._under_way = 1
        self.counts["sent"] += 1
        return True

    # the end

    @property
    def _undisturbed(self) -> bool:
        """Whether all that is sent arrives, once, and every datagram fits the window."""
        faults = self.node.world.faults
        odds = (faults.loss, faults.duplication, faults.reordering, faults.corruption, faults.truncation)
        window = SLOTS // 2 // max(len(self._ways), 1)
        fits = 4 * (cut(self._largest, self.mtu)[0] + 1) <= 3 * window
        return fits and not any((*odds, faults.burst_loss, faults.partitions, faults.flap_ns, faults.crashes))

    def finish(self) -> None:
        """The world is at rest: no slot is lost, and nothing waits that could be read."""
        state = self.state
        state.expire(self.node.world.now + 10**12)
        kept = sorted(state.free)
        left = state.used or state.queue or self._left or self._held or len(set(kept)) < len(kept)
        if left and not self.stopped:
            text = f"{state.used} slots are used, {self._left} datagrams were not sent"
            self.violate("every slot comes back", text)
        if state.dropped and self._undisturbed and not self.stopped:
            self.violate("receive queues are not overrun", f"{dict(state.dropped)} were dropped")
        world = self.node.world
        world.trace.add(
            world.now, "datagrams", self.node.number, **self.counts,
            **{f"dropped_{why}": count for why, count in sorted(state.dropped.items())},
        )  # fmt: skip

    def close(self) -> None:
        for _, way in self._ways:
            self.node.device.destroy_ah(way)
        self.qp.destroy()
        self._cq.destroy()
        for each in (self._pool, self._heads, self._out):
            each.close()
