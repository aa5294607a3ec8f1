"""Sections of the main thread that no signal handler of the program interrupts.

Python runs the program's handlers in the main thread, between any two steps of Python code, and what such a
handler raises (KeyboardInterrupt, for one) comes out of the step that it interrupted.  Code that must come to
its end, as an engine's turn or the making of something that has to be ended, is a section between `begin` and
`end`: what comes within it is handled behind it, at once.  A section is short; who may wait for another
process within one does so between `pause` and `go_on`.

How it works.  The interpreter has one handler in C of its own for all signals; it notes the number and
returns.  Ours is put before it, wherever it stands alone: within a section of the main thread it keeps the
number for `end`, and else it calls the interpreter's.  Nothing else of a signal's disposition changes, and
signals that are handled by anything but Python are left alone.  Whether the program has set a handler
meanwhile is looked for with the first section of every tick of the kernel (4 ms).  What Python had been told
of before a section is handled at its beginning.

Interpreted there are no such sections: `begin` and `end` do nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cython

if TYPE_CHECKING:
    def thread_ident() -> int:
        """This thread's, by the .pxd."""

    def signals_begin() -> int:
        """The .pxd's, as all of these."""

    def signals_end() -> None: ...
    def signals_look_again() -> None: ...
    def signals_forked(within: int) -> None: ...
    def signals_free(number: int) -> int: ...
    def signals_learn(number: int) -> None: ...
    def signals_known() -> int: ...
    def signals_put_before() -> int: ...
    def signals_look_is_due(look_ns: int) -> int: ...
    def PyErr_CheckSignals() -> int: ...

__all__ = ["begin", "end", "finalizer", "go_on", "look_for_handlers", "pause", "section", "waiting", "within"]

LOOK_NS = cython.declare(cython.ulonglong, 1_000_000)  # between two looks, of 16 system calls each

main_thread = threading.main_thread().ident or 0
depth = 0


def begin() -> bool:
    """Begin a section, if this is the main thread; whether it is.  May be called again within one.

    First the program's handlers run for what has come before; what they raise is raised, and no section has
    begun then.
    """
    global depth
    if not cython.compiled or thread_ident() != main_thread:
        return False
    if depth == 0:
        if signals_look_is_due(LOOK_NS):
            look_for_handlers()
        while signals_begin():
            _handle()
    depth += 1
    return True


def end() -> None:
    """End what `begin` of this thread has begun; a signal that has come meanwhile is handled as soon as
    Python code goes on."""
    global depth
    if not cython.compiled or thread_ident() != main_thread or depth == 0:
        return
    depth -= 1
    if depth == 0:
        signals_end()


def within() -> bool:
    """Whether this thread is within a section."""
    return cython.compiled and depth > 0 and thread_ident() == main_thread


def pause() -> int:
    """Let signals through, to wait within a section of this thread: what to call `go_on` with afterwards.

    What has come is handled at once.  Where a handler raises here the section has ended, and the `end` that
    is still to come does nothing.
    """
    global depth
    if not cython.compiled or thread_ident() != main_thread or depth == 0:
        return 0
    before = depth
    depth = 0
    signals_end()
    _handle()  # a call that waits might not look before
    return before


def go_on(before: int) -> None:
    """Go on with the section that `pause` has left; what a handler raises first is raised, as by `begin`."""
    global depth
    if before > 0:
        while signals_begin():
            _handle()
        depth = before


def _handle() -> None:
    """Run the program's handlers for what has come."""
    try:
        PyErr_CheckSignals()
    except BaseException:  # of the first one's handler: others may have come
        signals_look_again()
        raise


def finalizer(close: Callable[[Any], object]) -> Callable[[Any], object]:
    """What to make a class's ``__del__``: ``close(thing)`` in a section, since out of a finalizer nothing
    comes, and what a handler raised within it would leave the thing half closed.

    Where a handler has to run before, what it raises is told as all that finalizers raise, and the thing is
    closed.
    """

    if not cython.compiled:
        return close

    def finalize(thing: Any) -> None:
        if thread_ident() != main_thread or depth > 0:
            close(thing)
        else:
            _finalize(close, thing)

    return finalize


def _finalize(close: Callable[[Any], object], thing: Any) -> None:
    """`finalizer`'s, in the main thread and no section.  A function of C: names of modules may have gone."""
    global depth
    raised: BaseException | None = None
    while signals_begin():
        try:
            _handle()
        except BaseException as error:
            raised = error
    depth += 1
    try:
        close(thing)
    finally:
        end()
    if raised is not None:
        raise raised


class section:
    """A section as a context manager, for code that is not compiled."""

    def __enter__(self) -> None:
        begin()

    def __exit__(self, *error: object) -> None:
        end()


class waiting:
    """Within a section, as a context manager: signals come through, as between `pause` and `go_on`."""

    def __enter__(self) -> None:
        self._paused = pause()

    def __exit__(self, *error: object) -> None:
        go_on(self._paused)


def look_for_handlers() -> int:
    """Be asked first for all signals that Python handles by now; how many more there are."""
    if not cython.compiled:
        return 0
    if not signals_known():
        _learn()
    return signals_put_before() if signals_known() else 0


def _learn() -> None:
    """Find the interpreter's own handler, by a signal that nobody uses; the main thread alone can."""
    for number in range(signal.SIGRTMAX, signal.SIGRTMIN, -1):
        if signal.getsignal(number) is not signal.SIG_DFL or not signals_free(number):
            continue
        try:
            signal.signal(number, _ignore)
        except ValueError:  # another thread, or a subinterpreter's
            return
        signals_learn(number)
        signal.signal(number, signal.SIG_DFL)
        return


def _ignore(number: int, frame: object) -> None:
    """Nobody sends it."""


def _in_child() -> None:
    """The thread that has forked is the child's main thread."""
    global main_thread, depth
    if not cython.compiled:
        return
    if main_thread != thread_ident():
        main_thread = thread_ident()
        depth = 0
    signals_forked(depth)


os.register_at_fork(after_in_child=_in_child)
