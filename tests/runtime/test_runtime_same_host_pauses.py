"""How long a withdrawal waits for a peer that is about to copy."""

from softhca.runtime import same_host
from softhca.runtime.same_host import SYNCHRONIZE_LIMIT_NS, bounded_pauses


def test_it_may_wait_a_bounded_time_and_lets_others_run_meanwhile(monkeypatch):
    moments, yields = [1_000], []
    monkeypatch.setattr(same_host, "now_ns", lambda: moments[0])
    monkeypatch.setattr(same_host, "yield_processor", lambda: yields.append(moments[0]))
    pause = bounded_pauses()
    assert pause()
    moments[0] += SYNCHRONIZE_LIMIT_NS - 1
    assert pause()
    moments[0] += 1
    assert not pause()
    assert len(yields) == 3
