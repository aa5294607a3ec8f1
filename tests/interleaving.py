"""Two threads, the one stopped at every line in turn while the other runs: races found without luck."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from machine_speed import limit_s

LIMIT_S = limit_s(60.0)
"""Nothing here depends on it: what takes so long hangs."""


class Second:
    """A call in a thread of its own; `run` returns when it is over, or waits for a lock."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.result: Any = None
        self.stands = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.result = outcome(self.call)
        finally:
            self.stands.set()

    def run(self) -> None:
        self.thread.start()
        assert self.stands.wait(LIMIT_S), "the second thread hangs"


class WatchedLock:
    """A lock that tells of a thread that has to wait for it."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.second: Second | None = None

    def acquire(self) -> bool:
        if self._lock.acquire(blocking=False):
            return True
        if self.second is not None and threading.current_thread() is self.second.thread:
            self.second.stands.set()
        return bool(self._lock.acquire())

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> WatchedLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or the exception that it raises."""
    try:
        return call()
    except Exception as error:
        return error


def at_every_line(
    files: tuple[str, ...], make: Callable[[], tuple[Callable[[], Any], Callable[[], Any], list[WatchedLock]]]
) -> Iterator[tuple[Any, Any]]:
    """The outcomes of the first and the second call of ``make()``, once for each line of ``files`` (ends of
    their names) that the first comes to: there it stands still until the second is over, or waits for one of
    the locks.
    """
    line = 0
    while True:
        line += 1
        first, call, locks = make()
        second = Second(call)
        for lock in locks:
            lock.second = second
        count = 0

        def trace(frame: FrameType, event: str, _: Any, line: int = line, second: Second = second) -> Any:
            nonlocal count
            if event == "call":
                return trace if frame.f_code.co_filename.endswith(files) else None
            if event == "line":
                count += 1
                if count == line:
                    second.run()
            return trace

        found = []

        def run(first: Callable[[], Any] = first, found: list[Any] = found, trace: Any = trace) -> None:
            sys.settrace(trace)
            try:
                found.append(outcome(first))
            finally:
                sys.settrace(None)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(LIMIT_S)
        assert found, "the first thread hangs"
        if count < line:
            assert line > 1, "the first call came to no line"
            return
        second.thread.join(LIMIT_S)
        assert not second.thread.is_alive(), "the second thread hangs"
        yield found[0], second.result
