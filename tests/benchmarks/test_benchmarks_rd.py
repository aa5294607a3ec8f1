"""The comparison with and without the error cache of EE contexts, in small."""

import rd_error_cache


def test_one_failing_context_holds_up_nobody_for_long_where_there_is_a_cache(monkeypatch):
    for name, value in {"CONTEXTS": 10, "QUEUE_PAIRS": 2, "STEPS": 6, "FAILS_AT": 1, "DEPTH": 2048}.items():
        monkeypatch.setattr(rd_error_cache, name, value)
    healthy, cached, uncached = (sum(rd_error_cache.measured(*run)) for run in rd_error_cache.RUNS.values())
    assert healthy > cached > 2 * uncached > 0
