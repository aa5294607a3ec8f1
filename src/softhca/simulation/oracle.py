"""What every oracle shares: violations, and the checks of memory that hold for all services.

Oracles know the rules of the services and what programs posted, saw and hold in memory; they know nothing
of the implementation.  Each service has a file of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

SUCCESS = 0
FLUSHED = 5
GUARD = 0xA5
UNTOUCHED = 0x5A


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken at ``time_ns``: ``rule`` is its short name, ``text`` what was seen."""

    time_ns: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.time_ns} ns: {self.rule}: {self.text}"


class Report:
    """Where oracles of one world put violations; ``now`` is kept by the world.  Bounded by ``LIMIT``."""

    LIMIT = 100

    def __init__(self) -> None:
        self.now = 0
        self.violations: list[Violation] = []

    def fail(self, rule: str, text: str) -> None:
        """A rule is broken."""
        if len(self.violations) < self.LIMIT:
            self.violations.append(Violation(self.now, rule, text))


class CompletionOrder:
    """One queue pair's work: send requests complete once, in order, and after an error everything flushes.

    ``may_fail``: an error is a legal outcome in this world.
    """

    def __init__(self, report: Report, name: str, may_fail: bool) -> None:
        self.report = report
        self.name = name
        self.may_fail = may_fail
        self.failed = False
        self.posted = 0
        self.completed = 0

    def post(self) -> None:
        """One more send request."""
        self.posted += 1

    def complete(self, index: int, status: int) -> bool:
        """The completion of send request ``index``; whether it succeeded."""
        if index != self.completed or index >= self.posted:
            self.report.fail(
                "completions in order",
                f"{self.name}: request {index} of {self.posted} completed, expected {self.completed}",
            )
        self.completed = max(self.completed, index + 1)
        return self._outcome(f"request {index}", status)

    def receive(self, status: int) -> bool:
        """The completion of a receive; whether it succeeded."""
        return self._outcome("a receive", status)

    def _outcome(self, what: str, status: int) -> bool:
        if status == SUCCESS:
            if self.failed:
                self.report.fail("flush after an error", f"{self.name}: {what} succeeded after an error")
            return True
        if status == FLUSHED and not self.failed:
            self.report.fail("an error before a flush", f"{self.name}: {what} was flushed without an error")
        elif status != FLUSHED and not self.may_fail:
            self.report.fail("no error without cause", f"{self.name}: {what} ended with status {status}")
        self.failed = True
        return False

    def finish(self) -> None:
        """The world is at rest: everything posted has completed."""
        if self.completed != self.posted:
            self.report.fail(
                "every request completes",
                f"{self.name}: {self.completed} of {self.posted} requests completed",
            )


def check_guards(report: Report, name: str, memory: bytes, buffers: list[tuple[int, int]]) -> None:
    """Every byte of ``memory`` outside the ``buffers`` (offset, length) is still ``GUARD``."""
    left = bytearray(memory)
    for offset, length in buffers:
        left[offset : offset + length] = bytes([GUARD]) * length
    changed = len(left) - left.count(GUARD)
    if changed:
        first = next(at for at, byte in enumerate(left) if byte != GUARD)
        report.fail(
            "guard bytes", f"{name}: {changed} bytes outside every buffer changed, the first at {first}"
        )


def check_constant(report: Report, name: str, memory: bytes, expected: bytes) -> None:
    """A buffer that nobody may write holds what it held."""
    if memory != expected:
        report.fail("sources unchanged", f"{name} changed at byte {first_difference(memory, expected)}")


def check_mixture(report: Report, name: str, memory: bytes, written: bytes) -> None:
    """A buffer whose write did not succeed: every byte is the old one or the written one."""
    for at, (byte, new) in enumerate(zip(memory, written, strict=True)):
        if byte not in (UNTOUCHED, new):
            report.fail("writes bring their own bytes", f"{name}: byte {at} is {byte:#x}, never written")
            return


def check_resources(report: Report, adapter: int, counts: dict[str, int]) -> None:
    """When everything was destroyed, nothing is left."""
    for kind, count in counts.items():
        if count:
            report.fail("resources return to zero", f"adapter {adapter}: {count} × {kind} left")


def first_difference(left: bytes, right: bytes) -> int:
    """Where two byte strings begin to differ."""
    pairs = zip(left, right, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))
