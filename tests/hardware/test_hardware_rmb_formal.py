# amaranth: UnusedElaboratable=no
"""Proofs about the remote-key manager for every memory and every traffic; and that each claim can fail."""

from __future__ import annotations

import inspect
import random
import textwrap
import types
from collections.abc import Callable

import pytest
from amaranth.hdl import Const, Fragment

from softhca.hardware import rmb_rq, rmb_sq
from softhca.hardware.claims import Registers, Verdict, judge_claims
from softhca.hardware.formal import ManagerClaims
from softhca.hardware.key_memory import VALID
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.rmb_rq import RmbRq
from softhca.hardware.rmb_sq import RmbSq
from softhca.hardware.trace import simulator


def test_clears_done_and_precedence_are_proved() -> None:
    assert judge_claims(ManagerClaims(RemoteKeyManager(4, 4))) == [Verdict.PROVED]


def forgets_what_the_rq_wrote(manager: RemoteKeyManager) -> None:
    manager.sq._rewrites = lambda: Const(0)  # type: ignore[method-assign]


def leaves_a_row_too_early(manager: RemoteKeyManager) -> None:
    manager.sq._next_key = lambda m: manager.sq._leave_row(m, 1)  # type: ignore[method-assign]


def passes_every_key_over(manager: RemoteKeyManager) -> None:
    manager.sq._compare_key = manager.sq._next_key  # type: ignore[method-assign]


def part_that(part: str, find: str, put: str) -> Callable[[RemoteKeyManager], None]:
    """Spoils the walk (``sq``) or the RQ's side (``rq``): of its circuit's source ``find`` is ``put``."""

    def spoil(manager: RemoteKeyManager) -> None:
        kind, module = (RmbSq, rmb_sq) if part == "sq" else (RmbRq, rmb_rq)
        source = textwrap.dedent(inspect.getsource(kind.elaborate))
        assert source.count(find) == 1
        scope = dict(vars(module))
        exec(source.replace(find, put), scope)
        spoilt = getattr(manager, part)
        spoilt.elaborate = types.MethodType(scope["elaborate"], spoilt)

    return spoil


SPOILT = {
    "forgets what the RQ wrote": (forgets_what_the_rq_wrote, {"clears"}),
    "leaves a row too early": (leaves_a_row_too_early, {"done"}),
    "passes every key over": (passes_every_key_over, {"done"}),
    "leaves the last row out": (
        part_that("sq", "self.vi == self.geometry.vis - 1", "self.vi == self.geometry.vis - 2"),
        {"done"},
    ),
    "no read beside a write": (
        part_that("rq", "rmb_mem_re.eq(self.rq_read |", "rmb_mem_re.eq((self.rq_read & ~self.rq_write) |"),
        {"rq"},
    ),
    "no write beside a read": (
        part_that("rq", "rmb_mem_we.eq(self.rq_write |", "rmb_mem_we.eq((self.rq_write & ~self.rq_read) |"),
        {"rq", "done"},
    ),
    "reads where it writes": (
        part_that("rq", "Mux(self.rq_read, self.rq_read_addr,", "Mux(self.rq_read, self.rq_write_addr,"),
        {"rq"},
    ),
    "shows nothing while the walk reads": (
        part_that(
            "rq",
            "self.rq_read_data.eq(memory.read_data)",
            "self.rq_read_data.eq(Mux(self.walk.read, 0, memory.read_data))",
        ),
        {"rq"},
    ),
    "writes another word": (
        part_that("rq", "self.rq_write_data, self.walk", "self.rq_write_data ^ 1, self.walk"),
        {"rq"},
    ),
    "clears with the key": (
        part_that("rq", "self.rq_write_data, self.walk.write_data)", "self.rq_write_data, 0)"),
        {"clears"},
    ),
}
"""Managers, and which of their promises random traffic breaks; *walk* is none, but what induction needs."""
PROMISES = {"clears", "done", "rq"}


@pytest.mark.parametrize("spoil", [spoil for spoil, _ in SPOILT.values()], ids=SPOILT)
def test_a_spoilt_manager_is_not_proved(spoil: Callable[[RemoteKeyManager], None]) -> None:
    manager = RemoteKeyManager(2, 2)
    spoil(manager)
    assert judge_claims(ManagerClaims(manager)) != [Verdict.PROVED]


@pytest.mark.parametrize(
    ("spoil", "wanted"), [(lambda _: None, set()), *SPOILT.values()], ids=["as it is", *SPOILT]
)
def test_each_promise_is_broken_by_itself(
    spoil: Callable[[RemoteKeyManager], None], wanted: set[str]
) -> None:
    """Induction takes all claims together; here each is looked at alone, under random traffic."""
    manager = RemoteKeyManager(2, 2)
    spoil(manager)
    # what breaks at all does in the first 500 clocks
    assert broken_claims(ManagerClaims(manager), 600 if wanted else 2000) & PROMISES == wanted


def broken_claims(claims: ManagerClaims, clocks: int) -> set[str]:
    """Those that are broken in one of so many clocks: two domains, two keys, the RQ in half of the clocks."""
    manager, dice, seen = claims.manager, random.Random(1), set()

    async def bench(context) -> None:
        for _ in range(clocks):
            for port, value in (
                (manager.sq_start, dice.random() < 0.3),
                (manager.sq_pd, 7),
                (manager.sq_key, 5),
                (manager.rq_read, dice.random() < 0.5),
                (manager.rq_read_addr, dice.randrange(6)),
                (manager.rq_write, dice.random() < 0.5),
                (manager.rq_write_addr, address := dice.randrange(6)),
                (manager.rq_write_data, dice.choice((7, 7, 0) if address % 3 == 0 else KEY_WORDS)),
            ):
                context.set(port, value)
            if not context.get(claims.assumed):
                context.set(manager.rq_write, 0)
            seen.update(name for name, broken in claims.broken.items() if context.get(broken))
            await context.tick()

    simulator(Fragment.get(claims, Registers()), bench).run()
    return seen


def test_a_key_that_was_entered_during_an_earlier_walk_is_this_ones() -> None:
    """It is entered behind the first walk, which may leave it; the second one must not pass it over."""
    manager = RemoteKeyManager(1, 1)
    passes_every_key_over(manager)
    claims, broken = ManagerClaims(manager), []

    async def bench(context) -> None:
        async def write(address, word) -> None:
            context.set(manager.rq_write_addr, address)
            context.set(manager.rq_write_data, word)
            context.set(manager.rq_write, 1)
            await walk(1)
            context.set(manager.rq_write, 0)

        async def walk(most) -> None:
            for _ in range(most):
                broken[-1] += context.get(claims.broken["done"])
                await context.tick()
                context.set(manager.sq_start, 0)

        broken.append(0)
        await write(0, 7)
        context.set(manager.sq_pd, 7)
        context.set(manager.sq_key, 5)
        for during in (True, False):
            broken.append(0)
            context.set(manager.sq_start, 1)
            await walk(1)
            if during:
                await write(1, VALID | 5)
            await walk(8)
            assert context.get(manager.sq_done)

    simulator(Fragment.get(claims, Registers()), bench).run()
    assert broken == [0, 0, 1]


KEY_WORDS = VALID | 5, VALID | 5, 5, VALID | 6
