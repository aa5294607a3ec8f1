"""A reliable connection's promise: every message once, in order, unchanged, or an error and then flushes."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Sequence

from softhca.simulation.oracle import CompletionOrder, Report, check_mixture, first_difference


class ReliableOracle:
    """One direction of a connection: ``requester`` is the sending queue pair's order of completions,
    ``responder`` the receiving one's.  ``polls_first``: the receiver polls before the requester can know.
    """

    def __init__(
        self, report: Report, requester: CompletionOrder, responder: CompletionOrder, polls_first: bool = True
    ) -> None:
        self.report = report
        self.polls_first = polls_first
        self.requester = requester
        self.responder = responder
        self.name = requester.name
        self._messages: deque[tuple[int, bytes, int | None]] = deque()
        self._delivered = -1
        self._places: dict[int, list[tuple[int, bytes]]] = {}
        self._written: set[int] = set()

    def post_message(self, index: int, data: bytes, immediate: int | None) -> None:
        """A request that consumes a receive; ``data`` is what must stand in the receiver's memory."""
        self._messages.append((index, data, immediate))

    def post_write(self, index: int, place: int, data: bytes) -> None:
        """A request that writes remote memory; ``place`` is the first request that writes there."""
        self._places.setdefault(place, []).append((index, data))

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
        if self.polls_first and index > self._delivered:
            self.report.fail(
                "success means delivered", f"{self.name}: request {index} succeeded, and did not arrive"
            )

    def succeed_write(self, index: int, place: int, remote: bytes) -> None:
        """The requester was told that write ``index`` is done; ``remote`` is what stands there."""
        self._written.add(index)
        if not _from(remote, self._since(place, index)):
            self.report.fail("success means written", f"{self.name}: write {index} succeeded, not its bytes")

    def _since(self, place: int, index: int) -> list[bytes]:
        """What may stand at a place once the last write up to ``index`` is done there."""
        chain = self._places[place]
        first = max((at for at, (number, _) in enumerate(chain) if number <= index), default=0)
        return [data for _, data in chain[first:]]

    def succeed_read(self, index: int, local: bytes, remote: bytes) -> None:
        """The requester was told that read ``index`` is done; nobody writes what it reads."""
        if local != remote:
            self._misread(index, local, remote)

    def succeed_read_back(self, index: int, place: int, local: bytes) -> None:
        """Read ``index`` of what was written at a place is done: it found the last write before it, or later
        ones."""
        found = self._since(place, index)
        if not _from(local, found):
            self._misread(index, local, found[0])

    def _misread(self, index: int, local: bytes, remote: bytes) -> None:
        self.report.fail(
            "a read returns what memory held",
            f"{self.name}: read {index} is different from byte {first_difference(local, remote)} on",
        )

    def finish(self, places: dict[int, bytes]) -> None:
        """The world is at rest; ``places`` is what stands where each place's writes went."""
        for place, chain in self._places.items():
            name, memory = f"{self.name}: write {place}", places[place]
            if chain[-1][0] in self._written:
                if memory != chain[-1][1]:
                    self.report.fail("success means written", f"{name}: the last one's bytes are not there")
                continue
            last = self.requester.failed_at if self.requester.failed_at in self.requester.expected else None
            if last is not None:
                # the responder has refused one: none behind it may have acted
                chain = [write for write in chain if write[0] < last]
            done = [index for index, _ in chain if index in self._written]
            if done:
                if not _from(memory, self._since(place, done[-1])[: len(chain)]):
                    self.report.fail("success means written", f"{name}: older bytes stand there")
            else:
                check_mixture(self.report, name, memory, [data for _, data in chain])
        broken = any(order.failed or order.abandoned for order in (self.requester, self.responder))
        if self._messages and not broken:
            self.report.fail(
                "every message once",
                f"{self.name}: {len(self._messages)} messages never arrived, without error",
            )


def _from(memory: bytes, candidates: list[bytes]) -> bool:
    """Whether every byte stands in one of the candidates at its place."""
    if memory in candidates:
        return True
    left: Sequence[int] = range(len(memory))
    for data in candidates:
        left = [at for at in left if memory[at] != data[at]]
    return not left


class CounterOracle:
    """A counter in remote memory that begins at ``start`` and is only increased, by atomics: linearizable?

    Every increase must begin where no other one passed, and, once it was posted, not below what was known
    then.
    """

    def __init__(self, report: Report, start: int) -> None:
        self.report = report
        self.start = start
        self.known = start
        self._posted: dict[tuple[str, int], tuple[int, int, int | None]] = {}
        self._seen: list[tuple[int, int]] = []

    def post(self, name: str, index: int, addend: int, compare: int | None) -> None:
        """Request ``index`` of ``name``: fetch-and-add of ``addend``, or a swap of ``compare`` for so much
        more."""
        self._posted[name, index] = (self.known, addend, compare)

    def complete(self, name: str, index: int, original: int) -> None:
        """It succeeded and returned ``original``."""
        floor, addend, compare = self._posted.pop((name, index))
        rule = "atomics are linearizable"
        if original < floor:
            self.report.fail(rule, f"{name}: request {index} saw {original} after {floor} was known")
        if compare is None or compare == original:
            end = original + addend
            at = bisect.bisect_left(self._seen, (original, end))
            before = at > 0 and self._seen[at - 1][1] > original
            if before or (at < len(self._seen) and self._seen[at][0] < end):
                self.report.fail(rule, f"{name}: request {index} saw {original}, where another one passed")
            self._seen.insert(at, (original, end))
            self.known = max(self.known, end)
        else:
            self.known = max(self.known, original)

    def finish(self, value: int) -> None:
        """The counter's last value: all increases, and at most those whose outcome is unknown."""
        least = self.start + sum(end - original for original, end in self._seen)
        most = least + sum(addend for _, addend, _ in self._posted.values())
        if not least <= value <= most:
            self.report.fail(
                "atomics act once",
                f"the counter is {value} after {len(self._seen)} increases, {len(self._posted)} unknown",
            )
        if self._seen and self._seen[-1][1] > value:
            self.report.fail(
                "atomics act once", f"an increase saw {self._seen[-1][0]}, the counter is {value}"
            )


class BoardOracle:
    """A board of words that one queue pair writes, version after version, while others read it.

    Each word that a read returns is of its place, and of a version between the last one that was complete
    when the read was asked for and the last one that had been asked for when it was done.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self.posted = 0
        self.completed = 0

    def post_write(self, version: int) -> None:
        """The next version is on its way."""
        self.posted = version

    def succeed_write(self, version: int) -> None:
        """It is there."""
        self.completed = version

    def succeed_read(self, name: str, floor: int, board: bytes) -> None:
        """A read that was asked for when version ``floor`` was complete."""
        words = memoryview(board).cast("Q") if board else ()
        for at, word in enumerate(words):
            version, place = word >> 16, word & 0xFFFF
            if place != at or not floor <= version <= self.posted:
                self.report.fail(
                    "a read returns what memory held",
                    f"{name}: word {at} is version {version} of word {place}, "
                    f"not of version {floor}…{self.posted}",
                )
                return
