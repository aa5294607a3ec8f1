"""Whole packets in a RAM: one side writes words and then keeps or drops them, the other reads packets.

What is written is seen by the reader only once the packet is kept.  The reader sees the next word without
asking, and moves on by any number of words.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from softhca.hardware.ports import WORD_BITS, check_power_of_two


class PacketBuffer(wiring.Component):
    """Room for ``words`` and for ``packets``, both powers of two.

    Written: ``write_valid`` with ``write_word`` appends, unless ``full``, which then is the packet's fate:
    its ``keep`` does as ``drop``.  ``open``: one more packet has a place.  ``keep`` and ``drop`` end the
    packet; they come in a clock without a word.  An empty packet is never kept.  ``fits`` says whether
    ``keep`` will keep.
    Read: ``ready`` says that a packet is there, ``tag`` is what it was kept with (``keep_tag``), ``first``
    that nothing of it was read, ``word`` its next word, ``left`` how many it has yet.  ``skip`` takes one
    word, ``skip_rest`` all; a packet without words is over: ``finished`` says so in its last clock.
    """

    def __init__(self, words: int = 2048, packets: int = 16, tag_bits: int = 1) -> None:
        self.words, self.packets = check_sizes(words, packets)
        self.tag_bits = tag_bits
        count = range(words + 1)
        # the packet that is written: where it begins, its words, one of them found no room
        self.begin, self.pending, self.lost = Signal(range(words)), Signal(count), Signal()
        # the reader: its next word, words of its packet that are gone
        self.place, self.gone = Signal(range(words)), Signal(count)
        self.used = Signal(count)  # words of kept packets that the reader has not passed
        self.oldest, self.count = Signal(range(packets)), Signal(range(packets + 1))
        super().__init__(
            {
                "write_valid": In(1),
                "write_word": In(WORD_BITS),
                "keep": In(1),
                "keep_tag": In(tag_bits),
                "drop": In(1),
                "fits": Out(1),
                "length": Out(count),
                "room": Out(count),
                "open": Out(1),
                "ready": Out(1),
                "word": Out(WORD_BITS),
                "left": Out(count),
                "tag": Out(tag_bits),
                "first": Out(1),
                "finished": Out(1),
                "skip": In(1),
                "skip_rest": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        m.submodules.ram = ram = Memory(shape=WORD_BITS, depth=self.words, init=[])
        length_bits = len(self.length)
        m.submodules.lengths = lengths = Memory(
            shape=length_bits + self.tag_bits, depth=self.packets, init=[]
        )
        write, keep_length = ram.write_port(), lengths.write_port()
        read = ram.read_port()
        first_length = lengths.read_port(domain="comb")

        begin, length, lost, place, gone = self.begin, self.pending, self.lost, self.place, self.gone
        used, oldest, count = self.used, self.oldest, self.count
        kept, appended = Signal(), Signal()
        passed, finished = Signal(range(self.words + 1)), self.finished

        m.d.comb += [
            self.room.eq(self.words - used - length),
            appended.eq(self.write_valid & (self.room != 0) & ~lost),
            write.addr.eq(begin + length),
            write.data.eq(self.write_word),
            write.en.eq(appended),
            self.length.eq(length),
            self.fits.eq(~lost & (length != 0) & (count != self.packets)),
            kept.eq(self.keep & self.fits),
            self.open.eq(count != self.packets),
            keep_length.addr.eq(oldest + count),
            keep_length.data.eq(Cat(length, self.keep_tag)),
            keep_length.en.eq(kept),
        ]
        with m.If(self.write_valid):
            m.d.sync += [length.eq(length + appended), lost.eq(~appended)]
        with m.Elif(self.keep | self.drop):
            m.d.sync += [length.eq(0), lost.eq(0)]
            with m.If(kept):
                m.d.sync += begin.eq(begin + length)

        m.d.comb += [
            self.ready.eq(count != 0),
            first_length.addr.eq(oldest),
            self.left.eq(Mux(self.ready, first_length.data[:length_bits] - gone, 0)),
            self.tag.eq(Mux(self.ready, first_length.data[length_bits:], 0)),
            self.first.eq(self.ready & (gone == 0)),
            self.word.eq(read.data),
            read.en.eq(1),
            read.addr.eq(place + passed),
        ]
        with m.If((self.skip | self.skip_rest) & self.ready):
            m.d.comb += [
                finished.eq(self.skip_rest | (self.left == 1)),
                passed.eq(Mux(self.skip_rest, self.left, 1)),
            ]
            m.d.sync += [place.eq(place + passed), gone.eq(Mux(finished, 0, gone + passed))]
            with m.If(finished):
                m.d.sync += oldest.eq(oldest + 1)
        m.d.sync += [
            count.eq(count + kept - finished),
            used.eq(used + Mux(kept, length, 0) - passed),
        ]
        return m


def check_sizes(words: int, packets: int) -> tuple[int, int]:
    """The sizes; ValueError for ones that cannot be."""
    check_power_of_two("words", words, 4, 1 << 12)
    check_power_of_two("packets", packets, 2, 1 << 10)
    return words, packets
