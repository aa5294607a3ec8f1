"""Fixtures of the links room: links that are closed at a test's end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from roce_links import Open

from softhca.links.roce_udp import RoceUdpLink


@pytest.fixture
def open_link() -> Iterator[Open]:
    with ExitStack() as stack:
        def make(address: str, port: int = 0, kind: Any = RoceUdpLink, **options: Any) -> Any:
            return stack.enter_context(kind(address, port, **options))
        yield make
