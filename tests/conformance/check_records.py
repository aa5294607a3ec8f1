"""What a check gives an adapter and what it demands, as one line of numbers, in which one that is weakened
shows.

``python tests/conformance/check_records.py`` writes the lines of all checks to `RECORDS`, which is to be done
where a check is meant to say something else.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from softhca.conformance import rig as rigs
from softhca.conformance.registry import Check, collect
from softhca.testing.ends import End
from softhca.wire.opcodes import HAS_RETH, OPCODES

RECORDS = Path(__file__).parents[1] / "data" / "conformance_records.txt"
PLAIN = (int, str, bytes, bool, type(None))


class Record:
    """``given`` packets, ``demands``, and a digest of what both were."""

    def __init__(self) -> None:
        self.given = 0
        self.demands = 0
        self.text: list[str] = []

    def line(self, check: Check) -> str:
        """Name, packets, demands and digest."""
        row = [getattr(check.function, name, None) for name in ("written", "receive_bytes", "access")]
        text = "\n".join((*self.text, repr(row), " ".join(setting.name for setting in check.settings)))
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{check.name} {self.given} {self.demands} {digest}"

    def note(self, *what: object) -> None:
        """One step more."""
        self.text.append(repr(what))

    def packet(self, data: bytes, native: bool) -> None:
        """A packet made by hand: all of it that does not depend on addresses of memory."""
        self.given += 1
        front = (8 + 40 * (data[1] & 3 == 3)) if native else 0
        row = OPCODES.get(data[front]) if len(data) >= front + 16 else None
        if row is None:
            self.note("bytes", len(data))
            return
        begin = front + 12 + row.extension_bytes
        reth = data[begin - 4 : begin] if row.header_bits & HAS_RETH and row.headers[-1] == "reth" else b""
        self.note(row.name, data[front + 1], data[front + 9 : front + 12], reth, data[begin:-6])


def plain(value: Any) -> Any:
    """A value as far as it is the same in each run."""
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return [(plain(key), plain(each)) for key, each in value.items()]
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, map(plain, value)))
    return value if isinstance(value, PLAIN) else type(value).__name__


@contextlib.contextmanager
def recording() -> Iterator[Record]:
    """While it lasts, checks are recorded; they run as ever."""
    record = Record()
    modules = [module for name, module in sys.modules.items() if name.startswith("softhca.conformance.")]
    give, leave, region = rigs.Rig.give, rigs.Rig.__exit__, End.region

    def given(self: Any, target: Any, data: bytes, route: Any) -> None:
        record.packet(bytes(data), self.setting.native)
        give(self, target, data, route)

    def left(self: Any, *error: Any) -> Any:
        record.note("tampers", not self.tamper.__qualname__.startswith("Network."))
        return leave(self, *error)

    def registered(self: Any, offset: int, length: int, *more: Any, **named: Any) -> Any:
        record.note("region", offset, length)
        return region(self, offset, length, *more, **named)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(rigs.Rig, "give", given))
        stack.enter_context(mock.patch.object(rigs.Rig, "__exit__", left))
        stack.enter_context(mock.patch.object(End, "region", registered))
        for module in modules:
            for name in ("expect", "ensure"):
                if hasattr(module, name) and not module.__name__.endswith("registry"):
                    stack.enter_context(mock.patch.object(module, name, demanding(record, module, name)))
        yield record


def demanding(record: Record, module: Any, name: str) -> Any:
    """``expect`` or ``ensure`` of a module, recorded."""
    demand = getattr(module, name)

    def recorded(first: Any, *others: Any) -> None:
        record.demands += 1
        record.note(name, first if name == "expect" else "", plain(others[1]) if name == "expect" else "")
        demand(first, *others)

    return recorded


def main() -> None:
    """Write the records."""
    lines = []
    for check in collect():
        with recording() as record:
            check.run()
        lines.append(record.line(check))
    RECORDS.write_text("".join(f"{line}\n" for line in sorted(lines)))


if __name__ == "__main__":
    main()
