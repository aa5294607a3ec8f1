"""Minimised faults: what befell packets is taken down, repeated, and reduced to what a bug needs."""

import json
import shlex

import pytest
from changed_polls import change_polls

from softhca.adapter.engine import Adapter
from softhca.cli.main import main
from softhca.links.decisions import EXAMPLES, Decision, Script, TooManyPackets, parse_decisions
from softhca.links.faults import Faults, FaultsError
from softhca.links.impairment import Impairment
from softhca.simulation import campaign, runner
from softhca.simulation import minimise as minimise_module
from softhca.simulation import node as node_module
from softhca.simulation.minimise import command_for, describe, minimise
from softhca.simulation.oracle import Violation
from softhca.simulation.program import RECEIVE_BIT
from softhca.simulation.runner import run_world
from softhca.simulation.scenarios import QUICK

EVERYTHING = (
    "loss=5%,duplicate=5%,reorder=5%,corrupt=5%,truncate=5%,jitter=2us,burst=1%,bandwidth=1GB/s,"
    "partition=1>2@1050us..1060us,flap=200us/10us,stall=300us/20us,skew=500ppm"
)
NOISE = "duplicate=5%,reorder=5%,loss=2%,jitter=2us"
SEND_ONLY = 0x04


def observed(name, seed, faults, script):
    """The outcome of a world and everything that was on its wires."""
    events = []
    return run_world(name, seed, faults, None, lambda *event: events.append(event), script), events


def words(decisions):
    return ",".join(map(str, decisions))


# taking down and repeating


WORLDS = [*((name, "") for name in QUICK), ("rc-corrupt", EVERYTHING)]


@pytest.mark.parametrize(("name", "faults"), WORLDS)
def test_what_was_taken_down_repeats_the_world(name, faults):
    taken = Script()
    outcome, events = observed(name, 3, faults, taken)
    again = Script(parse_decisions(words(taken.taken)))
    repeated, same = observed(name, 3, faults, again)
    assert same == events
    assert again.taken == taken.taken
    assert (repeated.packets, repeated.duration_ns) == (outcome.packets, outcome.duration_ns)
    assert [found.rule for found in repeated.violations] == [found.rule for found in outcome.violations]
    if faults:
        assert {one.kind for one in taken.taken} == set(EXAMPLES)


def test_taking_down_changes_nothing():
    assert run_world("rc-chaos", 1, script=Script()).digest == run_world("rc-chaos", 1).digest


def test_without_decisions_nothing_befalls_a_packet():
    outcome, events = observed("rc-chaos", 1, "", Script([]))
    sent = [event[-1] for event in events if event[1] == "sent"]
    received = [event[-1] for event in events if event[1] == "received"]
    assert sorted(sent) == sorted(received)
    assert not outcome.violations


DATA = bytes(range(100))


def repeated(text, packets=3, faults=None):
    """What becomes of so many packets sent 10 ns after one another from adapter 1 to 2."""
    link = Impairment(faults or Faults(delay_ns=1_000), "seed", 1, 2, Script(parse_decisions(text)))
    return [(link.send(DATA, 10 * number), link.lost_because) for number in range(packets)]


@pytest.mark.parametrize(("text", "times", "data", "what"), [
    ("1>2#2:lost", [], [], []),
    ("2>1#2:lost,1>3#2:lost", [1010], [DATA], ["passed"]),
    ("1>2#2:delayed+300ns", [1310], [DATA], ["passed"]),
    ("1>2#2:reordered+300ns", [1310], [DATA], ["reordered"]),
    ("1>2#2:duplicated+300ns", [1010, 1310], [DATA, DATA], ["passed", "duplicated"]),
    ("1>2#2:truncated@40B", [1010], [DATA[:40]], ["truncated"]),
    ("1>2#2:truncated@400B", [1010], [DATA], ["truncated"]),
    ("1>2#2:corrupted@8+21+8000", [1010], [b"\0\0\x22" + DATA[3:]], ["corrupted"]),
    ("1>2#2:duplicated+5ns,1>2#2:truncated@1B,1>2#2:corrupted@0", [1010, 1015], [b"\1", DATA],
     ["corrupted", "duplicated"]),
    ("1>2#2:lost,1>2#2:duplicated+5ns", [], [], []),
])  # fmt: skip
def test_each_decision_does_what_it_says_to_its_packet(text, times, data, what):
    first, second, third = repeated(text)
    assert [(copy.time_ns, copy.data, copy.what) for copy in second[0]] == list(
        zip(times, data, what, strict=True)
    )
    assert bool(second[1]) == (not times)
    assert [copy.data for copy in first[0] + third[0]] == [DATA, DATA]
    assert not first[1]
    assert not third[1]


def test_a_delayed_packet_holds_up_those_behind_it_and_a_reordered_one_does_not():
    assert [copies[0].time_ns for copies, _ in repeated("1>2#1:delayed+300ns")] == [1300, 1300, 1300]
    assert [copies[0].time_ns for copies, _ in repeated("1>2#1:reordered+300ns")] == [1300, 1010, 1020]


def test_dice_do_not_fall_where_a_list_is_repeated():
    certain = Faults(loss=1.0, duplication=1.0, corruption=1.0)
    assert all(len(copies) == 1 and copies[0].data == DATA for copies, _ in repeated("", faults=certain))


def test_every_kind_says_itself_again():
    for kind, text in EXAMPLES.items():
        (found,) = parse_decisions(f" {text} ,")
        assert (found.kind, str(found)) == (kind, text)
    assert parse_decisions("1>2#7:corrupted@3+9") == [Decision(1, 2, 7, "corrupted", (3, 9))]
    assert parse_decisions("") == []


@pytest.mark.parametrize("text", [
    "x", "1>2", "1>2#0:lost", "0>2#1:lost", "1>251#1:lost", "1>2#1000000001:lost", "1>2#1:gone",
    "1>2#1:lost+5ns",
    "1>2#1:delayed", "1>2#1:delayed+5us", "1>2#1:delayed+10000000001ns", "1>2#1:truncated@5",
    "1>2#1:truncated@65537B", "1>2#1:corrupted@", "1>2#1:corrupted@5+5", "1>2#1:corrupted@524288",
    "1>2#1:corrupted@" + "+".join(map(str, range(65))), "1>2#1:reordered@5ns", "1>2#1:duplicated+-5ns",
])  # fmt: skip
def test_a_wrong_word_is_one_line_and_status_2(text, capsys):
    with pytest.raises(FaultsError):
        parse_decisions(text)
    assert main(["simulate", "--only-faults", f"2>1#4:lost,{text}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert text[:40] in error


@pytest.mark.parametrize(("head", "words"), [
    (b"", ""), (bytes(11), ""), (bytes([1]) + bytes(8) + b"\0\x12\x67", " (RC_SEND_MIDDLE psn 4711)"),
    (bytes([0x45]) + bytes(27) + bytes([1]) + bytes(8) + b"\0\x12\x67", " (RC_SEND_MIDDLE psn 4711)"),
    (bytes([0x60]) + bytes(47) + bytes([1]) + bytes(8) + b"\0\x12\x67", " (RC_SEND_MIDDLE psn 4711)"),
    (b"\xff" + bytes(11), " (opcode 0xff psn 0)"),
])  # fmt: skip
def test_people_are_told_which_packet_it_was(head, words):
    assert describe(Decision(1, 2, 17, "lost"), head) == f"adapter 1>2 packet 17{words} lost"


@pytest.mark.parametrize(("text", "words"), [
    ("1>2#3:delayed+7ns", "delayed by 7 ns"), ("1>2#3:reordered+7ns", "held back by 7 ns while others pass"),
    ("1>2#3:duplicated+7ns", "duplicated, the copy 7 ns later"),
    ("1>2#3:truncated@7B", "truncated to 7 bytes"), ("1>2#3:corrupted@7+9", "corrupted in bits 7, 9"),
])  # fmt: skip
def test_people_are_told_what_befell_it(text, words):
    assert describe(parse_decisions(text)[0], b"") == f"adapter 1>2 packet 3 {words}"


# a bug that is put in on purpose


@pytest.fixture
def accept_duplicates(monkeypatch):
    """A function that lets each world's ``nth`` SEND that comes again give its receive completion twice."""

    def put_in(nth):
        known = {"seen": set(), "again": 0}

        class Forgetful(Adapter):
            """`Adapter` that sees what comes again."""

            def receive(self, port, arrival, now):
                for at in range(0, arrival.length, arrival.stride):
                    packet = bytes(arrival.buffer[at : min(at + arrival.stride, arrival.length)])
                    if packet[0] == SEND_ONLY:
                        known["again"] += packet in known["seen"]
                        known["seen"].add(packet)
                Adapter.receive(self, port, arrival, now)

        def twice(found):
            good = [one for one in found if one.wr_id & RECEIVE_BIT and one.status == 0]
            if known["again"] >= nth and good:
                known["again"] = -(10**9)
                found = [*found, good[-1]]
            return found

        def run(*arguments, **options):
            known.update(seen=set(), again=0)
            return right_run(*arguments, **options)

        right_run = runner.run_world
        change_polls(monkeypatch, twice)
        monkeypatch.setattr(node_module, "_new_engine", Forgetful)
        for module in (runner, campaign):
            monkeypatch.setattr(module, "run_world", run)

    return put_in


@pytest.mark.parametrize("nth", [1, 2])
def test_a_campaign_finds_the_bug_and_the_few_faults_that_it_needs(accept_duplicates, nth, capsys):
    accept_duplicates(nth)
    faults = f"{NOISE},skew=100ppm,stall=1ms/10us"
    arguments = ("--scenario", "srq", "--jobs", "1", "--faults", faults, "--json")
    assert main(["campaign", "--seeds", "1..50", *arguments]) == 1
    captured = capsys.readouterr()
    (failure,) = json.loads(captured.out)["failures"]
    found = failure["minimised"]
    assert found["rule"] in failure["rules"]
    assert found["minimal"]
    assert 1 <= len(found["decisions"]) <= 6
    assert found["recorded"] > 50
    assert found["faults"] == f"{NOISE},stall=0ns/0ns,skew=0ppm"
    for line in (*found["lines"], found["command"]):
        assert line in captured.err

    again = shlex.split(found["command"])
    assert again[0] == "softhca"
    assert again[-1] == ",".join(found["decisions"])
    assert main([*again[1:], "--json"]) == 1
    assert found["rule"] in {one["rule"] for one in json.loads(capsys.readouterr().out)["violations"]}
    for left_out in found["decisions"]:
        fewer = [one for one in found["decisions"] if one != left_out]
        main([*again[1:-1], ",".join(fewer), "--json"])
        assert found["rule"] not in {
            one["rule"] for one in json.loads(capsys.readouterr().out)["violations"]
        }


def test_simulate_minimises_a_list_further(accept_duplicates, capsys):
    accept_duplicates(1)
    seed = next(seed for seed in range(1, 50) if runner.run_world("srq", seed, NOISE).violations)
    taken = Script()
    runner.run_world("srq", seed, NOISE, script=taken)
    words_ = ("simulate", "--scenario", "srq", "--seed", str(seed), "--faults", NOISE, "--minimise", "--json")
    assert main([*words_, "--only-faults", words(taken.taken)]) == 1
    document = json.loads(capsys.readouterr().out)["minimised"]
    assert document["recorded"] == len(taken.taken)
    number = len(document["decisions"])
    assert 1 <= number <= 6
    main([*words_[:-1]])
    captured = capsys.readouterr()
    assert f"{number} of {len(taken.taken)} faults break" in captured.err
    assert "minimised" not in captured.out


def test_a_world_that_breaks_no_rule_has_nothing_to_minimise(capsys):
    assert minimise("rc-mix", 1) is None
    assert main(["simulate", "--minimise", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["minimised"] is None
    assert captured.err == ""


@pytest.fixture
def toy(monkeypatch):
    """In the place of worlds: one link that carries 200 packets; what was lost breaks a rule."""

    def put_in(breaks):
        def run_world(name, seed, faults="", script=None):
            suffered = Faults.parse(faults, Faults(loss=0.3, duplication=0.3))
            link = Impairment(suffered, str(seed), 1, 2, script)
            lost = [packet for packet in range(1, 201) if not link.send(DATA, packet)]
            violations = (Violation(1, "a rule", "broken"),) if breaks(lost) else ()
            return runner.Outcome(name, seed, "", 0, 200, str(suffered), violations)

        monkeypatch.setattr(runner, "run_world", run_world)

    return put_in


def test_exactly_the_faults_that_are_needed_are_left(toy):
    needed = []

    def breaks(lost):
        needed.extend([] if needed else [lost[2], lost[20], lost[21]])
        return set(needed) <= set(lost)

    toy(breaks)
    found = minimise("rc-mix", 1)
    assert [str(one) for one in found.decisions] == [f"1>2#{packet}:lost" for packet in needed]
    assert (found.minimal, found.rule) == (True, "a rule")
    assert found.runs < found.recorded


def test_the_search_ends_with_its_bound_and_says_so(toy):
    toy(lambda lost: len(lost) >= 20)
    found = minimise("rc-mix", 1, max_runs=5)
    assert (found.runs, found.minimal) == (5, False)
    assert 20 <= len(found.decisions) < found.recorded
    assert len(minimise("rc-mix", 1).decisions) == 20


def test_every_run_is_told(toy):
    toy(lambda lost: len(lost) >= 5)
    told = []
    found = minimise("rc-mix", 1, advance=lambda *state: told.append(state))
    assert [runs for runs, _ in told] == list(range(1, found.runs + 1))
    left = [left for _, left in told]
    assert left == sorted(left, reverse=True)
    assert left[-1] == len(found.decisions) == 5


def test_a_rule_that_is_broken_without_faults_needs_none(toy):
    toy(lambda lost: True)
    found = minimise("rc-loss", 1)
    assert (found.decisions, found.lines, found.minimal) == ((), (), True)
    assert found.command == "softhca simulate --scenario rc-loss --seed 1 --only-faults ''"


def test_a_world_that_raises_is_not_what_is_looked_for(toy):
    def fragile(lost):
        if len(lost) < 15:
            raise AssertionError("another bug")
        return True

    toy(fragile)
    assert len(minimise("rc-mix", 1).decisions) == 15


def test_a_world_that_goes_on_and_on_with_fewer_faults_is_given_up(toy, monkeypatch):
    toy(lambda lost: True)
    monkeypatch.setattr(minimise_module, "GROWTH", 0)
    monkeypatch.setattr(minimise_module, "MORE_PACKETS", 199)
    assert minimise("rc-mix", 1) is None
    monkeypatch.setattr(minimise_module, "MORE_PACKETS", 200)
    assert minimise("rc-mix", 1) is not None


def test_a_script_carries_no_more_packets_than_it_may():
    link = Impairment(Faults(), "seed", 1, 2, Script([], most_packets=2))
    assert link.send(DATA, 1)
    assert link.send(DATA, 2)
    with pytest.raises(TooManyPackets):
        link.send(DATA, 3)


def test_the_command_quotes_what_a_shell_would_take_for_its_own():
    command = command_for("rc-mix", 3, "partition=1>2@0ns..", parse_decisions("1>2#17:lost,2>1#4:lost"))
    assert shlex.split(command)[-4:] == [
        "--faults", "partition=1>2@0ns..", "--only-faults", "1>2#17:lost,2>1#4:lost",
    ]  # fmt: skip
