"""Fuzzing: one target, all of them, or their corpora.

``python tests/fuzz/fuzz_run.py TARGET`` guides by coverage where atheris is installed and softhca runs
interpreted; with ``--plain``, or without atheris, inputs are made from the corpus by a seeded generator.
``--all`` runs every target and prints a table; ``--replay`` runs files or the corpus; ``--corpus`` makes
``tests/fuzz/corpus`` anew from seeds and what ``--work`` holds; `fuzz_corpus` packs and unpacks it.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

from fuzz_corpus import MAX_INPUT_BYTES, spread, store, stored

HERE = Path(__file__).parent
WORK = HERE.parents[1] / "build" / "fuzz"
TARGETS = tuple(sorted(path.stem.removeprefix("target_") for path in HERE.glob("target_*.py")))
TIMEOUT_S = 20
MEMORY_MB = 2048
MOST_KEPT = 400
MOST_KEPT_BYTES = 64_000
CHECK_EVERY = 256
SHARES = {"engine": 10, "commands": 3}  # of the time of all targets; the others have 1

OneInput = Callable[[bytes], None]


def load(name: str) -> ModuleType:
    """The module of a target."""
    return importlib.import_module(f"target_{name}")


class Quiet:
    """Exceptions that were raised where none can be passed on (a compiled function without errors)."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._before = sys.unraisablehook

    def __enter__(self) -> Quiet:
        sys.unraisablehook = self._note
        return self

    def __exit__(self, *exception: object) -> None:
        sys.unraisablehook = self._before

    def _note(self, unraisable: Any) -> None:
        self.found.append(f"{unraisable.exc_value!r} in {unraisable.object!r}")

    def check(self) -> None:
        """AssertionError when there was one."""
        assert not self.found, self.found


def generated(name: str, seed: int) -> Iterator[bytes]:
    """Inputs without end, by ``seed`` alone: those of the corpus changed, spliced and cut."""
    dice = random.Random(f"{name} {seed}")
    known = stored(name) + list(load(name).seeds())
    while True:
        data = bytearray(dice.choice(known))
        for _ in range(dice.choice((1, 1, 2, 3, 5, 9))):
            change(data, dice, known)
        yield bytes(data[:MAX_INPUT_BYTES])


def change(data: bytearray, dice: random.Random, known: list[bytes]) -> None:
    """One change of an input."""
    at = dice.randrange(len(data) + 1)
    way = dice.randrange(7)
    if way == 0:
        data[at : at + 1] = bytes([dice.getrandbits(8)])
    elif way == 1 and at < len(data):
        data[at] ^= 1 << dice.randrange(8)
    elif way == 2:
        del data[at : at + dice.choice((1, 1, 2, 4, 16))]
    elif way == 3:
        data[at:at] = dice.randbytes(dice.choice((1, 2, 4, 8)))
    elif way == 4:
        other = dice.choice(known)
        start = dice.randrange(len(other) + 1)
        data[at:] = other[start:]
    elif way == 5:
        data[at : at + 4] = dice.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\1", b"\x80\0\0\0"))
    else:
        data[at:at] = data[at : at + dice.choice((2, 8, 32))]


def plain(name: str, runs: int, seconds: float, seed: int) -> int:
    """Run generated inputs; how many.  An input that fails is printed and raised."""
    one_input: OneInput = load(name).one_input
    end = time.monotonic() + seconds if seconds else None
    done = 0
    with Quiet() as quiet:
        for data in generated(name, seed):
            if (runs and done >= runs) or (end and done % CHECK_EVERY == 0 and time.monotonic() > end):
                break
            try:
                one_input(data)
                quiet.check()
            except BaseException:
                print(f"{name} fails with seed {seed}, input {done}: {data.hex()}", file=sys.stderr)
                raise
            done += 1
        finish(name)
    return done


def finish(name: str) -> None:
    """What a target checks when there are no more inputs."""
    getattr(load(name), "finish", lambda: None)()


def seeded(name: str, work: Path) -> tuple[Path, Path]:
    """The target's working corpus, with its seeds in it, and where inputs that fail go."""
    corpus, failures = work / "corpus" / name, work / "failures" / name
    corpus.mkdir(parents=True, exist_ok=True)
    failures.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(load(name).seeds()):
        (corpus / f"seed{number:04}").write_bytes(data[:MAX_INPUT_BYTES])
    return corpus, failures


def guided(name: str, options: argparse.Namespace, work: Path) -> None:
    """Run atheris; it ends the process."""
    import atheris

    with atheris.instrument_imports(include=["softhca"]):
        target = load(name)
    corpus, failures = seeded(name, work)
    arguments = [
        sys.argv[0], f"-artifact_prefix={failures}/", f"-max_len={MAX_INPUT_BYTES}", f"-timeout={TIMEOUT_S}",
        f"-rss_limit_mb={MEMORY_MB}", "-print_final_stats=1", f"-seed={options.seed}", "-close_fd_mask=0",
    ]  # fmt: skip
    if options.runs:
        arguments.append(f"-runs={options.runs}")
    if options.seconds:
        arguments.append(f"-max_total_time={int(options.seconds)}")
    known = work / "stored" / name
    spread(name, known)
    arguments += [*options.libfuzzer, str(corpus), str(known)]
    atheris.Setup(arguments, target.one_input)
    atheris.Fuzz()


def replay(name: str, paths: list[Path]) -> int:
    """Run files, or the corpus; how many."""
    one_input: OneInput = load(name).one_input
    inputs = [path.read_bytes() for path in paths] if paths else stored(name)
    with Quiet() as quiet:
        for data in inputs:
            one_input(data)
            quiet.check()
        finish(name)
    return len(inputs)


def minimise(name: str, work: Path) -> None:
    """Make the stored corpus anew: what working and stored corpus reach, in few and small inputs."""
    merged = work / "merged" / name
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir(parents=True)
    corpus, _ = seeded(name, work)
    known = work / "stored" / name
    spread(name, known)
    directories = [str(merged), str(corpus), str(known)]
    script = work / f"merge-{name}"  # libFuzzer starts itself by its first argument
    words = f"{sys.executable} {Path(__file__).resolve()} {name} --work {work.resolve()} --merge"
    script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    script.chmod(0o755)
    command = [str(script.resolve()), "-merge=1", *directories]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    kept = sorted(merged.iterdir(), key=lambda path: (path.stat().st_size, path.name))
    inputs, total = [], 0
    for path in kept[:MOST_KEPT]:
        total += path.stat().st_size
        if total > MOST_KEPT_BYTES:
            break
        inputs.append(path.read_bytes())
    store(name, inputs)


def merge(name: str, arguments: list[str], work: Path) -> None:
    """libFuzzer's merge by coverage, into the first directory; it ends the process."""
    import atheris

    with atheris.instrument_imports(include=["softhca"]):
        target = load(name)
    script = str((work / f"merge-{name}").resolve())
    atheris.Setup([script, f"-max_len={MAX_INPUT_BYTES}", *arguments], target.one_input)
    atheris.Fuzz()


def run_one(name: str, options: argparse.Namespace, seconds: float) -> dict[str, object]:
    """A target in a process of its own; its figures."""
    limits = ["--seconds", str(math.ceil(seconds)), "--runs", str(options.runs)]
    command = [sys.executable, __file__, name, *limits, "--seed", str(options.seed)]
    command += ["--work", str(options.work)]
    command += ["--plain"] if options.plain else []
    log = options.work / f"{name}.log"
    started = time.monotonic()
    with log.open("wb") as stream:
        status = subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, check=False).returncode
    took = time.monotonic() - started
    text = log.read_text(errors="replace")
    found = re.search(r"number_of_executed_units: (\d+)", text) or re.search(r"(\d+) executions", text)
    executions = int(found[1]) if found else 0
    corpus = options.work / "corpus" / name
    return {
        "target": name, "executions": executions, "executions_per_s": round(executions / max(took, 0.001)),
        "corpus": len(list(corpus.glob("*"))) if corpus.is_dir() else len(stored(name)),
        "failures": int(status != 0), "log": str(log),
    }  # fmt: skip


def run_all(options: argparse.Namespace) -> int:
    """Every target, ``--jobs`` at a time, for its share of ``--seconds``; prints the table."""
    options.work.mkdir(parents=True, exist_ok=True)
    names = sorted(TARGETS, key=lambda name: (-SHARES.get(name, 1), name))
    share = options.seconds * options.jobs / sum(SHARES.get(name, 1) for name in names)
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda name: run_one(name, options, share * SHARES.get(name, 1)), names))
    print(f"{'target':<16}{'executions':>12}{'per second':>12}{'corpus':>8}{'failures':>10}")
    for row in rows:
        print(f"{row['target']:<16}{row['executions']:>12,}{row['executions_per_s']:>12,}"
              f"{row['corpus']:>8}{row['failures']:>10}")  # fmt: skip
        if row["failures"]:
            print(f"  see {row['log']}")
    (options.work / "figures.json").write_text(json.dumps(rows, indent=1))
    return int(any(row["failures"] for row in rows))


def options_of(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    how = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=how)
    parser.add_argument("target", nargs="?", choices=TARGETS)
    parser.add_argument("--runs", type=int, default=0, help="inputs at most, for each target (0: no limit)")
    parser.add_argument("--seconds", type=float, default=0, help="seconds at most, of all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="no guidance by coverage")
    parser.add_argument("--all", action="store_true", help="every target")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--replay", nargs="*", type=Path, metavar="FILE", help="files, or the stored corpus")
    parser.add_argument("--corpus", action="store_true", help="make the stored corpus anew")
    parser.add_argument("--work", type=Path, default=WORK, help="where corpora grow and failures are kept")
    parser.add_argument("--merge", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.add_argument("libfuzzer", nargs="*", help="options of libFuzzer, behind --")
    options = parser.parse_args(arguments)
    works = options.merge is None and options.replay is None and not options.corpus
    if works and not options.runs and not options.seconds:
        parser.error("--runs or --seconds says when to stop")
    return options


def main(arguments: list[str]) -> int:
    """0, or 1 when an input failed."""
    options = options_of(arguments)
    names = [options.target] if options.target else list(TARGETS)
    if expected := os.environ.get("SOFTHCA_EXPECT"):
        body = importlib.import_module("softhca.machine.primitives").BODY
        if body != expected:
            sys.exit(f"softhca is {body}, not {expected}")
    if options.merge is not None:
        merge(options.target, options.merge, options.work)
    if options.corpus:
        for name in names:
            minimise(name, options.work)
        return 0
    if options.replay is not None:
        for name in names:
            print(f"{name}: {replay(name, options.replay)} inputs")
        return 0
    if options.all or not options.target:
        return run_all(options)
    if not options.plain and importlib.util.find_spec("atheris") is not None:
        guided(options.target, options, options.work)
    try:
        started = time.monotonic()
        done = plain(options.target, options.runs, options.seconds, options.seed)
    except Exception:
        traceback.print_exc()
        return 1
    took = max(time.monotonic() - started, 0.001)
    print(f"{options.target}: {done} executions, {done / took:.0f} a second")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
