"""Who runs which file of tests, as xdist's ``--dist loadfile``; what a worker reads, and what it tells.

Each worker of xdist reads all tests before it runs its own: 10 s a worker, of which nothing is left but the
list.  Here a file stands in the list as one test, and a worker reads a file when it begins to run it.  It is
told to run a file, not 30 tests one by one; and of a test that passes it tells one thing, not six, which took
as long as most tests do, set-up and end included.

All tests are read as usual where some are chosen by name or mark.
"""

from __future__ import annotations

import functools
import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

RUNNING = "softhca_running"
"""In what a worker is given: the file that holds the name of the test that it runs, should it crash."""
LONGEST_NAME = 1024
_folder = pytest.StashKey["tempfile.TemporaryDirectory[str]"]()


@functools.cache
def schedule_of() -> type:
    """The class; where no xdist is, nobody asks for it."""
    from xdist.scheduler import LoadFileScheduling

    class FileSchedule(LoadFileScheduling):  # type: ignore[misc]
        """Of what a worker has been given, only what it has still to run is kept.

        xdist looks for the number of each test in the list of all, from its beginning, and after each test
        counts all that a worker has had.
        """

        places: dict[str, int]
        told = run = 0
        late = False
        """Whether files are read when they are run."""

        def schedule(self) -> None:
            """All workers have the same tests."""
            if self.collection is None:
                self.late = all(RUNNING in node.workerinput for node in self.nodes)
                first = next(iter(self.registered_collections.values()))
                self.places = {name: place for place, name in enumerate(first)}
            super().schedule()

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_logreport(self) -> None:
            """Let what the terminal shows as the share of all tests be that of all files, where nobody knows
            how many tests there are."""
            self.told += 1
            self._estimate()

        def _estimate(self) -> None:
            if self.late:
                session = self.config.pluginmanager.getplugin("session")
                session.testscollected = max(1, self.told * len(self.places) // max(1, self.run))

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            """A worker has run one, or all of a file."""
            name = self.registered_collections[node][item_index]
            given, scope = self.assigned_work[node], self._split_scope(name)
            del given[scope][name]
            if not given[scope]:
                del given[scope]
            self.run += 1
            self._estimate()
            self._reschedule(node)

        def remove_node(self, node: Any) -> str | None:
            """A worker has ended; the test in which it did, where it had more to do."""
            crashed = super().remove_node(node)
            if crashed is None or not self.late:
                return crashed
            return Path(node.workerinput[RUNNING]).read_text().strip() or crashed

        def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
            return sum(map(len, workload.values()))

        def _assign_work_unit(self, node: Any) -> None:
            scope, tests = self.workqueue.popitem(last=False)
            self.assigned_work[node][scope] = tests
            node.send_runtest_some([self.places[name] for name in tests])

    return FileSchedule


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For ``--dist loadfile``; xdist has its own for others."""
    if config.getvalue("dist") != "loadfile":
        return None
    schedule = schedule_of()(config, log)
    config.pluginmanager.register(schedule)
    return schedule


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Say to a worker whether files are read when they are run."""
    config = node.config
    chosen = [config.option.keyword, config.option.markexpr, config.option.deselect]
    if config.getvalue("dist") == "loadfile" and not any(chosen) and "::" not in "".join(config.args):
        if _folder not in config.stash:
            config.stash[_folder] = tempfile.TemporaryDirectory(prefix="softhca-tests-")
        running = Path(config.stash[_folder].name, node.gateway.id)
        running.touch()
        node.workerinput[RUNNING] = str(running)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Nothing is left of who ran what."""
    if _folder in config.stash:
        config.stash[_folder].cleanup()


class _Unread(pytest.File):
    """A file of tests in the list of all."""

    def collect(self) -> Iterator[pytest.Item]:
        yield _Tests.from_parent(self, name="*")


class _Tests(pytest.Item):
    """All tests of a file, as one."""

    def read(self) -> list[pytest.Item]:
        """The tests.  What reading makes is no garbage, so the collector need not look."""
        gc.disable()
        try:
            items = list(_items_of(pytest.Module.from_parent(self.parent.parent, path=self.path)))
            self.config.hook.pytest_collection_modifyitems(
                session=self.session, config=self.config, items=items
            )
        finally:
            gc.enable()
        return items

    def runtest(self) -> None:
        """What pytest asks of an item."""
        self.run(None)

    def run(self, following: pytest.Item | None) -> None:
        """Run the tests; ``following`` comes behind them and may use what they have set up for all."""
        items = self.read()
        for item, after in zip(items, [*items[1:], following], strict=False):  # there may be none
            self.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self.session.shouldfail or self.session.shouldstop:
                return


def _items_of(node: pytest.Item | pytest.Collector) -> Iterator[pytest.Item]:
    """As pytest's own session does it."""
    if isinstance(node, pytest.Item):
        node.ihook.pytest_itemcollected(item=node)
        yield node
        return
    node.ihook.pytest_collectstart(collector=node)
    report = node.ihook.pytest_make_collect_report(collector=node)
    report.__dict__.pop("call", None)
    if report.passed:
        for each in report.result:
            yield from _items_of(each)
    node.ihook.pytest_collectreport(report=report)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.File | None:
    """Where files are read when they are run, one that is not read."""
    if RUNNING in getattr(parent.config, "workerinput", ()):
        return _Unread.from_parent(parent, path=module_path)
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """The tests of a file, where that stands for them."""
    if not isinstance(item, _Tests):
        return None
    item.run(nextitem)
    return True


class _Terse:
    """Takes the place of what a worker of xdist tells of each test: not that it begins and ends, and of its
    set-up and its end only what is no success, or belongs to a failure; ``all`` of it where somebody reads
    how long these took."""

    def __init__(self, worker: Any, config: pytest.Config, everything: bool) -> None:
        self._worker, self._config, self._everything = worker, config, everything
        self._failed = False
        running = config.workerinput.get(RUNNING)  # type: ignore[attr-defined]
        self._running = os.open(running, os.O_WRONLY) if running else None
        config.pluginmanager.unregister(worker)
        for name in ("logreport", "logstart", "logfinish"):
            setattr(worker, f"pytest_runtest_{name}", None)  # no hooks of it any more
        config.pluginmanager.register(worker)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        if self._running is not None:
            os.pwrite(self._running, nodeid.encode()[:LONGEST_NAME].ljust(LONGEST_NAME), 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """What has become of a part of a test."""
        if report.when == "setup":
            self._failed = False
        self._failed = self._failed or report.failed
        if self._everything or report.when == "call" or self._failed or not report.passed:
            report.keywords = {}  # some twenty words, by which tests are chosen
            data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
            by = self._worker
            data.update(item_index=by.item_index, worker_id=by.workerid, testrun_uid=by.testrunuid)
            by.sendevent("testreport", data=data)


def pytest_configure(config: pytest.Config) -> None:
    """Let this process, where it is a worker, send only what somebody reads."""
    for plugin in list(config.pluginmanager.get_plugins()):
        if type(plugin).__name__ == "WorkerInteractor":  # the table of durations has the times of set-ups
            config.pluginmanager.register(_Terse(plugin, config, config.option.durations is not None))
