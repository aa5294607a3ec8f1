"""What a mailbox counts."""

from __future__ import annotations

import dataclasses
from collections.abc import MutableSequence
from dataclasses import dataclass

from softhca.mailbox.blocks import ALGORITHM, EMPTY, FORMAT, LENGTH, OVERRUN, STALE, TORN


@dataclass
class Statistics:
    """Messages, operations, and polls of a slot that ended without a message, by reason.

    ``empty``: sequence 0; ``stale``: an older sequence number, normally the message of the last lap;
    ``overrun``: a newer one; ``length``, ``algorithm``, ``format``: a field that was not agreed; ``torn``:
    the hash does not fit.  ``sent`` counts requests and outcomes, too; ``full``: attempts that found no
    credit.  ``writes``, ``reads``: RDMA operations that carried blocks.  ``credits_refused``: credits that
    verify and cannot be; ``outcomes_unknown``: outcomes nobody waits for.
    """

    sent: int = 0
    received: int = 0
    writes: int = 0
    reads: int = 0
    credits_sent: int = 0
    credits_refused: int = 0
    full: int = 0
    empty: int = 0
    stale: int = 0
    overrun: int = 0
    length: int = 0
    algorithm: int = 0
    format: int = 0
    torn: int = 0
    outcomes_unknown: int = 0

    def add_verdicts(self, verdicts: MutableSequence[int]) -> None:
        """Add the counts of polls by verdict, and set them to 0."""
        for verdict, name in _NAMES.items():
            if verdicts[verdict]:
                setattr(self, name, getattr(self, name) + int(verdicts[verdict]))
                verdicts[verdict] = 0

    def as_dict(self) -> dict[str, int]:
        """All counts by name."""
        return dataclasses.asdict(self)


_NAMES = {
    EMPTY: "empty", STALE: "stale", OVERRUN: "overrun", LENGTH: "length", ALGORITHM: "algorithm",
    FORMAT: "format", TORN: "torn",
}  # fmt: skip
