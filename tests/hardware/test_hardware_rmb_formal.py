"""Proofs about the remote-key manager for every memory and every traffic; and that they can fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from amaranth.hdl import Const

from softhca.hardware.formal import design, prove
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.yosys import YosysError


def test_clears_done_and_precedence_are_proved() -> None:
    prove(design(4, 4))


def forgets_what_the_rq_wrote(manager: RemoteKeyManager) -> None:
    manager.sq._rewrites = lambda: Const(0)  # type: ignore[method-assign]


def leaves_a_row_too_early(manager: RemoteKeyManager) -> None:
    manager.sq._next_key = lambda m: manager.sq._leave_row(m, 1)  # type: ignore[method-assign]


def passes_every_key_over(manager: RemoteKeyManager) -> None:
    manager.sq._compare_key = manager.sq._next_key  # type: ignore[method-assign]


@pytest.mark.parametrize("spoil", [forgets_what_the_rq_wrote, leaves_a_row_too_early, passes_every_key_over])
def test_a_spoilt_manager_is_not_proved(spoil: Callable[[RemoteKeyManager], None]) -> None:
    with pytest.raises(YosysError):
        prove(design(2, 2, spoil))
