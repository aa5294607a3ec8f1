"""What an unreliable connection promises: what completes is one sent message, whole; the rest is silent."""

from __future__ import annotations

from softhca.simulation.oracle import CompletionOrder, Report, check_mixture


class UnreliableOracle:
    """One direction.  ``orderly``: the network neither repeats nor reorders, so messages come once and in
    order; ``lossless``: it loses and damages nothing either, so all of them come.
    """

    def __init__(
        self,
        report: Report,
        requester: CompletionOrder,
        orderly: bool,
        lossless: bool,
    ) -> None:
        self.report = report
        self.name = requester.name
        self.orderly = orderly
        self.lossless = lossless and orderly
        self._messages: dict[bytes, tuple[int, int | None]] = {}
        self._arrived: list[int] = []
        self._writes: dict[int, bytes] = {}

    def post_message(self, index: int, data: bytes, immediate: int | None) -> None:
        """A message whose bytes are like no other's."""
        self._messages[data] = (index, immediate)

    def post_write(self, index: int, data: bytes) -> None:
        """A request that writes remote memory."""
        self._writes[index] = data

    def deliver(self, data: bytes, immediate: int | None) -> None:
        """A receive completed: what it says arrived."""
        index, expected = self._messages.get(data, (-1, None))
        if index < 0:
            self.report.fail(
                "a completed message is one sent message, whole",
                f"{self.name}: {len(data)} bytes arrived that are no message",
            )
            return
        if immediate != expected:
            self.report.fail(
                "a completed message is one sent message, whole",
                f"{self.name}: message {index} arrived with immediate {immediate}, sent with {expected}",
            )
        if self.orderly and self._arrived and index <= self._arrived[-1]:
            self.report.fail(
                "order where the network keeps it", f"{self.name}: {index} arrived after {self._arrived[-1]}"
            )
        self._arrived.append(index)

    def finish(self, writes: dict[int, bytes]) -> None:
        """The world is at rest; ``writes`` are the remote bytes of every write posted, by index."""
        for index, expected in self._writes.items():
            check_mixture(self.report, f"{self.name}: write {index}", writes[index], [expected])
            if self.lossless and writes[index] != expected:
                self.report.fail("nothing is lost without cause", f"{self.name}: write {index} is not there")
        if self.lossless and len(self._arrived) != len(self._messages):
            self.report.fail(
                "nothing is lost without cause",
                f"{self.name}: {len(self._arrived)} of {len(self._messages)} messages arrived",
            )
