"""The state table of connections as a picture and as a table, for docs/connections.md.

``python -m softhca.management.cm.diagram`` prints what stands there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from softhca.management.cm import path_states
from softhca.management.cm.states import CLOSED, INPUTS, REQ_RCVD, REQ_SENT, STATES, TABLE, Row


def mermaid() -> str:
    """A Mermaid state diagram; inputs that lead from one state to one other stand on one arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, given), (following, _) in TABLE.items():
        if state != following:
            arrows.setdefault((state, following), []).append(given)
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {REQ_SENT}: connect", f"    [*] --> {REQ_RCVD}: REQ"]
    for (state, following), inputs in arrows.items():
        lines.append(f"    {state} --> {following}: {', '.join(inputs)}")
    return "\n".join([*lines, f"    {CLOSED} --> [*]", "```"])


def table() -> str:
    """The table by state and input: next state, and what is done."""
    return _table(STATES, INPUTS, TABLE)


def path_table() -> str:
    """The table of alternate paths."""
    return _table(path_states.STATES, path_states.INPUTS, path_states.TABLE)


def _table(states: Sequence[str], inputs: Sequence[str], rows: Mapping[tuple[str, str], Row]) -> str:
    lines = ["| state | input | next state | done |", "| --- | --- | --- | --- |"]
    for state in states:
        for given in inputs:
            if (state, given) in rows:
                following, done = rows[state, given]
                lines.append(f"| {state} | {given} | {following} | {', '.join(done)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(mermaid(), table(), path_table(), sep="\n\n")
