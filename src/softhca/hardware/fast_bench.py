"""The assembled adapter as compiled gates: the same bench as `softhca.hardware.subsystem_bench`, some hundred
times as fast, for programs without number.

yosys' CXXRTL turns the gates into C++ and `g++` compiles them; both must be there.  Host memory and link are
C++ too (``fast_bench.cc``); the script of the host's software is Python and stops the clock when it likes.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from amaranth._toolchain.yosys import find_yosys
from amaranth.back import cxxrtl

from softhca.hardware.activity import IDLE, engine_states
from softhca.hardware.context_memory import CONTEXT_WORDS, RECEIVE, SEND, WORDS
from softhca.hardware.isa import packed
from softhca.hardware.key_memory import KEYS
from softhca.hardware.local_bus import CONTEXTS
from softhca.hardware.subsystem import Subsystem

VIS, QUEUES, FIFO_WORDS, FIFO_PACKETS = 4, 1, 2048, 16
"""The adapter that is built unless another is asked for."""
OPTIONS = ("-std=c++17", "-O1", "-fPIC", "-shared")
MOST_PACKET_BYTES = 8192
ACCESS_CLOCKS = 1000
RUNTIME = "include/backends/cxxrtl/runtime"


def compiler() -> str | None:
    """The C++ compiler's path, None where there is none."""
    return shutil.which("g++")


def build(
    folder: Path, vis: int = VIS, queues: int = QUEUES, words: int = FIFO_WORDS, packets: int = FIFO_PACKETS
) -> Path:
    """The library of an adapter of these sizes, in ``folder``; made there if it is not of these sources.

    FileNotFoundError without ``g++``; CalledProcessError where it fails.
    """
    if compiler() is None:
        raise FileNotFoundError("g++ is not installed")
    package = resources.files("softhca.hardware")
    bench = package.joinpath("fast_bench.cc").read_text(encoding="utf-8")
    seen = hashlib.sha256(f"{vis} {queues} {words} {packets} {OPTIONS} {bench}".encode())
    for name in sorted(one.name for one in package.iterdir() if one.name.endswith(".py")):
        seen.update(package.joinpath(name).read_bytes())
    library = folder / f"adapter-{seen.hexdigest()[:16]}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        gates = cxxrtl.convert(Subsystem(vis, queues, words, packets), name="subsystem", emit_src=False)
        (folder / "adapter.cc").write_text(gates, encoding="utf-8")
        (folder / "fast_bench.cc").write_text(bench, encoding="utf-8")
        runtime = Path(str(find_yosys(lambda version: version >= (0, 10)).data_dir())) / RUNTIME
        made = library.with_suffix(".part")
        command = [
            "g++",
            *OPTIONS,
            f"-I{runtime}",
            f"-I{folder}",
            "-o",
            str(made),
            str(folder / "fast_bench.cc"),
        ]
        subprocess.run(command, check=True)
        made.rename(library)
    return library


class WordMemory:
    """The host's memory as words by address, in bytes; KeyError beyond its end."""

    def __init__(self, words: Any, size: int) -> None:
        self.bytes = (ctypes.c_uint8 * size).from_address(ctypes.addressof(words.contents))
        self.size = size
        self._words = (ctypes.c_uint32 * (size // 4)).from_address(ctypes.addressof(words.contents))

    def __getitem__(self, address: int) -> int:
        self._check(address)
        return self._words[address >> 2]

    def __setitem__(self, address: int, word: int) -> None:
        self._check(address)
        self._words[address >> 2] = word

    def get(self, address: int, default: int = 0) -> int:
        """The word, ``default`` beyond the end."""
        return self._words[address >> 2] if 0 <= address < self.size else default

    def _check(self, address: int) -> None:
        if not 0 <= address < self.size:
            raise KeyError(address)


class FastBench:
    """An adapter of ``vis`` queue pairs from ``library`` (`build`), whose host has ``size`` bytes of memory
    (a multiple of 4) that answer after ``latency`` clocks.  One thread uses it."""

    def __init__(self, library: Path, vis: int = VIS, latency: int = 0, size: int = 1 << 21) -> None:
        self.vis = vis
        self._code = code = ctypes.CDLL(str(library))
        code.bench_new.restype = code.bench_clock.restype = ctypes.c_void_p
        code.bench_memory.restype = ctypes.POINTER(ctypes.c_uint32)
        code.bench_clock.restype = ctypes.c_uint64
        pointer, word = ctypes.c_void_p, ctypes.c_uint32
        for name, given in {
            "bench_new": [word, word], "bench_delete": [pointer], "bench_begin": [pointer],
            "bench_memory": [pointer], "bench_clock": [pointer],
            "bench_arrive": [pointer, ctypes.c_char_p, word],
            "bench_departed": [pointer, ctypes.c_char_p, word],
            "bench_run": [pointer, word, word, ctypes.c_int],
            "bench_access": [pointer, word, ctypes.c_int, ctypes.POINTER(word), word],
            "bench_microcode": [pointer, ctypes.c_int, word, ctypes.c_uint64],
            "bench_key": [pointer, word, word, ctypes.POINTER(word)],
            "bench_address": [pointer, ctypes.c_int],
            "bench_idle": [pointer, ctypes.c_int, word],
        }.items():  # fmt: skip
            getattr(code, name).argtypes = given
        self._bench = code.bench_new(size // 4, latency)
        for engine in (SEND, RECEIVE):
            for address, state in engine_states(engine, vis).items():
                if state == IDLE:
                    code.bench_idle(self._bench, engine, address)
        self.memory = WordMemory(code.bench_memory(self._bench), size)

    def close(self) -> None:
        """Give it back; nothing else may be called afterwards."""
        self._code.bench_delete(self._bench)
        self._bench = None

    @property
    def clock(self) -> int:
        """Clocks since `begin`."""
        return int(self._code.bench_clock(self._bench))

    def begin(self) -> None:
        """Power on: all memories are 0, host memory too."""
        self._code.bench_begin(self._bench)

    def run(self, script: Callable[[Any], Awaitable[None]]) -> None:
        """Play ``script`` to its end: nothing in it waits but for this bench."""
        steps = script(None).__await__()
        for _ in steps:
            raise TypeError("the script waits for something else")

    # the host's software

    async def write(self, context: Any, address: int, data: int) -> None:
        """Write a word over the local bus."""
        self._access(address, True, data)

    async def read(self, context: Any, address: int) -> int:
        """Read a word over the local bus."""
        return self._access(address, False, 0)

    def _access(self, address: int, write: bool, data: int) -> int:
        word = ctypes.c_uint32(data)
        if not self._code.bench_access(self._bench, address, write, ctypes.byref(word), ACCESS_CLOCKS):
            raise TimeoutError("the local bus does not answer")
        return word.value

    async def set_context(self, context: Any, qp: int, **words: int) -> None:
        """Write words of a queue pair's context by their names."""
        for name, value in words.items():
            self._access(CONTEXTS + CONTEXT_WORDS * qp + WORDS[name], True, value)

    async def get_context(self, context: Any, qp: int, name: str) -> int:
        """Read a word of a queue pair's context."""
        return self._access(CONTEXTS + CONTEXT_WORDS * qp + WORDS[name], False, 0)

    async def place_program(self, context: Any, engine: int, halves: Sequence[int]) -> None:
        """An engine's microcode, in no time; it must stand."""
        for place, word in enumerate(packed(list(halves))):
            self._code.bench_microcode(self._bench, engine, place, word)

    async def place_domain(self, context: Any, qp: int, pd: int) -> None:
        """The domain of a queue pair's row of the remote-key memory, as `prepare` enters it."""
        self._code.bench_key(self._bench, (1 + KEYS) * qp, pd, None)

    def key_word(self, qp: int, place: int) -> int:
        """A word of a queue pair's row of the remote-key memory: 0 its domain, 1 … its keys."""
        found = ctypes.c_uint32()
        self._code.bench_key(self._bench, (1 + KEYS) * qp + place, 0, ctypes.byref(found))
        return found.value

    def address(self, engine: int) -> int:
        """That of an engine's instruction."""
        return int(self._code.bench_address(self._bench, engine))

    # memory, link

    def fetch(self, address: int) -> int:
        """The byte at ``address``."""
        return self.memory.bytes[address]

    def store(self, address: int, byte: int) -> None:
        """Set the byte at ``address``."""
        self.memory.bytes[address] = byte

    def memory_bytes(self, count: int) -> bytes:
        """The first ``count`` bytes of host memory."""
        return ctypes.string_at(self.memory.bytes, count)

    def arrive(self, packet: bytes) -> None:
        """A packet, LRH … VCRC, arrives when those before it have."""
        self._code.bench_arrive(self._bench, packet, len(packet))

    def take_departed(self) -> list[bytes]:
        """Packets that have left since the last call."""
        found = []
        room = ctypes.create_string_buffer(MOST_PACKET_BYTES)
        while length := self._code.bench_departed(self._bench, room, MOST_PACKET_BYTES):
            found.append(room.raw[:length])
        return found

    async def wait(self, context: Any, clocks: int) -> None:
        """Let so many clocks go by, or fewer where a packet leaves."""
        self._code.bench_run(self._bench, clocks, 0xFFFFFFFF, 1)

    async def until_quiet(self, context: Any, quiet: int, most: int) -> None:
        """Until both engines have waited for work for ``quiet`` clocks, and host memory and link have rested;
        TimeoutError after ``most``."""
        if self._code.bench_run(self._bench, most, quiet, 0) >= most:
            raise TimeoutError(f"still at work after {most} clocks")
