"""What every oracle shares: violations, and the checks of memory that hold for all services.

Oracles know the rules of the services and what programs posted, saw and hold in memory; they know nothing
of the implementation.  Each service has a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from softhca.simulation.kinds import FLUSHED, SUCCESS

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

    def advance(self, now: int) -> None:
        """Time has passed."""
        self.now = now

    def fail(self, rule: str, text: str) -> None:
        """A rule is broken."""
        if len(self.violations) < self.LIMIT:
            self.violations.append(Violation(self.now, rule, text))


class CompletionOrder:
    """One queue pair's work: send requests complete once, in order, and after an error everything flushes.

    Only requests that ask for it have a completion, until there is an error: then all that are left have one.
    ``legal``: statuses with which any request may fail in this world; ``flushable``: the queue pair may
    break through its peer or its owner, so that flushes come without an error before; ``excuse`` is asked
    whether there was cause for a status, and may be None.  ``receives_go_on``: a failed request does not
    stop receiving (the state SQE of unreliable services).  ``receives_apart``: they complete in another
    queue, so that nothing is known of their order among requests.  ``receive_error``: the status with which
    one ended by itself.
    """

    def __init__(self, report: Report, name: str, legal: frozenset[int], flushable: bool = False) -> None:
        self.report = report
        self.name = name
        self.legal = legal
        self.flushable = flushable
        self.failed = False
        self.failed_at = -1
        self.receive_error = SUCCESS
        self.abandoned = False
        self.receives_go_on = False
        self.receives_apart = False
        self.expected: dict[int, int] = {}
        self.expected_receives: dict[int, int] = {}
        self.excuse: Callable[[int], bool] | None = None
        self.completed = 0
        self._signaled: list[bool] = []

    @property
    def posted(self) -> int:
        """How many send requests were posted."""
        return len(self._signaled)

    def post(self, signaled: bool = True, status: int = SUCCESS) -> None:
        """One more send request; ``status`` with which it has to complete."""
        if status:
            self.expected[len(self._signaled)] = status
        self._signaled.append(signaled or status != SUCCESS)

    def complete(self, index: int, status: int) -> range:
        """The completion of send request ``index``: the requests that succeeded by it, in order."""
        first = self.completed
        skipped = self._signaled[first:index]
        if index < first or index >= self.posted or (bool(skipped) if self.failed_at >= 0 else any(skipped)):
            self.report.fail(
                "completions in order",
                f"{self.name}: request {index} of {self.posted} completed, expected {first}",
            )
            return range(0)
        self.completed = index + 1
        if status == SUCCESS and not self._signaled[index]:
            self.report.fail("silence where it was asked for", f"{self.name}: request {index} completed")
        if self._outcome(f"request {index}", status, self.expected.get(index, SUCCESS)):
            return range(first, index + 1)
        if self.failed_at < 0:
            self.failed_at = index
        return range(first, index)

    def receive(self, status: int, index: int = -1) -> bool:
        """The completion of receive ``index``; whether it succeeded."""
        if status not in (SUCCESS, FLUSHED):
            self.receive_error = status
        if status == SUCCESS and (self.receives_go_on or self.receives_apart):
            return True
        if status == FLUSHED and self.receives_apart:
            return False
        failed, self.failed = self.failed, self.failed and not self.receives_apart
        good = self._outcome(f"receive {index}", status, self.expected_receives.get(index, SUCCESS))
        self.failed = self.failed or failed
        return good

    def _outcome(self, what: str, status: int, expected: int) -> bool:
        if status == SUCCESS:
            if self.failed:
                self.report.fail("flush after an error", f"{self.name}: {what} succeeded after an error")
            elif expected:
                self.report.fail(
                    "nobody is let in", f"{self.name}: {what} succeeded instead of ending with {expected}"
                )
            return True
        if status == FLUSHED:
            if not (self.failed or self.flushable):
                text = f"{self.name}: {what} was flushed without an error"
                self.report.fail("an error before a flush", text)
        elif self.failed:
            text = f"{self.name}: {what} ended with {status} after an error"
            self.report.fail("one error, then flushes", text)
        elif status != expected and status not in self.legal:
            self.report.fail(
                "no error without cause",
                f"{self.name}: {what} ended with status {status}" + (f", not {expected}" if expected else ""),
            )
        elif status != expected and self.excuse is not None and not self.excuse(status):
            text = f"{self.name}: {what} ended with {status} without cause"
            self.report.fail("no error without cause", text)
        self.failed = True
        return False

    def finish(self) -> None:
        """The world is at rest: everything posted has completed, and what had to fail did."""
        if self.abandoned:
            return
        rest = self._signaled[self.completed :]
        if any(rest) or (rest and self.failed_at >= 0):
            self.report.fail(
                "every request completes",
                f"{self.name}: {self.completed} of {self.posted} requests completed",
            )


def check_guards(report: Report, name: str, memory: bytes, buffers: list[tuple[int, int]]) -> None:
    """Every byte of ``memory`` outside the ``buffers`` (offset, length), in order, is still ``GUARD``."""
    at = 0
    for offset, length in [*sorted(buffers), (len(memory), 0)]:
        gap = memory[at:offset]
        if gap.count(GUARD) != len(gap):
            first = next(place for place, byte in enumerate(gap) if byte != GUARD)
            report.fail(
                "guard bytes", f"{name}: byte {at + first}, outside every buffer, changed to {gap[first]:#x}"
            )
            return
        at = max(at, offset + length)


def check_constant(report: Report, name: str, memory: bytes, expected: bytes) -> None:
    """A buffer that nobody may write holds what it held."""
    if memory != expected:
        report.fail("sources unchanged", f"{name} changed at byte {first_difference(memory, expected)}")


def check_mixture(report: Report, name: str, memory: bytes, written: list[bytes]) -> None:
    """Every byte of a buffer is the untouched one, or one that a request wrote there."""
    if memory in written or memory.count(UNTOUCHED) == len(memory):
        return
    for at, byte in enumerate(memory):
        if byte != UNTOUCHED and all(byte != data[at] for data in written):
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
