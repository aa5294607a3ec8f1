"""A reliable connection's promise: every message once, in order, unchanged, or an error and then flushes."""

from __future__ import annotations

from collections import deque

from softhca.simulation.oracle import CompletionOrder, Report, check_mixture, first_difference


class ReliableOracle:
    """One direction of a connection: ``requester`` is the sending queue pair's order of completions,
    ``responder`` the receiving one's.
    """

    def __init__(self, report: Report, requester: CompletionOrder, responder: CompletionOrder) -> None:
        self.report = report
        self.requester = requester
        self.responder = responder
        self.name = requester.name
        self._messages: deque[tuple[int, bytes, int | None]] = deque()
        self._delivered = -1
        self._open_writes: dict[int, bytes] = {}

    def post_message(self, index: int, data: bytes, immediate: int | None) -> None:
        """A request that consumes a receive; ``data`` is what must stand in the receiver's memory."""
        self._messages.append((index, data, immediate))

    def post_write(self, index: int, data: bytes) -> None:
        """A request that writes remote memory."""
        self._open_writes[index] = data

    def deliver(self, data: bytes, immediate: int | None, rest_untouched: bool) -> int:
        """A receive completed: what it says arrived.  The index of the request, or −1."""
        if not self._messages:
            self.report.fail("every message once", f"{self.name}: a message arrived that was not sent")
            return -1
        index, expected, expected_immediate = self._messages.popleft()
        self._delivered = index
        if data != expected:
            self.report.fail(
                "every message in order, unchanged",
                f"{self.name}: request {index} arrived with {len(data)} bytes of {len(expected)}, "
                f"different from byte {first_difference(data, expected)} on",
            )
        if immediate != expected_immediate:
            self.report.fail(
                "every message unchanged", f"{self.name}: request {index}: immediate {immediate}"
            )
        if not rest_untouched:
            self.report.fail(
                "no byte beyond a message", f"{self.name}: request {index} touched the rest of its buffer"
            )
        return index

    def succeed_message(self, index: int) -> None:
        """The requester was told that message ``index`` arrived."""
        if index > self._delivered:
            self.report.fail(
                "success means delivered", f"{self.name}: request {index} succeeded, and did not arrive"
            )

    def succeed_write(self, index: int, remote: bytes) -> None:
        """The requester was told that write ``index`` is done; ``remote`` is what stands there."""
        if remote != self._open_writes.pop(index):
            self.report.fail("success means written", f"{self.name}: write {index} succeeded, not its bytes")

    def succeed_read(self, index: int, local: bytes, remote: bytes) -> None:
        """The requester was told that read ``index`` is done; nobody writes what it reads."""
        if local != remote:
            at = first_difference(local, remote)
            self.report.fail(
                "a read returns what memory held", f"{self.name}: read {index} is different from byte {at} on"
            )

    def finish(self, writes: dict[int, bytes]) -> None:
        """The world is at rest; ``writes`` are the remote bytes of every write posted, by index."""
        for index, expected in self._open_writes.items():
            check_mixture(self.report, f"{self.name}: write {index}", writes[index], expected)
        if self._messages and not (self.requester.failed or self.responder.failed):
            self.report.fail(
                "every message once",
                f"{self.name}: {len(self._messages)} messages never arrived, without error",
            )


class CounterOracle:
    """A counter in remote memory that begins at 0 and is only ever incremented by atomics: linearizable?

    Every increment must see a value of its own, and, once it was posted, none older than what was known then.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self._posted: dict[tuple[str, int], tuple[int, int | None]] = {}
        self._seen: set[int] = set()
        self.known = 0

    def post(self, name: str, index: int, compare: int | None) -> None:
        """Request ``index`` of ``name``: fetch-and-add of 1, or a swap of ``compare`` for its successor."""
        self._posted[name, index] = (self.known, compare)

    def complete(self, name: str, index: int, original: int) -> None:
        """It succeeded and returned ``original``."""
        floor, compare = self._posted.pop((name, index))
        rule = "atomics are linearizable"
        if original < floor:
            self.report.fail(rule, f"{name}: request {index} saw {original} after {floor} was known")
        if compare is None or compare == original:
            if original in self._seen:
                self.report.fail(rule, f"{name}: request {index} saw {original}, as another increment did")
            self._seen.add(original)
            self.known = max(self.known, original + 1)
        else:
            self.known = max(self.known, original)

    def finish(self, value: int) -> None:
        """The counter's last value: all increments, and at most those whose outcome is unknown."""
        if not len(self._seen) <= value <= len(self._seen) + len(self._posted):
            self.report.fail(
                "atomics act once",
                f"the counter is {value} after {len(self._seen)} increments, {len(self._posted)} unknown",
            )
        if self._seen and max(self._seen) >= value:
            self.report.fail(
                "atomics act once", f"an increment saw {max(self._seen)}, the counter is {value}"
            )
