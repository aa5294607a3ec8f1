# amaranth: UnusedElaboratable=no
"""The serial interface and the FIFOs, held against the software adapter's own checks of a packet."""

from collections import deque
from dataclasses import replace

import pytest

pytest.importorskip("amaranth")

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from hardware_bench import Bench, line_words, strobe, words_of
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_samples import routes, sample_route, transports

from softhca.hardware import header_rules
from softhca.hardware.crc import ICRC_POLYNOMIAL, VCRC_POLYNOMIAL, shifted
from softhca.hardware.fifo import PUSH_NOTHING, ReceiveFifo, SendFifo
from softhca.hardware.packet_buffer import PacketBuffer
from softhca.hardware.ports import RegisterWrite
from softhca.hardware.serial import Line, SerialReceiver, SerialTransmitter
from softhca.machine.primitives import address_of
from softhca.wire import drops, icrc, vcrc
from softhca.wire.bth import Bth
from softhca.wire.link_view import LinkView
from softhca.wire.opcodes import OPCODES
from softhca.wire.packet import NATIVE, Packet, assemble
from softhca.wire.packet_view import PacketView
from softhca.wire.reth import Reth

EXAMPLES = settings(max_examples=60, deadline=None)


class Receiving(wiring.Component):
    """Serial interface and receive FIFO."""

    def __init__(self, words=512, packets=8):
        self.sizes = words, packets
        super().__init__(
            {
                "line": In(Line()),
                "rx_status": Out(32),
                "rx_word": Out(32),
                "rx_drops": Out(32),
                "write_rx_pop": In(RegisterWrite()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.serial = serial = SerialReceiver()
        m.submodules.fifo = fifo = ReceiveFifo(*self.sizes)
        wiring.connect(m, wiring.flipped(self.line), serial.line)
        wiring.connect(m, serial.packet, fifo.packet)
        wiring.connect(m, wiring.flipped(self.write_rx_pop), fifo.write_rx_pop)
        m.d.comb += [
            self.rx_status.eq(fifo.rx_status),
            self.rx_word.eq(fifo.rx_word),
            self.rx_drops.eq(fifo.rx_drops),
        ]
        return m


def judge(data):
    """(link's reason, transport's reason), as the software adapter finds them."""
    buffer = bytearray(data)
    link, view = LinkView(), PacketView()
    reason = link.decode(memoryview(buffer), 0, len(data))
    reason = reason or link.check_global(memoryview(buffer))
    reason = reason or link.check_icrc(memoryview(buffer), address_of(buffer))
    if reason:
        return reason, 0
    return 0, view.decode(memoryview(buffer), link.transport, link.transport_bytes)


def sealed(body, icrc_right=True, vcrc_right=True):
    """``body``, LRH … pad, with its CRCs."""
    transport = 48 if len(body) > 1 and body[1] & 3 == 3 else 8
    if len(body) >= transport + 12:
        value = icrc.of_packet(NATIVE, bytes(body[:transport]), bytes(body[transport:]))
        body = body + (value ^ (not icrc_right)).to_bytes(4, "little")
    return body + (vcrc.compute(body) ^ (not vcrc_right)).to_bytes(2, "little")


@st.composite
def arrivals(draw):
    """What may come over a line: sound packets, packets that break one rule or several, and rubbish."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=40).map(lambda data: data[: len(data) & ~1])) + b"\0\0"
    transport = draw(transports())
    route = draw(routes(draw(st.sampled_from(["native", "native_grh"]))))
    bth = transport.bth
    if draw(st.integers(0, 2)) == 0:
        bth = replace(bth, opcode=draw(st.integers(0, 255)), tver=draw(st.sampled_from([0, 0, 1])))
    packet = assemble(route, bth, transport.extensions, transport.payload, draw(st.integers(0, 15)))
    body = bytearray(packet.encode()[:-6])
    if draw(st.integers(0, 2)) == 0:  # one byte of the headers
        at = draw(st.integers(0, min(len(body), 64) - 1))
        body[at] ^= 1 << draw(st.integers(0, 7))
    if draw(st.integers(0, 3)) == 0:  # another length, said or not
        del body[len(body) - draw(st.integers(0, 10)) * 2 :]
        if draw(st.booleans()):
            body[4:6] = ((len(body) + 4) // 4 & 0x7FF).to_bytes(2, "big")
    wrong = draw(st.integers(0, 9))
    return sealed(bytes(body), wrong != 0, wrong != 1)


RECEIVING = Bench(Receiving())


@EXAMPLES
@given(st.lists(arrivals(), min_size=1, max_size=4))
def test_the_receive_fifo_keeps_what_the_adapter_takes_and_says_what_it_refuses(packets):
    async def script(ctx):
        block = RECEIVING.block
        refused = last = 0
        for data in packets:
            link, transport = judge(data)
            await line_words(ctx, block.line, data)
            if link:
                refused, last = refused + 1, link
            assert ctx.get(block.rx_drops) == refused | last << 16
            if link:
                assert ctx.get(block.rx_status) == 0
                continue
            words = words_of(data[:-2])
            has_grh = data[1] & 3 == 3
            for i, word in enumerate(words):
                expected = 1 << 31 | (len(words) - i) << 16 | transport << 8
                expected |= has_grh << 3 | (transport != 0) << 2 | (i == len(words) - 1) << 1 | (i == 0)
                assert ctx.get(block.rx_status) == expected
                assert ctx.get(block.rx_word) == word
                await strobe(ctx, block.write_rx_pop, 1)
            assert ctx.get(block.rx_status) == 0

    RECEIVING.run(script)


def a_packet(payload=b"", psn=0, **fields) -> Packet:
    return assemble(sample_route("native"), Bth(opcode=4, psn=psn, **fields), (), payload)


def test_a_fifo_without_room_refuses_the_whole_packet_and_takes_the_next():
    bench = Bench(Receiving(words=16, packets=2))
    block = bench.block
    small, large = a_packet(bytes(8)).encode(), a_packet(bytes(40)).encode()  # 8 and 16 words
    too_large = a_packet(bytes(41)).encode()

    async def script(ctx):
        await line_words(ctx, block.line, too_large)
        assert ctx.get(block.rx_drops) == 1 | drops.DROP_RESOURCES << 16
        await line_words(ctx, block.line, large)
        assert ctx.get(block.rx_status) >> 16 == 1 << 15 | 16
        await line_words(ctx, block.line, small)
        assert ctx.get(block.rx_drops) == 2 | drops.DROP_RESOURCES << 16
        await strobe(ctx, block.write_rx_pop, 2)
        assert ctx.get(block.rx_status) == 0
        for _ in range(3):  # the third finds neither words nor a place
            await line_words(ctx, block.line, small)
        assert ctx.get(block.rx_drops) == 3 | drops.DROP_RESOURCES << 16
        await strobe(ctx, block.write_rx_pop, 3)  # no command
        assert ctx.get(block.rx_status) >> 16 == 1 << 15 | 8

    bench.run(script)


@pytest.mark.parametrize(
    ("at", "bits", "reasons"),
    [
        (0, 0x01, (drops.DROP_LINK_HEADER, 0)),
        (1, 0x02, (drops.DROP_RAW, 0)),
        (1, 0x03, (drops.DROP_RAW, 0)),
        (5, 0x01, (drops.DROP_LENGTH, 0)),
        (8, 0x1C, (0, drops.DROP_OPCODE)),
        (8, 0x09, (0, drops.DROP_TRUNCATED)),  # from SEND ONLY to READ RESPONSE FIRST: no room for its AETH
        (8, 0x15, (0, drops.DROP_LENGTH)),  # an acknowledge carries nothing
        (9, 0x01, (0, drops.DROP_VERSION)),
        (9, 0x10, (0, 0)),
    ],
)
def test_one_broken_rule_is_named(at, bits, reasons):
    body = bytearray(a_packet(b"abcdefgh").encode()[:-6])
    if reasons == (0, drops.DROP_TRUNCATED):
        body = bytearray(a_packet(b"").encode()[:-6])
    body[at] ^= bits
    data = sealed(bytes(body))
    assert judge(data) == reasons

    async def script(ctx):
        await line_words(ctx, RECEIVING.block.line, data)
        if reasons[0]:
            assert ctx.get(RECEIVING.block.rx_drops) == 1 | reasons[0] << 16
        else:
            assert ctx.get(RECEIVING.block.rx_status) >> 8 & 0xFF == reasons[1]

    RECEIVING.run(script)


def test_the_rows_and_reasons_are_those_of_the_wire_format():
    rows = header_rules.opcode_rows()
    assert len(rows) == 256
    for code, row in enumerate(rows):
        known = OPCODES.get(code)
        assert row == (0 if known is None else 1 | known.payload << 1 | known.extension_bytes // 4 << 2)
    names = [
        "TRUNCATED",
        "LENGTH",
        "OPCODE",
        "VERSION",
        "PAD",
        "ICRC",
        "VCRC",
        "LINK_HEADER",
        "RESOURCES",
        "RAW",
    ]
    for name in names:
        assert getattr(header_rules, name) == getattr(drops, f"DROP_{name}")
        assert getattr(header_rules, name) in header_rules.REASON_NAMES
    assert len(header_rules.REASON_NAMES) == len(names)


@given(st.binary(min_size=2, max_size=2), st.integers(0, 0xFFFF))
def test_the_shift_register_is_the_wires(data, state):
    expected = vcrc.compute(data)
    assert shifted(0xFFFF, int.from_bytes(data, "big"), 16, VCRC_POLYNOMIAL) ^ 0xFFFF == expected
    joint = shifted(state, int.from_bytes(data, "big"), 16, VCRC_POLYNOMIAL)
    assert joint == shifted(state, 0, 16, VCRC_POLYNOMIAL) ^ shifted(
        0, int.from_bytes(data, "big"), 16, VCRC_POLYNOMIAL
    )
    assert shifted(0, 0, 32, ICRC_POLYNOMIAL) == 0


class Sending(wiring.Component):
    """Two send FIFOs and the serial interface."""

    def __init__(self, words=64, packets=4):
        self.fifos = [SendFifo(words, packets) for _ in range(2)]
        self.words = words
        super().__init__({"line": Out(Line())})

    def elaborate(self, platform):
        m = Module()
        m.submodules.serial = serial = SerialTransmitter()
        for name, fifo, departure in (
            ("replies", self.fifos[0], serial.reply),
            ("requests", self.fifos[1], serial.request),
        ):
            m.submodules[name] = fifo
            wiring.connect(m, fifo.packet, departure)
        wiring.connect(m, wiring.flipped(self.line), serial.line)
        return m


SENDING = Bench(Sending())


async def push(ctx, fifo, packet):
    """An engine's writes: the packet without its CRCs."""
    words = words_of(packet[:-6])
    for i, word in enumerate(words):
        await strobe(ctx, fifo.write_tx_word, word)
        while ctx.get(fifo.tx_status) & 1:
            await ctx.tick()
        await strobe(ctx, fifo.write_tx_push, i == len(words) - 1)


async def collect(ctx, line, clocks):
    """Whole packets on the line, in the next clocks."""
    packets, data = [], bytearray()
    for _ in range(clocks):
        if ctx.get(line.valid):
            data += ctx.get(line.data).to_bytes(2, "big")
            if ctx.get(line.last):
                packets.append(bytes(data))
                data.clear()
        await ctx.tick()
    assert not data
    return packets


@EXAMPLES
@given(st.data())
def test_what_an_engine_pushes_leaves_with_both_crcs(data):
    transport = data.draw(transports(max_payload=60))
    route = data.draw(routes(data.draw(st.sampled_from(["native", "native_grh"]))))
    vl = data.draw(st.integers(0, 15))
    packet = assemble(route, transport.bth, transport.extensions, transport.payload, vl)
    which = data.draw(st.integers(0, 1))

    async def script(ctx):
        await push(ctx, SENDING.block.fifos[which], packet.encode())
        assert await collect(ctx, SENDING.block.line, 120) == [packet.encode()]

    SENDING.run(script)


def test_replies_go_first_but_a_request_that_waits_is_not_forgotten():
    bench = Bench(Sending(words=256, packets=16))
    replies, requests = bench.block.fifos
    first = a_packet(bytes(400), psn=99).encode()

    async def script(ctx):
        order, data = [], bytearray()

        async def listen():
            nonlocal data
            line = bench.block.line
            if ctx.get(line.valid):
                data += ctx.get(line.data).to_bytes(2, "big")
                if ctx.get(line.last):
                    order.append(int.from_bytes(data[17:20], "big"))
                    data = bytearray()

        async def write(register, value):
            ctx.set(register.strobe, 1)
            ctx.set(register.data, value)
            await listen()
            await ctx.tick()
            ctx.set(register.strobe, 0)

        async def send(fifo, packet):
            words = words_of(packet[:-6])
            for i, word in enumerate(words):
                await write(fifo.write_tx_word, word)
                await write(fifo.write_tx_push, i == len(words) - 1)
            for _ in range(3):
                await listen()
                await ctx.tick()

        await send(requests, first)
        for psn in range(6):
            await send(replies, a_packet(psn=psn).encode())
        for psn in (50, 51):
            await send(requests, a_packet(psn=psn).encode())
        for _ in range(400):
            await listen()
            await ctx.tick()
        assert order == [99, 0, 1, 2, 3, 50, 4, 5, 51]

    bench.run(script)


def test_a_packet_that_finds_no_room_is_not_sent_and_the_next_one_is():
    bench = Bench(Sending(words=16, packets=4))
    fifo = bench.block.fifos[0]

    async def script(ctx):
        for i in range(18):
            await strobe(ctx, fifo.write_tx_word, i)
            await strobe(ctx, fifo.write_tx_push, i == 17)
        await ctx.tick().repeat(3)
        assert ctx.get(fifo.tx_status) & 3 == 2
        packet = a_packet(bytes(4)).encode()
        await push(ctx, fifo, packet)
        assert await collect(ctx, bench.block.line, 60) == [packet]
        assert ctx.get(fifo.tx_status) & 3 == 0

    bench.run(script)


def test_a_packet_that_is_thrown_away_leaves_nothing_in_the_next_ones_icrc():
    packet = a_packet(b"abcd").encode()

    async def script(ctx):
        fifo = SENDING.block.fifos[0]
        await strobe(ctx, fifo.write_tx_word, 0x12345678)
        await strobe(ctx, fifo.write_tx_push, 0)
        await strobe(ctx, fifo.write_tx_push, PUSH_NOTHING)
        await push(ctx, fifo, packet)
        assert await collect(ctx, SENDING.block.line, 60) == [packet]

    SENDING.run(script)


def test_a_word_that_is_pushed_while_the_icrc_is_put_takes_its_packet_with_it():
    for late in (0, 1):
        bench = Bench(Sending(words=16, packets=4))
        fifo = bench.block.fifos[0]

        async def script(ctx, fifo=fifo, late=late, bench=bench):
            await strobe(ctx, fifo.write_tx_word, 1)
            await strobe(ctx, fifo.write_tx_push, 1)
            assert ctx.get(fifo.tx_status) & 3 == 1
            for _ in range(late):
                await ctx.tick()
            await strobe(ctx, fifo.write_tx_push, 0)
            await ctx.tick().repeat(2)
            assert ctx.get(fifo.tx_status) & 3 == 2
            assert await collect(ctx, bench.block.line, 30) == []

        bench.run(script)


class BufferModel:
    """`PacketBuffer` in a few lines."""

    def __init__(self, words, packets):
        self.words, self.packets = words, packets
        self.kept = deque()
        self.now, self.lost = [], False

    def step(self, action, word, skip):
        """One clock; what is decided in it was seen in the clock before."""
        used = sum(len(packet) for packet, _, _ in self.kept) + len(self.now)
        places = len(self.kept)
        if skip and self.kept:
            packet, tag, _ = self.kept[0]
            del packet[: 1 if skip == 1 else len(packet)]
            self.kept[0] = (packet, tag, False)
            if not packet:
                self.kept.popleft()
        if action == "word":
            if used < self.words and not self.lost:
                self.now.append(word)
            else:
                self.lost = True
        elif action:
            if action == "keep" and self.now and not self.lost and places < self.packets:
                self.kept.append((self.now, word & 3, True))
            self.now, self.lost = [], False


BUFFER = Bench(PacketBuffer(words=8, packets=2, tag_bits=2))
STEPS = st.tuples(
    st.sampled_from(["word", "word", "word", "keep", "drop", None]),
    st.integers(0, 0xFFFFFFFF),
    st.sampled_from([0, 0, 1, 1, 2]),
)


@EXAMPLES
@given(st.lists(STEPS, max_size=60))
def test_the_packet_buffer_is_its_model(steps):
    async def script(ctx):
        block, model = BUFFER.block, BufferModel(8, 2)
        for action, word, skip in steps:
            ctx.set(block.write_valid, action == "word")
            ctx.set(block.write_word, word)
            ctx.set(block.keep, action == "keep")
            ctx.set(block.drop, action == "drop")
            ctx.set(block.keep_tag, word & 3)
            ctx.set(block.skip, skip == 1)
            ctx.set(block.skip_rest, skip == 2)
            await ctx.tick()
            model.step(action, word, skip)
            assert ctx.get(block.ready) == bool(model.kept)
            assert ctx.get(block.length) == len(model.now)
            if model.kept:
                packet, tag, first = model.kept[0]
                assert ctx.get(block.left) == len(packet)
                assert ctx.get(block.word) == packet[0]
                assert (ctx.get(block.tag), ctx.get(block.first)) == (tag, first)

    BUFFER.run(script)


def test_a_packet_without_a_place_is_not_kept_though_its_words_have_room():
    async def script(ctx):
        block = BUFFER.block
        for word in range(3):
            ctx.set(block.write_valid, 1)
            ctx.set(block.write_word, word)
            await ctx.tick()
            ctx.set(block.write_valid, 0)
            assert ctx.get(block.room) > 0
            assert ctx.get(block.fits) == (word < 2)
            ctx.set(block.keep, 1)
            await ctx.tick()
            ctx.set(block.keep, 0)
        for _ in range(2):
            assert ctx.get(block.ready)
            ctx.set(block.skip_rest, 1)
            await ctx.tick()
        ctx.set(block.skip_rest, 0)
        assert not ctx.get(block.ready)

    BUFFER.run(script)


@pytest.mark.parametrize(("words", "packets"), [(12, 4), (2, 4), (1 << 17, 4), (16, 1), (16, 3)])
def test_sizes_that_cannot_be_are_refused(words, packets):
    with pytest.raises(ValueError, match="power of two in"):
        PacketBuffer(words, packets)


def test_a_reth_arrives_as_it_was_sent():
    """One whole packet, word by word, by hand."""
    packet = assemble(
        sample_route("native"), Bth(opcode=0x0A, dest_qp=5, psn=7), (Reth(0x1000, 0x123, 4),), b"abcd"
    )

    async def script(ctx):
        block = RECEIVING.block
        await line_words(ctx, block.line, packet.encode())
        for _ in range(5):
            await strobe(ctx, block.write_rx_pop, 1)
        seen = []
        for _ in range(5):
            seen.append(ctx.get(block.rx_word))
            await strobe(ctx, block.write_rx_pop, 1)
        assert seen == [0, 0x1000, 0x123, 4, int.from_bytes(b"abcd", "big")]

    RECEIVING.run(script)
