"""Where a datagram finds no room at its peer: who waits, who is told so, and for how long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from softhca.sockets.datagram_credits import SendCredit
from softhca.sockets.datagram_port import PeerPath
from softhca.sockets.hub import HUB

if TYPE_CHECKING:
    from softhca.sockets.datagrams import DatagramEnd


class PeerRoom:
    """Of one end: what its peers have room for."""

    def __init__(self, end: DatagramEnd) -> None:
        self._end = end
        self._refused: list[SendCredit] = []

    @property
    def missing(self) -> bool:
        """Whether a send that was not to wait was refused, and would be still.  With the end's lock."""
        if self._refused:
            now_ns = time.monotonic_ns()
            self._refused = [each for each in self._refused if each.stalled(now_ns)]
        return bool(self._refused)

    def at(self, way: PeerPath, messages: int, deadline_s: float | None, blocking: bool) -> bool:
        """Whether a datagram of so many messages may go that way: its peer has room for it, or was waited for
        as long as the program allows.  False where that would take a wait that is not wanted.
        """
        end, credit = self._end, way.credit

        def may_send() -> bool:
            return credit.may_send(messages, time.monotonic_ns()) or way.port.failed

        with end._guard:
            if may_send():
                return True
            end._pump()
            if may_send():
                return True
            limit_s = credit.until_ns / 1e9
            if not blocking:
                if credit not in self._refused:
                    self._refused.append(credit)
                    HUB.after(max(limit_s - time.monotonic(), 0.0), self._look)
                end._changed()
                return False
        if not end.wait(may_send, limit_s if deadline_s is None else min(limit_s, deadline_s)):
            with end._guard:
                if not credit.free:
                    credit.give_up()
        return True

    def _look(self) -> None:
        """The hub: somebody has waited for as long as is allowed."""
        end = self._end
        with end._guard:
            if end.closed or not self.missing:
                end._changed()
            else:
                until_ns = min(each.until_ns for each in self._refused)
                HUB.after(max(until_ns - time.monotonic_ns(), 0) / 1e9, self._look)
        end._wake()
