"""Registry, table, verdicts and command, with checks that are made to pass and to fail."""

import json

import pytest

from softhca.cli.main import main
from softhca.conformance import registry, report
from softhca.conformance.registry import Check, ConformanceError, ensure, expect
from softhca.conformance.rig import HCA_SETTINGS, ON_NATIVE, ON_ROCE, UNTOUCHED, altered
from softhca.conformance.statements import BY_ID, STATEMENTS
from softhca.testing.ends import SEND, UC
from softhca.wire import opcodes as op


def passing(setting):
    """It holds."""


def failing(setting):
    """It does not hold."""
    raise ConformanceError("a cat instead of a dog")


def broken(setting):
    """It cannot even be tried."""
    raise OSError("no memory")


@pytest.fixture
def registered(monkeypatch):
    """An empty registry, and what it holds then."""
    checks = {}
    monkeypatch.setattr(registry, "_checks", checks)
    return checks


def check(ids, function, settings=(ON_ROCE,)):
    return Check(function.__name__, tuple(ids.split()), function, settings)


def test_a_check_is_registered_by_module_and_name_with_its_statements(registered):
    found = registry.holds("C9-184", "o9-129")(passing)
    assert found is passing
    (made,) = registered.values()
    assert made == Check("test_conformance_framework.passing", ("C9-184", "o9-129"), passing, HCA_SETTINGS)
    assert made.text == "It holds."
    registry.holds("C9-184")(passing)  # the same again is no error
    with pytest.raises(ValueError, match="two checks"):
        registry.register("test_conformance_framework.passing", ("C9-185",), failing, HCA_SETTINGS)


def test_a_check_must_hold_something_and_run_somewhere(registered):
    with pytest.raises(ValueError, match="no statement"):
        registry.holds()(passing)
    with pytest.raises(ValueError, match="no setting"):
        registry.holds("C9-184", settings=())(passing)
    assert registered == {}


def test_a_check_runs_in_each_of_its_settings():
    seen = []
    check("C9-184", seen.append).__class__("c", ("C9-184",), seen.append, (ON_NATIVE, ON_ROCE)).run()
    assert seen == [ON_NATIVE, ON_ROCE]


@pytest.mark.parametrize(
    ("function", "text"),
    [(failing, "RoCEv2: a cat instead of a dog"), (broken, "RoCEv2: OSError: no memory")],
)
def test_a_failure_names_the_setting_and_whatever_is_raised_is_a_failure(function, text):
    with pytest.raises(ConformanceError) as error:
        check("C9-184", function).run()
    assert str(error.value) == text


def test_expectations():
    expect("number", 3, 3)
    ensure(True, "never said")
    with pytest.raises(ConformanceError, match=r"^number: 3 instead of 4$"):
        expect("number", 3, 4)
    for nothing in (None, 0, [], b""):
        with pytest.raises(ConformanceError, match="instead of 4"):
            expect("nothing", nothing, 4)
    with pytest.raises(ConformanceError, match=r"^said$"):
        ensure(False, "said")


def test_verdicts():
    checks = (
        check("C9-184", passing), check("C9-184 C9-185", failing), check("C9-186 C9-184", passing),
    )  # fmt: skip
    statements = [BY_ID[number] for number in ("C9-184", "C9-185", "C9-186", "C9-187", "C9-198")]
    done = []
    found = report.verdicts(statements, checks, done.append)
    assert [verdict.result for verdict in found] == ["fail", "fail", "pass", "unchecked", "obsolete"]
    assert [verdict.good for verdict in found] == [False, False, True, False, True]
    assert found[0].tests == ("passing", "failing", "passing")
    assert found[0].failures == ("failing: RoCEv2: a cat instead of a dog",)
    assert found[2].document() == {
        "id": "C9-186", "service": "UC", "side": "responder", "tests": ["passing"], "result": "pass",
    }  # fmt: skip
    assert "failures" in found[1].document()
    assert done == [1, 2, 3]


def test_every_failure_is_told_and_an_obsolete_statement_that_fails_too():
    checks = (check("C9-184 C9-198", failing), check("C9-184", broken))
    found, obsolete = report.verdicts([BY_ID["C9-184"], BY_ID["C9-198"]], checks)
    seen = ["failing: RoCEv2: a cat instead of a dog", "broken: RoCEv2: OSError: no memory"]
    assert found.document()["failures"] == seen
    assert (obsolete.result, obsolete.failures) == ("fail", (seen[0],))


def test_no_checks_are_none(monkeypatch):
    monkeypatch.setattr(report, "collect", lambda: (check("C9-184", passing),))
    assert [report.verdicts([BY_ID["C9-184"]], given)[0].result for given in ((), None)] == [
        "unchecked", "pass",
    ]  # fmt: skip


def test_statements_are_chosen_in_the_table_s_order():
    assert report.chosen([]) == list(STATEMENTS)
    wanted = STATEMENTS[9], STATEMENTS[3]
    assert report.chosen(each.id for each in wanted) == [STATEMENTS[3], STATEMENTS[9]]
    with pytest.raises(KeyError, match="no1"):
        report.chosen(["C9-184", "no1", "no2"])


def test_what_a_check_does_is_one_line():
    def long(setting):
        """It is done
        and seen."""

    assert check("C9-184", long).text == "It is done and seen."


def test_each_check_runs_once_and_only_those_that_are_wanted_do():
    seen = []
    checks = (check("C9-184 C9-185", seen.append), check("C9-186", failing))
    report.verdicts([BY_ID["C9-184"], BY_ID["C9-185"]], checks)
    assert seen == [ON_ROCE]


def test_the_table():
    assert len(BY_ID) == len(STATEMENTS)
    assert [s.id for s in STATEMENTS if not s.in_force] == ["C9-192", "C9-198", "o9-142"]
    unreliable = [s for s in STATEMENTS if s.service not in ("RC", "RD")]
    assert len(unreliable) == 79
    assert {s.service for s in STATEMENTS} == {"RC", "RD", "UC", "UD", "UC+UD", "raw"}
    assert {s.side for s in STATEMENTS if s.in_force} == {"requester", "responder", "both"}
    for statement in STATEMENTS:
        assert statement.text.endswith("."), statement
        assert statement.section.startswith(("9.", "10.", "A17.")), statement
        assert all(BY_ID[number].applies.startswith("HCA") for number in statement.like), statement
        assert bool(statement.like) == (statement.applies.startswith("TCA") and statement.in_force)


def test_the_command_prints_one_document(capsys):
    assert main(["conformance", "--json", "C9-184", "C9-198"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first["id"] == "C9-184"
    assert (first["service"], first["side"], first["result"]) == ("UC", "responder", "pass")
    assert "uc_order.first_and_only_are_taken_whatever_was_expected" in first["tests"]
    assert second == {"id": "C9-198", "service": "UC", "side": "-", "tests": [], "result": "obsolete"}


def test_the_command_prints_a_table(capsys):
    assert main(["conformance", "o9-144"]) == 0
    text = capsys.readouterr().out
    assert "1 of 1 statements" in text
    assert "datagrams: datagrams are" in text
    assert "pass" in text


def test_the_command_fails_when_a_statement_does(capsys, monkeypatch):
    monkeypatch.setattr(registry, "collect", lambda: (check("C9-184", failing),))
    monkeypatch.setattr(report, "collect", lambda: (check("C9-184", failing),))
    assert main(["conformance", "C9-184"]) == 1
    assert "C9-184 failing: RoCEv2: a cat instead of a dog" in capsys.readouterr().out
    both = (check("C9-184", failing), check("C9-184 C9-185", passing), check("C9-184", broken))
    monkeypatch.setattr(registry, "collect", lambda: both)
    assert main(["conformance", "C9-184", "C9-185", "C9-198"]) == 1
    text = capsys.readouterr().out
    assert "2 of 3 statements hold or are obsolete" in text
    assert "C9-184 failing: " in text
    assert "C9-184 broken: RoCEv2: OSError: no memory" in text
    monkeypatch.setattr(registry, "collect", lambda: (check("C9-184", failing),))
    assert main(["conformance", "--json", "C9-185"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["result"] == "unchecked"


def test_the_command_chooses_by_service_and_side(capsys, monkeypatch):
    for module in (registry, report):
        monkeypatch.setattr(module, "collect", tuple)
    main(["conformance", "--json", "--service", "UD", "--side", "requester"])
    found = {row["id"] for row in json.loads(capsys.readouterr().out)}
    assert found == {"C9-200", "C9-201", "C9-202", "C9-203", "C9-204"}
    main(["conformance", "--json", "--service", "UC"])
    assert {row["service"] for row in json.loads(capsys.readouterr().out)} == {"UC", "UC+UD"}


def test_an_unknown_statement_is_a_usage_error(capsys):
    assert main(["conformance", "C9-7"]) == 2
    assert "there is no statement C9-7" in capsys.readouterr().err


@pytest.mark.parametrize("setting", HCA_SETTINGS, ids=lambda setting: setting.name)
def test_the_rig_carries_packets_and_makes_sound_ones(setting):
    with setting.pair(UC) as pair:
        pair.receive(10, 20)
        pair.post(SEND, b"sent")
        (sent,) = pair.sent()
        assert (sent.opcode, sent.payload_bytes) == ("UC_SEND_ONLY", 4)
        assert sent.packet.icrc_ok
        # what is made by hand is what the adapter made
        made = pair.packet(sent.bth.opcode, sent.bth.psn, b"sent").transport
        assert made.covered() == sent.packet.transport.covered()
        pair.receive(10, 20)
        packet = pair.packet(op.UC_SEND_ONLY, 5, b"made")
        pair.give(packet, altered(packet, tver=1))
        assert [done.byte_len for done in pair.right.completions()] == [4, 4]
        assert bytes(pair.right.memory[9:15]) == bytes([UNTOUCHED]) + b"made" + bytes([UNTOUCHED])
        assert pair.right.drops() == {"version": 1}
        pair.rig.tamper = lambda sent: None
        pair.post(SEND, b"lost")
        pair.rig.elapse(5_000_000)
        assert (len(pair.sent()), pair.right.completions()) == (2, [])


def test_a_rigs_time_passes_as_told():
    with ON_ROCE.rig() as rig:
        rig.station()
        begin = rig.now
        rig.elapse(12_345)
        assert rig.now == begin + 12_345
