"""Registrations in epolls follow a number that is going to stand for another descriptor.

An epoll has the file, not the number: who registers a number whose meaning changes would wait for the file
that it stood for before.  The kernel lists the registrations of this process's epolls (proc(5), ``tfd`` lines
of ``/proc/self/fdinfo``).
"""

from __future__ import annotations

import contextlib
import os
import re
import select
from collections.abc import Callable, Iterator

_LINE = re.compile(r"tfd:\s*(\d+) events:\s*([0-9a-f]+) data:\s*([0-9a-f]+)(?:.* ino:([0-9a-f]+))?")
_EPOLL = "anon_inode:[eventpoll]"
_WORD = 0xFFFFFFFF


def follow(number: int, change: Callable[[], object], asked: Callable[[], bool] = lambda: True) -> bool:
    """``change`` what ``number`` stands for, and register it anew wherever it was registered, for the same
    events; ``asked`` tells whether anybody can have registered it.  The registrations of before end when
    nothing refers to that file any more, which is open elsewhere meanwhile.  False where some may be left:
    they cannot be listed, or were not made by Python, which names a descriptor by its number.
    """
    inode = os.fstat(number).st_ino
    found, complete = _of_python(number, inode) if asked() else ([], True)
    change()
    complete = _register(number, found) and complete
    if asked():  # what was registered while others were listed
        since, whole = _of_python(number, inode)
        complete = _register(number, [each for each in since if each not in found]) and whole and complete
    return complete


def _of_python(number: int, inode: int) -> tuple[list[tuple[int, int]], bool]:
    """Epolls and events of ``number`` as it stands, or has stood, for the file, and whether these are all."""
    found, complete = [], True
    try:
        for epoll, events, data, of in _registrations(number):
            if of not in (None, inode):
                continue
            if data & _WORD == number:
                found.append((epoll, events))
            else:
                complete = False
    except OSError:
        complete = False
    return found, complete


def _register(number: int, places: list[tuple[int, int]]) -> bool:
    complete = True
    for epoll, events in places:
        try:
            with select.epoll.fromfd(os.dup(epoll)) as again, contextlib.suppress(FileExistsError):
                again.register(number, events)
        except OSError:
            complete = False
    return complete


def _registrations(number: int) -> Iterator[tuple[int, int, int, int | None]]:
    """Epolls that have ``number``: their own number, the events, the data, and the file's inode where the
    kernel says it.  OSError.
    """
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(f"/proc/self/fd/{name}") != _EPOLL:
                continue
            with open(f"/proc/self/fdinfo/{name}", encoding="ascii") as lines:
                text = lines.read()
            for target, events, data, inode in _LINE.findall(text):
                if int(target) == number:
                    yield int(name), int(events, 16), int(data, 16), int(inode, 16) if inode else None
