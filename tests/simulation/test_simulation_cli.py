"""The commands: JSON, exit statuses, files, and the way to run a failure again."""

import json
import shlex

import pytest
from changed_polls import change_polls

from softhca.cli.main import main
from softhca.simulation import campaign, runner
from softhca.simulation.oracle import Violation
from softhca.wire.pcapng import read_pcapng


def run_json(capsys, *words):
    status = main([*words, "--json"])
    captured = capsys.readouterr()
    return status, json.loads(captured.out), captured.err


def test_simulate_prints_its_outcome_twice_the_same(capsys):
    words = ("simulate", "--seed", "1", "--scenario", "uc-mix", "--faults", "loss=5%")
    status, document, _ = run_json(capsys, *words)
    assert status == 0
    assert list(document) == [
        "scenario", "seed", "digest", "duration_ns", "packets", "faults", "violations",
    ]  # fmt: skip
    assert (document["scenario"], document["seed"], document["faults"]) == ("uc-mix", 1, "loss=0.05")
    assert document["violations"] == []
    assert run_json(capsys, *words)[1] == document


def test_simulate_writes_trace_and_capture(tmp_path, capsys):
    trace, capture = tmp_path / "t.jsonl", tmp_path / "c.pcapng"
    files = ("--trace", str(trace), "--capture", str(capture))
    document = run_json(capsys, "simulate", "--scenario", "ud-mix", *files)[1]
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert sum(line["event"] == "sent" for line in lines) == document["packets"]
    with capture.open("rb") as stream:
        packets = list(read_pcapng(stream))
    assert len(packets) == 2 * document["packets"]
    assert packets[0].data[12:20] == bytes((192, 0, 2, 1, 192, 0, 2, 2))
    main(["capture", "decode", str(capture), "--json"])
    decoded = json.loads(capsys.readouterr().out)
    assert len(decoded) == len(packets)
    assert all(packet["icrc_ok"] for packet in decoded)


def test_a_violation_is_exit_status_1_with_the_command_to_run_it_again(monkeypatch, capsys):
    run_world = runner.run_world

    def broken(name, seed, faults=""):
        outcome = run_world(name, seed, faults)
        violations = (Violation(5, "a rule", "was broken"),) if seed == 3 else ()
        return runner.Outcome(name, seed, outcome.digest, outcome.duration_ns, 1, faults, violations)

    monkeypatch.setattr(campaign, "run_world", broken)
    status, document, error = run_json(
        capsys, "campaign", "--seeds", "1..9", "--scenario", "ud-mix", "--jobs", "1", "--faults", "loss=1%"
    )
    assert status == 1
    assert (document["worlds"], document["violations"]) == (3, 1)
    failure = document["failures"][0]
    assert (failure["scenario"], failure["seed"], failure["rules"]) == ("ud-mix", 3, ["a rule"])
    assert failure["command"] in error
    words = shlex.split(failure["command"])
    assert words[0] == "softhca"
    assert run_json(capsys, *words[1:])[1]["seed"] == 3


def test_a_world_with_a_broken_rule_is_exit_status_1(monkeypatch, capsys):
    change_polls(monkeypatch, lambda found: [])
    status, document, _ = run_json(capsys, "simulate")
    assert status == 1
    assert set(document["violations"][0]) == {"time_ns", "rule", "text"}


def test_a_campaign_counts_the_same_on_several_processes(capsys):
    words = ("campaign", "--seeds", "10..24", "--scenario", "rc-loss", "uc-chaos", "ud-chaos", "srq")
    status, document, _ = run_json(capsys, *words, "--jobs", "2")
    assert status == 0
    assert document["worlds"] == 60
    counts = document["scenarios"]
    assert {name: count["worlds"] for name, count in counts.items()} == {
        "rc-loss": 15, "uc-chaos": 15, "ud-chaos": 15, "srq": 15,
    }  # fmt: skip
    assert sum(count["packets"] for count in counts.values()) == document["packets"]
    assert document["failures"] == []
    alone = campaign.run_campaign(["ud-chaos"], range(10, 30))
    again = campaign.run_campaign(["ud-chaos"], range(10, 30), executor=campaign.Local(2))
    assert alone == again
    assert alone.packets > 0


@pytest.mark.parametrize(("words", "word"), [
    (["simulate", "--scenario", "rc-mux"], "rc-mix"), (["simulate", "--faults", "lost=1%"], "'lost'"),
    (["campaign", "--seeds", "1..2", "--scenario", "x"], "'x'"),
    (["campaign", "--seeds", "1", "--faults", "x"], "'x'"),
])  # fmt: skip
def test_a_wrong_word_is_one_line_and_status_2(words, word, capsys):
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert word in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("words", [
    ["simulate", "--seed", "-1"], ["simulate", "--seed", "x"], ["campaign"], ["campaign", "--seeds", "5..1"],
    ["campaign", "--seeds", "1..99999999999999999999"],
    ["campaign", "--seeds", "a..b"], ["campaign", "--seeds", "1", "--jobs", "0"],
])  # fmt: skip
def test_wrong_numbers_are_usage_errors(words, capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(words)
    assert exit_info.value.code == 2


def test_a_file_that_cannot_be_written_is_one_line(capsys):
    assert main(["simulate", "--trace", "/nowhere/t.jsonl"]) == 1
    assert "/nowhere/t.jsonl" in capsys.readouterr().err
