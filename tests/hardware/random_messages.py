"""Random programs of work requests and packets for the assembled adapter, held against the functional model.

What is done one after the other has one outcome: after each action host memory, packets, completions and
events are compared.  Descriptors are torn, lengths wrong, page tables out of range, packets cut, spoilt,
repeated, lost.

``python tests/hardware/random_messages.py --programs 100000 --seconds 300`` runs as many as fit on compiled
gates.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from functional_adapter import (
    BIND,
    FENCE,
    LOCAL_WRITE,
    READ,
    REMOTE_READ,
    REMOTE_WRITE,
    RESTING,
    SEND,
    WRITE,
    FunctionalAdapter,
)

from softhca.hardware import local_bus as lb
from softhca.hardware.header_rules import EXTENSION_SHIFT, KNOWN_BIT, PAYLOAD_BIT, opcode_rows
from softhca.hardware.message_host import (
    COMPLETION_RING,
    LINK,
    LOG_ENTRIES,
    LOG_PLACES,
    RECEIVE_RINGS,
    SEND_RINGS,
    SLOT_BYTES,
    TABLE,
    TABLE_ENTRIES,
    MessageHost,
)
from softhca.hardware.retry_timer import STEP_CLOCKS, UNIT_CLOCKS
from softhca.wire import icrc, vcrc
from softhca.wire.route import NATIVE

VIS, MTU, PD, OTHER_PD = 4, 256, 5, 6
MEMORY = 0x118000
"""Bytes of host memory; frames beyond are refused."""
QUIET, MOST = 64, 400_000
RING_END = COMPLETION_RING + (16 << LOG_ENTRIES)
ROWS = opcode_rows()
EVERY = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ
MOST_ACTIONS = 14
LOSSY, LOSSY_QP, LOG_TIMEOUT = 0.1, 3, 5
"""In so many programs a queue pair has a timer, of 2^n units."""
ANSWERED = 0.3
"""So often something is answered between two of its tries."""
TALKATIVE = 3
"""One program in so many is of messages under way and their answers."""
FENCED = 0.15
BURST = 7
"""Work requests that are posted at once, less one: more than may be under way."""
SLACK = 1000
PEER, LIDS, PKEY = 77, (9, 4), 0xFFFF


class Differs(AssertionError):
    """The gates did something else than the model."""


def sealed(words: list[int], payload: bytes = b"") -> bytes:
    """A packet's bytes with both CRCs; ``words`` are link header … extension headers, the length is set."""
    pad = -len(payload) % 4
    words = list(words)
    words[1] |= len(words) + (len(payload) + pad) // 4 + 1 << 16
    data = b"".join(word.to_bytes(4, "big") for word in words) + payload + bytes(pad)
    data += icrc.of_packet(NATIVE, data[:8], data[8:]).to_bytes(4, "little")
    return data + vcrc.compute(data).to_bytes(2, "little")


class Program:
    """One seed's actions on ``bench``, played by `script`."""

    def __init__(self, bench, seed: int) -> None:
        self.bench, self.seed = bench, seed
        self.dice = random.Random(seed)
        self.host = MessageHost(bench)
        self.posted = [[0, 0] for _ in range(VIS)]
        self.done = self.read = 0

    # set up

    async def prepare(self, context) -> None:
        dice, host = self.dice, self.host
        await host.start(context)
        self.regions = [
            host.region(0x10_0F80, 5200, PD, EVERY),
            host.region(0xFFFF_FFFF_FFFF_F100, 0xF00, PD, EVERY),
            host.region(0x2000, 64, PD, LOCAL_WRITE),
            host.region(0x2000, 64, PD, REMOTE_READ),
            host.region(0x3000, 4096, OTHER_PD, EVERY),
        ]
        # the second page is withdrawn, another domain's or nowhere
        spoilt = host.region(0x4F00, 5000, PD, EVERY)
        self.regions.append(spoilt)
        first = self.word(TABLE + 8 * spoilt.key)
        low, upper = dice.choice(
            ((2, 0), (2, 1 << 31 | OTHER_PD), (MEMORY >> 12, 1 << 31 | PD), (ONES, 1 << 31 | PD))
        )
        self.set_words(TABLE + 8 * (first + 1), (low, upper))
        for entry in (TABLE_ENTRIES - 1, TABLE_ENTRIES, 1 << 27, ONES):  # pages outside of the table
            self.regions.append(host.window(spoilt, entry, 0x7F00, 600, PD, EVERY))
        gone = host.window(self.regions[0], 0, 0x10_0F80, 5200, PD, EVERY)
        self.set_words(TABLE + 8 * gone.key + 4, (upper & 0x7FFF_FFFF,))
        self.regions.append(gone)
        for region in self.regions[:5]:
            host.write_bytes(region, 0, dice.randbytes(region.length))
        self.model = model = FunctionalAdapter(VIS, bytearray(self.memory()), TABLE, TABLE_ENTRIES)
        for qp, one in enumerate(model.queues):
            psn, expected = dice.choice((5, 0xFFFFFE)), dice.choice((9, 0xFFFFFD))
            one.reads = reads = dice.choice((0, 1, 2, 2, 3, 4, 4))
            await host.connect(
                context, qp, pd=PD, peer=PEER, lids=LIDS, psns=(psn, expected), mtu=MTU, pkey=PKEY,
                reads=reads,
            )  # fmt: skip
            one.pd, one.psn, one.expected, one.peer, one.mtu, one.pkey = PD, psn, expected, PEER, MTU, PKEY
            one.link, one.source = LINK | LIDS[1], LIDS[0]
            one.bases = tuple(ring + (SLOT_BYTES << LOG_PLACES) * qp for ring in (SEND_RINGS, RECEIVE_RINGS))
            one.mask = (1 << LOG_PLACES) - 1
        if dice.random() < LOSSY:
            model.queues[LOSSY_QP].timeout = LOG_TIMEOUT
            await self.bench.set_context(context, LOSSY_QP, SQ_TIMEOUT=LOG_TIMEOUT)

    def memory(self) -> bytes:
        return bytes(self.bench.memory_bytes(MEMORY))

    def word(self, address: int) -> int:
        return self.bench.memory.get(address, 0)

    def set_words(self, address: int, words) -> None:
        for index, word in enumerate(words):
            self.bench.memory[address + 4 * index] = word

    # actions

    async def script(self, context) -> None:
        await self.prepare(context)
        for number in range(self.dice.randrange(2, MOST_ACTIONS)):
            model = self.model
            model.packets, model.completions, model.events = [], [], []
            await self.action(context)
            try:
                await self.compare(context)
                await self.elapse(context)
            except (Differs, TimeoutError) as error:
                raise Differs(f"program {self.seed}, action {number}, {self.told}: {error}") from None
            self.done += 1

    async def elapse(self, context) -> None:
        """Time goes by until each queue pair that waits for it has gone on."""
        model = self.model
        for qp, one in enumerate(model.queues):
            while one.phase == RESTING or (one.timeout and one.under_way):
                units = one.rests if one.phase == RESTING else 1 << one.timeout
                model.packets, model.completions, model.events = [], [], []
                self.told = f"{self.told}; {units} units of time"
                model.elapse(qp)
                clocks = (units + 2) * UNIT_CLOCKS + VIS * STEP_CLOCKS + SLACK
                await self.bench.wait(context, clocks)
                await self.compare(context)
                if one.timeout and self.dice.random() < ANSWERED:
                    model.packets, model.completions, model.events = [], [], []
                    self.answer(qp)
                    await self.compare(context)

    async def action(self, context) -> None:
        dice = self.dice
        qp = dice.choice((0, 0, 0, 1, 2, 3))
        kind = dice.choice(
            ("burst", "burst", "answer", "answer", "answer", "answer")
            if self.seed % TALKATIVE == 0
            else ("ask", "ask", "room", "request", "request", "request", "answer", "answer", "spoilt")
        )
        if kind == "ask":
            await self.post(context, qp, 0)
        elif kind == "burst":
            told = []
            for _ in range(dice.randrange(2, BURST)):
                await self.post(context, qp, 0, whole=dice.random() < 0.9)
                told.append(self.told)
            self.told = "; ".join(told)
        elif kind == "room":
            for _ in range(dice.randrange(1, 3)):
                await self.post(context, qp, 1)
        elif kind == "request":
            self.request(qp)
        elif kind == "answer":
            waiting = [at for at, one in enumerate(self.model.queues) if one.under_way]
            self.answer(dice.choice(waiting) if waiting and dice.random() < 0.9 else qp)
        else:
            self.spoilt(qp)

    def piece(self, whole: bool = False):
        """A segment; ``whole``: that can be sent, and quickly."""
        dice = self.dice
        if whole:
            region, length = dice.choice(self.regions[:2]), dice.choice((0, 1, 5, 64))
            return region.va + dice.randrange(region.length - 64), region.key, length
        region = dice.choice(self.regions[:3] if dice.random() < 0.7 else self.regions)
        inside = dice.random() < 0.7
        offset = dice.randrange(region.length) if inside else dice.choice((-1, region.length - 2, 1 << 40))
        length = dice.choice((0, 1, 5, 64, 64, 300)) if inside else dice.choice((3, 5000, 1 << 31, ONES))
        if inside and dice.random() < 0.8:
            length = min(length, region.length - offset)
        key = region.key if dice.random() < 0.95 else dice.choice((0, 3, TABLE_ENTRIES - 2, ONES))
        return region.va + offset & (1 << 64) - 1, key, length

    async def post(self, context, qp: int, queue: int, whole: bool = False) -> None:
        """A descriptor, torn or not; ``whole``: most likely a message that can be sent."""
        dice, model = self.dice, self.model
        self.told = f"post to queue {queue} of {qp}"
        if model.queues[qp].posted[queue] >= 1 << LOG_PLACES:
            return
        # what has a timer has gone before it is over
        short = whole or (queue == 0 and model.queues[qp].timeout > 0)
        pieces = [self.piece(short) for _ in range(dice.randrange(1, 5))]
        opcode = dice.choice((SEND, SEND, WRITE, WRITE, 2, 5, READ, READ, READ)) if whole else dice.choice(
            (SEND, WRITE, WRITE, READ, READ, BIND, dice.choice((0, 2, 2, 5, 5, 5, 0xFF, 0xABCD00 | SEND)))
        )
        if queue == 0 and dice.random() < FENCED:
            opcode |= FENCE
        region = dice.choice(self.regions)
        va, key = (dice.getrandbits(64), dice.getrandbits(32))
        words = [opcode, dice.getrandbits(32), dice.getrandbits(32), key, va & ONES, va >> 32]
        if opcode & 0xFF == BIND:
            words[2:6] = [dice.choice((0, 1, 1)), dice.choice((region.key, region.key, ONES)), 3, 0x8700_0007]
        words += [0] * (16 - len(words))
        for piece_va, piece_key, length in pieces:
            words += [piece_va & ONES, piece_va >> 32, piece_key, length]
        words += [0] * (32 - len(words))
        self.told += f": {words[:6]} {pieces}"
        await self.post_words(context, qp, queue, words)

    async def post_words(self, context, qp: int, queue: int, words: list[int]) -> None:
        """A descriptor's 32 words into its ring, and the doorbell."""
        model = self.model
        one = model.queues[qp]
        slot = one.bases[queue] + SLOT_BYTES * (self.posted[qp][queue] & one.mask)
        self.posted[qp][queue] += 1
        self.set_words(slot, words)
        for index, word in enumerate(words):
            model.store(slot + 4 * index, word)
        await self.bench.write(context, lb.DOORBELL, queue << 31 | qp << 16 | 1)
        if queue:
            model.post_receive(qp)
        else:
            model.post_send(qp)

    def send(self, words: list[int], payload: bytes, cut=None) -> None:
        """A packet, its words from the BTH on."""
        data = sealed([LINK | LIDS[0], LIDS[1], *words], payload)
        self.bench.arrive(cut(data) if cut else data)
        if cut is None and self.is_sound(words, payload):
            self.model.arrive(words, payload)

    @staticmethod
    def is_sound(words: list[int], payload: bytes) -> bool:
        """By the table of opcodes, as the receive FIFO has it."""
        row = ROWS[words[0] >> 24]
        if not row >> KNOWN_BIT & 1 or words[0] >> 16 & 0xF:
            return False
        extension = 3 + (row >> EXTENSION_SHIFT)
        if len(words) < extension:
            return False
        assert len(words) == extension
        return not payload or bool(row >> PAYLOAD_BIT & 1)

    def bth(self, opcode: int, qp: int, psn: int, length: int, ack: bool) -> list[int]:
        pkey = self.dice.choice((PKEY,) * 12 + (0x7FFF, 1))
        return [opcode << 24 | 0x40 << 16 | (-length % 4) << 20 | pkey, qp, ack << 31 | psn & 0xFFFFFF]

    def request(self, qp: int) -> None:
        dice, one = self.dice, self.model.queues[qp]
        going = {1: (1, 1, 2, 3), 2: (7, 7, 8, 9)}.get(one.state, (0, 4, 5, 6, 10, 11, 12, 12))
        opcode = dice.choice(going if dice.random() < 0.8 else (*range(13), 19, 20, 28, 30))
        row = ROWS[opcode]
        full = opcode in (0, 1, 6, 7)
        region = dice.choice(self.regions[:3] if dice.random() < 0.7 else self.regions)
        offset = dice.choice((0, 1, 70, dice.randrange(region.length), region.length, -4, 1 << 63))
        va = region.va + offset & (1 << 64) - 1
        length = MTU if full else dice.choice((0, 1, 4, 63, 200, MTU))
        if opcode in (8, 9) and dice.random() < 0.8:
            length = min(MTU, one.left)
        if dice.random() < 0.06:
            length = dice.choice((MTU + 1, MTU + 4, 3))
        asked = dice.choice((length, length, length, 1, 600, 1 << 31, ONES))
        if opcode == 12:
            asked = dice.choice((0, 1, 255, 256, 257, 700, 5000, 1 << 31))
        if opcode == 6:
            asked = dice.choice((300, 512, 700, 256, 1 << 31))
        words = [va >> 32, va & ONES, region.key if dice.random() < 0.95 else ONES, asked]
        extension = (words + [dice.getrandbits(32) for _ in range(8)])[: row >> EXTENSION_SHIFT]
        payload = dice.randbytes(length) if row >> PAYLOAD_BIT & 1 else b""
        psn = one.expected + dice.choice((0,) * 9 + (-1, -2, 1, 1 << 23, 5))
        who = qp if dice.random() < 0.97 else dice.choice((VIS, 0xFFFFFF))
        self.told = (
            f"request {opcode} to {who}, PSN {psn} of {one.expected}, {len(payload)} bytes, {extension}"
        )
        self.send(self.bth(opcode, who, psn, len(payload), dice.random() < 0.7) + extension, payload)

    def answer(self, qp: int) -> None:
        dice, one = self.dice, self.model.queues[qp]
        opcode = dice.choice((17, 17, 17, 13, 14, 15, 16, 18))
        lasts = [message.last for message in one.under_way]
        following = one.first if one.next is None else one.next
        psn = dice.choice(
            (one.last, one.last, one.first, following, one.last + 1, one.first - 1, *lasts, *lasts)
        )
        length = 0
        reads = [message for message in one.under_way if message.is_read and not message.came]
        if lasts and dice.random() < 0.5:
            opcode = 17
        elif reads and dice.random() < 0.75:
            read = reads[0] if dice.random() < 0.95 else dice.choice(reads)  # data come in order
            first = read.last - max(1, -(-read.length // MTU)) + 1 & 0xFFFFFF
            psn = first if one.next is None or dice.random() < 0.3 else one.next
            begins, ends = psn == first, psn == read.last
            opcode = 16 if begins and ends else 13 if begins else 15 if ends else 14
            left = read.length - (0 if begins else one.filled)
            length = MTU if opcode in (13, 14) else max(0, min(MTU, left))
        if opcode in (13, 14, 15, 16) and dice.random() < 0.15:
            length = dice.choice((0, 1, MTU, MTU + 1, 40))
        syndrome = dice.choice(
            (0, 0, 0x1F, 0x1F, 0x21, 0x22, 0x25, 0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x7F, 0x40, 0x5F, 0x80)
        )
        if opcode == 17 and lasts and dice.random() < 0.7:
            psn = dice.choice(lasts)
            syndrome = dice.choice((0x1F, 0x1F, 0x1F, 0x1F, 0x60, 0x60, 0x21, 0x62))
        extension = [syndrome << 24 | dice.getrandbits(24)] + [dice.getrandbits(32) for _ in range(3)]
        extension = extension[: ROWS[opcode] >> EXTENSION_SHIFT]
        self.told = f"answer {opcode} to {qp}, PSN {psn}, {length} bytes, {[hex(word) for word in extension]}"
        self.send(self.bth(opcode, qp, psn, length, False) + extension, dice.randbytes(length))

    def spoilt(self, qp: int) -> None:
        """A packet that the link's checks must keep from the engine: cut short, or with a bit turned."""
        dice, one = self.dice, self.model.queues[qp]

        def shorter(data: bytes) -> bytes:
            return data[: 2 * dice.randrange(1, len(data) // 2)]

        def turned(data: bytes) -> bytes:
            place = dice.randrange(8 * len(data))
            return (int.from_bytes(data, "big") ^ 1 << place).to_bytes(len(data), "big")

        cut = dice.choice((shorter, turned))
        self.told = f"a packet {cut.__name__} to {qp}"
        words = [*self.bth(10, qp, one.expected, 40, True), 0, 0x10_0F80, self.regions[0].key, 40]
        self.send(words, dice.randbytes(40), cut)

    # the outcome

    async def compare(self, context) -> None:
        bench, model = self.bench, self.model
        await bench.until_quiet(context, QUIET, MOST)
        left = []
        for data in bench.take_departed():
            if icrc.of_packet(NATIVE, data[:8], data[8:-6]).to_bytes(4, "little") != data[-6:-2]:
                raise Differs("a packet with a wrong ICRC has left")
            if vcrc.compute(data[:-2]).to_bytes(2, "little") != data[-2:]:
                raise Differs("a packet with a wrong VCRC has left")
            left.append(data[:-6])
        self.same(
            "packets", [data.hex(" ", 4) for data in left], [data.hex(" ", 4) for data in model.packets]
        )
        self.same("completions", self.completions(), model.completions)
        events = []
        while await bench.read(context, lb.EVENT_STATUS) >> 31:
            events.append(await bench.read(context, lb.EVENT))
            await bench.write(context, lb.EVENT, 0)
        self.same("events", events, model.events)
        found = self.memory()
        for begin, end in ((0, COMPLETION_RING), (RING_END, MEMORY)):
            if found[begin:end] != model.memory[begin:end]:
                at = next(i for i in range(begin, end) if found[i] != model.memory[i])
                raise Differs(f"host memory {at:#x} is {found[at]:#x}, not {model.memory[at]:#x}")

    def completions(self) -> list[tuple[int, int, int, int]]:
        """New entries of the ring (the software's own reading knows no descriptors of this program)."""
        found = []
        while True:
            place = COMPLETION_RING + 16 * (self.read % (1 << LOG_ENTRIES))
            qp, work, status, last = (self.word(place + 4 * i) for i in range(4))
            if last >> 31 != 1 - (self.read >> LOG_ENTRIES & 1):
                return found
            self.read += 1
            found.append((qp, work, status & 0xFF, status >> 8))

    @staticmethod
    def same(what: str, found: list, wanted: list) -> None:
        if found != wanted:
            raise Differs(f"{what}: {found}, not {wanted}")


ONES = 0xFFFFFFFF


def main() -> int:
    from softhca.hardware import fast_bench

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--folder", type=Path, default=Path("build/gates"))
    given = parser.parse_args()
    bench = fast_bench.FastBench(fast_bench.build(given.folder), size=MEMORY)
    begin, clocks, actions, seed = time.monotonic(), 0, 0, given.first
    while seed < given.first + given.programs and time.monotonic() - begin < given.seconds:
        bench.begin()
        program = Program(bench, seed)
        try:
            bench.run(program.script)
        except Differs as error:
            print(error)
            return 1
        clocks, actions, seed = clocks + bench.clock, actions + program.done, seed + 1
    took = time.monotonic() - begin
    print(
        f"{seed - given.first} programs, {actions} actions, {clocks} clocks in {took:.0f} s"
        f" ({clocks / took:.0f} clocks a second): the gates do what the model does"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
