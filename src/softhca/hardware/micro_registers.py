"""The micro-registers: 64 words of 32 bits by which a micro-engine rules every block around it.

`EngineBus` is the bus, from the engine's side.  Its rules:

* reads are combinational, in the same clock: a block keeps what it shows in flip-flops or behind an address
  register that was written earlier;
* both read addresses are always driven, also with numbers that the instruction does not mean: a read has no
  side effect, whatever its address.  A FIFO is popped by a write to its pop register;
* a write takes effect at the clock's edge: the next instruction sees it.  ``write_enable`` is high only for
  the blocks' registers; 0 to 15 are the engine's own and never leave it;
* a number that no block answers reads as 0, and a write to it is lost.

`REGISTERS` is the map as data.  A number means the same register for both engines; ``engines`` says which of
them has it on its bus.  "Present" and "done" are always bit 31.
"""

from __future__ import annotations

from typing import NamedTuple

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

REGISTER_COUNT = 64
REGISTER_BITS = 6
GENERAL_COUNT = 16
"""0 … 15 are the engine's own, ``r0`` … ``r15``."""
WORD_BITS = 32
PRESENT = 1 << 31

HOST_READ, HOST_WRITE, HOST_FETCH, HOST_SEND, HOST_RECEIVE, HOST_FINISH = range(1, 7)
"""What is written to ``HOST_COMMAND``; to fetch a descriptor, with its number of words from bit 8 on; to move
payload, with its number of bytes there."""


class EngineBus(wiring.Signature):
    """The micro-registers' bus: data MUX A (destination field), data MUX B (source field), one write."""

    def __init__(self) -> None:
        super().__init__(
            {
                "read_address_a": Out(REGISTER_BITS),
                "read_data_a": In(WORD_BITS),
                "read_address_b": Out(REGISTER_BITS),
                "read_data_b": In(WORD_BITS),
                "write_enable": Out(1),
                "write_address": Out(REGISTER_BITS),
                "write_data": Out(WORD_BITS),
            }
        )


class MicroRegister(NamedTuple):
    """One row of the map: ``access`` is r, w or rw, as the engine sees it; ``block`` answers."""

    number: int
    name: str
    access: str
    engines: str
    block: str
    meaning: str


SQ, RQ, BOTH = "SQ", "RQ", "SQ RQ"
SQ_ALONE = "SQ-ALONE"
"""The SQ's engine of an adapter without a remote-key manager: it searches the key memory itself."""
ENGINES = (SQ, RQ, SQ_ALONE)
_MANAGER, _KEY_MEMORY = "remote-key manager", "remote-key memory"

_BLOCKS: tuple[tuple[str, str, tuple[tuple[int, str, str, str], ...]], ...] = (
    ("host interface", BOTH, (
        (16, "HOST_ADDRESS", "rw", "byte address in host memory, of words a multiple of 4"),
        (17, "HOST_DATA", "rw", "word to write; after a read, the word that came"),
        (18, "HOST_COMMAND", "w", "1 reads, 2 writes; 3 + 256·n fetches n words; 4, 5 + 256·n move n bytes"),
        (19, "HOST_STATUS", "r", "bit 0: busy, from the clock after the command; bit 1: the last one failed"),
        (20, "HOST_DESCRIPTOR", "r", "bit 31: a descriptor's word is there; bit 0: it is the last one"),
        (21, "HOST_DESCRIPTOR_WORD", "r", "that word"),
        (22, "HOST_DESCRIPTOR_POP", "w", "any write takes that word away"),
    )),
    ("context memory", BOTH, (
        (23, "CONTEXT_ADDRESS", "rw", "64·QP + word"),
        (24, "CONTEXT_DATA", "rw", "the word there, always the newest"),
    )),
    ("completion engine", BOTH, (
        (25, "CQ_QP", "rw", "QP of the next completion"),
        (26, "CQ_WORK", "rw", "its work request"),
        (27, "CQ_STATUS", "rw", "bits 7..0: its status, 0: success; 31..8: bytes that were received"),
        (28, "CQ_PUSH", "rw", "posts it to queue 7..0; bit 31: solicited; reads bit 0: busy, 1: overflow"),
    )),
    ("doorbell manager", BOTH, (
        (29, "DOORBELL_QP", "rw", "bits 23..0: the QP that is looked at; reads bit 31: it has work requests"),
        (30, "DOORBELL_COUNT", "r", "work requests outstanding on that QP"),
        (31, "DOORBELL_POP", "rw", "any write: one work request of that QP is done; reads bit 0: busy"),
    )),
    ("work scheduler", BOTH, (
        (32, "SCHEDULER_NEXT", "r", "bit 31: a QP is to be served; bits 23..0: that QP"),
        (33, "SCHEDULER_TAKE", "w", "its turn is over, it has sent so many bytes: go on to the next"),
    )),
    ("translation", BOTH, (
        (34, "TPT_INDEX", "rw", "page-table index (27 bits) to look up"),
        (35, "TPT_PD", "rw", "protection domain of the requesting QP"),
        (36, "TPT_ACCESS", "rw", "rights that are asked for, bit 8: by key; the write starts the look-up"),
        (37, "TPT_RESULT", "r", "bit 31: done; bits 7..0: 0 allowed, otherwise the reason"),
        (38, "TPT_FRAME", "r", "physical page number"),
    )),
    ("host interface", BOTH, (
        (39, "HOST_ADDRESS_HIGH", "rw", "bits 43..32 of the byte address"),
    )),
    (_MANAGER, SQ, (
        (40, "RMB_PD", "rw", "protection domain of the window"),
        (41, "RMB_KEY", "rw", "key to invalidate, bits 26..0"),
        (42, "RMB_START", "rw", "bit 0: start; held until the walk takes it"),
        (43, "RMB_DONE", "r", "bit 0: no walk is under way or about to start"),
    )),
    (_KEY_MEMORY, RQ, (
        (44, "RQ_KEY_ADDRESS", "rw", "5·VI + {0: PD, 1..4: key}; a write reads that word in the same clock"),
        (45, "RQ_KEY_DATA", "rw", "from the next clock on the word that was read; a write stores it there"),
        (46, "RQ_KEY_BUSY", "rw", "bit 0: the SQ side walks; written by SQ-ALONE the RQ's engine stands"),
    )),
    ("receive FIFO", RQ, (
        (47, "RX_DROPS", "r", "bits 15..0: packets refused, they are not seen; 23..16: why the last one was"),
        (48, "RX_STATUS", "r", "bit 31: a word is there; bits 0, 1: first, last; 2: bad headers; 15..8: why"),
        (49, "RX_WORD", "r", "that word, the packet's bytes in network order"),
        (50, "RX_POP", "w", "1 takes the word away; 2 drops the rest of its packet"),
    )),
    ("send FIFO", BOTH, (
        (51, "TX_STATUS", "r", "bit 0: full; 1: the last packet found no room; 31..16: words that have room"),
        (52, "TX_WORD", "rw", "the next word to send"),
        (53, "TX_PUSH", "w", "pushes it; 1: it is the last, the ICRC follows; 2: throws the packet away"),
    )),
    ("completion engine", BOTH, (
        (54, "EVENT_PUSH", "w", "tells the host of a global event: 31..24 its kind, 23..0 whose"),
    )),
    ("translation", BOTH, (
        (55, "TPT_ENTRY", "r", "bits 31..0 of the byte address of entry TPT_INDEX"),
        (56, "TPT_ENTRY_HIGH", "r", "bits 43..32 of it"),
        (57, "TPT_VA", "rw", "a look-up by key: bits 31..0 of the address that is asked for"),
        (58, "TPT_VA_HIGH", "rw", "bits 63..32 of it"),
        (59, "TPT_LENGTH", "rw", "bytes that are asked for"),
        (60, "TPT_ADDRESS", "r", "byte address in host memory of the first one, bits 31..0"),
        (61, "TPT_ADDRESS_HIGH", "r", "bits 43..32 of it"),
    )),
    ("wake-up", BOTH, (
        (62, "WAKE", "rw", "gives QP 23..0 a turn; bit 31: the RQ's, 30: later; reads 31..8: time, 0: busy"),
    )),
    ("receive FIFO", SQ, (
        (63, "RX_PROGRESS", "r", "bit 0: the RQ's engine is in a packet; 23..1: packets that are over"),
    )),
)  # fmt: skip

REGISTERS: tuple[MicroRegister, ...] = tuple(
    MicroRegister(number, name, access, engines, block, meaning)
    for block, engines, rows in _BLOCKS
    for number, name, access, meaning in rows
)


def register_map(engine: str) -> dict[str, MicroRegister]:
    """The registers on the bus of ``engine`` ("SQ", "RQ" or `SQ_ALONE`) by name; ValueError for another."""
    if engine not in ENGINES:
        raise ValueError(f"no engine {engine!r}: {SQ}, {RQ} or {SQ_ALONE}")
    return {register.name: register for register in REGISTERS if is_on_bus(register, engine)}


def is_on_bus(register: MicroRegister, engine: str) -> bool:
    """Whether ``engine``, one of `ENGINES`, has ``register`` on its bus."""
    if engine == SQ_ALONE:
        return register.block == _KEY_MEMORY or (is_on_bus(register, SQ) and register.block != _MANAGER)
    return engine in register.engines.split()


def number_of(name: str) -> int:
    """The number of a block's register; KeyError when there is none of that name."""
    return _NUMBERS[name]


_NUMBERS = {register.name: register.number for register in REGISTERS}
