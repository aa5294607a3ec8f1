"""rdma-core's own tests of pyverbs run unchanged: none fails.

The adapter in a process of its own takes minutes for all that open a device: ``suite.py --form process``.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from suite import Case, NotAvailable, cases_of, counts_of, fetch, run

from machine_speed import limit_s
from softhca import native
from softhca.native import build

ONLY = ("AHTest", "CQAPI", "DMTest", "DeviceMemory", "ParentDomain", "prefetch", "sync_traffic")
LEAST_OK = 132
"""Of the cases for all devices of release 44."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    try:
        yield fetch(tmp_path_factory.mktemp("pyverbs"))
    except NotAvailable as reason:
        pytest.skip(str(reason))


def test_cases_are_read_also_where_their_description_stands_between() -> None:
    text = (
        "test_a (tests.test_x.X.test_a)\nSays what it does. ... ok\n"
        "test_b (tests.test_x.X) ... skipped 'no such device'\n"
        "test_c (tests.test_mlx5_y.Y.test_c) ... skipped \"it isn't\"\n"
        "test_d (tests.test_x.X.test_d) ... printed\nFAIL\n"
        "======\ntest_e (tests.test_x.X.test_e) ... ok\n"
    )
    assert cases_of(text) == [
        Case("tests.test_x.X.test_a", "ok"),
        Case("tests.test_x.X.test_b", "skipped", "no such device"),
        Case("tests.test_mlx5_y.Y.test_c", "skipped", "it isn't"),
        Case("tests.test_x.X.test_d", "FAIL"),
    ]
    assert counts_of(cases_of(text)) == {"ok": 1, "skipped": 1, "FAIL": 1}


def test_the_distributions_pyverbs_runs_on_the_library_in_c(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's own extension modules, and a part of the cases: all take half a minute (``suite.py --form
    library``).  The one that fails wants address handles without a route refused, which librdmacm's datagram
    sockets make.
    """
    if native.library() is None:
        if build.compiler() is None:
            pytest.skip("there is no C compiler")
        build.build(tmp_path / "libibverbs.so.1")
        monkeypatch.setenv(native.VARIABLE, str(tmp_path / "libibverbs.so.1"))
    try:
        cases, text = run(suite, "library", limit_s(60), ONLY)
    except NotAvailable as reason:
        pytest.skip(str(reason))
    failed = [case.name for case in cases if case.outcome not in ("ok", "skipped")]
    assert failed == ["tests.test_addr.AHTest.test_create_ah_roce"], text
    assert counts_of(cases)["ok"] >= 30, text


@pytest.mark.parametrize("form", ["embedded", "packets"])
def test_no_case_of_the_suite_fails(suite: Path, form: str) -> None:
    cases, text = run(suite, form)
    failed = [case.name for case in cases if case.outcome not in ("ok", "skipped")]
    assert failed == [], text
    assert counts_of(cases)["ok"] >= LEAST_OK, text
