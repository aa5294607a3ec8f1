"""The bugs that the checks of statements must see: they apply, every statement has one, and one is seen.

All of them run with ``make conformance-mutants``.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))
from mutant_edits import Mutant, Source, mutant
from run_statement_mutants import BROKEN, MISSED, PACKAGE, SEEN, Trial, table, trial
from statement_mutants import MUTANTS

from softhca.conformance.statements import STATEMENTS


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return Source(PACKAGE, tmp_path_factory.mktemp("statements"))


def test_every_statement_in_force_has_one_bug():
    names = [bug.name for bug in MUTANTS]
    assert len(names) == len(set(names))
    assert set(names) == {found.id for found in STATEMENTS if found.in_force}


@pytest.mark.parametrize("bug", MUTANTS, ids=lambda bug: bug.name)
def test_the_bug_can_be_made(source, bug):
    assert source.changed(bug)


def test_a_bug_is_seen_by_the_statements_own_checks(source):
    by_name = {bug.name: bug for bug in MUTANTS}
    found = trial(source, by_name["C9-207"])
    assert found.verdict == SEEN
    assert "refusals.ud_without_receive" in found.checks
    assert not list(source.folder.glob("mutant-*"))
    # a bug that is none of this statement's is not
    other = trial(source, Mutant("C9-207", by_name["C9-9"].edits, "of RC"))
    assert (other.verdict, other.checks) == (MISSED, ())


def test_a_bug_whose_text_is_gone_is_broken(source):
    found = trial(source, mutant("C9-207", "wire/psn.py", "gone", "", "of nobody"))
    assert found.verdict == BROKEN
    assert "occurs 0 times" in found.text


def test_the_table():
    text = table([Trial(MUTANTS[0], SEEN, ("one", "two", "three", "four")), Trial(MUTANTS[1], MISSED)])
    assert "`one`, `two`, `three` and 1 more" in text
    assert "missed" in text


def test_the_document_tells_of_every_statement():
    text = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text()
    for statement in STATEMENTS:
        if statement.in_force:
            assert f"| {statement.id} |" in text, statement.id
