"""Many writers to one reader: a ring each, polled in turn."""

from __future__ import annotations

from collections.abc import Iterable

from softhca.mailbox.box import Mailbox
from softhca.mailbox.errors import MailboxError


class MailboxSet:
    """The reader's ends of many pairs, on one context or several.

    Each has its own ring, keys and nonce: what one writer does delays the others by a poll.  A mailbox whose
    connection is lost is put into ``lost``, with the reason, and not polled any more.
    """

    def __init__(self, boxes: Iterable[Mailbox] = ()) -> None:
        self._boxes: list[Mailbox] = []
        self._next = 0
        self.lost: dict[Mailbox, MailboxError] = {}
        for box in boxes:
            self.add(box)

    @property
    def boxes(self) -> tuple[Mailbox, ...]:
        """The mailboxes that are polled."""
        return tuple(self._boxes)

    def add(self, box: Mailbox) -> None:
        """Poll ``box``, too, which has joined its writer."""
        self._boxes.append(box)

    def remove(self, box: Mailbox) -> None:
        """Do not poll ``box`` any more; it stays open.  ValueError when it is not here."""
        at = self._boxes.index(box)
        del self._boxes[at]
        self._next -= at < self._next

    def try_receive(self) -> tuple[Mailbox, bytes] | None:
        """The next message and the mailbox that it came by, or None when no one has any.

        Each mailbox has its turn: after a message from one, all others are polled before it.
        """
        for context in {box.context: None for box in self._boxes}:
            context.progress()
        for _ in range(len(self._boxes)):
            self._next %= len(self._boxes)
            box = self._boxes[self._next]
            try:
                message = box.take()
            except MailboxError as error:
                self.lost[box] = error
                self.remove(box)
                continue
            self._next += 1
            if message is not None:
                return box, message
        return None
