"""The read variant: a reader fetches the next message from the writer's memory.

Theory of operation: an RDMA READ brings the slot whose turn it is into landing memory.  While it is under way
its bytes arrive in any order, so each poll hashes what has landed; a block that verifies is taken at once.
When the READ has completed and the block still does not verify, the source was empty, or was being updated
while it was read: only a new READ can tell more.
"""

from __future__ import annotations

from typing import Protocol

from softhca.machine import deferred_signals
from softhca.mailbox.blocks import DATA, EMPTY, TAKEN, Opener, Sealer
from softhca.mailbox.rings import Inbox


class Fetcher(Protocol):
    """What carries a slot here: `Wiring`, or a test's."""

    reading: bool

    def read(self, offset: int) -> None:
        """Begin to fetch the slot at ``offset``; ``reading`` is True until all of it has landed."""


class RemoteReader:
    """Polls landing memory at ``address`` as `Inbox` does at a ring; ``reads`` counts READs.

    The remote ring has ``slots`` of ``slot_bytes``; a message fits one slot.
    """

    def __init__(
        self, slots: int, slot_bytes: int, opener: Opener, address: int, credits: Sealer, fetcher: Fetcher
    ) -> None:
        self.reads = 0
        self._slots = slots
        self._slot_bytes = slot_bytes
        self._landing = Inbox(1, slot_bytes, opener, address, credits)
        self._fetcher = fetcher
        self._wanted = True
        self.opener = opener
        self.credits = credits

    @property
    def next_sequence(self) -> int:
        """The block whose turn it is."""
        return int(self._landing.next_sequence)

    @property
    def taken_sequence(self) -> int:
        """The block that was taken last."""
        return int(self._landing.taken_sequence)

    def poll(self) -> int:
        """A verdict, as `Inbox.poll`; a READ is issued where one is needed."""
        landed = not self._fetcher.reading
        if self._wanted:
            if landed:
                self._fetch()
            return EMPTY
        verdict = int(self._landing.poll())
        self._wanted = verdict == TAKEN or landed
        return verdict

    def take_all(self, messages: list[bytes], limit: int, most_owed: int) -> int:
        """As `Inbox.take_all`."""
        verdict = TAKEN
        while len(messages) < limit and self.owed() < most_owed:
            verdict = self.poll()
            if verdict != TAKEN or self.opener.kind != DATA:
                break
            messages.append(self.opener.message)
        return verdict

    def _fetch(self) -> None:
        with deferred_signals.section():  # what is not wanted any more is under way
            self._wanted = False
            self.reads += 1
            self._fetcher.read((self.next_sequence - 1) % self._slots * self._slot_bytes)

    def owed(self) -> int:
        """As `Inbox.owed`."""
        return int(self._landing.owed())

    def seal_credit(self) -> int:
        """As `Inbox.seal_credit`."""
        return int(self._landing.seal_credit())
