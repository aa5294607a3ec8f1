"""The packet ladder of a world: what two queue pairs sent each other and what happened inside them.

`draw` is a pure function from a trace's lines to an SVG text: the same lines give the same picture.
`ladder_rows` reads them, `ladder_picture` places and draws what they say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from softhca.simulation.ladder_picture import svg
from softhca.simulation.ladder_rows import End, Ladder, Pair, rows_of

MAX_ROWS = 400
NAMED_PAIRS = 12
FOREVER_NS = 1 << 62


class LadderError(ValueError):
    """No ladder of these queue pairs can be drawn; the message is one line that says which there are."""


def draw(
    lines: Iterable[str],
    header: Mapping[str, object],
    pair: str = "",
    begin_ns: int = 0,
    end_ns: int = FOREVER_NS,
    rows: int = MAX_ROWS,
) -> str:
    """The ladder as SVG.

    ``lines`` are a trace's; ``header`` is shown above.  ``pair`` is ``A:B``, numbers of queue pairs that talk
    to each other, A on the left; by default the first pair of the world.  Of what happened from ``begin_ns``
    until before ``end_ns`` (world's time) the first ``rows`` are drawn.  LadderError.
    """
    records = [json.loads(line) for line in lines]
    ladder = Ladder(choose(pairs_of(records), pair))
    for row in rows_of(records, ladder.pair):
        if row.time_ns < begin_ns:
            ladder.before += 1
        elif row.time_ns >= end_ns or len(ladder.rows) >= rows:
            ladder.after += 1
        else:
            ladder.rows.append(row)
    return svg(ladder, header)


def pairs_of(records: Iterable[Mapping[str, Any]]) -> list[Pair]:
    """The pairs of queue pairs that talk to each other, in the order in which they were made."""
    found: list[Pair] = []
    for record in records:
        if record["event"] == "queue_pair":
            pair = End(record["adapter"], record["qp"]), End(record["peer"], record["peer_qp"])
            if pair not in found and pair[::-1] not in found:
                found.append(pair)
    return found


def choose(pairs: Sequence[Pair], text: str) -> Pair:
    """The pair that ``text`` names, in its order; the first one without a text.  LadderError."""
    if not pairs:
        raise LadderError("this world has no queue pairs that talk to each other")
    if not text:
        return pairs[0]
    try:
        left, right = (int(part, 0) for part in text.split(":"))
    except ValueError:
        left = right = -1
    for pair in pairs:
        for one, other in (pair, pair[::-1]):
            if (one.qp, other.qp) == (left, right):
                return one, other
    names = [f"{one.qp}:{other.qp}" for one, other in pairs[:NAMED_PAIRS]]
    more = f" and {len(pairs) - NAMED_PAIRS} more" if len(pairs) > NAMED_PAIRS else ""
    raise LadderError(f"no queue pairs {text} in this world: expected one of {', '.join(names)}{more}")
