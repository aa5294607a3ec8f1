"""Fixtures of the verbs room: a fake device for what needs none."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from verbs_fake_driver import FakeDriver, FakeRegistry

from softhca.verbs import device
from softhca.verbs.device import Context


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> FakeRegistry:
    fake = FakeRegistry()
    monkeypatch.setattr(device, "registry", fake)
    return fake


@pytest.fixture
def context(registry: FakeRegistry) -> Iterator[Context]:
    opened = Context(name="fake0")
    yield opened
    opened.close()


@pytest.fixture
def driver(context: Context) -> FakeDriver:
    return context._driver


@pytest.fixture
def closing() -> Iterator[Callable[[Any], Any]]:
    """Closes what is put into it, youngest first."""
    with contextlib.ExitStack() as stack:
        yield lambda made: stack.enter_context(contextlib.closing(made))
