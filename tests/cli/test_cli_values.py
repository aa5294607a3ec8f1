"""Values on the command line, figures and text."""

import argparse
import io
import ipaddress
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.cli import devinfo, output
from softhca.cli.figures import latency_us, percentile
from softhca.cli.numbers import number, seconds


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("0x10", 16), ("64K", 65536), ("1m", 1 << 20), ("2G", 2 << 30)]
)
def test_number_understands_hexadecimal_and_binary_suffixes(text, value):
    assert number(1, 1 << 40)(text) == value


@pytest.mark.parametrize("text", ["", "K", "1.5", "-1", "0", "101", "1k", "ten"])
def test_number_outside_its_range_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        number(1, 100)(text)


def test_number_takes_both_ends_of_its_range():
    assert [number(1, 100)(text) for text in ("1", "100")] == [1, 100]


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "86401", "x"])
def test_seconds_are_positive_and_at_most_a_day(text):
    with pytest.raises(argparse.ArgumentTypeError):
        seconds(text)


def test_seconds_may_be_a_fraction():
    assert seconds("0.25") == 0.25
    assert seconds("86400") == 86400  # a day


def test_percentile_is_the_nearest_rank():
    values = list(range(1, 101))
    assert [percentile(values, p) for p in (0, 1, 50, 99, 100)] == [1, 1, 50, 99, 100]
    assert percentile([7], 50) == 7


@pytest.mark.parametrize(("percent", "value"), [(33, 1), (34, 2), (50, 2), (66, 2), (67, 3), (99, 3)])
def test_a_percentile_of_few_values_is_one_that_enough_do_not_exceed(percent, value):
    assert percentile([1, 2, 3], percent) == value


def test_percentile_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200))
def test_latency_figures_are_ordered_and_from_the_samples(samples):
    figures = latency_us(samples)
    assert list(figures) == ["min", "p50", "p99", "max"]
    assert figures["min"] <= figures["p50"] <= figures["p99"] <= figures["max"]
    assert {figure for figure in figures.values()} <= {sample / 1000 for sample in samples}
    assert (figures["min"], figures["max"]) == (min(samples) / 1000, max(samples) / 1000)


def test_latency_of_no_samples_is_zero():
    assert latency_us([]) == {"min": 0.0, "p50": 0.0, "p99": 0.0, "max": 0.0}


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1.5e9, "1.5 GB"), (2e13, "20 TB")]
)
def test_bytes_have_decimal_units(value, text):
    assert output.bytes_text(value) == text


def test_json_is_one_document_on_stdout(capsys):
    output.print_json({"a": [1, 2]})
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"a": [1, 2]}
    assert captured.err == ""


def test_progress_is_silent_where_there_is_no_terminal(capsys):
    with output.progress("label", 10) as advance:
        advance(5)
    assert capsys.readouterr() == ("", "")


def test_told_progress_has_a_line_for_each_tenth_where_there_is_no_terminal(capsys):
    with output.told_progress("label", 30) as advance:
        for done in (0, 2, 3, 4, 5, 6, 20, 29.9, 30):
            advance(done)
    assert capsys.readouterr() == ("", "".join(f"label: {done} %\n" for done in (10, 20, 60, 90, 100)))


def test_table_goes_to_stdout_as_plain_text(capsys):
    output.print_table("title", ("name", "value"), [("answer", 42)])
    captured = capsys.readouterr()
    assert "answer" in captured.out
    assert "42" in captured.out
    assert "\x1b" not in captured.out
    assert captured.err == ""


def test_what_a_table_tells_is_text(capsys):
    """Brackets are no styles, and parts of addresses are no pictures."""
    output.print_table("a[b].pcap [/c]", ("host [x]",), [("fe80::a:b:ab:cd:1",), ("[fe80::1]:4791",)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].rstrip() == "a[b].pcap [/c]"
    assert [line.strip("│┃ ") for line in (lines[2], lines[4], lines[5])] == [
        "host [x]", "fe80::a:b:ab:cd:1", "[fe80::1]:4791",
    ]  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_styled_cell_has_its_colour_on_a_terminal_only(monkeypatch):
    for name in ("NO_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for stream, text in ((io.StringIO(), "│ ok   │"), (Terminal(), "\x1b[32mok  \x1b[0m")):
        output.print_table("t", ("what",), [(output.Styled("ok", "green"),)], stream)
        assert text in stream.getvalue()


@pytest.mark.parametrize("cell", ["plain", "wide 漢字", "x" * 300])
def test_a_long_table_looks_like_a_short_one_that_is_not_folded(monkeypatch, capsys, cell):
    rows = [(number, cell, output.Styled("ok", "green")) for number in range(3)]
    monkeypatch.setattr(output, "LONG_TABLE_ROWS", 2)
    output.print_table("a [b]", ("no.", "what", "is"), rows)
    long = capsys.readouterr().out.splitlines()
    monkeypatch.setattr(output, "LONG_TABLE_ROWS", 3)
    output.print_table("a [b]", ("no.", "what", "is"), rows)
    short = capsys.readouterr().out.splitlines()
    if len(cell) < 160:
        assert [line.rstrip() for line in long] == [line.rstrip() for line in short]
    else:
        assert [line for line in long if cell in line] == long[4:7]


def test_a_long_tables_rows_are_lines(monkeypatch, capsys):
    monkeypatch.setattr(output, "LONG_TABLE_ROWS", 0)
    output.print_table("t", ("a",), [("two\nlines\r",)])
    assert capsys.readouterr().out.splitlines()[4] == "│ twolines │"


MAPPED = ipaddress.ip_address("::ffff:192.0.2.7").packed


class Ported:
    """A device of one port with a large MTU that is not in use, and GIDs at the places 0 and 2."""

    gids = (MAPPED, bytes(16), ipaddress.ip_address("2001:db8::1").packed)

    def query_port(self, number):
        numbers = dict.fromkeys(devinfo.PORT_NUMBERS, 7)
        numbers["gid_tbl_len"] = 3
        return SimpleNamespace(**numbers, state=4, link_layer=2, max_mtu=5, active_mtu=3)

    def query_gid(self, port, index):
        return str(ipaddress.IPv6Address(self.gids[index]))


def test_a_port_is_told_with_both_mtus_and_the_gids_that_there_are():
    found = devinfo._describe_port(Ported(), 1)
    assert (found["max_mtu_bytes"], found["active_mtu_bytes"]) == (4096, 1024)
    assert (found["port"], found["state"], found["link_layer"]) == (1, "Active (4)", "Ethernet")
    assert [(each["index"], each["address"]) for each in found["gids"]] == [
        (0, "192.0.2.7"), (2, "2001:db8::1"),
    ]  # fmt: skip
    assert found["gids"][0]["gid"] == "::ffff:192.0.2.7"
