"""Refused keys are told of in the log: each once, and at most once a second."""

import logging

from softhca.runtime.refusals import REPORT_NS, RefusalReport

START = 5


def test_they_are_told_of_with_their_number_at_most_once_a_second(caplog):
    report = RefusalReport()
    with caplog.at_level(logging.WARNING, "softhca.runtime"):
        report.report(3, START)
        assert report.reported == 3
        report.report(4, START + 1)
        report.report(10, START + REPORT_NS - 1)
        assert report.reported == 3
        report.report(11, START + REPORT_NS)
        assert report.reported == 11
        report.report(12, START + 2 * REPORT_NS - 1)
    assert [record.args for record in caplog.records] == [(3,), (8,)]
    assert "refused 8 requests" in caplog.records[1].getMessage()
