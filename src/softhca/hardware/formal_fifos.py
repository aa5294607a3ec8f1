"""Proofs about the packets' FIFOs: they show what was put in, whole, in order, once.

The buffer is held to a model that is as plain as can be, two shift registers (`ShowsPackets`).
What it asks of who writes, a packet's end in a clock without a word, is what the two FIFOs are proved to do
(*apart*), and the serial receiver before the one of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value

from softhca.hardware.claims import Claims, Registers, all_of, past, stays
from softhca.hardware.fifo import COUNT_BITS, PUSH_NOTHING, ReceiveFifo, SendFifo
from softhca.hardware.packet_buffer import PacketBuffer
from softhca.hardware.ports import WORD_BITS
from softhca.hardware.serial import SerialReceiver


class _Queue:
    """The model: ``words`` that were put in, the oldest first: ``kept`` ones, of packets that are kept, then
    ``pending`` ones; ``lengths`` (what is left) and ``tags`` of the ``count`` packets."""

    def __init__(self, block: PacketBuffer) -> None:
        most, packets = range(block.words + 1), range(block.packets)
        self.words = [Signal(WORD_BITS, name=f"model_word_{i}") for i in range(block.words)]
        self.kept, self.pending, self.lost = Signal(most), Signal(most), Signal()
        self.lengths = [Signal(most, name=f"model_length_{i}") for i in packets]
        self.tags = [Signal(block.tag_bits, name=f"model_tag_{i}") for i in packets]
        self.count, self.begun = Signal(range(block.packets + 1)), Signal()
        self.fits, self.finished = Signal(), Signal()

    def step(self, m: Module, block: PacketBuffer) -> None:
        """What each clock's inputs do."""
        passed, appended, kept = Signal(len(self.kept)), Signal(), Signal()
        skips = (block.skip | block.skip_rest) & (self.count != 0)
        first = self.lengths[0]
        total = Signal(len(self.kept))
        m.d.comb += [
            total.eq(self.kept + self.pending),
            passed.eq(Mux(skips, Mux(block.skip_rest, first, 1), 0)),
            self.finished.eq(skips & (passed == first)),
            appended.eq(block.write_valid & ~self.lost & (total != block.words)),
            self.fits.eq(~self.lost & (self.pending != 0) & (self.count != block.packets)),
            kept.eq(block.keep & self.fits),
        ]
        for i, word in enumerate(self.words):
            moved = Array([*self.words[i:], *[word] * i])[passed]
            here = appended & (total - passed == i)
            m.d.sync += word.eq(Mux(here, block.write_word, moved))
        with m.If(block.write_valid):
            m.d.sync += [self.pending.eq(self.pending + appended), self.lost.eq(~appended)]
        with m.Elif(block.keep | block.drop):
            m.d.sync += [self.pending.eq(0), self.lost.eq(0)]
        m.d.sync += [
            self.kept.eq(self.kept - passed + Mux(kept, self.pending, 0)),
            self.count.eq(self.count + kept - self.finished),
        ]
        with m.If(skips):
            m.d.sync += self.begun.eq(~self.finished)
        lengths, tags = [*self.lengths, self.pending], [*self.tags, block.keep_tag]
        for i in range(block.packets):
            length = Mux(self.finished, lengths[i + 1], lengths[i] - (passed if i == 0 else 0))
            new = kept & (self.count - self.finished == i)
            m.d.sync += [
                self.lengths[i].eq(Mux(new, self.pending, length)),
                self.tags[i].eq(Mux(new, block.keep_tag, Mux(self.finished, tags[i + 1], tags[i]))),
            ]


class ShowsPackets(Claims):
    """A buffer shows in every clock what two shift registers would.

    * *read*: what is there, its words, their number, its tag.
    * *room*: what is still free, and what would be kept.
    * *stays*: a word that is not taken is there in the next clock, too.
    """

    names = ("read", "room", "stays", "state")
    block: PacketBuffer

    def assume(self, m: Module) -> Iterable[Value]:
        """A packet ends in a clock without a word: *apart* of the others."""
        yield ~(self.block.write_valid & (self.block.keep | self.block.drop))

    def claim(self, m: Module, platform: Registers) -> dict[str, Value]:
        """See the class."""
        block = self.block
        model = _Queue(block)
        model.step(m, block)
        there = model.count != 0
        read = [
            block.ready == there,
            block.first == (there & ~model.begun),
            block.left == Mux(there, model.lengths[0], 0),
            block.tag == Mux(there, model.tags[0], 0),
            ~there | (block.word == model.words[0]),
            block.finished == model.finished,
        ]
        room = [
            block.room == block.words - model.kept - model.pending,
            block.length == model.pending,
            block.fits == model.fits,
            block.open == (model.count != block.packets),
        ]
        shown = [block.ready, block.word, block.left, block.tag, block.first]
        taken = block.skip | block.skip_rest
        return {
            "read": ~all_of(read),
            "room": ~all_of(room),
            "stays": ~stays(m, block.ready & ~taken, shown, "shown"),
            "state": ~all_of(self._state(model, platform)),
        }

    def _state(self, model: _Queue, platform: Registers) -> Iterable[Value]:
        """How the buffer's registers and RAMs stand for the model's."""
        block = self.block
        words = platform.words(block.words, WORD_BITS)
        count_bits = len(block.length)
        entries = platform.words(block.packets, count_bits + block.tag_bits)
        yield block.used == model.kept
        yield (block.used + block.pending) <= block.words
        yield block.pending == model.pending
        yield block.lost == model.lost
        yield block.count == model.count
        yield (model.kept + model.pending) <= block.words
        yield model.count <= block.packets
        yield block.begin == (block.place + block.used)[: len(block.begin)]
        yield (block.gone != 0) == model.begun
        yield ~model.begun | (model.count != 0)
        total: Value = Signal(count_bits + 2)  # of nothing
        for k, length in enumerate(model.lengths):
            exists = model.count > k
            entry = Array(entries)[(block.oldest + k)[: len(block.oldest)]]
            whole = length + block.gone if k == 0 else length
            total = total + Mux(exists, length, 0)
            yield ~exists | (entry == Cat((whole + 0)[:count_bits], model.tags[k]))
            yield ~exists | ((length != 0) & (whole <= block.words))
        yield total == model.kept
        for k, word in enumerate(model.words):
            exists = model.kept + model.pending > k
            yield ~exists | (Array(words)[(block.place + k)[: len(block.place)]] == word)


class ReceiverClaims(Claims):
    """The serial receiver ends a packet in a clock without a word: *apart*."""

    names = ("apart",)
    block: SerialReceiver

    def claim(self, m: Module, platform: Registers) -> dict[str, Value]:
        """See the class."""
        return {"apart": self.block.packet.valid & self.block.packet.end}


class ReceiveClaims(Claims):
    """The receive FIFO.

    * *apart*: it ends a packet in a clock without a word.
    * *sound*: it keeps no packet that was cut or whose VCRC is wrong.
    * *counted*: a packet that ends is kept, or counted among those refused.
    """

    names = ("apart", "sound", "counted")
    block: ReceiveFifo

    def assume(self, m: Module) -> Iterable[Value]:
        """`ReceiverClaims`."""
        yield ~(self.block.packet.valid & self.block.packet.end)

    def claim(self, m: Module, platform: Registers) -> dict[str, Value]:
        """See the class."""
        packet, buffer, drops = self.block.packet, self.block.buffer, self.block.rx_drops[:COUNT_BITS]
        kept = buffer.keep & buffer.fits
        before, most = past(m, drops, "drops_before"), (1 << COUNT_BITS) - 1
        counts = past(m, packet.end & ~kept, "counts")
        return {
            "apart": buffer.write_valid & (buffer.keep | buffer.drop),
            "sound": kept & ~(packet.end & packet.vcrc_ok & packet.whole),
            "counted": drops != Mux(counts & (before != most), before + 1, before),
        }


class SendClaims(Claims):
    """The send FIFO.

    * *apart*: it ends a packet in a clock without a word.
    * *whole*: what it keeps is every word that was given to it since the last packet's end, and the ICRC; if
      one word found no place, nothing is kept.
    """

    names = ("apart", "whole", "state")
    block: SendFifo

    def assume(self, m: Module) -> Iterable[Value]:
        """The buffer never has more words than it has room for: `ShowsPackets`."""
        yield (self.block.buffer.used + self.block.buffer.pending) <= self.block.words

    def claim(self, m: Module, platform: Registers) -> dict[str, Value]:
        """See the class."""
        block, buffer, push = self.block, self.block.buffer, self.block.write_tx_push
        most = 2 * block.words
        given, now = Signal(range(most + 1)), Signal(2)
        thrown = push.strobe & (push.data == PUSH_NOTHING)
        m.d.comb += now.eq((push.strobe & ~thrown) + block.move.valid)
        total = given + now
        with m.If(buffer.keep | buffer.drop):
            m.d.sync += given.eq(0)
        with m.Else():
            m.d.sync += given.eq(Mux(total > most, most, total))
        icrc, hurt = block.step[2], block.lost | buffer.lost
        state = [
            hurt | (given == buffer.pending - icrc),
            block.step.any(),
            ~icrc | hurt | (buffer.pending != 0),
        ]
        return {
            "apart": buffer.write_valid & (buffer.keep | buffer.drop),
            "whole": buffer.keep & buffer.fits & (buffer.pending != total + 1),
            "state": ~all_of(state),
        }
