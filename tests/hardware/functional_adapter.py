"""What the assembled adapter must do, as plain rules over bytes: a functional model for messages.

It knows neither engines nor clocks: a work request that is posted and a packet that arrives change host
memory, and give packets, completions and events.  Host memory is read as the gates read it, descriptors and
page table too; `docs/hardware.md` has the formats.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ = 1, 2, 4
SEND, SEND_IMMEDIATE, WRITE, READ, WRITE_IMMEDIATE, BIND = 1, 2, 3, 4, 5, 8
HAS_IMMEDIATE = 0x80
SUCCESS, TOO_LONG, NOT_HANDLED, NOT_READ, FLUSHED, NOT_BOUND, REFUSED, GAVE_UP = 0, 1, 2, 4, 5, 6, 8, 12
IDLE, SENDING, BROKEN, RESTING = 0, 1, 3, 5
FENCE = 0x100
WINDOW = 4
IN_SEND, IN_WRITE = 1, 2
WRITE_SLOT, READ_SLOT = 1, 2
ACK, RNR, NAK_GAP, NAK_INVALID, NAK_ACCESS, NAK_LOCAL = 0x1F, 0x21, 0x60, 0x61, 0x62, 0x63
ALL_CAME, OWN_FAULT = 0x40, 0x7F
KEY_EVENT = 6
MOST_TRIES = 8
ONES, MASK24, PAGE, SLOT = 0xFFFFFFFF, 0xFFFFFF, 4096, 128


class Refused(Exception):
    """A range that may not be used, or that host memory does not have."""


@dataclass
class Message:
    """One that has gone: the PSN that it ends with; of a READ how many bytes, and whether they have come."""

    last: int
    length: int = 0
    is_read: bool = False
    came: bool = False


@dataclass
class Queues:
    """A queue pair: what the host has set, and how far it is."""

    pd: int = 0
    psn: int = 0
    expected: int = 0
    peer: int = 0
    link: int = 0
    source: int = 0
    pkey: int = 0
    mtu: int = 256
    timeout: int = 0
    rests: int = 0
    total: int = 0
    bases: tuple[int, int] = (0, 0)
    mask: int = 0
    posted: list[int] = field(default_factory=lambda: [0, 0])
    heads: list[int] = field(default_factory=lambda: [0, 0])
    # as who asks
    phase: int = IDLE
    sent: int = 0
    first: int = 0
    last: int = 0
    length: int = 0
    seen: int = 0
    tries: int = 0
    reads: int = 0  # that may be under way; one always may
    under_way: list[Message] = field(default_factory=list)
    gone: list[Message | None] = field(default_factory=lambda: [None] * WINDOW)
    """What has gone last in each place of the window, by descriptor; it may have to go again."""
    answer: int = 0
    answer_psn: int = 0
    filled: int = 0
    next: int | None = None  # of a READ whose data are coming
    # as who is asked
    state: int = IDLE
    gap_told: bool = False
    va: int = 0
    key: int = 0
    left: int = 0
    msn: int = 0
    keys: dict[int, int] = field(default_factory=dict)


class FunctionalAdapter:
    """``memory`` is the host's; what happens is appended to ``packets`` (LRH … pad), ``completions`` (queue
    pair, work, status, length) and ``events``."""

    def __init__(self, vis: int, memory: bytearray, table: int, entries: int) -> None:
        self.vis, self.memory, self.table, self.entries = vis, memory, table, entries
        self.queues = [Queues() for _ in range(vis)]
        self.packets: list[bytes] = []
        self.completions: list[tuple[int, int, int, int]] = []
        self.events: list[int] = []

    # host memory, page table

    def word(self, address: int) -> int:
        return int.from_bytes(self.memory[address : address + 4], "little")

    def store(self, address: int, word: int) -> None:
        self.memory[address : address + 4] = word.to_bytes(4, "little")

    def entry(self, index: int, pd: int, rights: int = 0) -> int:
        """The lower word of a page-table entry that is valid, of that domain and has the rights."""
        if index >= self.entries:
            raise Refused
        low, upper = self.word(self.table + 8 * index), self.word(self.table + 8 * index + 4)
        if not upper >> 31 or upper & MASK24 != pd or pd == 0 or rights & ~(upper >> 24):
            raise Refused
        return low

    def look_up(self, pd: int, key: int, va: int, length: int, rights: int) -> int:
        """Where the first byte of a range of addresses lies."""
        if key + 3 >= self.entries:
            raise Refused
        first = self.entry(key, pd, rights)
        at = self.table + 8 * key
        start = self.word(at + 12) << 32 | self.word(at + 8)
        region = (self.word(at + 20) & 0xFFF) << 32 | self.word(at + 16)
        offset = va - start
        if offset < 0 or offset + length > region:
            raise Refused
        frame = self.entry(first + (offset + start % PAGE >> 12 & ONES), pd)
        return frame << 12 | va % PAGE

    def pieces(self, pd: int, key: int, va: int, length: int, rights: int):
        """The range page by page: addresses and lengths; Refused at the first page that may not be used."""
        while length:
            count = min(length, PAGE - va % PAGE)
            address = self.look_up(pd, key, va, count, rights)
            if address + count > len(self.memory):
                raise Refused
            yield address, count
            va, length = va + count & (1 << 64) - 1, length - count

    def read(self, pd: int, key: int, va: int, length: int, rights: int) -> bytes:
        return b"".join(
            bytes(self.memory[address : address + count])
            for address, count in self.pieces(pd, key, va, length, rights)
        )

    def write(self, pd: int, key: int, va: int, data: bytes, rights: int) -> None:
        done = 0
        for address, count in self.pieces(pd, key, va, len(data), rights):
            self.memory[address : address + count] = data[done : done + count]
            done += count

    def descriptor(self, qp: int, queue: int, behind: int = 0) -> list[int]:
        """The oldest one, or one so many places behind."""
        one = self.queues[qp]
        at = one.bases[queue] + SLOT * (one.heads[queue] + behind & one.mask)
        return [self.word(at + 4 * i) for i in range(SLOT // 4)]

    @staticmethod
    def segments(words: list[int]):
        """(address, key, length) of the four segments."""
        return [(words[i + 1] << 32 | words[i], words[i + 2], words[i + 3]) for i in range(16, 32, 4)]

    def part(self, words: list[int], skip: int, count: int):
        """Ranges of ``count`` bytes of a descriptor's segments behind the first ``skip``, and how many bytes
        there are too few."""
        ranges = []
        for va, key, length in self.segments(words):
            if skip >= length or not count:
                skip = max(0, skip - length)
                continue
            taken = min(count, length - skip)
            ranges.append((va + skip & (1 << 64) - 1, key, taken))
            skip, count = 0, count - taken
        return ranges, count

    # what leaves

    def packet(self, qp: int, opcode: int, psn: int, rest: bytes, payload: bytes = b"", ack: bool = False):
        one = self.queues[qp]
        pad = -len(payload) % 4
        body = rest + payload + bytes(pad)
        words = (
            one.link, (len(body) // 4 + 6) << 16 | one.source,
            opcode << 24 | 0x40 << 16 | pad << 20 | one.pkey, one.peer, ack << 31 | psn,
        )  # fmt: skip
        self.packets.append(b"".join(word.to_bytes(4, "big") for word in words) + body)

    def aeth(self, qp: int, syndrome: int) -> bytes:
        return (syndrome << 24 | self.queues[qp].msn).to_bytes(4, "big")

    def reply(self, qp: int, syndrome: int, psn: int) -> None:
        self.packet(qp, 17, psn & MASK24, self.aeth(qp, syndrome))

    def complete(self, qp: int, queue: int, work: int, status: int, length: int = 0) -> None:
        one = self.queues[qp]
        self.completions.append((qp, work, status, length))
        one.heads[queue] += 1
        one.posted[queue] -= 1

    # as who asks

    def post_send(self, qp: int) -> None:
        self.queues[qp].posted[0] += 1
        self.ask(qp)

    def ask(self, qp: int) -> None:
        """Turns of the send queue as long as there is something to do."""
        while self.turn(qp):
            pass

    def turn(self, qp: int) -> bool:
        """One turn; whether there is something to do at once in another one."""
        one = self.queues[qp]
        if one.phase == BROKEN:
            if one.posted[0]:
                self.complete(qp, 0, self.descriptor(qp, 0)[1], FLUSHED)
            return one.posted[0] > 0
        before = self.place(qp)
        if (one.under_way or one.phase != IDLE) and self.news(qp):
            return True
        if one.phase == IDLE:
            self.next_message(qp)
        elif one.phase == SENDING:
            self.one_packet(qp)
        return before != self.place(qp)

    def place(self, qp: int) -> tuple[int, ...]:
        """How far a send queue is."""
        one = self.queues[qp]
        return one.phase, len(one.under_way), one.psn, one.posted[0], one.tries, one.seen

    def next_message(self, qp: int, again: bool = False) -> None:
        """Begin the one behind those under way, which a bind and what cannot go wait for; with the fence it
        waits for READs, a READ for others if there are many; ``again``: the oldest one, which has gone
        before."""
        one = self.queues[qp]
        under = len(one.under_way)
        if under == WINDOW or one.posted[0] <= under:
            return
        words = self.descriptor(qp, 0, under)
        opcode, work = words[0] & 0xFF, words[1]
        length = sum(segment[2] for segment in self.segments(words))
        moves = opcode in (SEND, SEND_IMMEDIATE, WRITE, WRITE_IMMEDIATE, READ)
        reads = sum(message.is_read for message in one.under_way)
        if reads and (words[0] & FENCE or (opcode == READ and reads >= one.reads)):
            return
        if under and (not moves or length >> 31):
            return
        if opcode == BIND:
            self.complete(qp, 0, work, self.bind(qp, words))
        elif not moves:
            self.complete(qp, 0, work, NOT_HANDLED)
        elif length >> 31:
            self.complete(qp, 0, work, NOT_READ)
        else:
            if not under and not again:
                one.first, one.tries, one.seen = one.psn, 0, one.answer
            one.length, one.sent, one.phase = length, 0, SENDING
            self.one_packet(qp)

    def one_packet(self, qp: int) -> None:
        one = self.queues[qp]
        words = self.descriptor(qp, 0, len(one.under_way))
        opcode = words[0] & 0xFF
        reth = b"".join(words[i].to_bytes(4, "big") for i in (5, 4, 3)) + one.length.to_bytes(4, "big")
        if opcode == READ:
            self.packet(qp, 12, one.psn, reth, ack=True)
            one.psn = one.psn + max(1, -(-one.length // one.mtu)) & MASK24
            one.last = one.psn - 1 & MASK24
            self.leave(qp, Message(one.last, one.length, is_read=True))
            return
        want = min(one.mtu, one.length - one.sent)
        is_last, is_first = one.length - one.sent <= one.mtu, one.sent == 0
        ranges, missing = self.part(words, one.sent, want)
        try:
            if missing:
                raise Refused
            data = b"".join(self.read(one.pd, key, va, length, 0) for va, key, length in ranges)
        except Refused:
            if not one.under_way:
                self.finish(qp, NOT_READ)
            return
        code = {(True, True): 4, (True, False): 0, (False, False): 1, (False, True): 2}[is_first, is_last]
        is_write, immediate = opcode in (WRITE, WRITE_IMMEDIATE), opcode in (SEND_IMMEDIATE, WRITE_IMMEDIATE)
        rest = reth if is_write and is_first else b""
        if immediate and is_last:
            rest += words[2].to_bytes(4, "big")
        code += 6 * is_write + (immediate and is_last)
        self.packet(qp, code, one.psn, rest, data, is_last)
        one.last, one.psn = one.psn, one.psn + 1 & MASK24
        one.sent += one.mtu
        if is_last:
            self.leave(qp, Message(one.last))

    def leave(self, qp: int, message: Message) -> None:
        """A message has gone whole."""
        one = self.queues[qp]
        one.gone[one.heads[0] + len(one.under_way) & 3] = message
        one.under_way.append(message)
        one.phase = IDLE

    def over(self, qp: int) -> None:
        """The oldest message has succeeded."""
        one = self.queues[qp]
        one.first, one.tries = one.under_way.pop(0).last + 1 & MASK24, 0
        self.complete(qp, 0, self.descriptor(qp, 0)[1], SUCCESS)

    def finish(self, qp: int, status: int) -> None:
        """The oldest message has failed, and with it the queue pair."""
        one = self.queues[qp]
        one.phase, one.under_way = BROKEN, []
        self.complete(qp, 0, self.descriptor(qp, 0)[1], status)

    def news(self, qp: int) -> bool:
        """What the peer has answered since the last turn; whether a message is over."""
        one = self.queues[qp]
        oldest = one.under_way[0] if one.under_way else None
        if oldest and oldest.is_read and oldest.came:
            self.over(qp)
            return True
        if one.answer == one.seen:
            return False
        syndrome = one.answer & 0xFF
        kind, code = syndrome >> 5, syndrome & 0x1F
        place, last = one.answer_psn - one.first & MASK24, one.last - one.first & MASK24
        if place > last:
            one.seen = one.answer
            return False
        if oldest and (oldest.last - one.first & MASK24) < place + (kind == 0):
            if not oldest.is_read:
                self.over(qp)
                return True
            one.seen = one.answer
            if not one.tries:  # data before it have got lost
                self.again(qp)
                return True
            return False
        one.seen = one.answer
        if kind == 1:
            code = code or 32
            one.phase, one.rests = RESTING, (8 << max(0, code - 3) // 2) if code % 2 else 5 << code // 2 - 1
            one.under_way = []
        elif kind == 3 and code == 0:
            self.again(qp)
        elif kind == 3:
            self.finish(qp, NOT_READ if syndrome == OWN_FAULT else REFUSED + code)
        return kind == 3

    def again(self, qp: int) -> None:
        """A packet or an answer was lost."""
        one = self.queues[qp]
        one.tries += 1
        if one.tries >= MOST_TRIES:
            self.finish(qp, GAVE_UP)
        else:
            self.rewind(qp)

    def rewind(self, qp: int) -> None:
        """All that is not acknowledged goes again."""
        one = self.queues[qp]
        one.psn, one.under_way, one.phase = one.first, [], IDLE
        self.next_message(qp, again=True)

    def elapse(self, qp: int) -> None:
        """What the queue pair waits for has not come in time."""
        one = self.queues[qp]
        if one.phase == RESTING:
            self.rewind(qp)
        elif one.timeout and one.under_way:
            self.again(qp)
        self.ask(qp)

    def bind(self, qp: int, words: list[int]) -> int:
        one = self.queues[qp]
        destroys, key, low, high = words[2] & 1, words[3], words[4], words[5]
        try:
            self.entry(key, one.pd)
        except Refused:
            return NOT_BOUND
        at = self.table + 8 * key
        self.store(at + 4, 0)
        if not destroys:
            self.store(at, low)
            self.store(at + 4, high & 0xFF000000 | one.pd)
        for other in self.queues:
            if other.pd == one.pd:
                kept = {slot: one for slot, one in other.keys.items() if one != key & 0x7FFFFFF}
                other.keys = kept
        return SUCCESS

    # as who is asked

    def post_receive(self, qp: int) -> None:
        self.queues[qp].posted[1] += 1

    def arrive(self, words: list[int], payload: bytes) -> None:
        """A sound packet: its words from the BTH on without payload, and that."""
        opcode, pkey = words[0] >> 24, words[0] & 0xFFFF
        qp, psn, ack = words[1] & MASK24, words[2] & MASK24, bool(words[2] >> 31)
        extension = words[3:]
        if qp >= self.vis or self.queues[qp].pd == 0 or (pkey ^ self.queues[qp].pkey) & 0x7FFF:
            return
        one = self.queues[qp]
        if opcode >= 13:
            self.answered(qp, opcode, psn, extension, payload)
            return
        if one.state == BROKEN:
            return
        ahead = psn - one.expected & MASK24
        if ahead >> 23:
            self.repeated(qp, opcode, psn, extension)
        elif ahead:
            if not one.gap_told:
                one.gap_told = True
                self.reply(qp, NAK_GAP, one.expected)
        else:
            one.gap_told = False
            try:
                self.request(qp, opcode, psn, extension, payload, ack)
            except Refused as refused:
                one.state = BROKEN
                if refused.args[0] == NAK_ACCESS:
                    self.events.append(KEY_EVENT << 24 | qp)
                self.reply(qp, refused.args[0], psn)

    def repeated(self, qp: int, opcode: int, psn: int, extension: list[int]) -> None:
        one = self.queues[qp]
        if opcode != 12:
            self.reply(qp, ACK, one.expected - 1)
            return
        try:
            self.answer_read(qp, psn, extension, again=True)
        except Refused as refused:
            one.state = BROKEN
            self.events.append(KEY_EVENT << 24 | qp)
            self.reply(qp, refused.args[0], psn)

    def request(
        self, qp: int, opcode: int, psn: int, extension: list[int], payload: bytes, ack: bool
    ) -> None:
        one = self.queues[qp]
        immediate = None
        if opcode in (3, 5, 9, 11):
            if opcode > 6 and not one.posted[1]:
                self.reply(qp, RNR, psn)
                return
            *extension, immediate = extension
            opcode -= 1
        begins, ends = opcode in (0, 4, 6, 10, 12), opcode in (2, 4, 8, 10)
        wanted = IDLE if begins else IN_SEND if opcode < 6 else IN_WRITE
        if one.state != wanted:
            raise Refused(NAK_INVALID)
        if opcode == 12:
            self.answer_read(qp, psn, extension, again=False)
            return
        fits = len(payload) <= one.mtu if ends else len(payload) == one.mtu
        if opcode < 6:
            if begins:
                one.left = 0
            if not one.posted[1]:
                self.reply(qp, RNR, psn)
                return
            if not fits:
                raise Refused(NAK_INVALID)
            self.take_send(qp, payload, ends, immediate)
        else:
            self.take_write(qp, extension if begins else None, payload, fits, ends)
            if immediate is not None:
                self.received(qp, one.total, immediate)
        one.state = IDLE if ends else wanted if not begins else (IN_SEND if opcode < 6 else IN_WRITE)
        one.msn = one.msn + ends & MASK24
        one.expected = psn + 1 & MASK24
        if ack:
            self.reply(qp, ACK, psn)

    def received(self, qp: int, length: int, immediate: int | None) -> None:
        one = self.queues[qp]
        words = self.descriptor(qp, 1)
        if immediate is not None:
            self.store(one.bases[1] + SLOT * (one.heads[1] & one.mask) + 8, immediate)
        self.complete(qp, 1, words[1], SUCCESS if immediate is None else HAS_IMMEDIATE, length)

    def take_send(self, qp: int, payload: bytes, ends: bool, immediate: int | None) -> None:
        one = self.queues[qp]
        words = self.descriptor(qp, 1)
        ranges, missing = self.part(words, one.left, len(payload))
        try:
            self.scatter(one.pd, ranges, payload)
        except Refused:
            self.complete(qp, 1, words[1], NOT_READ)
            raise Refused(NAK_LOCAL) from None
        if missing:
            self.complete(qp, 1, words[1], TOO_LONG)
            raise Refused(NAK_INVALID)
        one.left += len(payload)
        if ends:
            self.received(qp, one.left, immediate)

    def scatter(self, pd: int, ranges, payload: bytes) -> None:
        done = 0
        for va, key, length in ranges:
            self.write(pd, key, va, payload[done : done + length], LOCAL_WRITE)
            done += length

    def take_write(self, qp: int, reth: list[int] | None, payload: bytes, fits: bool, ends: bool) -> None:
        one = self.queues[qp]
        if reth is not None:
            one.keys[WRITE_SLOT] = reth[2] & 0x7FFFFFF
            if not fits:
                raise Refused(NAK_INVALID)
            one.va, one.key, one.left = reth[0] << 32 | reth[1], reth[2], reth[3]
            one.total = one.left
            if one.left:
                self.permitted(qp, WRITE_SLOT, one.va, one.left, REMOTE_WRITE)
        else:
            if not fits:
                raise Refused(NAK_INVALID)
            if WRITE_SLOT not in one.keys:
                raise Refused(NAK_ACCESS)
        if len(payload) > one.left or (ends and len(payload) != one.left):
            raise Refused(NAK_INVALID)
        try:
            self.write(one.pd, one.key, one.va, payload, REMOTE_WRITE)
        except Refused:
            one.keys.pop(WRITE_SLOT, None)
            raise Refused(NAK_ACCESS) from None
        one.va, one.left = one.va + len(payload) & (1 << 64) - 1, one.left - len(payload)
        if ends:
            one.keys.pop(WRITE_SLOT, None)

    def permitted(self, qp: int, slot: int, va: int, length: int, rights: int) -> None:
        one = self.queues[qp]
        key = one.key if slot == WRITE_SLOT else one.keys_full
        try:
            self.look_up(one.pd, key, va, length, rights)
        except Refused:
            one.keys.pop(slot, None)
            raise Refused(NAK_ACCESS) from None

    def answer_read(self, qp: int, psn: int, reth: list[int], again: bool) -> None:
        one = self.queues[qp]
        va, key, length = reth[0] << 32 | reth[1], reth[2], reth[3]
        one.keys[READ_SLOT] = key & 0x7FFFFFF
        one.keys_full = key
        if length:
            self.permitted(qp, READ_SLOT, va, length, REMOTE_READ)
        count = max(1, -(-length // one.mtu))
        if not again:
            one.msn = one.msn + 1 & MASK24
            one.expected = psn + count & MASK24
        for number in range(count):
            part = min(one.mtu, length)
            try:
                data = self.read(one.pd, key, va, part, REMOTE_READ)
            except Refused:
                one.keys.pop(READ_SLOT, None)
                one.state = BROKEN
                self.events.append(KEY_EVENT << 24 | qp)
                self.reply(qp, NAK_ACCESS, psn)
                return
            code = 16 if count == 1 else 13 if number == 0 else 15 if number == count - 1 else 14
            self.packet(qp, code, psn, b"" if code == 14 else self.aeth(qp, ACK), data)
            va, length, psn = va + part & (1 << 64) - 1, length - part, psn + 1 & MASK24
        one.keys.pop(READ_SLOT, None)

    # what peers answer

    def answered(self, qp: int, opcode: int, psn: int, extension: list[int], payload: bytes) -> None:
        one = self.queues[qp]
        if opcode == 17:
            syndrome = extension[0] >> 24
            if syndrome < 0x40 or 0x60 <= syndrome < 0x65:
                self.tell(qp, psn, syndrome)
            return
        if opcode > 17 or one.phase == BROKEN:
            return
        waiting = (
            (behind, message)
            for behind, message in ((at, one.gone[one.heads[0] + at & 3]) for at in range(WINDOW))
            if message and message.is_read and not message.came
        )
        behind, message = next(waiting, (0, None))
        if message is None or (message.last - psn & MASK24) >> 23:
            return
        if opcode in (13, 16):
            if psn != message.last - max(1, -(-message.length // one.mtu)) + 1 & MASK24:
                return
            one.next, one.filled = psn, 0
        if psn != one.next:
            return
        if len(payload) > one.mtu or (opcode in (13, 14) and len(payload) != one.mtu):
            return
        words = self.descriptor(qp, 0, behind)
        ranges, missing = self.part(words, one.filled, len(payload))
        try:
            self.scatter(one.pd, ranges, payload)
            if missing:
                raise Refused
        except Refused:
            self.tell(qp, psn, OWN_FAULT)
            return
        one.filled, one.next = one.filled + len(payload), psn + 1 & MASK24
        if opcode in (15, 16):
            message.came = one.filled == message.length
            one.next = None if message.came else one.next
            self.tell(qp, psn, ALL_CAME if message.came else OWN_FAULT)

    def tell(self, qp: int, psn: int, syndrome: int) -> None:
        one = self.queues[qp]
        one.answer = (one.answer & 0xFFFFFF00) + 0x100 & ONES | syndrome
        one.answer_psn = psn
        self.ask(qp)
