"""Two live adapters between which the input stands: it hands packets over, changes, repeats, forges and
withholds them, posts work, and lets time pass.

Input: service, PSNs and rights; then steps.  After each input: nothing was raised, no byte changed that was
not granted and none left that may not be read, each packet is counted as received or dropped, completions are
of what was posted and in order, and both adapters come to rest without anybody's answer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from fuzz_choices import Choices
from fuzz_sides import (
    COUNTERS,
    FLEETING,
    GLOBAL,
    GRANTED,
    INBOX,
    LOCAL,
    MTU_BYTES,
    NAMES,
    OUTBOX,
    QKEY,
    ROCE,
    VA,
    WINDOWS,
    Side,
    clean,
    make_pair,
)

from softhca.testing.ends import ALL_RIGHTS, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from softhca.transport.states import ERR, RTS, SQD
from softhca.wire.opcodes import OPCODES

STEPS = 40
INPUTS_A_WORLD = 50_000
SERVICE_BITS = {"rc": 0x00, "srq": 0x00, "uc": 0x20, "ud": 0x60}
ACCESS = (ALL_RIGHTS, ALL_RIGHTS, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, 0)
PSNS = (100, 0xFFFFFE, 0x7FFFFF, 0)
LENGTHS = (0, 1, 8, 255, 256, 257, 600, 1999, 2000, 2001, 1 << 31, (1 << 32) - 1)
PAYLOADS = (0, 1, 3, 8, 255, 256, 257, 512, 1024)
SYNDROMES = (0x1F, 0x00, 0x05, 0x21, 0x3F, 0x60, 0x61, 0x62, 0x63, 0x64, 0x40, 0x7F)
NEAR = (0, 0, 0, 0, 1, 2, 3, -1, -2, 5, 1 << 23, -(1 << 23), 77, 0, 0, 1)
FRAMING = (ROCE, ROCE, LOCAL, GLOBAL)
FILL = bytes(i % 113 for i in range(1024))


class World:
    """The two sides, and what is on its way to each."""

    def __init__(self, framing: str) -> None:
        self.sides = make_pair(framing)
        self.flights: tuple[list[bytes], list[bytes]] = ([], [])
        self.now = 1_000_000
        self.inputs = 0

    def close(self) -> None:
        """Both devices go; nothing may be left."""
        for side in self.sides:
            side.close()


_worlds: dict[str, World] = {}


def world(framing: str) -> World:
    """The present world of a framing; a new one after many inputs."""
    if framing in _worlds and _worlds[framing].inputs >= INPUTS_A_WORLD:
        _worlds.pop(framing).close()
    if framing not in _worlds:
        _worlds[framing] = World(framing)
    _worlds[framing].inputs += 1
    return _worlds[framing]


def finish() -> None:
    """Close the worlds and check that they leave nothing."""
    while _worlds:
        _worlds.popitem()[1].close()


def one_input(data: bytes) -> None:
    choices = Choices(data)
    kind = choices.byte()
    try:
        play(world(FRAMING[kind >> 2 & 3]), NAMES[kind & 3], choices)
    except BaseException:
        _worlds.clear()  # what comes next begins in a sound one
        raise


def play(place: World, name: str, choices: Choices) -> None:
    """One input from its begin to rest."""
    first, second = choices.pick(PSNS), choices.pick(PSNS)
    left, right = place.sides
    access = choices.pick(ACCESS), choices.pick(ACCESS)
    tries = choices.below(4)
    left.begin(name, right, place.now, first, second, access[0], tries)
    right.begin(name, left, place.now, second, first, access[1], tries)
    steps = STEPS
    while choices.more and steps:
        steps -= 1
        STEP[choices.below(len(STEP))](place, choices)
    for side, flight in zip(place.sides, place.flights, strict=True):
        side.rest(flight)
        side.check()
        place.now = max(place.now, side.now)
        flight.clear()
    for side in place.sides:
        side.now = place.now
        side.end()
    place.now += 1_000_000


# what applications do


def target_of(choices: Choices, side: Side) -> tuple[int, int, int]:
    """(va, bytes, key) of a window of ``side``, or a little beside it."""
    window = choices.pick((GRANTED, GRANTED, *WINDOWS))
    start, length, _ = window
    va, key = VA + start, side.keys[window].rkey
    how = choices.byte()
    if how & 0x80:
        va += choices.pick((-1, 1, length - 8, length - 1, length, 8, -8, 256))
    if how & 0x60 == 0x60:
        key ^= 1 << (how & 31)
    return va & (1 << 64) - 1, length, key


def post_send(place: World, choices: Choices) -> None:
    """A send work request."""
    side = place.sides[choices.byte() & 1]
    other = place.sides[side is place.sides[0]]
    opcode = choices.below(10)
    flags = choices.byte() & 0x0F | 2
    if choices.once_in(8):
        flags &= ~2
    va, _, key = target_of(choices, other)
    length = choices.pick((0, 1, 8, 256, 300, 800))
    to = choices.byte()
    ah = side.address_handles[(0, 1, 2, 0, 3)[to % 5]] if to < 250 else to
    qpn = (other, side, other)[to % 3].engine.number if to & 0x40 == 0 else 0xFFFFFF - choices.number(3)
    qkey = QKEY if to & 0x20 == 0 else choices.number(4)
    inline = None
    source, limit, _ = INBOX if opcode in (4, 5, 6) else OUTBOX
    if flags & 8:
        flags &= ~8
        inline = FILL[: length % 65]
    if opcode in (5, 6):
        length = 8
    key_of = side.keys[INBOX if opcode in (4, 5, 6) else OUTBOX].lkey
    if choices.once_in(16):
        key_of ^= 1 << (to & 31)
    sges = [(VA + source, min(length, limit), key_of)] if length else []
    if length > 8 and to & 1:
        sges = [(VA + source, 3, key_of), (VA + source + 10, length - 3, key_of)]
    side.post_send((opcode, flags, 0x1234, va, key, ah, qpn, qkey), sges, inline)


def post_receive(place: World, choices: Choices) -> None:
    """A receive."""
    how = choices.byte()
    side = place.sides[how & 1]
    length = choices.pick((0, 1, 100, 300, 1000, 1900))
    start, limit, _ = INBOX
    key = side.keys[INBOX].lkey ^ (1 << (how & 31) if how > 240 else 0)
    sges = [(VA + start + 50, length, key)] if length else []
    if how & 2 and length > 10:
        sges = [(VA + start, 7, key), (VA + start + 100, min(length, limit - 100), key)]
    side.post_receive(sges)


def local(place: World, choices: Choices) -> None:
    """Polling, arming, changes of state, rights that go."""
    how = choices.byte()
    side = place.sides[how & 1]
    kind = how >> 1 & 7
    if kind < 2:
        side.poll()
    elif kind == 2:
        side.cq.arm(bool(how & 0x80))
    elif kind == 3:
        side.modify({"qp_state": SQD})
    elif kind == 4:
        side.modify({"qp_state": RTS})
    elif kind == 5 and how & 0x80:
        side.modify({"qp_state": ERR})
    elif kind == 6 and not side.revoked:
        side.revoke()
    else:
        side.handle.ring()


def transmit(place: World, choices: Choices) -> None:
    """What one side, or both, want to send goes on its way."""
    how = choices.byte()
    for number, side in enumerate(place.sides):
        if how & 1 << number:
            side.transmit(place.flights[1 - number], 1 + (how >> 2 & 15))


def wait(place: World, choices: Choices) -> None:
    """Time passes, for both sides: a little, or up to what one waits for."""
    how = choices.byte()
    moment = max(side.now for side in place.sides)
    if how & 1:
        deadline = place.sides[how >> 1 & 1].adapter.next_deadline()
        if deadline < 1 << 62:
            moment = max(moment, deadline)
    else:
        moment += how << (how >> 4)
    for side in place.sides:
        side.now = moment
        side.adapter.expire(moment)


# what the network does


def deliver(place: World, choices: Choices) -> None:
    """Up to eight packets arrive as they were sent, maybe as one run."""
    how = choices.byte()
    side, flight = place.sides[how & 1], place.flights[how & 1]
    count = 1 + (how >> 1 & 7)
    batch, flight[:] = flight[:count], flight[count:]
    if how & 0x10:
        batch.reverse()
    if how & 0x20 and len({len(data) for data in batch}) == 1:
        side.receive(b"".join(batch), side.peer_gid, 0xC000, len(batch[0]))
        return
    for data in batch:
        side.receive(data, side.peer_gid, 0xC000, 0 if how & 0x40 else len(data))
        if how & 0x80:
            side.receive(data, side.peer_gid, 0xC000, len(data))


def pump(place: World, choices: Choices) -> None:
    """Both send, and everything arrives in order."""
    for number, side in enumerate(place.sides):
        side.transmit(place.flights[1 - number], 4)
    for side, flight in zip(place.sides, place.flights, strict=True):
        for data in flight:
            side.receive(data, side.peer_gid, 0xC000, 0)
        flight.clear()


def lose(place: World, choices: Choices) -> None:
    """A packet is lost, or all."""
    how = choices.byte()
    flight = place.flights[how & 1]
    del flight[: 1 + (how >> 1 & 7)]


def alter(place: World, choices: Choices) -> None:
    """A packet arrives with some of its bytes changed; it may stay on its way as it was."""
    how = choices.byte()
    side, flight = place.sides[how & 1], place.flights[how & 1]
    if not flight:
        return
    index = (how >> 1 & 7) % len(flight)
    body = side.transport_of(flight[index])
    if how & 0x10:
        del flight[index]
    for _ in range(1 + (how >> 5 & 1)):
        field = choices.below(10)
        if field == 0:
            body[0] = choices.byte()
        elif field == 1:
            body[0] = body[0] & 0xE0 | choices.byte() & 0x1F
        elif field == 2:
            move_psn(body, choices.pick(NEAR))
        elif field == 3:
            body[1] ^= choices.byte()
        elif field < 7:
            at = 12 + choices.below(32) if field < 6 else choices.byte()
            if at < len(body):
                body[at] ^= choices.byte()
        elif field == 7:
            del body[max(12, len(body) - 4 * (choices.byte() & 31)) :]
        elif field == 8:
            body += FILL[: 4 * (choices.byte() & 63)]
        else:
            body[2:9] = choices.block(7)
    send(side, body, choices, how >> 6)


def move_psn(body: bytearray, by: int) -> None:
    """Another PSN near the packet's own."""
    body[9:12] = ((int.from_bytes(body[9:12], "big") + by) & 0xFFFFFF).to_bytes(3, "big")


def send(side: Side, body: bytearray, choices: Choices, how: int) -> None:
    """Seal a packet BTH … pad and hand it over: from the peer or a unknown, with a right ICRC or not."""
    body[12:] = clean(body[12:])
    source, port, stride, identification, group = side.peer_gid, 0xC000, 0, 0, False
    wrong, change = 0, (0, 0)
    if how == 3:
        extra = choices.byte()
        kind = extra & 7
        if kind == 1:
            source = side.unknown
        elif kind == 2:
            port += extra >> 3
            change = choices.byte(), extra >> 3
        elif kind == 3:
            stride = extra
        elif kind == 4:
            identification = extra << 8 | choices.byte()
            change = extra >> 3, identification & 0xFF
        elif kind > 5:
            group = True
            if len(body) >= 12 and kind == 6:
                body[5:8] = b"\xff\xff\xff"
    elif how == 2 and choices.byte() & 3 == 0:
        wrong = choices.number(4) | 1
    route = side.route_from(source, port, group)
    route.identification = identification
    side.receive(side.sealed(body, route, wrong, change), source, port, stride, group)


def forge(place: World, choices: Choices) -> None:
    """A packet made from nothing, near what the queue pair waits for."""
    how = choices.byte()
    side = place.sides[how & 1]
    engine = side.engine
    code = choices.byte()
    opcode = SERVICE_BITS[side.name] | code & 0x1F if code < 0xE0 else choices.byte()
    row = OPCODES.get(opcode)
    operation = row.operation if row else 0
    response = operation in (3, 4, 5)
    psn = 0
    if side.name in ("rc", "srq"):
        psn = engine.send_engine().una_psn if response else engine.receive_engine().epsn
    elif side.name == "uc":
        psn = engine.receive_engine().epsn
    psn = (psn + choices.pick(NEAR)) & 0xFFFFFF
    qpn = engine.number
    if how & 0x0E == 0x0E:
        qpn = choices.pick((side.idle.number, 0, 1, 0xFFFFFF, qpn ^ 1, qpn ^ 0x800000))
    length = choices.pick(LENGTHS)
    payload = choices.pick(PAYLOADS) if row is None or row.payload else 0
    if row is not None and row.position in (0, 1) and payload and how & 0x10:
        payload = MTU_BYTES
    pad = -payload & 3
    flags = 0x40 | pad << 4 | (how & 0x80)
    if choices.once_in(16):
        flags ^= choices.byte()
    pkey = 0xFFFF if how & 0x20 == 0 or how & 0x0C else choices.number(2)
    body = bytearray(struct.pack(">BBHII", opcode, flags, pkey, qpn & 0xFFFFFF, (how & 0x40) << 25 | psn))
    for header in row.headers if row else ():
        body += extension(header, side, choices, length)
    body += FILL[choices.byte() :][:payload].ljust(payload, b"\1") + bytes(pad)
    send(side, body, choices, choices.byte() >> 6)


def extension(header: str, side: Side, choices: Choices, length: int) -> bytes:
    """One extension header, right for something."""
    if header == "reth":
        va, window_bytes, key = target_of(choices, side)
        return struct.pack(">QII", va, key, min(length, window_bytes) if choices.byte() & 3 else length)
    if header == "atomiceth":
        start, _, _ = COUNTERS
        if choices.byte() & 3:
            return struct.pack(">QIQQ", VA + start, side.keys[COUNTERS].rkey, 5, 0)
        va, _, key = target_of(choices, side)
        return struct.pack(">QIQQ", va, key, choices.number(8), choices.number(8))
    if header == "aeth":
        return bytes([choices.pick(SYNDROMES)]) + choices.number(1).to_bytes(3, "big")
    if header == "deth":
        qkey = QKEY if choices.byte() & 7 else choices.number(4)
        return struct.pack(">II", qkey, side.peer_number & 0xFFFFFF)
    if header == "ieth":
        return struct.pack(">I", side.keys[choices.pick((FLEETING, GRANTED))].rkey)
    return choices.block({"atomicacketh": 8}.get(header, 4))


def raw(place: World, choices: Choices) -> None:
    """Bytes, with a right ICRC behind them or none."""
    how = choices.byte()
    side = place.sides[how & 1]
    data = choices.run()
    if how & 2:
        send(side, bytearray(data), choices, how >> 6)
    else:
        side.receive(clean(data), side.peer_gid, 0xC000, how >> 2)


STEP = (
    post_send, post_send, post_receive, transmit, transmit, transmit, deliver, deliver, deliver, alter, alter,
    forge, forge, forge, wait, local, lose, raw, pump, pump,
)  # fmt: skip


def seeds() -> Iterator[bytes]:
    """Ordinary traffic of every service, and one of every step."""
    send_one, receive_one = bytes([0, 0]), bytes([2, 1, 3])
    out = bytes([3, 3])
    there, back = bytes([6, 0x0F]), bytes([6, 0x0E])
    for service in (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15):
        begin = bytes([service, 0, 0, 0, 0, 2])
        for opcode in range(10):
            post = send_one + bytes([opcode, 2, 1, 0, 0, 4, 0, 1])
            yield begin + receive_one * 2 + post * 2 + (out + there + back) * 4
            pumped = b"\x12" + (post + b"\x12") * 3
            yield begin + receive_one * 3 + pumped + out + b"\x0f\x00" + post + b"\x12\x12"
            changed = bytes([9, 1, 2, 0]) + out + bytes([14, 1, 14, 3])
            yield begin + receive_one + post + out + changed + (out + there + back) * 3
        for opcode in (5, 6):
            post = send_one + bytes([opcode, 2, 1, 4, 0, 4, 0, 1])
            again = bytes([6, 0x8F])
            yield begin + (post + out + again + out + back) * 2
            yield begin + post + out + there + (out + bytes([14, 1]) + there) * 2 + out + back
        for code in range(0, 32, 2):
            forged = bytes([11, 0x40, code, 0, 5, 6, 1, 0, 0, 0, 1, 1, 0, 0, 0])
            yield begin + receive_one * 2 + forged * 3 + out + there
            for extra in (1, 2, 3, 4, 6):
                yield begin + receive_one * 2 + forged[:-1] + bytes([0xC0, extra, 5]) + out + there
        yield begin + b"".join(bytes([step, 7, 9, 1]) for step in range(len(STEP))) * 3
