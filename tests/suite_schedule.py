"""Who runs which file of tests: as xdist's ``--dist loadfile``, without going through all tests for each; and
what workers tell of a test that passes.

xdist looks for the number of each test in the list of all, from its beginning, and after each test counts
all that a worker has had.  For 24,000 tests that is six seconds of a processor which the workers need.  And
its workers send six messages of each test, which take as long as most tests do, set-up and end included: of a
test that passes, four say nothing that anybody reads.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest


@functools.cache
def schedule_of() -> type:
    """The class; where no xdist is, nobody asks for it."""
    from xdist.scheduler import LoadFileScheduling

    class FileSchedule(LoadFileScheduling):  # type: ignore[misc]
        """Of what a worker has been given, only what it has still to run is kept."""

        places: dict[str, int]

        def schedule(self) -> None:
            """All workers have the same tests."""
            if self.collection is None:
                first = next(iter(self.registered_collections.values()))
                self.places = {name: place for place, name in enumerate(first)}
            super().schedule()

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            """A worker has run one."""
            name = self.registered_collections[node][item_index]
            given, scope = self.assigned_work[node], self._split_scope(name)
            del given[scope][name]
            if not given[scope]:
                del given[scope]
            self._reschedule(node)

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
    return schedule_of()(config, log) if config.getvalue("dist") == "loadfile" else None


class _Terse:
    """Takes the place of what a worker of xdist tells of each test: not that it begins and ends, and of its
    set-up and its end only what is no success, or belongs to a failure."""

    def __init__(self, worker: Any, config: pytest.Config) -> None:
        self._tell, self._failed = worker.pytest_runtest_logreport, False
        config.pluginmanager.unregister(worker)
        for name in ("logreport", "logstart", "logfinish"):
            setattr(worker, f"pytest_runtest_{name}", None)  # no hooks of it any more
        config.pluginmanager.register(worker)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """What has become of a part of a test."""
        if report.when == "setup":
            self._failed = False
        self._failed = self._failed or report.failed
        if report.when == "call" or self._failed or not report.passed:
            report.keywords = {}  # some twenty words, by which tests are chosen
            self._tell(report=report)


def say_less(config: pytest.Config) -> None:
    """Let this process, where it is a worker, send only what somebody reads."""
    if config.option.durations is None:  # their table has the times of set-ups
        for plugin in list(config.pluginmanager.get_plugins()):
            if type(plugin).__name__ == "WorkerInteractor":
                config.pluginmanager.register(_Terse(plugin, config))


def pytest_configure(config: pytest.Config) -> None:
    """Where this is a plugin by itself."""
    say_less(config)
