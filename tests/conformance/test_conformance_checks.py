"""Every check, by the statements that it holds; and that every statement in force has one."""

import pytest

from softhca.conformance.registry import collect
from softhca.conformance.report import checks_of
from softhca.conformance.statements import STATEMENTS

CHECKS = collect()


@pytest.mark.parametrize("check", CHECKS, ids=[f"{'+'.join(check.ids)}:{check.name}" for check in CHECKS])
def test_statement_holds(check):
    check.run()


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda found: found.id)
def test_statement_in_force_has_a_check_and_an_obsolete_one_has_none(statement):
    assert bool(checks_of(statement, CHECKS)) == statement.in_force


def test_checks_name_known_statements_and_say_what_they_do():
    known = {statement.id for statement in STATEMENTS}
    for check in CHECKS:
        assert set(check.ids) <= known, check.name
        assert check.text.endswith("."), check.name
