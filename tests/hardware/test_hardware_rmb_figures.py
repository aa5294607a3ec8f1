"""The five timing diagrams, every signal in every clock; and what their tables say in few words."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from softhca.hardware.figures import FIGURES
from softhca.hardware.trace import Row, differences, record

READS = {  # the clocks in which the walk reads
    13: [3, 4, 5, 6, 7, 9, 10, 11, 12, 13],
    14: [1, 2, 3],
    15: [3, 5, 6, 7, 8],
    16: [3, 4, 6, 8, 10, 13, 14],
    17: [4, 6, 9, 11, 13, 17, 18],
}
CLEARS = {13: {}, 14: {}, 15: {}, 16: {6: 1, 8: 2, 10: 3, 12: 4}, 17: {9: 1, 16: 4}}
"""The words that are cleared, by clock."""
NEXT_VI = {13: 10, 14: 6, 15: 6, 16: 14, 17: 18}
"""The first clock with another VI."""


@pytest.fixture(scope="module", params=sorted(FIGURES))
def figure(request: pytest.FixtureRequest) -> tuple[int, list[Row]]:
    shown = FIGURES[request.param]
    return request.param, record(shown.manager(), shown.stimulus())


def test_every_signal_in_every_clock_is_the_table_s(figure: tuple[int, list[Row]]) -> None:
    number, rows = figure
    assert differences(rows, FIGURES[number].expected()) == []


def test_a_table_leaves_open_only_what_an_idle_write_port_shows(figure: tuple[int, list[Row]]) -> None:
    number, _ = figure
    for row in FIGURES[number].expected():
        open_fields = {field.name for field in fields(Row) if getattr(row, field.name) is None}
        assert open_fields == (set() if row.mem_we else {"mem_wr_addr", "mem_wr_data"})


def test_reads_clears_and_vis_fall_into_the_figure_s_clocks(figure: tuple[int, list[Row]]) -> None:
    number, rows = figure
    assert [row.clock for row in rows if row.mem_re and not row.rq_read] == READS[number]
    clears = {row.clock: row.mem_wr_addr for row in rows if row.mem_we and not row.rq_write}
    assert clears == CLEARS[number]
    assert next(row.clock for row in rows if row.vi != rows[0].vi) == NEXT_VI[number]


def test_the_rq_has_the_memory_in_each_clock_in_which_it_asks() -> None:
    rows = record(FIGURES[17].manager(), FIGURES[17].stimulus())
    assert [row.clock for row in rows if row.rq_read] == [3, 5, 10, 12]
    assert [row.clock for row in rows if row.rq_write] == [8, 15]
    assert all(row.mem_re and row.mem_rd_addr == row.rq_addr for row in rows if row.rq_read)
    assert all(row.mem_we and row.mem_wr_addr == row.rq_addr for row in rows if row.rq_write)


def test_a_difference_is_told_by_clock_and_signal() -> None:
    rows = FIGURES[13].expected()
    changed = [*rows[:3], replace(rows[3], vi=9), *rows[4:]]
    assert differences(changed, rows) == ["clock 4: vi is 9, not 0"]
