"""`--faults` on real links, end to end: programs get through, and are told what happened."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from machine_speed import limit_s
from softhca.cli import fault_reports
from softhca.cli.fault_reports import faults_acting, faults_variables
from softhca.cli.launch import environment
from softhca.links.fault_counters import counters_of
from softhca.wire.pcapng import read_pcapng

TIMEOUT_S = limit_s(100)
HERE = Path(__file__).parent
PROGRAM = str(HERE / "faulty_program.py")
EXAMPLE = str(HERE.parent.parent / "examples" / "rc_write.py")
SUMMARY = re.compile(r"softhca (\w+): faults of (?:rank (\d+) \()?([\d.]+)\)?: (\d+) packets: (.*)")

modes = pytest.mark.parametrize("mode", ["embedded", "process"])


def softhca(*words, mode="embedded"):
    command = [sys.executable, "-m", "softhca", *words]
    variables = {**os.environ, "SOFTHCA_ADAPTER": mode}
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=variables)


def summaries(text):
    """The counts of the summary lines on stderr, which must be all that stands there."""
    found = []
    for line in text.splitlines():
        match = SUMMARY.fullmatch(line)
        assert match, text
        counts = {name: int(number) for number, name in (word.split() for word in match[5].split(", "))}
        found.append({"rank": match[2], "packets": int(match[4]), **counts})
    return found


def run_writes(faults, *words, mode="embedded"):
    """What both ranks of the program say, and the summary lines."""
    process = softhca("run", "-n", "2", "--faults", faults, "--", sys.executable, PROGRAM, *words, mode=mode)
    assert process.returncode == 0, process.stderr
    ranks = sorted((json.loads(line) for line in process.stdout.splitlines()), key=lambda one: one["rank"])
    told = summaries(process.stderr)
    assert [one["rank"] for one in told] == ["0", "1"]
    return ranks, told


@modes
def test_a_program_gets_through_loss_reordering_and_duplication(mode):
    ranks, told = run_writes("loss=5%,reorder=5%,duplicate=5%,seed=7", "150", "14", "7", mode=mode)
    assert [(one["right"], one["status"]) for one in ranks] == [(True, 0)] * 2
    for name in ("lost", "reordered", "duplicated"):
        assert told[0][name] > 0
        assert 0 < ranks[0]["counters"][f"faults_{name}"] <= told[0][name]
    assert told[0]["corrupted"] == told[0]["truncated"] == told[0]["overflowed"] == 0
    # retransmissions are sent, and lost, like all else
    assert told[0]["packets"] >= ranks[0]["counters"]["packets_sent"] >= 300


@modes
def test_damaged_packets_are_dropped_for_their_icrc_and_sent_again(mode):
    ranks, told = run_writes("corrupt=5%,truncate=2%,seed=7", "150", "14", "7", mode=mode)
    assert [(one["right"], one["status"]) for one in ranks] == [(True, 0)] * 2
    assert told[0]["corrupted"] > 0
    assert told[0]["truncated"] > 0
    dropped = ranks[1]["counters"]["drops_icrc"]
    assert 0 < dropped <= told[0]["corrupted"] + told[0]["truncated"]


@modes
def test_when_everything_is_lost_the_program_is_told(mode):
    retry_exceeded = 12
    ranks, told = run_writes("loss=100%", "1", "8", "1", mode=mode)
    assert ranks[0]["status"] == retry_exceeded
    assert ranks[1]["right"] is False
    assert ranks[1]["counters"]["packets_received"] == 0
    assert told[0]["lost"] == told[0]["packets"] >= 2


@modes
def test_delayed_packets_arrive_while_nothing_else_happens(mode):
    ranks, told = run_writes("delay=3ms,jitter=1ms,bandwidth=100MB/s", "20", "14", "7", mode=mode)
    assert [(one["right"], one["status"]) for one in ranks] == [(True, 0)] * 2
    assert told[0]["delayed"] == told[0]["packets"] > 0


@modes
def test_an_example_completes(mode):
    faults = "loss=5%,reorder=5%,duplicate=5%,seed=7"
    process = softhca("run", "-n", "2", "--faults", faults, "--", sys.executable, EXAMPLE, mode=mode)
    assert (process.returncode, process.stdout) == (0, "b'hello, remote memory'\n")
    assert len(summaries(process.stderr)) == 2


def test_a_partition_cuts_one_direction_by_rank():
    ranks, told = run_writes("partition=2>1@0ns..", "1", "8", "1")
    assert ranks[0]["status"] == 12
    assert ranks[0]["counters"]["packets_received"] == 0
    assert told[0]["packets"] >= 2
    assert told[0]["lost"] == 0
    assert told[1]["lost"] == told[1]["packets"]


def test_a_capture_has_what_really_left(tmp_path):
    capture = tmp_path / "faulty.pcapng"
    options = ["--faults", "loss=5%,duplicate=20%,seed=7", "--capture", str(capture)]
    process = softhca("run", "-n", "2", *options, "--", sys.executable, PROGRAM, "60", "14", "7")
    assert process.returncode == 0
    with capture.open("rb") as stream:
        captured = len(list(read_pcapng(stream)))
    told = summaries(process.stderr)
    assert captured == sum(one["packets"] - one["lost"] + one["duplicated"] for one in told)
    assert all(one["lost"] + one["duplicated"] > 0 for one in told)


@pytest.mark.parametrize("words", [
    ("ping", "-n", "40"), ("pingpong", "-n", "40", "-c"),
    ("perf", "write-bw", "-n", "100", "-s", "4096", "--json"),
])  # fmt: skip
def test_commands_with_two_ends_have_faults_at_both(words):
    process = softhca(*words, "--faults", "loss=5%,duplicate=20%,delay=20us,seed=7")
    assert process.returncode == 0, process.stderr
    told = summaries(process.stderr)
    assert len(told) == 2
    assert all(one["delayed"] == one["packets"] - one["lost"] > 0 for one in told)
    assert all(sum(one[name] for one in told) > 0 for name in ("duplicated", "lost"))
    if "--json" in words:
        json.loads(process.stdout)


@pytest.mark.parametrize("command", ["run", "ping", "pingpong", "perf"])
@pytest.mark.parametrize("faults", ["los=5%", "loss=5%,skew=9ppm", "loss=200%"])
def test_wrong_faults_are_one_line_before_anything_starts(command, faults, tmp_path):
    mark = tmp_path / "started"
    words = {"run": ["--", "touch", str(mark)], "perf": ["write-bw"]}.get(command, [])
    ahead, behind = (words, []) if command == "perf" else ([], words)
    process = softhca(command, *ahead, "--faults", faults, *behind)
    assert process.returncode == 2
    (line,) = process.stderr.splitlines()
    bad = faults.split(",")[-1]
    assert bad.split("=")[0] in line or bad.split("=")[1] in line
    if "200%" not in faults:
        assert "expected one of loss, duplicate, reorder" in line
    assert not mark.exists()


def test_blank_faults_are_none():
    process = softhca("run", "--faults", " ", "--", "true")
    assert (process.returncode, process.stderr) == (0, "")


def test_faults_do_not_go_with_links_without_packets():
    process = softhca("run", "--link", "shm", "--faults", "loss=1%", "--", "true")
    assert process.returncode == 2
    assert "--faults" in process.stderr


def test_faults_of_outside_do_not_reach_the_copies(tmp_path):
    base = {"SOFTHCA_FAULTS": "loss=1%", "SOFTHCA_FAULTS_REPORTS": "/old"}
    assert not base.keys() & environment(base, 0, "", ["127.0.0.2"], tmp_path, None).keys()


def test_variables_are_there_only_with_faults(tmp_path):
    folder = tmp_path / "reports"
    assert faults_variables("", folder) == {}
    assert not folder.exists()
    for _ in range(2):
        assert faults_variables("loss=1%", folder) == {
            "SOFTHCA_FAULTS": "loss=1%", "SOFTHCA_FAULTS_REPORTS": str(folder),
        }  # fmt: skip
    assert folder.is_dir()


@pytest.mark.parametrize("before", [None, "delay=1ms"])
def test_faults_act_while_the_block_runs_and_are_told_after_an_error(before, monkeypatch, capsys):
    monkeypatch.delenv("SOFTHCA_FAULTS_REPORTS", raising=False)
    monkeypatch.delenv("SOFTHCA_RANK", raising=False)
    if before is None:
        monkeypatch.delenv("SOFTHCA_FAULTS", raising=False)
    else:
        monkeypatch.setenv("SOFTHCA_FAULTS", before)

    def fail():
        with faults_acting("ping", "loss=5%"):
            assert os.environ["SOFTHCA_FAULTS"] == "loss=5%"
            counters_of("127.0.0.2", os.environ).count("packets", 9)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert os.environ.get("SOFTHCA_FAULTS") == before
    assert "SOFTHCA_FAULTS_REPORTS" not in os.environ
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("softhca ping: faults of 127.0.0.2: 9 packets: 0 lost, ")
    with faults_acting("ping", ""):
        assert os.environ.get("SOFTHCA_FAULTS") == before
    assert capsys.readouterr().err == ""


def test_no_folder_is_no_report(tmp_path, capsys):
    fault_reports.print_reports("run", tmp_path / "none")
    assert capsys.readouterr().err == ""
