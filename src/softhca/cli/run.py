"""``softhca run``: copies of an unmodified program, each with an adapter of its own."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from softhca.cli.errors import CommandError, UsageError
from softhca.cli.fault_reports import add_faults_option, faults_variables, print_reports
from softhca.cli.launch import command_line, environment, free_loopback_addresses, write_alias
from softhca.cli.merge import merge_captures
from softhca.cli.roles import SAME_HOST, number

GRACE_S = 5.0

_log = logging.getLogger("softhca.run")


def add_parser(subparsers: Any) -> None:
    """Add ``run``."""
    parser = subparsers.add_parser(
        "run",
        help="run copies of a program, each with its own adapter",
        description="Each copy has SOFTHCA_RANK (0 …), SOFTHCA_PEERS (all addresses, in rank order) and one "
        "device softhca0; `import pyverbs` finds softhca's verbs.  The exit status is that of the first copy "
        "that fails, whereupon the others are ended.",
    )
    parser.add_argument(
        "-n", "--copies", type=number(1, 253), default=1, metavar="N", help="copies (default 1)"
    )
    parser.add_argument(
        "--link",
        default="",
        metavar="udp|shm|fabric:FILE",
        help="how the adapters are joined: packets, or shared memory, with a warning where that cannot be "
        "(default: shared memory where that can be, packets otherwise)",
    )
    parser.add_argument(
        "--capture", type=Path, default=None, metavar="FILE.pcapng", help="write all packets to FILE"
    )
    add_faults_option(parser)
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ARGS…")


def run(args: argparse.Namespace) -> int:
    """Run the copies; returns their exit status."""
    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    check(args, program)
    addresses = free_loopback_addresses(args.copies)
    with tempfile.TemporaryDirectory(prefix="softhca-run-") as name:
        alias, captures = Path(name, "alias"), Path(name, "captures")
        alias.mkdir()
        captures.mkdir()
        write_alias(alias)
        folder = captures if args.capture else None
        reports = Path(name, "faults")
        environments = [
            environment(os.environ, rank, addresses, alias, folder, SAME_HOST.get(args.link))
            | faults_variables(args.faults, reports)
            for rank in range(args.copies)
        ]
        status = Copies(command_line(program), environments).run()
        print_reports("run", reports)
        if args.capture:
            count = merge_captures(sorted(captures.iterdir()), args.capture)
            _log.info("%d packets in %s", count, args.capture)
    return status


def check(args: argparse.Namespace, program: Sequence[str]) -> None:
    """Raises :class:`UsageError` for what is not supported or does not go together."""
    if not program:
        raise UsageError("which program?  softhca run [options] -- PROGRAM ARGS…")
    packetless = args.link == "shm" or args.link.startswith("fabric:")
    if packetless and (args.capture or args.faults):
        raise UsageError(
            f"--capture and --faults act on packets: they go with --link udp, not {args.link}"
        )
    if args.link.startswith("fabric:"):
        raise UsageError(f"--link {args.link} is not supported yet; --link udp and --link shm are")
    if args.link not in ("", *SAME_HOST):
        raise UsageError(f"--link {args.link}: expected udp, shm or fabric:FILE")
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

        A copy that fails, SIGINT or SIGTERM end the others.
        """
        with _termination():
            try:
                self._start()
                return self._wait()
            except Terminated as termination:
                return termination.status
            except KeyboardInterrupt:
                return 128 + signal.SIGINT
            finally:
                self._end_all()

    def _start(self) -> None:
        for rank, variables in enumerate(self.environments):
            try:
                process = subprocess.Popen(self.command, env=variables)
            except OSError as error:
                raise CommandError(f"cannot start {self.command[0]}: {error.strerror}") from error
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
                self._ended.wait()
            return next((status for status in self._statuses if status), 0)

    def _end_all(self) -> None:
        """Ask the remaining copies to end, then make them."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def exit_status(returncode: int) -> int:
    """The shell's exit status for a process: 128 + the signal that killed it."""
    return returncode if returncode >= 0 else 128 - returncode


@contextmanager
def _termination() -> Iterator[None]:
    """While the block runs, SIGTERM raises :class:`Terminated`."""

    def terminated(number: int, frame: FrameType | None) -> None:
        raise Terminated(number)

    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
