"""``softhca rmb trace``: rows, JSON, waveforms and the pictures in the documentation."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from softhca.cli.main import main
from softhca.hardware import figures
from softhca.hardware.figures import FIGURES
from softhca.hardware.timing_diagram import draw
from softhca.hardware.trace import differences, record

DOCS = Path(__file__).parents[2] / "docs"
FIELDS = [
    "clock", "state", "vi", "sq_start", "sq_done", "pd_fail", "key_fail", "rq_read", "rq_write", "rq_addr",
    "mem_re", "mem_rd_addr", "mem_rd_data", "mem_we", "mem_wr_addr", "mem_wr_data",
]  # fmt: skip


@pytest.mark.parametrize("number", sorted(FIGURES))
def test_the_json_has_every_signal_of_each_clock(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rmb", "trace", "--figure", str(number), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["clock"] for row in rows] == list(range(1, len(rows) + 1))
    assert [list(row) for row in rows] == [FIELDS] * len(rows)
    assert rows[0]["sq_done"] is (number != 14)


def test_the_table_tells_the_clocks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rmb", "trace", "--figure", "16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.split("│")] for line in lines if line.count("│") == 17]
    assert cells[5][1:4] == ["6", "CLEAR0", "0"]
    assert cells[5][11:17] == ["1", "2", "9234567", "1", "1", "1234567"]
    assert cells[4][11:17] == ["0", "2", "9234567", "0", "-", "-"]


@pytest.mark.parametrize("number", sorted(FIGURES))
def test_the_pictures_in_the_documentation_are_what_the_command_draws(number: int, tmp_path: Path) -> None:
    path = tmp_path / "figure.svg"
    assert main(["rmb", "trace", "--figure", str(number), "--json", "--svg", str(path)]) == 0
    assert path.read_text() == (DOCS / f"rmb-figure-{number}.svg").read_text()


def test_a_picture_has_a_lane_a_signal_and_a_number_a_clock() -> None:
    figure = FIGURES[17]
    rows = record(figure.manager(), figure.stimulus())
    root = ElementTree.fromstring(draw(figure.heading, rows, figure.signals))
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for label in ("SQ start", "RQ source address", "RQ memory write", "key fail", "rmb_mem_wr_data"):
        assert words.count(label) == 1
    assert {str(row.clock) for row in rows} <= set(words)
    waits = [path.get("class") for path in root.iter("{http://www.w3.org/2000/svg}path")].count("wait")
    assert waits == 6  # clocks 3, 5, 8, 10, 12, 15


@pytest.mark.parametrize("reads", [0, 1, 2, 3])
def test_data_that_are_read_anew_begin_anew_also_when_they_are_the_same(reads: int) -> None:
    """The clock behind each read begins a box of its own, also the second clock that is drawn."""
    row = FIGURES[13].expected()[3]
    rows = [dataclasses.replace(row, clock=4 + at, mem_re=at < reads, mem_rd_data=5) for at in range(4)]
    root = ElementTree.fromstring(draw("anew", rows, ("mem_rd_data",)))
    shapes = [one for one in root.iter("{http://www.w3.org/2000/svg}path") if one.get("class") == "bus"]
    assert len(shapes) == 1 + reads


@pytest.mark.parametrize(
    ("start", "done", "waits"), [(False, True, False), (True, True, True), (False, False, True)]
)
def test_a_walk_waits_for_a_read_of_the_rq_when_it_walks_or_is_to_begin(
    start: bool, done: bool, waits: bool
) -> None:
    row = dataclasses.replace(
        FIGURES[13].expected()[3], state="READ", rq_read=True, rq_write=False, sq_start=start, sq_done=done
    )
    rows = [dataclasses.replace(row, clock=4 + at) for at in range(2)]
    assert ('class="wait"' in draw("waits", rows, ("state",))) is waits


def test_words_of_a_picture_may_have_any_signs() -> None:
    rows = [dataclasses.replace(FIGURES[13].expected()[3], clock=4, state="A<B&C")]
    root = ElementTree.fromstring(draw("1 < 2 & 3", rows, ("state",)))
    assert "1 < 2 & 3" in [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "A<B&C" in [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]


def test_clocks_that_are_missing_are_no_match() -> None:
    rows = [dataclasses.replace(FIGURES[13].expected()[3], clock=at) for at in range(3)]
    assert not differences(rows, rows)
    for fewer, more in ((rows[:2], rows), (rows, rows[:2])):
        with pytest.raises(ValueError, match="zip"):
            differences(fewer, more)


def test_waveforms_are_written_for_a_viewer(tmp_path: Path) -> None:
    path = tmp_path / "figure.vcd"
    assert main(["rmb", "trace", "--figure", "13", "--json", "--vcd", str(path)]) == 0
    text = path.read_text()
    assert "$enddefinitions" in text
    for name in ("sq_start", "sq_done", "rmb_mem_re", "rmb_mem_rd_addr", "rmb_mem_rd_data", "vi"):
        assert f" {name} $end" in text


def test_a_clock_that_differs_fails_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = FIGURES[13].table.replace("re 4    | [3]", "re 5    | [3]")
    monkeypatch.setitem(figures.FIGURES, 13, _with_table(changed))
    assert main(["rmb", "trace", "--figure", "13", "--json"]) == 1
    told = capsys.readouterr().err
    assert told == "softhca rmb: figure 13 differs: clock 7: mem_rd_addr is 4, not 5\n"


def _with_table(table: str) -> figures.Figure:
    known = FIGURES[13]
    return figures.Figure(13, known.title, known.domains, known.matching, known.signals, table)


@pytest.mark.parametrize("words", [[], ["--figure", "12"], ["--figure", "x"]])
def test_a_figure_that_there_is_not_is_refused_in_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["rmb", "trace", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["trace", "--figure", "13", "--vcd"],
        ["trace", "--figure", "13", "--json", "--svg"],
        ["subsystem", "--vcd"],
        ["asm", str(Path(figures.__file__).parent / "microcode" / "walk.asm"), "-o"],
    ],
)
def test_a_file_that_cannot_be_written_is_told_in_one_line(
    words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nowhere" / "file"
    assert main(["rmb", *words, str(path)]) == 1
    assert capfd.readouterr() == ("", f"softhca rmb: {path}: No such file or directory\n")
