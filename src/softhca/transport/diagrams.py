"""The queue pair's state machine as a document, drawn from the literal tables.

``python -m softhca.transport.diagrams > docs/states.md`` renews the page.
"""

from __future__ import annotations

from softhca.queues.states import POSTING, Posting
from softhca.transport import migration as migration_of
from softhca.transport.conditions import CONDITIONS, EVENTS, RECOVERIES
from softhca.transport.services import SERVICES
from softhca.transport.states import BEHAVIOUR, ERR, NAMES, RESET, RTS, SQE, TRANSITIONS, Behaviour

HEADING = """# States of a queue pair, and of its sender

Drawn from the tables in `src/softhca/transport/states.py` and `src/softhca/queues/states.py` (IBTA vol. 1,
10.3.1 and 11.2.5.2), in `src/softhca/transport/conditions.py`, and in `src/softhca/transport/migration.py`
(17.2.8).
Do not edit by hand: `python -m softhca.transport.diagrams > docs/states.md`.
"""


def mermaid() -> str:
    """A Mermaid state diagram of all transitions, with the services that have each."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {NAMES[RESET]}"]
    for (current, target), rules in TRANSITIONS.items():
        names = " ".join(SERVICES[service].name for service in rules)
        lines.append(f"    {NAMES[current]} --> {NAMES[target]}: {names}")
    failing = " ".join(service.name for service in SERVICES.values() if service.send_error_state)
    lines.append(f"    {NAMES[RTS]} --> {NAMES[SQE]}: a send request failed, {failing}")
    for target, why in ((ERR, "modify, or a fatal error"), (RESET, "modify")):
        lines += [f"    {name} --> {NAMES[target]}: {why}" for name in NAMES if name != NAMES[target]]
    return "\n".join([*lines, "```"])


def behaviour_table() -> str:
    """What a queue pair does in each state, as a Markdown table."""
    columns = [*Posting._fields, *Behaviour._fields]
    rows = [f"| state | {' | '.join(columns)} |", "|" + " --- |" * (len(columns) + 1)]
    for name, posting, behaviour in zip(NAMES, POSTING, BEHAVIOUR, strict=True):
        found = {**posting._asdict(), **behaviour._asdict()}
        marks = ("yes" if found[column] else "" for column in columns)
        rows.append(f"| {name} | {' | '.join(marks)} |")
    return "\n".join(rows)


def attribute_table() -> str:
    """Required and optional attributes of each transition and service, as a Markdown table."""
    rows = ["| from | to | service | required | optional |", "| --- | --- | --- | --- | --- |"]
    for (current, target), rules in TRANSITIONS.items():
        for service, rule in rules.items():
            required, optional = (" ".join(sorted(names)) for names in (rule.required, rule.optional))
            name = SERVICES[service].name
            rows.append(f"| {NAMES[current]} | {NAMES[target]} | {name} | {required} | {optional} |")
    return "\n".join(rows)


def condition_table() -> str:
    """What a sender waits for, and which events end the wait, as a Markdown table."""
    columns = ("transmits", *EVENTS)
    rows = [f"| condition | waits for | {' | '.join(columns)} |", "|" + " --- |" * (len(columns) + 2)]
    for condition in CONDITIONS:
        marks = ("yes" if getattr(condition, column) else "" for column in columns)
        rows.append(f"| {condition.name} | {condition.waits_for} | {' | '.join(marks)} |")
    return "\n".join(rows)


def recovery_table() -> str:
    """What is new of the oldest packets, and what follows, as a Markdown table."""
    columns = ("implied_nak", "sequence_nak", "rnr_nak")
    after = ("lost", "refused", "other")
    heads = ("recovery", *columns, *after)
    rows = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for row in RECOVERIES:
        marks = ["yes" if getattr(row, column) else "" for column in columns]
        marks += [RECOVERIES[getattr(row, column)].name for column in after]
        rows.append(f"| {row.name} | {' | '.join(marks)} |")
    return "\n".join(rows)


def migration() -> str:
    """The states of path migration, as a Mermaid diagram and a Markdown table."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {migration_of.STATES[migration_of.MIGRATED]}"]
    rows = ["| state | input | next state | done |", "| --- | --- | --- | --- |"]
    for (state, event), (after, done) in migration_of.TABLE.items():
        before, behind = migration_of.STATES[state], migration_of.STATES[after]
        if before != behind:
            lines.append(f"    {before} --> {behind}: {event}")
        rows.append(f"| {before} | `{event}` | {behind} | {done} |")
    return "\n".join([*lines, "```", "", *rows])


def page() -> str:
    """The whole document."""
    parts = [HEADING, mermaid(), "\n## What happens in each state\n", behaviour_table(),
             "\n## Attributes of each transition\n", attribute_table(),
             "\n## What a sender waits for, and what ends it\n", condition_table(),
             "\n## What a requester hears of its oldest packets that is new, and what follows\n",
             recovery_table(),
             "\n## Path migration\n", migration()]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    print(page(), end="")
