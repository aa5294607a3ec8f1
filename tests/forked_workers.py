"""Run the tests in forked workers: the suite is read once, and each worker begins with all of it in memory.

``Workers`` is a plugin of pytest with the option ``--workers N`` (``auto``: `suite_plan.workers_of`).
pytest-xdist, which developers may use as well (``-n 2 --dist loadfile``), starts an interpreter for each
worker, which reads all tests itself, and sends three reports of each test in an encoding of its own; with
tests as short as these both cost more than most of them.

The numbers of the files, in the order of pytest's list, stand in one pipe, and a worker that has nothing to
do takes the next one: the tests of a file stay in one worker, in their order.  A worker that dies fails the
test that it ran, and another one goes on with the rest.
"""

from __future__ import annotations

import atexit
import itertools
import os
import pickle
import random
import signal
import struct
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest

from suite_plan import workers_of

NUMBER = struct.Struct("<H")
MOST_FILES = 30_000
"""A pipe of 64 KiB takes 32,768 numbers before anybody reads them."""
NOBODY = -1


@dataclass
class Worker:
    """A worker as the parent sees it: its process, a descriptor that says when this ends, where its reports
    come from, the number of the test that it runs (``NOBODY``: none), and of those that are its own to run
    after that.
    """

    process: int
    ended: int
    reports: Connection
    running: int = NOBODY
    left: list[int] = field(default_factory=list)


class Workers:
    """The plugin."""

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        """``--workers``."""
        parser.addoption("--workers", default="1", metavar="N", help="run files of tests in N forked workers")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests in workers, if there shall be more than one."""
        count = number_of_workers(session.config)
        if count < 2 or session.testsfailed or session.config.option.collectonly:
            return None
        Run(session).all(count)
        return True


def number_of_workers(config: pytest.Config) -> int:
    """How many were asked for."""
    text = config.getoption("workers")
    if text == "auto":
        return workers_of(len(os.sched_getaffinity(0)))
    if not text.isdecimal() or not 1 <= int(text) <= 256:
        raise pytest.UsageError(f"--workers {text}: expected auto or 1…256")
    return int(text)


class Run:
    """One run of all tests of a session, in the parent."""

    def __init__(self, session: pytest.Session) -> None:
        self.session, self.items = session, session.items
        indices = range(len(self.items))
        by_file = itertools.groupby(indices, key=lambda index: self.items[index].path)
        self.files = [list(group) for _, group in by_file]
        if len(self.files) > MOST_FILES:
            raise pytest.UsageError(f"{len(self.files)} files of tests: at most {MOST_FILES} can wait")
        self.waiting = os.pipe()
        self.workers: list[Worker] = []
        self.begun = 0

    def all(self, count: int) -> None:
        """Start ``count`` workers and report what they say, until all have ended."""
        source, target = self.waiting
        os.write(target, b"".join(map(NUMBER.pack, range(len(self.files)))))
        os.close(target)
        try:
            for _ in range(min(count, len(self.files))):
                self.start([])
            while self.workers:
                said = wait([end for worker in self.workers for end in (worker.reports, worker.ended)])
                for worker in list(self.workers):
                    if worker.reports in said or worker.ended in said:
                        self.hear(worker)
        finally:
            os.close(source)
            for worker in self.workers:  # broken off: each ends behind the test that it runs
                worker.reports.close()
            for worker in self.workers:
                os.waitpid(worker.process, 0)
                os.close(worker.ended)

    def start(self, first: list[int]) -> None:
        """Start a worker, which runs the tests ``first`` and then the files that wait."""
        source, target = Pipe(duplex=False)
        number = self.begun
        self.begun += 1
        sys.stdout.flush()
        sys.stderr.flush()
        process = os.fork()
        if process:
            target.close()
            self.workers.append(Worker(process, os.pidfd_open(process), source, left=first))
            return
        status = 1
        try:
            for other in (source, *(worker.reports for worker in self.workers)):
                other.close()
            for worker in self.workers:
                os.close(worker.ended)
            Work(self.session, number, target).all(self.groups(first))
            status = 0
        except KeyboardInterrupt:
            pass
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def groups(self, first: list[int]) -> Iterator[list[int]]:
        """In a worker: the numbers of the tests of one file after the other, until none is left."""
        if first:
            yield first
        while data := os.read(self.waiting[0], NUMBER.size):
            yield self.files[NUMBER.unpack(data)[0]]

    def hear(self, worker: Worker) -> None:
        """Take one message of a worker, or its end.  Programs of its tests may outlive it and hold its side
        of the pipe open, so that this alone does not say that nobody is there.
        """
        try:
            message = worker.reports.recv_bytes() if worker.reports.poll() else b""
        except EOFError:
            message = b""
        if not message:
            self.bury(worker)
            return
        done, running, left = pickle.loads(message)
        if worker.running != NOBODY:
            self.report(worker.running, done)
        worker.running = running
        worker.left = worker.left[1:] if left is None else left
        if running != NOBODY:
            item = self.items[running]
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)

    def report(self, index: int, reports: list[Any]) -> None:
        """Hand what was said of a test to all that count and show it; no more tests after enough failures."""
        item = self.items[index]
        for said in reports:
            if isinstance(said, dict):
                report = item.config.hook.pytest_report_from_serializable(config=item.config, data=said)
            else:
                report = passed(item, *said)
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)
        if self.session.shouldstop:
            raise self.session.Interrupted(self.session.shouldstop)

    def bury(self, worker: Worker) -> None:
        """A worker has ended.  If it ran a test, this has failed, and another worker does the rest."""
        self.workers.remove(worker)
        worker.reports.close()
        os.close(worker.ended)
        status = os.waitstatus_to_exitcode(os.waitpid(worker.process, 0)[1])
        if worker.running == NOBODY:
            return
        item = self.items[worker.running]
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        why = f"the worker ended {how} in this test"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        data = item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
        self.start(worker.left)
        self.report(worker.running, [data])


def passed(item: pytest.Item, when: Any, duration: float, start: float, stop: float) -> pytest.TestReport:
    """The report of a part of a test that has passed, of which a worker says only how long it took."""
    return pytest.TestReport(item.nodeid, item.location, {}, "passed", None, when, (), duration, start, stop)


class Work:
    """The life of a worker; it is a plugin as well, which takes the reports."""

    def __init__(self, session: pytest.Session, number: int, target: Connection) -> None:
        self.session, self.target = session, target
        self.config = session.config
        self.reports: list[Any] = []
        self.config.pluginmanager.unregister(name="terminalreporter")
        self.config.pluginmanager.register(self)
        self.own_files(number)
        random.seed()

    def own_files(self, number: int) -> None:
        """What this worker's tests print goes to files of its own, not to those that all processes would
        share with one position; so does what they write to temporary folders.
        """
        manager = self.config.pluginmanager.getplugin("capturemanager")
        manager.stop_global_capturing()
        manager.start_global_capturing()
        manager.suspend_global_capture(in_=False)
        factory = self.config._tmp_path_factory  # type: ignore[attr-defined]
        factory._basetemp = factory.getbasetemp() / f"worker{number}"
        factory._basetemp.mkdir()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report, or, if there is nothing else to say, how long it took."""
        if report.passed and not report.user_properties and not hasattr(report, "wasxfail"):
            self.reports.append((report.when, report.duration, report.start, report.stop))
        else:
            hook = self.config.hook
            self.reports.append(hook.pytest_report_to_serializable(config=self.config, report=report))

    def tell(self, running: int, left: list[int] | None) -> None:
        """What became of the last test, which begins now, and what this worker has still to run, if that is
        not just one less."""
        self.target.send_bytes(pickle.dumps((self.reports, running, left)))
        self.reports = []

    def all(self, groups: Iterator[list[int]]) -> None:
        """Run the tests of these files and tell of them, until there is none, or nobody listens."""
        try:
            indices = next(groups, [])
            while indices:
                indices = self.file(indices, groups)
        except BrokenPipeError:
            self.session._setupstate.teardown_exact(None)
            atexit._run_exitfuncs()
            return
        atexit._run_exitfuncs()
        self.tell(NOBODY, [])

    def file(self, indices: list[int], groups: Iterator[list[int]]) -> list[int]:
        """Run these tests; returns those of the next file.  It must be known before the last of these runs,
        as it decides whose fixtures end."""
        items, following = self.session.items, []
        for place, index in enumerate(indices):
            if place + 1 < len(indices):
                self.tell(index, None if place else indices[1:])
                after = items[indices[place + 1]]
            else:
                following = next(groups, [])
                self.tell(index, following)
                after = items[following[0]] if following else None
            items[index].ihook.pytest_runtest_protocol(item=items[index], nextitem=after)
        return following
