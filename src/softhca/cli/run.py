"""``softhca run``: copies of an unmodified program, each with an adapter of its own."""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

from softhca.cli import run_fabric
from softhca.cli.errors import CommandError, UsageError
from softhca.cli.explain import add_explain_option, explain_variables, print_accounts
from softhca.cli.fault_reports import add_faults_option, faults_variables, print_reports
from softhca.cli.keeper import DONE, MARK_VARIABLE
from softhca.cli.launch import command_line, devices_of_copies, environment, prepare, with_sockets
from softhca.cli.merge import merge_captures
from softhca.cli.native_programs import decide, obstacle, preloaded
from softhca.cli.numbers import number
from softhca.cli.roles import SAME_HOST
from softhca.cli.shared_adapters import ADAPTER, served, shares_devices

GRACE_S = 5.0
LOOK_S = 1.0
"""A signal that comes just before a wait begins does not end it: its handler runs when the wait is over."""

_log = logging.getLogger("softhca.run")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``run`` takes to its ``parser``."""
    parser.description = (
        "Each copy has SOFTHCA_RANK (0 …), SOFTHCA_PEERS (all addresses, in rank order) and one device "
        "softhca0, or the devices that SOFTHCA_DEVICES names (`udp:*` is another address for each copy; one "
        "that is named goes with one copy); `import pyverbs` finds softhca's verbs, and a program in C that "
        "is linked with libibverbs gets softhca's, and an adapter process.  The exit status is that "
        "of the first copy that fails, whereupon the others are ended."
    )
    parser.add_argument(
        "-n", "--copies", type=number(1, 253), default=1, metavar="N", help="copies (default 1)"
    )
    parser.add_argument(
        "--link",
        default="",
        choices=run_fabric.LINKS,
        metavar="udp|shm|fabric:TOPOLOGY",
        help="how the adapters are joined: packets, or shared memory (which --capture and "
        "--faults refuse, for they need packets), with a warning where that cannot be, "
        "or as hosts of a fabric: a file, or a generator as in fabric:fat-tree:radix=4 (docs/fabric.md) "
        "(default: shared memory where that can be, packets otherwise)",
    )
    parser.add_argument(
        "--fabric-name",
        default="",
        metavar="NAME",
        help="the name of that fabric, for softhca fabric fail and others (default: sim where that is free)",
    )
    parser.add_argument(
        "--partitions",
        type=Path,
        default=None,
        metavar="FILE",
        help="which ports of that fabric have which P_Keys, in the form of OpenSM's partitions.conf",
    )
    parser.add_argument(
        "--capture", type=Path, default=None, metavar="FILE.pcapng", help="write all packets to FILE"
    )
    parser.add_argument(
        "--sockets",
        action="store_true",
        help="Python programs' sockets connect by RDMA where the peer has it too, by TCP elsewhere",
    )
    add_faults_option(parser)
    add_explain_option(parser)
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ARGS…")


def run(args: argparse.Namespace) -> int:
    """Run the copies; returns their exit status.

    However this process ends, no copy and no folder is left: see `keeper`.
    """
    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    check(args, program)
    try:
        with _termination():
            fabric = None
            addresses: Sequence[str] = ()
            if args.link.startswith(run_fabric.PREFIX):
                fabric = run_fabric.plan(args.link, args.copies, os.environ, args.fabric_name)
                devices, (peers, addresses) = fabric.devices, fabric.peers()
            else:
                devices, peers = devices_of_copies(
                    os.environ.get("SOFTHCA_DEVICES", ""), args.copies, SAME_HOST.get(args.link)
                )
            mark = secrets.token_hex(8)
            with _kept_folder(mark) as place:
                return _run_in(place, args, program, devices, peers, mark, fabric, addresses)
    except Terminated as termination:
        return termination.status
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _run_in(
    place: Path,
    args: argparse.Namespace,
    program: Sequence[str],
    devices: Sequence[str],
    peers: Sequence[str],
    mark: str,
    fabric: run_fabric.RunFabric | None,
    addresses: Sequence[str],
) -> int:
    """Run the copies with a folder of their own."""
    captures, reports = place / "captures", place / "faults"
    captures.mkdir()
    decision = decide(program)
    shared = shares_devices(os.environ, decision.wanted)
    _tell(args.explain, decision.reason, shared)
    prepare(place, devices, os.environ.get("PATH", os.defpath), shared)
    folder = captures if args.capture and fabric is None else None
    environments = [
        environment(os.environ, rank, devices[rank], peers, place, folder)
        | {MARK_VARIABLE: mark}
        | faults_variables(args.faults, reports)
        | explain_variables(args.explain, place / "accounts")
        for rank in range(args.copies)
    ]
    if fabric is not None:
        environments = [each | fabric.variables(rank) for rank, each in enumerate(environments)]
    if args.sockets:
        environments = [with_sockets(each, place) for each in environments]
    with ExitStack() as stack:
        if fabric is not None:
            own = os.environ | {MARK_VARIABLE: mark}
            given = args.capture, args.partitions, addresses
            stack.enter_context(run_fabric.served(fabric, args.link, place, own, *given))
        if shared:
            stack.enter_context(served(environments, mark, place))
        for each in environments if shared else ():
            each.update(preloaded(each))
        status = Copies(command_line(program), environments).run()
    print_reports("run", reports)
    print_accounts(place / "accounts")
    if folder is not None:
        count = merge_captures(sorted(captures.iterdir()), args.capture)
        _log.info("%d packets in %s", count, args.capture)
    return status


def _tell(explain: bool, reason: str, shared: bool) -> None:
    """Say what the program gets, and why: in the log, and on stderr where that was asked for."""
    given = "an adapter process for each device, and libibverbs preloaded" if shared else "adapters inside"
    variable = os.environ.get(ADAPTER, "")
    said = [f"{given}: {ADAPTER}={variable} says so" if variable else f"{given}: {reason}"]
    if shared:
        said += filter(None, [obstacle()])
    for line in said:
        _log.info("%s", line)
        if explain:
            print(f"softhca run: {line}", file=sys.stderr)


@contextmanager
def _kept_folder(mark: str) -> Iterator[Path]:
    """A folder in the temporary directory; it goes with the block, or with this process."""
    place = Path(tempfile.gettempdir(), f"softhca-run-{mark}")
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py")), mark, str(place)]
    try:
        keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        raise CommandError(f"cannot start {sys.executable}: {error.strerror}") from error
    try:
        place.mkdir(mode=0o700)  # not before somebody knows of it who removes it
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        with suppress(BrokenPipeError):
            keeper.communicate(DONE)


def check(args: argparse.Namespace, program: Sequence[str]) -> None:
    """Raises :class:`UsageError` for what is not supported or does not go together."""
    if not program:
        raise UsageError("which program?  softhca run [options] -- PROGRAM ARGS…")
    if args.link == "shm" and (args.capture or args.faults):
        raise UsageError("--capture and --faults act on packets: they go with --link udp, not shm")
    if args.fabric_name and not args.link.startswith(run_fabric.PREFIX):
        raise UsageError("--fabric-name goes with --link fabric:TOPOLOGY")
    if args.partitions is not None and not args.link.startswith(run_fabric.PREFIX):
        raise UsageError("--partitions goes with --link fabric:TOPOLOGY")
    if args.capture is not None and not args.capture.absolute().parent.is_dir():
        raise UsageError(f"--capture {args.capture}: there is no such folder")


class Terminated(Exception):
    """This process was told to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.status = 128 + number


class Copies:
    """The running copies of one program, ended together."""

    def __init__(self, command: Sequence[str], environments: Sequence[dict[str, str]]) -> None:
        self.command = command
        self.environments = environments
        self.processes: list[subprocess.Popen[bytes]] = []
        self._ended = threading.Condition()
        self._statuses: list[int] = []

    def run(self) -> int:
        """Start all, wait for all; the status of the first that fails, else 0.

        A copy that fails, or an exception (a signal's), ends the others.
        """
        try:
            self._start()
            return self._wait()
        finally:
            self._end_all()

    def _start(self) -> None:
        for rank, variables in enumerate(self.environments):
            try:
                process = subprocess.Popen(self.command, env=variables)
            except OSError as error:
                raise CommandError(
                    f"cannot start {self.command[0]}: {error.strerror}", remedy_of_program(self.command[0])
                ) from error
            _log.info("copy %d is process %d at %s", rank, process.pid, variables["SOFTHCA_DEVICES"])
            self.processes.append(process)
            threading.Thread(target=self._watch, args=(rank, process), daemon=True).start()

    def _watch(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        status = exit_status(process.wait())
        if status:
            _log.info("copy %d ended with status %d", rank, status)
        with self._ended:
            self._statuses.append(status)
            self._ended.notify_all()

    def _wait(self) -> int:
        with self._ended:
            while len(self._statuses) < len(self.processes) and not any(self._statuses):
                self._ended.wait(LOOK_S)
            return next((status for status in self._statuses if status), 0)

    def _end_all(self) -> None:
        """Ask the remaining copies to end; make those end that have not within `GRACE_S`."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        until_s = time.monotonic() + GRACE_S
        for process in self.processes:
            try:
                process.wait(max(until_s - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                process.kill()
        for process in self.processes:
            process.wait()


def remedy_of_program(name: str) -> str:
    """What to do where a program cannot be started."""
    if os.path.isfile(name):
        return f"make it executable: chmod +x {name}"
    return "name a program of PATH, or one with its folder: ./PROGRAM"


def exit_status(returncode: int) -> int:
    """The shell's exit status for a process: 128 + the signal that killed it."""
    return returncode if returncode >= 0 else 128 - returncode


@contextmanager
def _termination() -> Iterator[None]:
    """While the block runs, SIGTERM and SIGHUP (unless it is ignored, as under nohup) raise
    :class:`Terminated`, once.
    """
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP)
               if signal.getsignal(number) is not signal.SIG_IGN]

    def terminated(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    before = {number: signal.signal(number, terminated) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
