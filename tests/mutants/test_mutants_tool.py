"""The proof that worlds catch bugs: every mutant applies, a sample is found, nothing is made up."""

import ast
import gc
import itertools
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import mutant_auto
import pytest
from mutant_auto import Auto, SessionHangs
from mutant_catalogue import CATALOGUE, EVERYTHING, QUICK, UNSEEN
from mutant_edits import Edit, Mutant, MutantError, Source, file_of, from_diff
from mutant_equivalents import EQUIVALENT
from mutant_judged import JUDGED, WITH_TESTS
from mutant_near import NEAR, Bench
from mutant_report import modules_table
from mutant_rules import mutants_of, sample
from mutant_swap import Loaded, function_at
from mutant_trials import BROKEN, FOUND, STOPPED, SURVIVED, Laboratory

import softhca
from softhca.mailbox import offer

PACKAGE = Path(softhca.__file__).parent
RUN = Path(__file__).with_name("run.py")

FEW = ("rc-mix", "uc-mix", "ud-mix", "psn-wrap")
"""Worlds of each service that end soon."""
DIFF = """\
--- a/src/softhca/wire/psn.py
+++ b/src/softhca/wire/psn.py
@@ -1,3 +1,3 @@
-first
+FIRST
 second
 third
@@ -5,2 +5,3 @@
 fifth
+between
 sixth
"""
SMALL = '''\
"""A module."""


def f(a, b):
    """Says 7 things."""
    assert a < 100
    if a < b and b != 3:
        g(a)
        return a + 1
    while a:
        a -= 1
    return False
'''


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The package, and the byte code of what a world imports, so that copies make only that of a change."""
    made = Source(PACKAGE, tmp_path_factory.mktemp("mutants"))
    laboratory(made).control([("rc-mix", 1)])
    return made


def laboratory(source, last=1, limit_s=0):
    return Laboratory(source, 1, last, limit_s, 1)


def found_of(source, edit, last=1, limit_s=0):
    return laboratory(source, last, limit_s).judge(Mutant("one", (edit,), "why"), "one")


ALL = [*EVERYTHING, *NEAR, *WITH_TESTS]


@pytest.mark.parametrize("file", sorted({mutant.edits[0].file for mutant in ALL}))
def test_every_mutant_of_the_catalogue_still_applies(source, file):
    """One test for those of a file: a test of its own for each would take longer than they do."""
    wrong = {}
    for mutant in ALL:
        if mutant.edits[0].file == file:
            try:
                assert source.changed(mutant)
            except MutantError as error:
                wrong[mutant.name] = str(error)
    assert not wrong


SPOILT = {
    "in a function": ("    return a\n", "    return (a\n", "in line 4"),
    "that ends its class": ("        return 2\n", "        return 2\nx = 3\n", "in line 14"),
    "that ends its function": ("    return a\n", "return a\n", "in line 4"),
    "before all": ("import os\n", "import os as\n", "in line 1"),
    "of a class": ("class C:\n", "class C(:\n", "in line 6"),
    "of two": ("    return a\n\nclass", "    return [a\n\nclass", "in line "),
}
PARTS = """\
import os

def f(a):
    return a

class C:
    \"\"\"Says.\"\"\"

    @property
    def one(self):
        return 2

    def other(self):
        return super().other()
"""


@pytest.fixture
def parts(tmp_path):
    """A package of one module."""
    (tmp_path / "softhca").mkdir()
    (tmp_path / "softhca" / "__init__.py").write_text(PARTS)
    return Source(tmp_path / "softhca", tmp_path / "copies")


@pytest.mark.parametrize("name", SPOILT)
def test_what_does_not_compile_is_told_though_only_its_part_is_tried(parts, name):
    old, new, said = SPOILT[name]
    with pytest.raises(MutantError) as told:
        parts.changed(Mutant("spoilt", (Edit("__init__.py", old, new),), "why"))
    assert said in str(told.value)


@pytest.mark.parametrize(("old", "new"), [
    ("import os\n", "import os, sys\n"), ("return a\n", "return -a\n"), ("Says", "Said"),
    ("    @property\n", ""),
    ("return 2\n", "return 3\n\n    def more(self):\n        return 4\n"), ("class C:", "class C(object):"),
    ("super().other()\n", "super().other()\n\n\nLAST = 7\n"),
])  # fmt: skip
def test_what_compiles_is_changed(parts, old, new):
    edit = Edit("__init__.py", old, new)
    assert parts.changed(Mutant("other", (edit,), "why")) == {"__init__.py": PARTS.replace(old, new)}


def test_a_copy_has_the_files_of_the_original_but_for_those_that_are_changed(parts):
    (parts.original / "softhca" / "other.py").write_text("x = 1\n")
    copy = parts.copy(Mutant("other", (Edit("__init__.py", "return a\n", "return -a\n"),), "why"), "other")
    same = {
        path.name: path.samefile(parts.original / "softhca" / path.name) for path in copy.rglob("*.py")
    }
    assert same == {"__init__.py": False, "other.py": True}
    assert parts.text("__init__.py") == PARTS
    assert "return -a" in (copy / "softhca" / "__init__.py").read_text()


def test_the_catalogue_is_broad_and_its_names_are_unique():
    everything = [*EVERYTHING, *NEAR, *WITH_TESTS]
    assert len({mutant.name for mutant in everything}) == len(everything)
    assert all((Path(__file__).parents[1] / test).exists() for _, test in JUDGED)
    assert len(EVERYTHING) == len(CATALOGUE) + len(UNSEEN)
    assert len(CATALOGUE) >= 40
    assert {mutant.files.split("/")[0] for mutant in CATALOGUE} >= {
        "adapter", "memory", "queues", "transport", "wire",
    }  # fmt: skip
    assert set(QUICK) <= {mutant.name for mutant in CATALOGUE}


def test_worlds_find_a_sample_and_the_unchanged_source_passes_the_same_worlds(source):
    told = []
    mutants = [mutant for mutant in CATALOGUE if mutant.name in QUICK]
    results = Laboratory(source, 1, 20, 0, 1, ("rc-mix", "rc-loss", "ud-mix")).run(mutants, told.append)
    assert [result.verdict for result in results] == [FOUND] * len(QUICK)
    assert told == results
    assert all(result.rule and result.worlds and result.line for result in results)
    control = laboratory(source).control((result.scenario, result.seed) for result in results)
    assert control["worlds"] == len(QUICK)
    assert "rule" not in control


def test_tests_judge_mutants_of_the_same_host_path(source):
    bench = Bench(source, 1, ["memory/test_shared_directory.py"])
    bench.control()
    known = {mutant.name: mutant for mutant in NEAR}
    caught, let_go, gone = (
        bench.judge(mutant, "near")
        for mutant in (
            known["near-withdrawal-does-not-wait"],
            known["near-sleeper-not-called"],
            Mutant("gone", (Edit("memory/shared_path.py", "no such text", ""),), "why"),
        )
    )
    assert (caught.verdict, let_go.verdict, gone.verdict) == (FOUND, SURVIVED, BROKEN)
    assert caught.scenario.startswith("test_shared_directory.py::test_a_withdrawal_waits")
    assert caught.line > 1
    assert "no such text" in gone.text


def test_a_change_that_means_nothing_survives(source):
    edit = Edit("wire/psn.py", "return gap - 0x1000000 if", "return gap - (1 << 24) if")
    result = Laboratory(source, 1, 3, 0, 1, FEW).judge(Mutant("one", (edit,), "why"), "one")
    assert result.verdict == SURVIVED
    assert result.worlds == 3 * len(FEW)


@pytest.mark.parametrize(
    ("new", "rule"),
    [
        ("raise RuntimeError('here')", "exception RuntimeError"),
        ("import os; os._exit(3)", "crash"),
        ("import os; os.kill(os.getpid(), 11)", "crash SIGSEGV"),
    ],
)
def test_an_exception_and_a_crash_count_as_found(source, new, rule):
    result = found_of(source, Edit("wire/psn.py", "gap: cython.int = (b - a) & 0xFFFFFF", f"gap = 0; {new}"))
    assert (result.verdict, result.rule, result.seed) == (FOUND, rule, 1)


def test_a_hang_counts_as_found(source, monkeypatch):
    monkeypatch.setattr("mutant_trials.WORLD_CPU_S", 0.5)
    edit = Edit("wire/psn.py", "gap: cython.int = (b - a) & 0xFFFFFF", "gap = 0\n    while True: pass")
    result = found_of(source, edit)
    assert (result.verdict, result.rule) == (FOUND, "hang")


def test_the_time_limit_stops_a_mutant_and_does_not_call_it_found(source):
    edit = Edit("wire/psn.py", "return gap - 0x1000000 if", "return gap - (1 << 24) if")
    result = found_of(source, edit, 10_000, 2.0)
    assert (result.verdict, result.rule) == (STOPPED, "")


def test_a_mutant_that_does_not_load_is_broken_and_not_found(source):
    result = found_of(source, Edit("wire/psn.py", "MASK = 0xFFFFFF", "MASK = nothing"))
    assert result.verdict == BROKEN
    assert "nothing" in result.text


def test_a_source_that_fails_by_itself_is_an_error(tmp_path, source):
    broken = Edit("wire/psn.py", "return gap - 0x1000000 if gap & 0x800000 else gap", "return gap")
    home = source.copy(Mutant("broken", (broken,), ""), "broken")
    with pytest.raises(MutantError, match="unchanged source fails"):
        laboratory(Source(home / "softhca", tmp_path / "copy")).control()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit("wire/psn.py", "no such text", ""), "occurs 0 times"),
        (Edit("wire/psn.py", "psn", "x"), "expected once"),
        (Edit("wire/psn.py", "", "x"), "expected once"),
        (Edit("wire/nothing.py", "a", "b"), "no module"),
        (Edit("wire/psn.py", "def add(psn, n):", "def add(psn, n)"), "in line 12"),
        (Edit("wire/psn.py", "MASK = 0xFFFFFF", "MASK = 0xFFFFFF"), "nothing changes"),
        (Edit("simulation/oracle.py", "GUARD = 0xA5", "GUARD = 0"), "stays as it is"),
    ],
)
def test_a_mutant_that_cannot_be_made_says_why(source, edit, message):
    with pytest.raises(MutantError, match=message):
        source.changed(Mutant("bad", (edit,), ""))


def test_a_diff_becomes_a_mutant_also_when_its_lines_have_moved():
    mutant = from_diff("some.diff", DIFF)
    text = "first\nsecond\nthird\nfourth\nfifth\nsixth\n"
    assert mutant.files == "wire/psn.py"
    for moved in ("", "new\n\n"):
        changed = moved + text
        for edit in mutant.edits:
            changed = edit.apply(changed)
        assert changed == f"{moved}FIRST\nsecond\nthird\nfourth\nfifth\nbetween\nsixth\n"
    with pytest.raises(MutantError, match="no unified diff"):
        from_diff("text", "hello\n")


def test_paths_are_taken_as_people_write_them():
    for home in ("", "a/src/softhca/", "b/", "src/softhca/", "./softhca/"):
        assert file_of(f"{home}wire/psn.py") == "wire/psn.py"


def test_rules_make_mutants_of_code_alone_and_each_compiles():
    mutants = mutants_of("small.py", SMALL)
    changed = {mutant.edits[0].apply(SMALL) for mutant in mutants}
    assert len(changed) == len(mutants)
    for text in changed:
        assert text != SMALL
        assert ast.parse(text).body
        assert "assert a < 100" in text
        assert "Says 7 things." in text
    for line in (
        "if a <= b and", "if a >= b and", "if a < b or b", "b == 3", "b != 4", "not (a < b",
        "        pass\n        return", "a - 1", "a + 2", "return 0", "not (a)", "        pass\n    return",
        "return True",
    ):  # fmt: skip
        assert any(line in text for text in changed), line


def test_a_sample_of_rules_is_the_same_for_the_same_seed(source):
    made = mutants_of("transport/retry.py", source.text("transport/retry.py"))
    assert len(made) > 60
    assert sample(made, 5, "1/x") == sample(made, 5, "1/x") != sample(made, 5, "2/x")
    assert sample(made, 0, "1/x") == made


def test_the_command_tries_a_change_from_outside_and_writes_what_it_found(tmp_path, source):
    output = tmp_path / "found.json"
    words = [
        "--source", source.original / "softhca", "--seeds", "1..2", "--json", output, "--scenario", *FEW,
        "--replace",
        "transport/datagram.py", "self.writer.source_qp = self.qp.number",
        "self.writer.source_qp = 0",
    ]  # fmt: skip
    ended = subprocess.run([sys.executable, RUN, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "1 of 1 mutants found" in ended.stdout
    document = json.loads(output.read_text())
    assert "ud" in document["mutants"][0]["scenario"].split("-")


def test_the_command_refuses_what_it_does_not_know():
    ended = subprocess.run([sys.executable, RUN, "nobody"], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "no mutant 'nobody'" in ended.stderr


def test_every_mutant_called_equivalent_is_one_that_the_rules_make(source):
    made = set()
    for file in {file for file, _, _ in EQUIVALENT}:
        text = source.text(file)
        made |= {
            (file, function_at(text, found.edits[0].line), found.why) for found in mutants_of(file, text)
        }
    assert not EQUIVALENT.keys() - made


GAP = "gap: cython.int = (b - a) & 0xFFFFFF"
BY_RULE = {
    "tests find it": (Edit("wire/psn.py", "return gap - 0x1000000 if", "return gap + 0x1000000 if"), "tests"),
    "a hang in a test": (Edit("wire/psn.py", GAP, "gap = 0\n    while True: pass"), "tests"),
    "worlds alone run it": (
        Edit("transport/replies.py", "        self.ack_pending = True\n", "        pass\n"),
        "worlds",
    ),
    "it runs at import": (
        Edit("wire/opcodes.py", "code = service << 5 | low", "code = service << 4 | low"),
        "tests",
    ),
    "nothing finds it": (Edit("wire/psn.py", "return gap - 0x1000000 if", "return gap - (1 << 24) if"), ""),
}


def test_mutants_by_rule_meet_the_packages_own_tests_first_and_then_worlds(source):
    folders = ["wire/test_wire_psn.py", "wire/test_wire_opcodes.py"]
    auto = Auto(source, 1, 1, 10, 1, ["rc-mix"], folders)
    told = []
    mutants = [Mutant(name, (edit,), "why") for name, (edit, _) in BY_RULE.items()]
    results = auto.run(mutants, told.append)
    assert {result.name: result.by for result in results} == {name: by for name, (_, by) in BY_RULE.items()}
    assert [result.verdict for result in results] == [FOUND] * 4 + [SURVIVED]
    assert results[0].scenario.startswith("tests/wire/test_wire_psn.py::")
    assert (results[1].rule, results[2].scenario, results[2].seed) == ("hang", "rc-mix", 1)
    assert results[4].tests
    assert results[4].worlds == 1
    assert len(told) == len(results)
    assert modules_table(results).splitlines()[-1] == "| all | 5 | 3 | 1 | 0 | 1 |"


def test_a_session_that_cannot_begin_is_an_error(source):
    auto = Auto(source, 1, 1, 10, 1, ["rc-mix"], ["wire/no_such_test.py"])
    edit, _ = BY_RULE["tests find it"]
    with pytest.raises(MutantError, match="the session ended"):
        auto.run([Mutant("one", (edit,), "why")], lambda result: None)


@pytest.mark.parametrize(
    ("ends", "verdict", "rule"),
    [
        (SessionHangs("the session hangs"), STOPPED, ""),
        (MutantError("the session ended: no"), FOUND, "does not load"),
    ],
)
def test_a_mutant_that_is_tried_alone_is_stopped_where_it_hangs_and_found_where_it_ends(
    source, monkeypatch, ends, verdict, rule
):
    """Of those that run at import: a session that takes too long says nothing of the mutant."""
    alone = []

    def session(auto, home, edits, applied, told):
        if applied:
            alone.append(home)
            raise ends
        told({"number": 0, "verdict": "import"})

    monkeypatch.setattr(Auto, "_session", session)
    edit, _ = BY_RULE["it runs at import"]
    reported = []
    (result,) = Auto(source, 1, 1, 10, 1).run([Mutant("one", (edit,), "why")], reported.append)
    assert (result.verdict, result.rule) == (verdict, rule)
    assert reported == [result]
    assert [home.exists() for home in alone] == [False]


def test_a_session_of_one_mutant_that_says_nothing_hangs_and_is_ended(source, monkeypatch):
    """By a clock that is 100 seconds on at each look; 60 and five times the limit may pass."""
    ended = []
    process = SimpleNamespace(
        poll=lambda: None, terminate=lambda: ended.append("terminate"), wait=lambda: ended.append("wait")
    )
    now = itertools.count(0, 100)
    monkeypatch.setattr(mutant_auto, "subprocess", Mock(Popen=lambda *words, **options: process))
    monkeypatch.setattr(mutant_auto, "time", Mock(monotonic=lambda: next(now), sleep=lambda _: None))
    auto = Auto(source, 1, 1, 10, 1)
    with pytest.raises(SessionHangs):
        auto._session(source.original, [["file", "find", "replace", 1]], True, lambda answer: None)
    assert ended == ["terminate", "wait"]
    assert next(now) == 300, "which is more than 110 seconds, and 100 are not"


def test_functions_are_exchanged_that_the_collector_of_garbage_does_not_see():
    """Else each mutant needs a process of its own, and all tests anew (`pytest_collection_finish`)."""
    gc.freeze()
    try:
        loaded = Loaded(Path(offer.__file__).parents[1])
    finally:
        gc.freeze()
    names = {name for file, name, _ in loaded.functions if file == offer.__file__}
    assert {"Offer.decode", "Offer.encode"} <= names
