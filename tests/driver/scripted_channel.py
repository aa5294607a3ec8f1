"""Channels whose adapter is a script: it answers commands as a test says, and writes events and entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softhca.driver.channels import HostChannel
from softhca.driver.connections import CmEvent
from softhca.driver.errors import DriverError
from softhca.driver.events import EventRouter
from softhca.driver.session import Session
from softhca.memory.host import HostMemory
from softhca.queues.control import Command


class ScriptedChannel(HostChannel):
    """``answer`` is given each command and says the fields of its reply; DriverError: it is refused so, None:
    it is not answered.  ``on_wait`` is what happens while somebody waits; ``noted``: what was asked.
    """

    def __init__(self) -> None:
        super().__init__(HostMemory(1 << 26))
        self.living = True
        self.wakes = False
        self.asked: list[Command] = []
        self.noted: list[str] = []
        self.answer: Callable[[Command], Any] = lambda command: {}
        self.on_wait: list[Callable[[], object]] = []

    @property
    def alive(self) -> bool:
        return self.living

    def kick(self) -> None:
        while (command := self.commands.take()) is not None:
            self.asked.append(command)
            self.reply(command)

    def reply(self, command: Command) -> None:
        try:
            fields = self.answer(command)
        except DriverError as error:
            self.replies.send(command.tag, command.command, error.errno, None, error.message)
            return
        if fields is not None:
            self.replies.send(command.tag, command.command, 0, fields)

    def progress(self) -> bool:
        self.noted.append("progress")
        return False

    def wait(self, ready: Callable[[], bool], timeout_s: float | None) -> bool:
        self.noted.append(f"wait {timeout_s}")
        while not ready():
            if not self.on_wait:
                return False
            self.on_wait.pop(0)()
        return True

    def wake_waiters(self) -> None:
        self.noted.append("wake")


class ScriptedCmChannel:
    """In place of a `CmChannel`; its device has it as ``channel``.  Each command is taken down in ``sent``,
    with its arguments, and gives a new number, or is refused with the errno ``refusal``.  What has come is
    put there by `queue_event`, or into ``come``, of which nobody is told.
    """

    def __init__(self, device: Any, port: int, entries: int, on_event: Callable[[], object]) -> None:
        self.device, self.on_event = device, on_event
        self.come: list[CmEvent] = []
        self.sent: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.refusal = 0
        device.channel = self

    @property
    def idle(self) -> bool:
        return not self.come

    def receive(self, timeout_s: float | None) -> CmEvent:
        return self.come.pop(0)

    def queue_event(self, *found: CmEvent) -> None:
        self.come += found
        self.on_event()

    def __getattr__(self, name: str) -> Callable[..., int]:
        def command(*arguments: Any, **options: Any) -> int:
            self.sent.append((name, arguments, options))
            if self.refusal:
                raise DriverError(self.refusal, "refused")
            return len(self.sent) + 100

        return command


class ScriptedDriver:
    """What the handles of objects need of an open device."""

    def __init__(self) -> None:
        self.channel = ScriptedChannel()
        self.session = Session(self.channel)
        self.failed: list[int] = []
        self.events = EventRouter(self.channel, self.session, self.failed.append)

    def queue_pair_failed(self, number: int) -> None:
        self.failed.append(number)

    def free_pages(self) -> int:
        """Pages of the host's memory that nobody has."""
        return self.channel.memory.free_pages

    def close(self) -> None:
        self.events.clear()
        self.channel.memory.close()
