"""The five timing diagrams that a remote-key manager is specified by, as stimuli and as tables of every
signal in every clock.

A table's columns: clock, state, VI, flags that are high, what the RQ does, the memory's read side (``re``: it
reads there, ``at``: the address stands without a read), read data, the memory's write side.  Data: ``[n]``
is the word that stood at n in the beginning, ``C`` the sought key without its valid bit, ``W`` what the RQ
writes, ``0`` nothing read yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from softhca.hardware.key_memory import KEYS, VALID, VIS
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.trace import Access, Row, Stimulus

PD = 0x0C1
OTHER_PD = 0x0C2
KEY = 0x123_4567
RQ_WORD = VALID | 0x765_4321
ROW = 1 + KEYS
BUS = ("mem_re", "mem_rd_addr", "mem_rd_data")
WRITE_BUS = ("mem_we", "mem_wr_addr", "mem_wr_data")


@dataclass(frozen=True)
class Figure:
    """One diagram: ``domains`` by VI (the rest: another one), the slots (VI, key) that hold the sought key
    (the rest: other valid ones), the signals drawn, the table, the clock of *start*, the RQ's accesses."""

    number: int
    title: str
    domains: Mapping[int, int]
    matching: frozenset[tuple[int, int]]
    signals: tuple[str, ...]
    table: str
    start: int = 3
    rq: Mapping[int, Access] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """The diagram's name and what happens in it."""
        return f"Figure {self.number}: {self.title}"

    def memory(self) -> tuple[int, ...]:
        """The remote-key memory in the beginning."""
        words = []
        for vi in range(VIS):
            words.append(self.domains.get(vi, OTHER_PD))
            for slot in range(KEYS):
                words.append(VALID | (KEY if (vi, slot) in self.matching else 0x100_0000 + len(words)))
        return tuple(words)

    def manager(self) -> RemoteKeyManager:
        """A manager with that memory."""
        return RemoteKeyManager(VIS, KEYS, self.memory())

    def stimulus(self) -> Stimulus:
        """What the engines do."""
        return Stimulus(PD, KEY, self.start, len(self.table.strip().splitlines()), self.rq)

    def expected(self) -> list[Row]:
        """The table's rows; None where a signal has no meaning: address and data without a write."""
        memory = self.memory()
        return [_parse(line, memory) for line in self.table.strip().splitlines()]


def _parse(line: str, memory: tuple[int, ...]) -> Row:
    clock, state, vi, flags, rq, read, data, write = (cell.strip() for cell in line.split("|"))
    rq_act, rq_address = rq.split() if rq else ("", "0")
    read_act, read_address = read.split()
    write_address, _, write_word = write.partition("=")
    return Row(
        clock=int(clock),
        state=state,
        vi=int(vi),
        sq_start="start" in flags.split(),
        sq_done="done" in flags.split(),
        pd_fail="pd_fail" in flags.split(),
        key_fail="key_fail" in flags.split(),
        rq_read=rq_act == "reads",
        rq_write=rq_act == "writes",
        rq_addr=int(rq_address),
        mem_re=read_act == "re",
        mem_rd_addr=int(read_address),
        mem_rd_data=_word(data, memory),
        mem_we=bool(write),
        mem_wr_addr=int(write_address) if write else None,  # type: ignore[arg-type]
        mem_wr_data=_word(write_word, memory) if write else None,  # type: ignore[arg-type]
    )


def _word(text: str, memory: tuple[int, ...]) -> int:
    named = {"0": 0, "C": KEY, "W": RQ_WORD}
    return named[text] if text in named else memory[int(text.strip("[]"))]


FIGURES = {
    13: Figure(
        13,
        "the domain matches, no key does",
        {0: PD, 1: PD},
        frozenset(),
        ("sq_start", "sq_done", "state", "vi", *BUS),
        """
         1 | IDLE   | 0 | done        |           | at 0    | 0      |
         2 | IDLE   | 0 | done        |           | at 0    | 0      |
         3 | IDLE   | 0 | start done  |           | re 0    | 0      |
         4 | PD     | 0 |             |           | re 1    | [0]    |
         5 | KEY0   | 0 | key_fail    |           | re 2    | [1]    |
         6 | KEY1   | 0 | key_fail    |           | re 3    | [2]    |
         7 | KEY2   | 0 | key_fail    |           | re 4    | [3]    |
         8 | KEY3   | 0 | key_fail    |           | at 5    | [4]    |
         9 | CHECK  | 0 |             |           | re 5    | [4]    |
        10 | PD     | 1 |             |           | re 6    | [5]    |
        11 | KEY0   | 1 | key_fail    |           | re 7    | [6]    |
        12 | KEY1   | 1 | key_fail    |           | re 8    | [7]    |
        13 | KEY2   | 1 | key_fail    |           | re 9    | [8]    |
        """,
    ),
    14: Figure(
        14,
        "the end of the walk",
        {VIS - 1: PD},
        frozenset(),
        ("sq_start", "sq_done", "state", "vi", *BUS),
        """
         1 | KEY0   | 255 | key_fail  |           | re 1277 | [1276] |
         2 | KEY1   | 255 | key_fail  |           | re 1278 | [1277] |
         3 | KEY2   | 255 | key_fail  |           | re 1279 | [1278] |
         4 | KEY3   | 255 | key_fail  |           | at 0    | [1279] |
         5 | CHECK  | 255 | done      |           | at 0    | [1279] |
         6 | IDLE   | 0   | done      |           | at 0    | [1279] |
         7 | IDLE   | 0   | done      |           | at 0    | [1279] |
         8 | IDLE   | 0   | done      |           | at 0    | [1279] |
        """,
        start=1 - 2 * VIS,  # 255 VIs are skipped in 2 clocks each, then the last one's domain is compared
    ),
    15: Figure(
        15,
        "the domain differs",
        {1: PD},
        frozenset(),
        ("sq_start", "state", "pd_fail", "vi", *BUS),
        """
         1 | IDLE   | 0 | done        |           | at 0    | 0      |
         2 | IDLE   | 0 | done        |           | at 0    | 0      |
         3 | IDLE   | 0 | start done  |           | re 0    | 0      |
         4 | PD     | 0 | pd_fail     |           | at 5    | [0]    |
         5 | CHECK  | 0 |             |           | re 5    | [0]    |
         6 | PD     | 1 |             |           | re 6    | [5]    |
         7 | KEY0   | 1 | key_fail    |           | re 7    | [6]    |
         8 | KEY1   | 1 | key_fail    |           | re 8    | [7]    |
        """,
    ),
    16: Figure(
        16,
        "all keys match",
        {0: PD, 1: PD},
        frozenset((vi, slot) for vi in (0, 1) for slot in range(KEYS)),
        ("sq_start", "state", "pd_fail", "vi", *BUS, *WRITE_BUS),
        """
         1 | IDLE   | 0 | done        |           | at 0    | 0      |
         2 | IDLE   | 0 | done        |           | at 0    | 0      |
         3 | IDLE   | 0 | start done  |           | re 0    | 0      |
         4 | PD     | 0 |             |           | re 1    | [0]    |
         5 | KEY0   | 0 |             |           | at 2    | [1]    |
         6 | CLEAR0 | 0 |             |           | re 2    | [1]    | 1=C
         7 | KEY1   | 0 |             |           | at 3    | [2]    |
         8 | CLEAR1 | 0 |             |           | re 3    | [2]    | 2=C
         9 | KEY2   | 0 |             |           | at 4    | [3]    |
        10 | CLEAR2 | 0 |             |           | re 4    | [3]    | 3=C
        11 | KEY3   | 0 |             |           | at 5    | [4]    |
        12 | CLEAR3 | 0 |             |           | at 5    | [4]    | 4=C
        13 | CHECK  | 0 |             |           | re 5    | [4]    |
        14 | PD     | 1 |             |           | re 6    | [5]    |
        15 | KEY0   | 1 |             |           | at 7    | [6]    |
        """,
    ),
    17: Figure(
        17,
        "the RQ reads and writes meanwhile",
        {0: PD, 1: PD},
        frozenset({(0, 0), (0, 3)}),
        ("sq_start", "rq_addr", "rq_read", "rq_write", "state", "key_fail", "vi", *BUS, *WRITE_BUS),
        """
         1 | IDLE   | 0 | done        |           | at 0    | 0      |
         2 | IDLE   | 0 | done        |           | at 0    | 0      |
         3 | IDLE   | 0 | start done  | reads 10  | re 10   | 0      |
         4 | IDLE   | 0 | start done  |           | re 0    | [10]   |
         5 | PD     | 0 |             | reads 11  | re 11   | [0]    |
         6 | READ0  | 0 |             |           | re 1    | [11]   |
         7 | KEY0   | 0 |             |           | at 2    | [1]    |
         8 | CLEAR0 | 0 |             | writes 12 | at 2    | [1]    | 12=W
         9 | CLEAR0 | 0 |             |           | re 2    | [1]    | 1=C
        10 | KEY1   | 0 | key_fail    | reads 12  | re 12   | [2]    |
        11 | READ2  | 0 |             |           | re 3    | W      |
        12 | KEY2   | 0 | key_fail    | reads 13  | re 13   | [3]    |
        13 | READ3  | 0 |             |           | re 4    | [13]   |
        14 | KEY3   | 0 |             |           | at 5    | [4]    |
        15 | CLEAR3 | 0 |             | writes 14 | at 5    | [4]    | 14=W
        16 | CLEAR3 | 0 |             |           | at 5    | [4]    | 4=C
        17 | CHECK  | 0 |             |           | re 5    | [4]    |
        18 | PD     | 1 |             |           | re 6    | [5]    |
        """,
        rq={
            3: Access(10),
            5: Access(11),
            8: Access(12, RQ_WORD),
            10: Access(12),
            12: Access(13),
            15: Access(14, RQ_WORD),
        },
    ),
}
