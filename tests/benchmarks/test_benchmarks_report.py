"""From figures to medians, tables, verdicts and the document."""

import contextlib
import json
import os
from pathlib import Path

import pytest
from bench import document, load, plan, plots, report, rounds, softhca_perf, targets
from bench.measure import Absent, Figure
from bench.rounds import Results, from_document

TEXT = """\
# Title
<!-- one: written by make bench -->
old
<!-- end of one -->
between
<!-- two: written by make bench -->
<!-- end of two -->
"""


def bandwidth_of(gigabytes):
    return Figure(bandwidth_bytes_per_s=gigabytes * 1e9)


@pytest.fixture
def results():
    """Three rounds of a machine that got slower, with iperf3 broken in the second one."""
    found = Results(rounds=3, seconds=0.5, elapsed_s=240.0, machine={"kernel": "Linux 6.1", "UCX": "1.13.1"})
    found.figures = {
        (plan.BANDWIDTH, plan.WRITE, plan.MIB): [bandwidth_of(6), bandwidth_of(5), bandwidth_of(2)],
        (plan.BANDWIDTH, plan.IPERF, plan.MIB): [bandwidth_of(5), None, bandwidth_of(4)],
        (plan.BANDWIDTH, plan.UCX_PUT, plan.MIB): [bandwidth_of(2), bandwidth_of(2), bandwidth_of(0.5)],
        (plan.BANDWIDTH, plan.SHM_WRITE, plan.MIB): [None, None, None],
        (plan.LATENCY, plan.SEND, plan.WORD): [Figure(latency_us={"p50": 6.0, "p99": 12.5})] * 3,
        (plan.LATENCY, plan.PYTHON_UDP_SPIN, plan.WORD): [Figure(latency_us={"p50": 4.0, "p99": 9.0})] * 3,
        (plan.LATENCY, plan.LIBFABRIC, plan.WORD): [Figure(latency_us={"mean": 15.0})] * 3,
        (plan.SCALING, plan.WRITE, 1): [Figure(rate_per_s=1.2e6)] * 3,
        (plan.SCALING, plan.WRITE, 10_000): [Figure(rate_per_s=1e6)] * 3,
        (plan.STANDING, "idle adapter", 0): [
            Figure(extra={"embedded share": 0.0001, "embedded wakeups": 0, "process share": 0.0002,
                          "process wakeups": 1})
        ] * 3,
    }  # fmt: skip
    found.absent = {(plan.BANDWIDTH, plan.SHM_WRITE, plan.MIB): "no such link"}
    return found


def test_a_median_is_over_the_rounds_that_gave_a_figure(results):
    assert results.median((plan.BANDWIDTH, plan.WRITE, plan.MIB), targets.bandwidth) == 5e9
    assert results.median((plan.BANDWIDTH, plan.IPERF, plan.MIB), targets.bandwidth) == 4.5e9
    assert results.median((plan.BANDWIDTH, plan.SHM_WRITE, plan.MIB), targets.bandwidth) is None
    assert results.median(("no", "such", 0), targets.bandwidth) is None


def test_a_ratio_is_the_median_of_the_rounds_ratios(results):
    write, put = ((plan.BANDWIDTH, name, plan.MIB) for name in (plan.WRITE, plan.UCX_PUT))
    assert results.ratio(write, put, targets.bandwidth) == 3.0
    assert results.ratio(write, (plan.BANDWIDTH, plan.IPERF, plan.MIB), targets.bandwidth) == pytest.approx(
        (6 / 5 + 2 / 4) / 2
    )
    assert results.ratio(write, (plan.BANDWIDTH, plan.SHM_WRITE, plan.MIB), targets.bandwidth) is None


def test_figures_are_kept_whole(results):
    again = from_document(json.loads(json.dumps(results.as_document())))
    assert again == results


def rows(results):
    return {target.what: (target, targets.verdict(target)) for target in targets.targets(results)}


def test_verdicts_follow_from_the_bounds(results):
    found = rows(results)
    assert found["RC WRITE 1 MiB, UDP"][1] == "missed"  # 0.85 of iperf3
    measured = "5.00 GB/s; 0.85 × iperf3 (0.50 … 1.20); 3.00 × UCX put (2.50 … 4.00)"
    assert found["RC WRITE 1 MiB, UDP"][0].measured == measured
    assert found["RC SEND 8 B one way, both polling, UDP"][1] == "must"  # UCX was not measured
    assert found["10,000 queue pairs against 1, cost of a message of 8 B"][1] == "missed"  # 1.2
    assert found["idle adapter"][1] == "must"  # one wake-up
    assert found["RC WRITE 1 MiB, same host"][1] == "not measured"
    assert found["RC READ 64 KiB, UDP"][1] == "not measured"
    assert found["RC WRITE 1 MiB, UDP, adapter processes"][1] == "not measured"


def test_the_same_rows_on_better_and_worse_machines(results):
    fast = [bandwidth_of(9)] * 3
    results.figures[plan.BANDWIDTH, plan.WRITE, plan.MIB] = fast
    results.figures[plan.SCALING, plan.WRITE, 10_000] = [Figure(rate_per_s=1.2e6)] * 3
    found = rows(results)
    assert found["RC WRITE 1 MiB, UDP"][1] == "aim"
    assert found["10,000 queue pairs against 1, cost of a message of 8 B"][1] == "aim"
    results.figures[plan.BANDWIDTH, plan.UCX_PUT, plan.MIB] = fast
    results.figures[plan.SCALING, plan.WRITE, 10_000] = [Figure(rate_per_s=1.08e6)] * 3
    found = rows(results)
    assert found["RC WRITE 1 MiB, UDP"][1] == "missed"
    assert found["10,000 queue pairs against 1, cost of a message of 8 B"][1] == "must"


def test_a_busy_machine_has_bounds_and_columns_of_its_own(results):
    results.figures[plan.LATENCY, plan.SEND, plan.WORD] = [Figure(latency_us={"p50": 7.6, "p99": 12.5})] * 3
    name = "RC SEND 8 B one way, both polling, UDP"
    assert rows(results)[name][1] == "missed"  # 1.9 of Python's
    busy = Results(rounds=2, condition=load.BUSY, loads=[2.0, 4.25], figures=results.figures)
    results.loads = [0.125]
    assert rows(busy)[name][1] == "must"
    text = report.report(results, busy=busy)
    assert "Load average before the quiet rounds: 0.1." in text
    assert "Busy: 2 more rounds" in text
    assert "load average before them: 2.0, 4.2." in text
    (head,) = (line for line in text.splitlines() if line.startswith("| target"))
    assert head == "| target | must | aim | measured, quiet | reached | measured, busy | reached |"
    (row,) = (line for line in text.splitlines() if line.startswith(f"| {name} "))
    assert [cell.strip() for cell in row.split("|")][5:8:2] == ["missed", "must"]


def test_the_busy_rounds_measure_what_the_targets_are_made_of(monkeypatch):
    needed = targets.needed()
    assert {key[0] for key in needed} == {plan.BANDWIDTH, plan.RATE, plan.LATENCY, plan.COMPLETION,
                                          plan.SEPARATE, plan.SCALING, plan.STANDING}  # fmt: skip
    cells = plan.cells(plan.Settings(only=needed))
    assert {cell.key for cell in cells} == needed
    began = []

    @contextlib.contextmanager
    def beside(condition):
        began.append(condition)
        yield
        began.append("")

    monkeypatch.setattr(rounds.load, "beside", beside)
    monkeypatch.setattr(rounds, "cells", lambda settings: began.append("cells") or [])
    monkeypatch.setattr(rounds.mpi, "measured", lambda sizes, seconds: {})
    found = rounds.measure(plan.Settings(), 2, 60.0, {}, load.BUSY)
    assert began == ["busy", "cells", ""] * 2
    assert (found.condition, len(found.loads)) == ("busy", 2)


def test_busy_loops_end_with_what_runs_beside_them():
    def children():
        return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()

    before = children()
    with load.beside(load.BUSY):
        assert len(children()) == len(before) + len(os.sched_getaffinity(0))
    assert children() == before
    with load.beside(load.QUIET):
        assert children() == before


@pytest.mark.parametrize(
    ("bounds", "held"),
    [
        ((targets.Bound(2.0, 2.0),), True),
        ((targets.Bound(1.9, 2.0),), False),
        ((targets.Bound(2.0, 2.0, most=True),), True),
        ((targets.Bound(2.1, 2.0, most=True),), False),
        ((targets.Bound(3.0, 2.0), targets.Bound(None, 1.0)), None),
        ((targets.Bound(1.0, 2.0), targets.Bound(None, 1.0)), False),
        ((), None),
    ],
)
def test_bounds(bounds, held):
    assert targets.all_of(bounds) is held


def test_the_report_names_machine_absences_and_figures(results):
    text = report.report(results, ["latency"])
    assert "Linux 6.1, UCX 1.13.1. Medians of 3 rounds" in text
    assert f"* {plan.SHM_WRITE}: no such link (bandwidth)." in text
    assert "| softhca WRITE | 5.00 GB/s |" in text
    assert "6.00 / 12.5 µs" in text
    assert "15.0 µs (mean)" in text
    assert "| 10,000 | 1,000 k/s | 1.20 × |" in text
    assert "(performance-latency.svg)" in text
    assert "(performance-bandwidth.svg)" not in text
    # every row of a table has as many columns as its head
    width = 0
    for line in text.splitlines():
        if line.startswith("|"):
            width = width or line.count("|")
            assert line.count("|") == width, line
        else:
            width = 0


def test_text_goes_between_its_own_markers():
    once = document.between(TEXT, "one", "new\n")
    assert once == TEXT.replace("old", "new")
    assert document.between(once, "one", "new") == once
    assert "two: written by make bench -->\nmore\n<!-- end of two" in document.between(TEXT, "two", "more")


@pytest.mark.parametrize(
    "text",
    ["", TEXT + TEXT, "<!-- end of one -->\n<!-- one: written by make bench -->\n"],
    ids=["none", "twice", "turned"],
)
def test_a_file_without_its_markers_is_left_alone(tmp_path, text):
    path = tmp_path / "file.md"
    path.write_text(text)
    with pytest.raises(ValueError, match="markers"):
        document.write(path, "one", "new")
    assert path.read_text() == text


def test_the_document_has_the_markers():
    from performance import DOCUMENT, MARKERS

    document.between(DOCUMENT.read_text(), MARKERS, "")


def test_a_round_goes_on_where_something_is_absent_or_not_understood(monkeypatch):
    def fail(error):
        raise error

    made = [
        plan.Cell(("rate", "here", 8), lambda: Figure(rate_per_s=1.0)),
        plan.Cell(("rate", "mpi4py there", 8), lambda: fail(Absent("gave nothing"))),
        plan.Cell(("rate", "gone", 8), lambda: fail(Absent("it is not installed"))),
        plan.Cell(("rate", "odd", 8), lambda: fail(ValueError("no line"))),
    ]
    monkeypatch.setattr(rounds, "cells", lambda settings: made)
    no_mpi = Absent("mpirun is not installed")
    monkeypatch.setattr(rounds.mpi, "measured", lambda sizes, seconds: fail(no_mpi))
    found = rounds.measure(plan.Settings(), 2, 60.0, {})
    assert found.rounds == 2
    assert found.figures["rate", "here", 8] == [Figure(rate_per_s=1.0)] * 2
    assert found.figures["rate", "odd", 8] == [None, None]
    assert found.absent == {
        ("rate", "mpi4py there", 8): "mpirun is not installed",
        ("rate", "gone", 8): "it is not installed",
        ("rate", "odd", 8): "its output was not understood: no line",
    }


def test_no_round_begins_that_would_end_too_late(monkeypatch):
    monkeypatch.setattr(rounds, "cells", lambda settings: [])
    monkeypatch.setattr(rounds.mpi, "measured", lambda sizes, seconds: {})
    assert rounds.measure(plan.Settings(), 5, -1.0, {}).rounds == 1
    assert rounds.measure(plan.Settings(), 5, 60.0, {}).rounds == 5


def test_every_cell_is_measured_once_a_round_and_compared_ones_side_by_side():
    keys = [cell.key for cell in plan.cells(plan.Settings())]
    assert len(set(keys)) == len(keys)
    for size in plan.SIZES:
        row = [key[1] for key in keys if key[0] == plan.BANDWIDTH and key[2] == size]
        assert {plan.WRITE, plan.READ, plan.SEND, plan.IPERF, plan.UCX_PUT, plan.MEMCPY} <= set(row)
        first = keys.index((plan.BANDWIDTH, row[0], size))
        assert [key[1] for key in keys[first : first + len(row)]] == row
    assert [key[2] for key in keys if key[0] == plan.SCALING] == [1, 10, 100, 1_000, 10_000]


def test_a_command_of_softhca_perf():
    assert softhca_perf.command_of("python", "write-bw", 8, "--qps", "10") == [
        "python", "-m", "softhca", "perf", "write-bw", "--size", "8", "--json", "--qps", "10",
    ]  # fmt: skip


def test_plots_are_drawn_of_what_there_is(results, tmp_path):
    if not plots.available():
        assert plots.draw(results, tmp_path) == []
        return
    drawn = plots.draw(results, tmp_path)
    assert drawn == ["bandwidth", "latency", "queue-pairs"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"performance-{n}.svg" for n in drawn)
    first = (tmp_path / "performance-latency.svg").read_bytes()
    assert b"libfabric" in first
    plots.draw(results, tmp_path)
    assert (tmp_path / "performance-latency.svg").read_bytes() == first
