"""Peers that name keys which give them no right are reported in the log, at most once a second, with their
number."""

from __future__ import annotations

import logging

import cython

__all__ = ["REPORT_NS", "RefusalReport"]

REPORT_NS = 1_000_000_000
"""How far apart two warnings are at least."""

_REPORT_NS = cython.declare(cython.ulonglong, REPORT_NS)

_log = logging.getLogger("softhca.runtime")


class RefusalReport:
    """``reported``: so many are in the log."""

    def __init__(self) -> None:
        self.reported = 0
        self.next_ns = 0

    def report(self, count: int, now: int) -> None:
        """There have been ``count`` refusals, more than are in the log."""
        if now < self.next_ns:
            return
        _log.warning("an adapter has refused %d requests of peers for their keys", count - self.reported)
        self.reported = count
        self.next_ns = now + _REPORT_NS
