"""Every check, by the statements that it holds; that every statement in force has one, and that each
check gives and demands what it did.
"""

import errno
from types import SimpleNamespace

import pytest
from check_records import RECORDS, recording

from softhca.conformance import tca, uc_sending
from softhca.conformance.registry import ConformanceError, collect
from softhca.conformance.report import checks_of
from softhca.conformance.rig import ON_ROCE, Station
from softhca.conformance.statements import STATEMENTS

CHECKS = collect()
KNOWN = {line.split()[0]: line for line in RECORDS.read_text().splitlines()}


@pytest.mark.parametrize("check", CHECKS, ids=[f"{'+'.join(check.ids)}:{check.name}" for check in CHECKS])
def test_statement_holds(check):
    with recording() as record:
        check.run()
    # where a check is meant to say something else: python tests/conformance/check_records.py
    assert record.line(check) == KNOWN[check.name]


def test_no_check_is_gone():
    assert {check.name for check in CHECKS} == set(KNOWN)


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda found: found.id)
def test_statement_in_force_has_a_check_and_an_obsolete_one_has_none(statement):
    assert bool(checks_of(statement, CHECKS)) == statement.in_force


def test_checks_name_known_statements_and_say_what_they_do():
    known = {statement.id for statement in STATEMENTS}
    for check in CHECKS:
        assert set(check.ids) <= known, check.name
        assert check.text.endswith("."), check.name


@pytest.mark.parametrize("sizes", [{0, 1, 256}, {1, 256, 257}, {1, 255}, {2, 256}])
def test_last_packets_that_are_empty_or_too_long_are_seen(monkeypatch, sizes):
    monkeypatch.setattr(uc_sending, "_sizes", lambda packets, positions: sizes)
    with pytest.raises(ConformanceError):
        uc_sending.a_last_packet_is_never_empty(ON_ROCE)


def test_a_target_that_gives_a_right_which_it_has_not_is_seen():
    def refuse(attributes):
        raise tca.DriverError(errno.EINVAL, "for another reason")

    for modify in (lambda attributes: None, refuse):
        with pytest.raises(ConformanceError):
            tca._right_is_refused(SimpleNamespace(right_qp=SimpleNamespace(modify=modify)))


def test_a_loss_that_nobody_asked_to_be_told_of_is_seen(monkeypatch):
    told, events = [], Station.events

    def also(station):
        found = events(station)
        told.append(found)
        # the last question of the check is of the queue pair that has not asked
        asked = {number for each in told for _, number in each}
        others = set(station.adapter.queue_pairs) - asked
        lost = [(tca.EVENT_MESSAGES_LOST, number) for number in others]
        return found + lost if len(told) == 6 else found

    monkeypatch.setattr(Station, "events", also)
    with pytest.raises(ConformanceError, match="nobody asked for"):
        tca.who_asks_is_told_of_messages_lost(ON_ROCE)
    assert len(told) == 6
