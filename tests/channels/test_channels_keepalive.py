"""When who waits asks whether the peer lives: the seconds of many short waits add up (in virtual time)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from softhca.channels import Channel
from softhca.channels import link as link_module

Pair = tuple[Channel, Channel]
KEEPALIVE_S = 1.0
"""As options have it by default, and `SMALL` too."""


class Waits:
    """Waits of one link in which nothing comes, in a time that only they spend."""

    def __init__(self, patch: pytest.MonkeyPatch, channel: Channel) -> None:
        self.link = channel._link
        assert self.link.options.keepalive_s == KEEPALIVE_S
        self.now_s = 0.0
        self.asked: list[float] = []
        driver = SimpleNamespace(wait_for=self._wait_for)
        patch.setattr(link_module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        patch.setattr(self.link, "_driver", driver)
        patch.setattr(self.link, "poll", lambda: None)
        patch.setattr(self.link, "look", lambda ready, waiting=0: False)
        patch.setattr(self.link, "keep_alive", lambda: self.asked.append(self.now_s))
        self.link._waited_s = 0.0

    def _wait_for(self, ready: Any, timeout_s: float) -> None:
        assert timeout_s > 0, "a wait that goes round for nothing"
        self.now_s += timeout_s

    def wait(self, seconds: float) -> None:
        assert self.link.wait(lambda: False, self.now_s + seconds) is False


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch, pair: Pair) -> Any:
    with monkeypatch.context() as patch:
        yield Waits(patch, pair[0])


def test_one_long_wait_asks_once_in_each_interval(waits: Waits) -> None:
    waits.wait(3.5)
    assert waits.asked == [1.0, 2.0, 3.0]
    assert waits.now_s == 3.5


def test_short_waits_add_up_until_they_ask(waits: Waits) -> None:
    for _ in range(15):
        waits.wait(0.25)
    assert waits.asked == [1.0, 2.0, 3.0]


def test_time_between_waits_does_not_count(waits: Waits) -> None:
    for _ in range(7):
        waits.wait(0.25)
        waits.now_s += 100.0
    assert waits.asked == [301.0]
