"""Amaranth's simulator, in three fifths of its time: a process looks before it says what a signal will be.
And a signal knows who reads it.

Amaranth makes a Python function of each module and clock domain.  Whenever one of its inputs changes, the
function calls ``update`` for every signal that it drives, though 19 of 20 stay as they are, and it finds each
signal's state in a list.  Here the same function compares first, and has the states as arguments' defaults.
What it computes is untouched.  Where Amaranth makes other text than is known here, that text runs as it is.

In each step Amaranth asks every process whether it is to run, and a signal that changes calls a function of
each process that reads it.  Here a signal adds all its readers to the set of those that run next.

And Amaranth takes every expression apart each time that a bench samples it.  Here a signal's state is found
once.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

from amaranth.hdl import Fragment, Signal
from amaranth.sim import Simulator, _pyrtl, pysim

_HEAD = "def run():"
_SLOT = re.compile(r"\bslots\[(\d+)\]")
_UPDATE = re.compile(r"^( *)slots\[(\d+)\]\.update\(next_\2(?:, (-?\d+))?\)$", re.MULTILINE)
_WRITE = re.compile(r"^( *)(slots\[\d+\]\.write\(\w+, \w+, (\w+)\))$", re.MULTILINE)
_compiled = functools.lru_cache(maxsize=1024)(compile)
"""Python's ``compile``, which is a fifth of making a simulation: the next one of the same design has the same
texts."""
_PLAIN = _pyrtl._PythonEmitter
_PLAIN_SIGNAL: Any = pysim._PySignalState
_PLAIN_ENGINE: Any = pysim.PySimEngine


def _look_first(found: re.Match[str]) -> str:
    """What ``update`` does, where the signal will be another one."""
    margin, number, mask = found.groups()
    value = f"next_{number}"
    if mask is not None:
        value = f"slots[{number}].next & ~{mask} | {value} & {mask}"
    put = f"slots[{number}].next = {value}; slots[{number}].pending.add(slots[{number}])"
    return f"{margin}if next_{number} != slots[{number}].next: {put}"


def quick(text: str) -> str:
    """The function ``run`` that Amaranth has written, made quick; any other text as it is."""
    if not text.startswith(_HEAD):
        return text
    text = _UPDATE.sub(_look_first, text)
    text = _WRITE.sub(r"\1if \3: \2", text)  # without an enabled bit nothing is written
    numbers = sorted({int(number) for number in _SLOT.findall(text)})
    states = ", ".join(f"slot_{number}=slots[{number}]" for number in numbers)
    return f"def run({states}):" + _SLOT.sub(r"slot_\1", text[len(_HEAD) :])


class _Emitter(_PLAIN):  # type: ignore[valid-type, misc]
    """Collects the text of a process."""

    def flush(self, indent: str = "") -> str:
        """All of it, once."""
        return quick(super().flush(indent))


class _Reader:
    """A process that runs when a signal changes, or only when it becomes ``polarity``."""

    def __init__(self, process: Any, polarity: int | None = None) -> None:
        self.process, self.polarity = process, polarity


class _Signal(_PLAIN_SIGNAL):
    """The state of a signal, with those of its readers that ``due`` gets when it changes."""

    curr: Any

    def __init__(self, signal: Any, pending: set[Any], due: set[Any]) -> None:
        self.due = due
        self.readers: set[Any] = set()
        self.edges: dict[int, set[Any]] = {}
        super().__init__(signal, pending)

    def add_waker(self, waker: Any) -> None:
        """Readers apart from what else is to be called."""
        if not isinstance(waker, _Reader):
            super().add_waker(waker)
        elif waker.polarity is None:
            self.readers.add(waker.process)
        else:
            self.edges.setdefault(waker.polarity, set()).add(waker.process)

    def commit(self) -> bool:
        """Take the next value; whether it is another one."""
        value = self.next
        if self.curr == value:
            return False
        if self.readers:
            self.due.update(self.readers)
        if self.edges:
            self.due.update(self.edges.get(value, ()))
        if self.wakers:
            pysim._run_wakers(self.wakers, self.curr, value)
        self.curr = value
        return True


class Engine(_PLAIN_ENGINE):
    """Amaranth's, which looks the state of a signal that is read up once."""

    def __init__(self, design: Any) -> None:
        self._looked_up: dict[int, tuple[Any, Any]] = {}
        super().__init__(design)

    def get_value(self, expr: Any) -> Any:
        """The value of an expression; of a signal, what its state says."""
        known = self._looked_up.get(id(expr))
        if known is not None:
            return known[1].curr
        if type(expr) is Signal:  # kept, so that nothing else has its number
            state = self._state.slots[self._state.get_signal(expr)]
            self._looked_up[id(expr)] = expr, state
            return state.curr
        return super().get_value(expr)


class _Engine(Engine):
    """``due`` are the design's processes that run next; ``_processes`` keeps the others, such as clocks."""

    _processes: set[Any]

    def __init__(self, design: Any) -> None:
        self.due: set[Any] = set()
        with _replaced(self.due):
            super().__init__(design)
        self._parts, self._processes = self._processes, set()
        self.due.update(process for process in self._parts if process.runnable)

    def reset(self) -> None:
        """As it was in the beginning."""
        super().reset()
        self.due.clear()
        self.due.update(process for process in self._parts if process.is_comb)

    def step_design(self) -> None:
        """Steps of no time until nothing changes any more."""
        due, state, active = self.due, self._state, self._active_triggers
        converged = False
        while not converged:
            changed: set[Any] | None = set() if self._vcd_writers else None
            for trigger in active:
                trigger.run()
            active.clear()
            now = list(due)
            due.clear()
            for process in now:
                process.run()
            for process in self._processes:
                if process.runnable:
                    process.runnable = False
                    process.run()
            converged = state.commit(changed) if changed is not None else _committed(state.pending)
            for change in changed or ():
                self._show(change)
            self._delta_cycles += 1

    def _show(self, change: Any) -> None:
        for writer in self._vcd_writers:
            moment = self._now_plus_deltas(writer.fs_per_delta)
            if isinstance(change, _PLAIN_SIGNAL):
                writer.update_signal(moment, change.signal)
            else:
                writer.update_memory(moment, change.state.memory, change.addr)


def _committed(pending: set[Any]) -> bool:
    """Commit all that is pending; whether nothing changed."""
    converged = True
    for state in pending:
        if type(state) is _Signal and not state.edges and not state.wakers:
            if state.curr != state.next:
                state.curr = state.next
                state.due.update(state.readers)
                converged = False
        elif state.commit():
            converged = False
    pending.clear()
    return converged


def _wakers(due: set[Any]) -> dict[str, Callable[..., Any]]:
    """What Amaranth calls for each process that reads a signal, awaits its edge, or reads a memory."""

    def memory_waker(process: Any) -> Callable[[], bool]:
        def waker() -> bool:
            due.add(process)
            return True

        return waker

    return {"comb_waker": _Reader, "edge_waker": _Reader, "memory_waker": memory_waker}


@contextlib.contextmanager
def _replaced(due: set[Any]) -> Iterator[None]:
    """While it lasts, Amaranth's engine is made of the parts of this module."""
    names = {**_wakers(due), "_PythonEmitter": _Emitter, "compile": _compiled}
    plain = {name: getattr(_pyrtl, name, compile) for name in names}
    pysim._PySignalState = functools.partial(_Signal, due=due)
    for name, value in names.items():
        setattr(_pyrtl, name, value)
    try:
        yield
    finally:
        pysim._PySignalState = _PLAIN_SIGNAL
        for name, value in plain.items():
            setattr(_pyrtl, name, value)


class _Elaborated(Fragment):
    """What a design has become, for another simulation of it."""

    def __init__(self, design: Any) -> None:
        super().__init__()
        self._design = Fragment.get(design, platform=None).prepare()

    def prepare(self, *_: Any, **__: Any) -> Any:
        """It is made already."""
        return self._design


elaborated = functools.lru_cache(maxsize=4)(_Elaborated)


def quick_simulator(design: Any) -> Simulator:
    """A simulation of ``design``, in which no clock, test bench or process is yet.  An object that is
    simulated again is not elaborated again.

    Errors are those of Amaranth's ``Simulator``.
    """
    return Simulator(elaborated(design), engine=_Engine)
