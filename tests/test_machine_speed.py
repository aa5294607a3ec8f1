"""Limits of time follow the speed of the machine, and never fall below what they were written as."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import machine_speed


@pytest.fixture
def measured_anew():
    machine_speed.slowness.cache_clear()
    yield
    machine_speed.slowness.cache_clear()


@pytest.mark.parametrize(("said", "limit"), [("1", 60), ("7.5", 450), ("0.2", 60)])
def test_a_limit_is_so_many_times_longer_as_the_machine_is_slower(said, limit, measured_anew, monkeypatch):
    monkeypatch.setenv(machine_speed.VARIABLE, said)
    assert machine_speed.limit_s(60) == limit


@pytest.mark.parametrize(("took_s", "factor"), [(0.05, 1), (0.2, 1), (1, 5), (1000, 50)])
def test_the_factor_is_measured_within_bounds(took_s, factor, measured_anew, monkeypatch):
    monkeypatch.delenv(machine_speed.VARIABLE, raising=False)
    moments = iter((10, 10 + took_s))
    monkeypatch.setattr(machine_speed, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    monkeypatch.setattr(machine_speed, "_work", lambda rounds: 0)
    assert machine_speed.slowness() == pytest.approx(factor)
