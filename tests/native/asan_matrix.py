"""The clients of these tests, and Debian's programs, with the library and the object beside it, all of ours
compiled with AddressSanitizer and UBSan: ``python tests/native/asan_matrix.py`` (`make asan-native`).

First rows of its own; then all tests of this folder that run programs (`TESTS`), and the distribution's
pyverbs with all its tests (``tests/pyverbs_suites``), whose processes all run so.  What a process reports
that is not looked at otherwise stands in a file of its own; one that reports is a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from native_world import (  # noqa: E402
    ASAN_OPTIONS,
    CASES,
    CM_CASES,
    LIMIT_S,
    SANITIZED,
    SANITIZERS,
    World,
    both,
    built,
    compiled_client,
    sanitized_library,
    sanitizers,
)

from softhca.native import VARIABLE  # noqa: E402

PAIRS = ["ibv_rc_pingpong -c -e -n 200", "ibv_rc_pingpong -c -N -n 200", "ibv_uc_pingpong -n 200",
         "ibv_ud_pingpong -s 1000 -e -n 200", "ibv_srq_pingpong -q 3 -n 200", "ibv_xsrq_pingpong -e",
         "ib_write_bw -n 200 -F", "ib_read_bw -n 200 -F", "ib_send_bw -n 200 -F -e", "ib_send_lat -n 200 -F",
         "ib_atomic_bw -n 200 -F", "ib_send_bw -c UD -n 200 -F", "ib_write_bw -c XRC -n 200 -F"]  # fmt: skip
CONNECTED = ["ucmatose -c 3", "udaddy -c 3", "rstream -S 3000 -C 10 -T v", "rping -C 3 -V"]
RULES = ["raw_ethernet_fs_rate --server -B 02:00:00:00:00:02 -E 02:00:00:00:00:01 -n 50"]
FIRST_PORT = 21_100
TESTS = ("client", "fabric", "following_addresses", "hostile", "importing", "memory", "mpi", "objects",
         "perftest", "programs", "qemu", "rdmacm", "run", "scaling", "several_addresses", "two_ports",
         "two_versions")  # fmt: skip
"""Files of tests that run programs."""
PYVERBS_FAILS = "tests.test_addr.AHTest.test_create_ah_roce"
"""The one case of pyverbs that fails, without sanitizers too (``tests/pyverbs_suites``)."""
OURS = ("libibverbs.so.1", "libsofthca-paths.so", "_client")
"""What a report's stacks name that is about us: other people's programs have errors of their own, Open MPI's
daemon one of reading a message that another thread has freed."""
MARKS = ("ERROR: AddressSanitizer", "runtime error:")


def _case(world: World, client: Path, *words: str) -> str:
    done = world.run(str(client), *words)
    said = done.stdout + done.stderr
    return said + f"\nstatus {done.returncode}" if done.returncode or done.stdout else said


def _scarce(world: World, client: Path) -> str:
    """Without descriptors; the program goes on at each word, and at the end of them."""
    with world.start(str(client), "scarce", stdin=subprocess.PIPE) as program:
        said, _ = program.communicate("\n", timeout=LIMIT_S)
    return said.replace(".", "") + (f"\nstatus {program.returncode}" if program.returncode else "")


def _adapter_gone(world: World, client: Path, case: str) -> str:
    """The adapter process ends under the program, which has said that it may."""
    own = World(world.library, "*")
    told = {**world.environment, "SOFTHCA_DEVICES": own.environment["SOFTHCA_DEVICES"], "SOFTHCA_DEBUG": ""}
    try:
        with own.start(str(client), case, **told) as program:
            begun = program.stdout.read(1) if program.stdout is not None else ""
            own.adapter.kill()
            said, _ = program.communicate(timeout=LIMIT_S)
    finally:
        own.adapter.kill()
        own.end()
    failed = program.returncode or begun != "."
    return said + (f"\nstatus {program.returncode}, begun with {begun!r}" if failed else "")


def _alone(world: World, command: str) -> str:
    done = world.run(*command.split())
    return done.stdout + done.stderr + (f"\nstatus {done.returncode}" if done.returncode else "")


def _pair(world: World, command: str, port: int) -> str:
    words = [*command.split(), *(("-g", "0") if command.startswith("ibv") else ())]
    return "".join(world.pair(port, *words))


def _connected(world: World, command: str) -> str:
    ping = command.startswith("rping")
    serves, asks = ("-s", "-c -a 127.0.0.1") if ping else ("", "-s 127.0.0.1")
    return "".join(both(world, world, f"{command} {serves}".split(), f"{command} {asks}".split()))


def matrix(world: World, clients: dict[str, Path]) -> list[tuple[str, Callable[[], str]]]:
    """What runs, by its name: it says what the programs said."""
    verbs, rdmacm, importing = (clients[name] for name in ("verbs_client", "rdmacm_client", "import_client"))
    rows: list[tuple[str, Callable[[], str]]] = []
    rows += [(f"verbs_client {case}", lambda case=case: _case(world, verbs, case)) for case in CASES]
    rows += [(f"rdmacm_client {case}", lambda case=case: _case(world, rdmacm, case)) for case in CM_CASES]
    rows.append(("import_client", lambda: _case(world, importing, "export", str(importing), "import")))
    rows.append(("verbs_client scarce", lambda: _scarce(world, verbs)))
    rows.append(("verbs_client orphaned", lambda: _adapter_gone(world, verbs, "orphaned")))
    rows.append(("rdmacm_client removal", lambda: _adapter_gone(world, rdmacm, "removal")))
    for number, command in enumerate(PAIRS):
        rows.append((command, lambda c=command, n=number: _pair(world, c, FIRST_PORT + n)))
    rows += [(command, lambda c=command: _connected(world, c)) for command in CONNECTED]
    rows += [(command, lambda c=command: _alone(world, c)) for command in RULES]
    return rows


def rows(folder: Path) -> int:
    """Run the matrix; how many rows failed."""
    failed = 0
    (folder / "checked").mkdir()
    told = sanitized_library(folder / "checked")
    library = built(folder)
    clients = {name: compiled_client(library, folder, name, SANITIZERS)
               for name in ("verbs_client", "rdmacm_client", "import_client")}  # fmt: skip
    world = World(library, "*")
    world.environment.update(told)
    for name, run in matrix(world, clients):
        try:
            said = run()
        except (AssertionError, OSError) as error:
            said = f"{error}\nstatus unknown"
        wrong = any(mark in said for mark in (*MARKS, "\nstatus "))
        failed += wrong
        print(f"{name}: {'FAILED' if wrong else 'clean'}", flush=True)
        if wrong:
            print(said[-4000:])
    world.end()
    return failed


def reported(folder: Path) -> int:
    """How many processes wrote a report of an error of ours below ``folder``; prints those, and of others a
    line."""
    texts = [each.read_text(errors="replace") for each in sorted(folder.iterdir())]
    errors = [text for text in texts if any(mark in text for mark in MARKS)]
    ours = [text for text in errors if any(name in text for name in OURS)]
    print("\n".join(text[:4000] for text in ours), end="", flush=True)
    print(f"{len(errors) - len(ours)} reports of errors that are not ours", flush=True)
    return len(ours)


def tests(folder: Path) -> int:
    """Run the tests of programs, and pyverbs' own; how many of these runs failed, and processes reported."""
    (folder / "reports").mkdir()
    words = {
        "ASAN_OPTIONS": f"{ASAN_OPTIONS}:verify_asan_link_order=0:log_path={folder / 'reports' / 'asan'}",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    names = [str(HERE / f"test_native_{name}.py") for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names]
    done = subprocess.run(command, env={**os.environ, **words, SANITIZED: "1"}, cwd=HERE.parents[1])
    failed = int(done.returncode != 0)
    words |= {VARIABLE: str(folder / "checked" / "libibverbs.so.1"), "LD_PRELOAD": " ".join(sanitizers())}
    suite = HERE.parent / "pyverbs_suites" / "suite.py"
    said = subprocess.run([sys.executable, str(suite), "--form", "library"], env={**os.environ, **words},
                          stdout=subprocess.PIPE, text=True).stdout  # fmt: skip
    cases = [line.split(" | ") for line in said.splitlines() if line.startswith("| tests.")]
    wrong = [name for name, outcome, _ in cases if outcome in ("FAIL", "ERROR") and PYVERBS_FAILS not in name]
    print(f"pyverbs: {len(cases)} cases, wrong: {wrong or 'none'}", flush=True)
    return failed + (wrong != [] or not cases) + reported(folder / "reports")


def main() -> int:
    """Run all of it; how much failed."""
    with tempfile.TemporaryDirectory() as text:
        failed = rows(Path(text)) + tests(Path(text))
    print(f"{failed} failed (limit of each program {LIMIT_S:.0f} s)")
    return failed


if __name__ == "__main__":
    sys.exit(main() != 0)
