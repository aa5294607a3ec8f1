"""Torn blocks by the million, judged by the reader's own code.

``python tests/mailbox/torn_campaign.py [--random N] [--whole] [--json]``.  A block is cut at byte boundaries
into two, three or four chunks, at every boundary and combination of boundaries; for every set of chunks that
may have landed before the others (every prefix of every landing order is such a set) the slot holds new bytes
there and old ones elsewhere.  Then random ones: single bytes and groups of 8, 16 or 64 bytes from several
states, random messages and sequence numbers.  A case is one look of `Opener` at one such slot.

A *false accept* is a look that takes what is not byte for byte the new block.  Looks that end as TORN are
those that only the hash has refused: so many would have been taken without it.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

from mailbox_rings import Memory, block_of, digest_of

from softhca.mailbox.blocks import DATA, TAKEN, TORN
from softhca.mailbox.hashes import ALGORITHMS
from softhca.mailbox.terms import Terms

MESSAGE_BYTES = 64
SLOTS = 64
SEQUENCE = SLOTS + 3
"""Of the second lap, so that there is an old message."""
GROUPS = (1, 8, 16, 64)
COUNTS = ("cases", "false_accepts", "without_hash", "complete")


class Range:
    """One slot with its reader; `look` at contents, `counts` of what came of it."""

    def __init__(self, algorithm: str) -> None:
        self.terms = Terms(slots=SLOTS, slot_bytes=168, algorithm=algorithm)
        self.memory = Memory(self.terms.slot_bytes)
        self.opener = self.terms.opener(digest_of(self.terms))
        self.cases = self.false_accepts = self.without_hash = self.complete = 0

    def counts(self) -> Counter[str]:
        """What was counted so far."""
        return Counter({name: getattr(self, name) for name in COUNTS})

    def look(self, content: bytes, new: bytes, sequence: int) -> None:
        """One case."""
        self.memory.view[: len(content)] = content
        self.cases += 1
        verdict = self.opener.open(self.memory.address, self.terms.slot_bytes, sequence)
        if verdict == TORN:
            self.without_hash += 1
        elif verdict == TAKEN:
            if content[: len(new)] == new:
                self.complete += 1
            else:
                self.false_accepts += 1

    def backgrounds(self, dice: random.Random) -> dict[str, bytes]:
        """What may stand in the slot before, by name; each fills it."""
        size = self.terms.slot_bytes
        old = SEQUENCE - SLOTS
        message = dice.randbytes(MESSAGE_BYTES)
        contents = {
            "zeros": b"",
            "ones": b"\xff" * size,
            "the last lap's message": block_of(self.terms, old, DATA, message),
            "a longer one": block_of(self.terms, old, DATA, dice.randbytes(self.terms.largest_bytes)),
            "a shorter one": block_of(self.terms, old, DATA, dice.randbytes(9)),
        }
        return {name: content.ljust(size, b"\0") for name, content in contents.items()}


def chunked(where: Range, old: bytes, new: bytes, chunks: int) -> None:
    """Every way to cut ``new`` into so many chunks, and every set of them that has landed on ``old``."""
    size = len(new)
    look = where.look
    landed = [choice for choice in itertools.product((old, new), repeat=chunks)][1:-1]
    for inner in itertools.combinations(range(1, size), chunks - 1):
        edges = (0, *inner, size)
        spans = [slice(edges[at], edges[at + 1]) for at in range(chunks)]
        for choice in landed:
            look(b"".join([state[span] for state, span in zip(choice, spans, strict=True)]), new, SEQUENCE)


def mixed(states: list[bytes], size: int, group: int, dice: random.Random) -> bytes:
    """Groups of bytes, each from one of the states."""
    return b"".join(dice.choice(states)[at : at + group] for at in range(0, size, group))


def randomly(where: Range, cases: int, dice: random.Random) -> None:
    """Random messages at random places of the sequence, mixed from the new and older blocks."""
    terms, size = where.terms, where.terms.slot_bytes
    done = 0
    while done < cases:
        lap = dice.choice((1, 2, 255, 256, 1 << 32, (1 << 57) + 1))
        sequence = lap * SLOTS + dice.randrange(1, SLOTS + 1)
        new = block_of(terms, sequence, DATA, dice.randbytes(dice.randint(0, terms.largest_bytes)))
        states = [new.ljust(size, b"\0"), bytes(size)]
        for back in range(1, min(lap, 3) + 1):
            message = dice.randbytes(dice.randint(0, terms.largest_bytes))
            states.append(block_of(terms, sequence - back * SLOTS, DATA, message).ljust(size, b"\0"))
        for _ in range(min(200, cases - done)):
            chosen = [states[0], *dice.sample(states[1:], dice.randint(1, len(states) - 1))]
            where.look(mixed(chosen, size, dice.choice(GROUPS), dice), new, sequence)
            done += 1


def families(whole: bool) -> Iterator[tuple[str, int]]:
    """Algorithms with the most chunks into which their blocks are cut."""
    for algorithm in ALGORITHMS:
        yield algorithm, (4 if algorithm == "xxh3-128" else 3) if whole else 2


def campaign(whole: bool, random_cases: int, seed: int) -> dict[str, object]:
    """All of it: counts by family, and their sums."""
    dice = random.Random(seed)
    found = []
    begin_s = time.monotonic()

    def count(where: Range, algorithm: str, name: str, run: Callable[[], None]) -> None:
        before = where.counts()
        run()
        found.append({"hash": algorithm, "family": name, **dict(where.counts() - before)})

    for algorithm, most in families(whole):
        where = Range(algorithm)
        new = block_of(where.terms, SEQUENCE, DATA, dice.randbytes(MESSAGE_BYTES))
        for name, old in where.backgrounds(dice).items():
            for chunks in range(2, most + 1):
                cut = functools.partial(chunked, where, old, new, chunks)
                count(where, algorithm, f"{chunks} chunks on {name}", cut)
        mix = functools.partial(randomly, where, random_cases // len(ALGORITHMS), dice)
        count(where, algorithm, "random mixtures", mix)
    sums = {name: sum(family.get(name, 0) for family in found) for name in COUNTS}
    return {**sums, "wall_s": round(time.monotonic() - begin_s, 1), "families": found}


def main() -> int:
    """0 when there is no false accept."""
    parser = argparse.ArgumentParser(
        description="Torn blocks by the million, judged by the reader's own code."
    )
    parser.add_argument("--whole", action="store_true", help="up to four chunks (default: two)")
    parser.add_argument("--random", type=int, default=3_000, metavar="N", help="random cases (default 3000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print counts by family, too")
    args = parser.parse_args()
    result = campaign(args.whole, args.random, args.seed)
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        print(
            f"{result['cases']:,} slots in {result['wall_s']} s: {result['false_accepts']} false accepts; "
            f"{result['without_hash']:,} would have been taken without the hash; "
            f"{result['complete']:,} were whole"
        )
    return 1 if result["false_accepts"] else 0


if __name__ == "__main__":
    sys.exit(main())
