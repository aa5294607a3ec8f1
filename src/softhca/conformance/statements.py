"""The statements of the standard that this package answers for (IBTA vol. 1, 1.6), as data."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources

IN_FORCE = "in force"
OBSOLETE = "obsolete"


@dataclass(frozen=True)
class Statement:
    """One compliance statement; ``text`` is what it asks for, in this project's words.

    ``service``: RC, RD, UC, UD, UC+UD or raw; ``side``: requester, responder or both ("-" when obsolete);
    ``applies``: to which adapters; ``like``: the statements of HCAs that it repeats for TCAs.
    """

    id: str
    service: str
    side: str
    applies: str
    status: str
    section: str
    like: tuple[str, ...]
    text: str

    @property
    def in_force(self) -> bool:
        """Whether it must be held."""
        return self.status == IN_FORCE


def load() -> tuple[Statement, ...]:
    """All statements, in the standard's order."""
    text = resources.files("softhca.conformance").joinpath("statements.csv").read_text("utf-8")
    return tuple(
        Statement(
            row["id"], row["service"], row["side"], row["applies"], row["status"], row["section"],
            tuple(row["like"].split()), row["text"],
        )
        for row in csv.DictReader(text.splitlines())
    )  # fmt: skip


STATEMENTS = load()
BY_ID = {statement.id: statement for statement in STATEMENTS}
