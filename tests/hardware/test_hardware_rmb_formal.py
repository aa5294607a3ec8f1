"""Proofs about the remote-key manager for every memory and every traffic; and that they can fail."""

from __future__ import annotations

import inspect
import textwrap
import types
from collections.abc import Callable

import pytest
from amaranth.hdl import Const

from softhca.hardware import rmb_rq
from softhca.hardware.formal import design, prove
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.rmb_rq import RmbRq
from softhca.hardware.yosys import YosysError


def test_clears_done_and_precedence_are_proved() -> None:
    prove(design(4, 4))


def forgets_what_the_rq_wrote(manager: RemoteKeyManager) -> None:
    manager.sq._rewrites = lambda: Const(0)  # type: ignore[method-assign]


def leaves_a_row_too_early(manager: RemoteKeyManager) -> None:
    manager.sq._next_key = lambda m: manager.sq._leave_row(m, 1)  # type: ignore[method-assign]


def passes_every_key_over(manager: RemoteKeyManager) -> None:
    manager.sq._compare_key = manager.sq._next_key  # type: ignore[method-assign]


def memory_that(find: str, put: str) -> Callable[[RemoteKeyManager], None]:
    """Spoils the RQ's side: of its circuit's source ``find`` is ``put``."""

    def spoil(manager: RemoteKeyManager) -> None:
        source = textwrap.dedent(inspect.getsource(RmbRq.elaborate))
        assert source.count(find) == 1
        scope = dict(vars(rmb_rq))
        exec(source.replace(find, put), scope)
        manager.rq.elaborate = types.MethodType(scope["elaborate"], manager.rq)  # type: ignore[method-assign]

    return spoil


SPOILT = {
    "forgets what the RQ wrote": forgets_what_the_rq_wrote,
    "leaves a row too early": leaves_a_row_too_early,
    "passes every key over": passes_every_key_over,
    "no read beside a write": memory_that(
        "self.rmb_mem_re.eq(self.rq_read |", "self.rmb_mem_re.eq((self.rq_read & ~self.rq_write) |"
    ),
    "no write beside a read": memory_that(
        "self.rmb_mem_we.eq(self.rq_write |", "self.rmb_mem_we.eq((self.rq_write & ~self.rq_read) |"
    ),
    "reads where it writes": memory_that(
        "Mux(self.rq_read, self.rq_read_addr,", "Mux(self.rq_read, self.rq_write_addr,"
    ),
    "shows nothing while the walk reads": memory_that(
        "self.rq_read_data.eq(memory.read_data)",
        "self.rq_read_data.eq(Mux(self.walk.read, 0, memory.read_data))",
    ),
    "clears with the key": memory_that(
        "self.rq_write_data, self.walk.write_data)", "self.rq_write_data, self.walk.write_data & 0)"
    ),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_spoilt_manager_is_not_proved(spoil: Callable[[RemoteKeyManager], None]) -> None:
    with pytest.raises(YosysError):
        prove(design(2, 2, spoil))
