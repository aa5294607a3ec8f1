"""Run tests on compiled modules that a sanitizer of gcc watches: AddressSanitizer or ThreadSanitizer.

``python tests/sanitizers/run_sanitized.py asan`` (or ``tsan``) with ``PYTHONPATH`` naming modules that
were built with ``SOFTHCA_SANITIZE``; ``make asan`` and ``make tsan`` do both.  The interpreter itself is not
instrumented: the sanitizer's library is preloaded, and sees the compiled modules' own accesses, all
allocations (PYTHONMALLOC=malloc), and what libc functions read and write for anybody.

Every process writes its reports into files, so that none is lost with the output of a program that a test
starts.  A report, or a failed test, is exit status 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONTROL_S = 120
STEP_S = 5400
TEST_S = 600
SHOWN_LINES = 60
SHOWN_REPORTS = 5


@dataclass(frozen=True)
class Sanitizer:
    """``library`` as gcc names it, ``variable`` for ``options``.

    ``unfit``: tests (pytest's ids) that cannot run with it, and why.
    """

    library: str
    variable: str
    options: str
    unfit: tuple[tuple[str, str], ...] = ()


NARROW = (
    "tests/runtime/test_runtime_same_host_automatic.py"
    "::test_a_program_with_narrow_limits_runs_as_it_would_without[RLIMIT_AS-8589934592-expected3]",
    "the sanitizer itself takes more address space than the test leaves",
)
SANITIZERS = {
    "asan": Sanitizer(
        "libasan.so",
        "ASAN_OPTIONS",
        # Leaks: an interpreter that ends frees little of what it has; other tests count resources.
        # Allocations that cannot be are told by NULL, as tests of refusals expect.
        # Programs of tests have libraries of their own preloaded before the sanitizer's.
        "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=1:handle_segv=1:"
        "verify_asan_link_order=0",
        (NARROW,),
    ),
    "tsan": Sanitizer(
        "libtsan.so",
        "TSAN_OPTIONS",
        # Programs fork with threads running, leave daemon threads at their end, and handle signals in Python.
        "die_after_fork=0:report_thread_leaks=0:report_signal_unsafe=0:history_size=4:exitcode=66:"
        "allocator_may_return_null=1:"
        f"suppressions={HERE / 'thread_suppressions.txt'}",
        (NARROW,),
    ),
}
ROOMS = (
    "machine", "memory", "wire", "queues", "transport", "management", "adapter", "fabric", "links", "driver",
    "runtime", "mailbox", "channels", "sockets", "storage",
)  # fmt: skip
STRESS_SEEDS = "1..3"


@dataclass
class Step:
    """A command and what became of it."""

    name: str
    command: list[str]
    limit_s: float = STEP_S
    status: int = 0
    reports: int = 0
    seconds: float = 0.0
    last: str = ""


def environment(kind: str, reports: Path) -> dict[str, str]:
    """Of every process that is watched."""
    sanitizer = SANITIZERS[kind]
    library = subprocess.run(
        [os.environ.get("CC", "gcc").split()[-1], f"-print-file-name={sanitizer.library}"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    if not os.path.isabs(library):
        sys.exit(f"{sanitizer.library} is not there: it comes with gcc (Debian: libgcc-12-dev)")
    return {
        **os.environ,
        "LD_PRELOAD": library,
        "PYTHONMALLOC": "malloc",
        "SOFTHCA_EXPECT": "compiled",
        sanitizer.variable: f"log_path={reports / 'report'}:{sanitizer.options}",
        "UBSAN_OPTIONS": f"log_path={reports / 'report'}:print_stacktrace=1",
    }


def steps(kind: str) -> list[Step]:
    """All that is run, in order."""
    # A crash is the sanitizer's to report.
    suite = [sys.executable, "-m", "pytest", "-p", "no:faulthandler", f"--timeout={TEST_S}"]
    unfit = [word for name, _ in SANITIZERS[kind].unfit for word in ("--deselect", name)]
    stress = [sys.executable, "tests/verbs/thread_stress.py", "--seeds", STRESS_SEEDS]
    found = [
        Step("modules are the compiled ones", [*suite, "tests/test_mode.py"]),
        *(Step(room, [*suite, f"tests/{room}", *unfit]) for room in ROOMS),
        Step("verbs", [*suite, "tests/verbs/suite", "tests/verbs/test_verbs_threads.py",
                       "tests/verbs/test_verbs_stress.py", "tests/verbs/test_verbs_program_ends.py",
                       "tests/verbs/test_verbs_mr.py", *unfit]),
        Step("thread stress", stress),
    ]  # fmt: skip
    if kind == "asan":
        found.append(Step("fuzzing corpora", [sys.executable, "tests/fuzz/fuzz_run.py", "--replay"]))
    return found


def run(step: Step, around: dict[str, str], reports: Path) -> None:
    """Run one; its output goes to a file beside the reports."""
    before = set(reports.glob("report*"))
    start = time.monotonic()
    output = reports / f"{step.name.replace(' ', '-')}.txt"
    with output.open("w") as file:
        try:
            step.status = subprocess.run(
                step.command, cwd=ROOT, env=around, stdout=file, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, check=False, timeout=step.limit_s,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            step.status = 124
    step.seconds = time.monotonic() - start
    step.reports = len(set(reports.glob("report*")) - before)
    lines = output.read_text(errors="replace").strip().splitlines()
    step.last = lines[-1] if lines else ""


def control(kind: str, around: dict[str, str], reports: Path) -> bool:
    """Whether it sees what `wrong_access.py` does; those reports do not count."""
    seen = True
    program = str(HERE / "wrong_access.py")
    for name in ("inside", "beyond") if kind == "asan" else ("ordered", "unordered"):
        step = Step(f"control {name}", [sys.executable, program, name], CONTROL_S)
        run(step, around, reports)
        expected = name in ("beyond", "unordered")
        if bool(step.reports) != expected:
            print(f"control: {step.reports} reports of {name!r} (status {step.status}): {step.last}")
            seen = False
        if expected:
            for path in reports.glob("report*"):
                path.unlink()
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("kind", choices=tuple(SANITIZERS))
    parser.add_argument("--only", nargs="+", default=[], metavar="STEP", help="whose names have that")
    parser.add_argument("--reports", type=Path, metavar="DIR", help="build/KIND/reports")
    options = parser.parse_args()
    reports = (options.reports or ROOT / "build" / options.kind / "reports").resolve()
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    around = environment(options.kind, reports)
    if not control(options.kind, around, reports):
        return 2
    print("control: what is wrong on purpose is reported, and nothing else", flush=True)
    done = []
    for step in steps(options.kind):
        if options.only and not any(word in step.name for word in options.only):
            continue
        run(step, around, reports)
        done.append(step)
        figures = f"status {step.status:3} {step.reports:4} reports {step.seconds:6.0f} s"
        print(f"{step.name:30} {figures}  {step.last}", flush=True)
    for name, why in SANITIZERS[options.kind].unfit:
        print(f"left out: {name}: {why}")
    for path in sorted(reports.glob("report*"))[:SHOWN_REPORTS]:
        print(f"--- {path}", *path.read_text(errors="replace").splitlines()[:SHOWN_LINES], sep="\n")
    bad = sum(bool(step.status or step.reports) for step in done)
    print(f"{len(done)} steps, {bad} failed, {sum(step.reports for step in done)} reports")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
