"""Mailboxes for asyncio.

A message causes no event on its target, so whoever waits polls again: at first after each turn of the event
loop, then in pauses that double up to a limit.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

from softhca.mailbox.box import Mailbox
from softhca.mailbox.conditions import Condition
from softhca.mailbox.requests import Outcome

TURNS = 200
"""So many polls before the first pause."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 20e-6, 1e-3

_Found = TypeVar("_Found")


class AsyncMailbox:
    """``box``, whose waiting is done by the running event loop; one task may send while another receives."""

    def __init__(self, box: Mailbox) -> None:
        self.box = box

    async def send(self, *parts: Any) -> int:
        """As `Mailbox.send`."""
        return await self._until(lambda: self._sent(parts))

    def _sent(self, parts: tuple[Any, ...]) -> int | None:
        number = self.box.try_send(*parts)
        if not number:
            self.box.poll()
        return number or None

    async def send_many(self, messages: Sequence[Any]) -> None:
        """As `Mailbox.send_many`."""
        done = self.box.try_send_many(messages)
        while done < len(messages):
            done += await self._until(functools.partial(self._sent_many, messages, done))

    def _sent_many(self, messages: Sequence[Any], start: int) -> int | None:
        count = self.box.try_send_many(messages, start)
        if not count:
            self.box.poll()
        return count or None

    async def receive(self) -> bytes:
        """As `Mailbox.receive`; cancelling it loses no message."""
        return await self._until(self.box.try_receive)

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The messages, one after the other, without an end."""
        return self._messages()

    async def _messages(self) -> AsyncIterator[bytes]:
        while True:
            yield await self.receive()

    async def request(
        self, action: str, argument: bytes, condition: Condition, deadline_s: float = 0.0
    ) -> int:
        """As `Mailbox.request`."""
        return await self._until(lambda: self._requested(action, argument, condition, deadline_s))

    def _requested(self, action: str, argument: bytes, condition: Condition, deadline_s: float) -> int | None:
        number = self.box.try_request(action, argument, condition, deadline_s)
        if not number:
            self.box.poll()
        return number or None

    async def outcome(self, number: int) -> Outcome:
        """What became of request ``number``.  Another task must receive meanwhile: outcomes stand among
        messages.
        """
        return await self._until(lambda: self.box.outcome(number))

    async def _until(self, attempt: Callable[[], _Found | None]) -> _Found:
        turns, pause_s = 0, FIRST_PAUSE_S
        while (found := attempt()) is None:
            turns += 1
            if turns <= TURNS:
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return found
