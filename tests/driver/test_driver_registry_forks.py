"""A fork while a thread finds out which devices there are: the child knows them, too."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from machine_speed import limit_s
from softhca.driver import registry


def test_a_child_that_is_made_amid_a_discovery_knows_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    forked = threading.Event()

    def fork() -> None:
        child = os.fork()
        if not child:
            known = False
            try:
                signal.alarm(int(limit_s(10)))
                known = "discovered0" in registry.names()
            finally:
                os._exit(int(not known))
        forked.set()
        found.append(os.waitpid(child, 0)[1] == 0)

    thread = threading.Thread(target=fork)

    def load() -> None:
        thread.start()
        forked.wait(0.3)  # for a fork that does not wait for us
        monkeypatch.setitem(registry._openers, "discovered0", lambda: None)

    module: Any = SimpleNamespace(load=load)
    monkeypatch.setitem(sys.modules, "discovering", module)
    monkeypatch.setattr(registry, "DISCOVERY", "discovering")
    monkeypatch.setattr(registry, "_discovered", False)
    assert "discovered0" in registry.names()
    thread.join()
    assert found == [True]
