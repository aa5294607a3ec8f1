"""Amaranth's simulator with the design's processes in C, in a tenth of the time: for designs of many thousand
gates that run for thousands of clocks.

The texts that Amaranth writes for its processes become C (`softhca.hardware.gates_in_c`), which the machine's
compiler translates without optimising: a second for the assembled adapter.  What signals and memories are is
kept there (``native_simulator.c``), and steps in which Python has nothing to do are made there.  Clocks, test
benches and triggers are Amaranth's own, in the same order.  Nothing stays on the disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from amaranth.hdl import Shape
from amaranth.sim import Simulator, _pyrtl, pysim

from softhca.hardware.gates_in_c import Translator, Untranslatable
from softhca.hardware.quick_simulator import Engine, elaborated, quick_simulator

_EMITTER: Any = _pyrtl._PythonEmitter
COMPILERS = ("cc", "gcc")
OPTIONS = ("-O0", "-w", "-fPIC", "-shared")
_WORD = (1 << 64) - 1


def compiler() -> str | None:
    """The C compiler's path, None where there is none."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def simulator_of(design: Any) -> Simulator:
    """A simulation of ``design``, in which no clock, test bench or process is yet: in C where a compiler is
    and the design is of what can be said there, in Python otherwise.

    Errors are those of Amaranth's ``Simulator``.
    """
    if compiler() is not None:
        with contextlib.suppress(Untranslatable, subprocess.CalledProcessError):
            return Simulator(elaborated(design), engine=_Engine)
    return quick_simulator(design)


class _Slot:
    """What is read when the processes are made: who reads this, and at which edge."""

    def __init__(self, pending: set[Any]) -> None:
        self.pending = pending
        self.is_comb = False
        self.readers: dict[int | None, list[Any]] = {None: [], 0: [], 1: []}
        self.wakers: list[Any] = []
        self.gates: Any = None
        self.number = 0

    def place(self, gates: _Gates, number: int) -> None:
        """From now on its value is there."""
        self.gates, self.number = gates, number

    def add_waker(self, waker: Any) -> None:
        """A process of the design, or what Amaranth calls when this changes."""
        if isinstance(waker, _Reader):
            self.readers[waker.polarity].append(waker.process)
        else:
            self.wakers.append(waker)
            self.gates.watched[self.number] = 1

    def reset(self) -> None:
        """`_Gates.begin` is for all."""

    def copy(self, pending: set[Any]) -> _Slot:
        """The same of another simulation."""
        raise NotImplementedError


class _Signal(_Slot):
    """The state of a signal."""

    def __init__(self, signal: Any, pending: set[Any]) -> None:
        super().__init__(pending)
        self.signal = signal
        self.wide = len(signal) > 63

    def copy(self, pending: set[Any]) -> _Signal:
        """The same of another simulation."""
        made = _Signal(self.signal, pending)
        made.is_comb = self.is_comb
        return made

    @property
    def curr(self) -> int:
        """What it is."""
        return self._of(self.gates.current)

    @property
    def next(self) -> int:
        """What it will be in the next step."""
        return self._of(self.gates.following)

    def _of(self, words: Any) -> int:
        low = words[2 * self.number]
        if self.wide:
            return int(words[2 * self.number + 1] << 64 | low & _WORD)
        return int(low)

    def update(self, value: int, mask: int = ~0) -> None:
        """Let it be ``value`` in the next step."""
        value = self.next & ~mask | int(value) & mask
        self.gates.code.set_words(self.gates.pointer, self.number, value & _WORD, value >> 64)

    def wake(self) -> None:
        """Call who waits for a change, which has happened."""
        pysim._run_wakers(self.wakers, self._of(self.gates.previous), self.curr)
        self.gates.watched[self.number] = bool(self.wakers)


class _Memory(_Slot):
    """The state of a memory."""

    def __init__(self, memory: Any, pending: set[Any]) -> None:
        super().__init__(pending)
        self.memory = memory
        self.shape = Shape.cast(memory.shape)
        self.rows: Any = None
        if self.shape.signed:
            raise Untranslatable("a memory of numbers with a sign")

    def copy(self, pending: set[Any]) -> _Memory:
        """The same of another simulation."""
        return _Memory(self.memory, pending)

    def place(self, gates: _Gates, number: int) -> None:
        """As for all."""
        super().place(gates, number)
        self.rows = gates.rows_of(number, self.memory.depth)

    def reset(self) -> None:
        """As it is in the beginning."""
        for row, value in enumerate(self.memory._init._raw):
            self.rows[2 * row], self.rows[2 * row + 1] = _signed(value & _WORD), value >> 64

    def read(self, row: int) -> int:
        """A row's value; 0 where there is none."""
        if not 0 <= row < self.memory.depth:
            return 0
        return int(self.rows[2 * row + 1] << 64 | self.rows[2 * row] & _WORD)

    def write(self, row: int, value: int, mask: int | None = None) -> None:
        """Let the bits of ``mask`` be those of ``value`` in the next step."""
        if 0 <= row < self.memory.depth:
            if mask is None:
                mask = (1 << self.shape.width) - 1
            words = [part for number in (value & mask, mask) for part in (number & _WORD, number >> 64)]
            self.gates.code.write_words(self.gates.pointer, self.number, row, (ctypes.c_uint64 * 4)(*words))


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


class _Reader:
    """A process that runs when a signal changes, or only when it becomes ``polarity``."""

    def __init__(self, process: Any, polarity: int | None = None) -> None:
        self.process, self.polarity = process, polarity


class _Gates:
    """The states of one simulation, in the library ``code``.  ``current``, ``following``, ``previous``: words
    of 64 bits, two a signal."""

    def __init__(self, code: ctypes.CDLL, slots: Sequence[Any]) -> None:
        self.code, self.slots = code, slots
        self.pointer = ctypes.c_void_p(code.new_gates())
        if not self.pointer:
            raise MemoryError
        self._finish = weakref.finalize(self, code.finish, self.pointer)
        count = len(slots)
        self.current = self._words("current", 2 * count)
        self.following = self._words("following", 2 * count)
        self.previous = self._words("previous", 2 * count)
        self.watched = self._view(code.watched(self.pointer), ctypes.c_byte * count, "b")
        self.hits = self._view(code.hits(self.pointer), ctypes.c_int * count, "i")
        self.changed = self._view(code.changed(self.pointer), ctypes.c_int * count, "i")
        rows = sum(slot.memory.depth for slot in slots if isinstance(slot, _Memory))
        self.rows_changed = self._view(code.rows_changed(self.pointer), ctypes.c_int * (2 * rows + 2), "i")
        for number, slot in enumerate(slots):
            slot.place(self, number)
        self.begin()

    @staticmethod
    def _view(address: int, kind: Any, letter: str) -> memoryview:
        return memoryview(kind.from_address(address)).cast("B").cast(letter)  # type: ignore[call-overload]

    def _words(self, name: str, count: int) -> memoryview:
        return self._view(getattr(self.code, name)(self.pointer), ctypes.c_int64 * count, "q")

    def rows_of(self, slot: int, depth: int) -> memoryview:
        """The words of a memory, two a row."""
        return self._view(self.code.rows_of(self.pointer, slot), ctypes.c_int64 * (2 * depth), "q")

    def begin(self) -> None:
        """All as it is in the beginning."""
        self.code.begin(self.pointer)
        for slot in self.slots:
            slot.reset()


class _Engine(Engine):
    """Amaranth's, but that the design's processes are in C; ``_processes`` keeps others, such as clocks."""

    _processes: set[Any]

    def __init__(self, design: Any) -> None:
        plan = _plan(design)
        with _replaced([(pysim, "_FragmentCompiler", plan.begun)]):
            super().__init__(design)
        self._gates = _Gates(plan.code, list(self._state.slots))

    def reset(self) -> None:
        """As it was in the beginning."""
        super().reset()
        self._gates.begin()

    def step_design(self) -> None:
        """Steps of no time until nothing changes any more."""
        gates, state, active = self._gates, self._state, self._active_triggers
        run, count_hits, pointer = gates.code.run, gates.code.hit_count, gates.pointer
        converged = False
        while not converged:
            for trigger in active:
                trigger.run()
            active.clear()
            for process in self._processes:
                if process.runnable:
                    process.runnable = False
                    process.run()
            converged = not run(pointer, bool(self._vcd_writers or state.pending))
            for number in gates.hits[: count_hits(pointer)]:
                gates.slots[number].wake()
            if self._vcd_writers:
                self._show()
            if state.pending:  # signals that only a test bench has
                converged = state.commit(None) and converged
            self._delta_cycles += 1

    def _show(self) -> None:
        gates = self._gates
        numbers = gates.changed[: gates.code.changed_count(gates.pointer)]
        pairs = gates.rows_changed[: 2 * gates.code.row_count(gates.pointer)]
        for writer in self._vcd_writers:
            moment = self._now_plus_deltas(writer.fs_per_delta)
            for number in numbers:
                writer.update_signal(moment, gates.slots[number].signal)
            for number, row in zip(pairs[::2], pairs[1::2], strict=True):
                writer.update_memory(moment, gates.slots[number].memory, row)
            for other in self._state.pending:
                writer.update_signal(moment, other.signal)


class _Plan:
    """What all simulations of a design share: its slots as they are in the beginning, and its ``code``."""

    def __init__(self, design: Any) -> None:
        texts: list[str] = []
        self._state = pysim._PyEngineState()
        with _replaced(_places(texts)):
            processes = _pyrtl._FragmentCompiler(self._state)(design.fragment)
        self.code = _library(_source(texts, self._state.slots, processes))

    def begun(self, state: Any) -> Any:
        """In the place of Amaranth's compiler: gives ``state`` the slots, and the engine no process."""
        state.signals.update(self._state.signals)
        state.memories.update(self._state.memories)
        state.slots.extend(slot.copy(state.pending) for slot in self._state.slots)
        return lambda fragment: set()


_plan = functools.lru_cache(maxsize=4)(_Plan)


def _places(texts: list[str]) -> list[tuple[Any, str, Any]]:
    """What takes the place of what in Amaranth's modules, so that what it writes for its processes goes to
    ``texts``, each process is the number of its text, and slots are those of this module."""

    class Emitter(_EMITTER):
        def flush(self, indent: str = "") -> str:
            texts.append(super().flush(indent))
            return f"run = {len(texts) - 1}"

    def memory_waker(process: Any) -> _Reader:
        return _Reader(process)

    return [
        (_pyrtl, "_PythonEmitter", Emitter),
        (_pyrtl, "comb_waker", _Reader),
        (_pyrtl, "edge_waker", _Reader),
        (_pyrtl, "memory_waker", memory_waker),
        (pysim, "_PySignalState", _Signal),
        (pysim, "_PyMemoryState", _Memory),
    ]


@contextlib.contextmanager
def _replaced(places: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """While it lasts, these attributes of modules have these values."""
    plain = [getattr(place, name) for place, name, _ in places]
    for place, name, value in places:
        setattr(place, name, value)
    try:
        yield
    finally:
        for (place, name, _), value in zip(places, plain, strict=True):
            setattr(place, name, value)


def _range(shape: Any) -> tuple[int, int]:
    bits = shape.width - shape.signed
    return -(1 << bits) if shape.signed else 0, (1 << bits) - 1


def _source(texts: Sequence[str], slots: Sequence[Any], processes: set[Any]) -> str:
    """A whole program in C."""
    shapes = [slot.signal.shape() if isinstance(slot, _Signal) else slot.shape for slot in slots]
    depths = [slot.memory.depth if isinstance(slot, _Memory) else 0 for slot in slots]
    translator = Translator(list(map(_range, shapes)))
    initial = [translator.literal(slot.signal.init) if isinstance(slot, _Signal) else "0" for slot in slots]
    is_comb = [0] * len(texts)
    for process in processes:
        is_comb[process.run] = int(process.is_comb)
    lines = [
        f"#define SLOTS {len(slots)}",
        f"#define PROCESSES {len(texts)}",
        f"#define RANK {sum(depths)}",
        resources.files("softhca.hardware").joinpath("native_simulator.c").read_text(encoding="utf-8"),
        *(translator.function(f"process_{number}", text) for number, text in enumerate(texts)),
        *_readers("READERS", slots, None),
        *_readers("RISING", slots, 1),
        *_readers("FALLING", slots, 0),
        _table("static const W INITIAL[SLOTS + 1]", initial),
        _table("static const int DEPTHS[SLOTS + 1]", depths),
        _table("static const char IS_COMB[PROCESSES + 1]", is_comb),
        _table(
            "static void (*const RUN[PROCESSES + 1])(struct gates *)",
            [f"process_{number}" for number in range(len(texts))],
        ),
    ]
    return "\n".join(lines)


def _table(name: str, values: Sequence[object]) -> str:
    return f"{name} = {{{', '.join(map(str, [*values, 0]))}}};"


def _readers(name: str, slots: Sequence[Any], polarity: int | None) -> Iterator[str]:
    rows = []
    for number, slot in enumerate(slots):
        found = sorted({process.run for process in slot.readers[polarity]})
        rows.append(f"{{{len(found)}, {name}_{number}}}" if found else "{0, 0}")
        if found:
            yield _table(f"static const int {name}_{number}[]", found)
    yield f"static const struct readers {name}[SLOTS + 1] = {{{', '.join([*rows, '{0, 0}'])}}};"


@functools.lru_cache(maxsize=8)
def _library(source: str) -> ctypes.CDLL:
    """The program, ready to run; CalledProcessError where the compiler fails."""
    word = compiler()
    assert word is not None
    with tempfile.TemporaryDirectory(prefix="softhca-gates-") as folder:
        text, library = Path(folder) / "gates.c", Path(folder) / "gates.so"
        text.write_text(source, encoding="utf-8")
        subprocess.run([word, *OPTIONS, "-o", library, text], check=True, stderr=subprocess.DEVNULL)
        code = ctypes.CDLL(str(library))
    pointer, number = ctypes.c_void_p, ctypes.c_int
    for name in ("current", "following", "previous", "watched", "hits", "changed", "rows_changed"):
        function: Any = getattr(code, name)
        function.argtypes, function.restype = [pointer], pointer
    code.new_gates.argtypes, code.new_gates.restype = [], pointer
    code.rows_of.argtypes, code.rows_of.restype = [pointer, number], pointer
    code.run.argtypes = [pointer, number]
    code.set_words.argtypes = [pointer, number, ctypes.c_uint64, ctypes.c_int64]
    code.write_words.argtypes = [pointer, number, number, pointer]
    for name in ("begin", "finish", "hit_count", "changed_count", "row_count"):
        getattr(code, name).argtypes = [pointer]
    code.begin.restype = code.finish.restype = code.set_words.restype = code.write_words.restype = None
    return code
