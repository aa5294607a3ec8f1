"""Runs checks and gives every statement its verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from softhca.conformance.registry import Check, ConformanceError, collect
from softhca.conformance.statements import BY_ID, STATEMENTS, Statement

PASS, FAIL, UNCHECKED, OBSOLETE = "pass", "fail", "unchecked", "obsolete"


@dataclass(frozen=True)
class Verdict:
    """``result``: PASS; FAIL, with what the first failing checks saw; UNCHECKED; OBSOLETE."""

    statement: Statement
    tests: tuple[str, ...]
    result: str
    failures: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether the statement is held, or need not be."""
        return self.result in (PASS, OBSOLETE)

    def document(self) -> dict[str, Any]:
        """As JSON values; ``failures`` only where there are some."""
        found = {
            "id": self.statement.id,
            "service": self.statement.service,
            "side": self.statement.side,
            "tests": list(self.tests),
            "result": self.result,
        }
        return {**found, "failures": list(self.failures)} if self.failures else found


def checks_of(statement: Statement, checks: Iterable[Check]) -> tuple[Check, ...]:
    """The checks that hold a statement."""
    return tuple(check for check in checks if statement.id in check.ids)


def failures_of(checks: Sequence[Check], done: Callable[[int], object]) -> dict[str, str]:
    """Run checks; name → what was seen, for those that fail.  ``done`` is told how many have run."""
    failures = {}
    for number, check in enumerate(checks, 1):
        try:
            check.run()
        except ConformanceError as error:
            failures[check.name] = str(error)
        done(number)
    return failures


def verdicts(
    statements: Sequence[Statement] = STATEMENTS,
    checks: Sequence[Check] | None = None,
    done: Callable[[int], object] = lambda number: None,
) -> list[Verdict]:
    """Run the checks of ``statements`` (of ``checks``; None: of all there are), each once, and judge."""
    known = collect() if checks is None else checks
    wanted = {statement.id for statement in statements}
    failures = failures_of([check for check in known if wanted & set(check.ids)], done)
    return [_judge(statement, checks_of(statement, known), failures) for statement in statements]


def _judge(statement: Statement, checks: Sequence[Check], failures: dict[str, str]) -> Verdict:
    names = tuple(check.name for check in checks)
    seen = tuple(f"{name}: {failures[name]}" for name in names if name in failures)
    if seen:
        return Verdict(statement, names, FAIL, seen)
    if not statement.in_force:
        return Verdict(statement, names, OBSOLETE)
    return Verdict(statement, names, PASS if names else UNCHECKED)


def chosen(ids: Iterable[str]) -> list[Statement]:
    """The statements with these numbers, or all for none.  KeyError for a number that there is not."""
    wanted = list(ids)
    unknown = [number for number in wanted if number not in BY_ID]
    if unknown:
        raise KeyError(unknown[0])
    return [statement for statement in STATEMENTS if not wanted or statement.id in wanted]
