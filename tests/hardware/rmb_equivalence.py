"""The remote-key manager's gates beside `RemoteKeyModel`, clock by clock, under any traffic of the RQ.

The model says which accesses the walk makes, and in which order.  What it does not say is when; that is the
timing diagrams' rule, and stands here: one access a clock, a clear together with the next read, none in a
clock that must look at what was read first, and each waits while the RQ has its port.

Run as a program it tries so many cases: ``python tests/hardware/rmb_equivalence.py --cases 100000``.
"""

from __future__ import annotations

import argparse
import functools
from typing import Any, NamedTuple

from amaranth.sim import Simulator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from softhca.adapter.remote_keys import VALID, Act, RemoteKeyModel, Step
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.rmb_sq import State
from softhca.hardware.trace import simulator

SIZES = ((1, 1), (1, 4), (2, 1), (2, 3), (3, 2), (4, 4), (5, 4), (8, 2))
PDS = (0, 1, 2)
WORDS = (0, 1, 2, VALID | 1, VALID | 2, VALID)
"""Domains and keys are few, so that they often meet."""


class Clock(NamedTuple):
    """What the engines do in a clock: the RQ reads, writes (address, word), the SQ starts (domain, key)."""

    read: int | None = None
    write: tuple[int, int] | None = None
    start: tuple[int, int] | None = None


class Case(NamedTuple):
    """``memory`` in the beginning, and what happens; behind the last clock the RQ is quiet."""

    vis: int
    keys: int
    memory: list[int]
    clocks: list[Clock]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any case of the small sizes."""
    vis, keys = draw(st.sampled_from(SIZES))
    words = vis * (1 + keys)
    address = st.integers(0, words - 1)
    accesses = st.builds(
        Clock,
        st.none() | address,
        st.none() | st.tuples(address, st.sampled_from(WORDS)),
        st.sampled_from([None] * 7 + [(pd, key) for pd in PDS for key in PDS]),
    )
    memory = draw(st.lists(st.sampled_from(WORDS), min_size=words, max_size=words))
    first = Clock(start=(draw(st.sampled_from(PDS)), draw(st.sampled_from(PDS))))
    return Case(vis, keys, memory, [first, *draw(st.lists(accesses, max_size=40))])


class Prediction:
    """Which steps of the model fall into which clock."""

    def __init__(self, case: Case) -> None:
        self.model = RemoteKeyModel(case.vis, case.keys, 0)
        self.model.memory[:] = case.memory
        self.looking = False
        """This clock looks at a word and cannot go on before."""

    def clock(self, doing: Clock) -> list[Step]:
        """The model's steps in this clock."""
        model = self.model
        if doing.start is not None:
            model.start(*doing.start)
        if doing.write is not None:
            model.write(*doing.write)
        if self.looking or not model.busy:
            self.looking = False
            return []
        steps: list[Step] = []
        if model._clearing:
            if doing.write is not None:
                return []
            steps.append(self._step())
            if model._slot == 0:
                return steps
        ends = not model.done and model._vi == model.vis
        if doing.read is None or ends:
            steps.append(self._step())
            self.looking = self._must_look(steps[-1])
        return steps

    def _step(self) -> Step:
        step = self.model.step()
        assert step is not None
        return step

    def _must_look(self, step: Step) -> bool:
        if step.act is Act.READ_DOMAIN:
            return not step.matched
        last = step.address % self.model.row == self.model.keys
        return step.act is Act.READ_KEY and (step.matched or last)


class Gates:
    """The manager of one size, simulated; `check` runs a case beside the model."""

    def __init__(self, vis: int, keys: int) -> None:
        self.manager = RemoteKeyManager(vis, keys)
        self.case: Case | None = None
        self.ran = False
        self.simulation: Simulator = simulator(self.manager, self._bench)

    def check(self, case: Case) -> None:
        """AssertionError where a clock is not as the model and the diagrams have it."""
        self.case = case
        if self.ran:
            self.simulation.reset()
        self.ran = True
        self.simulation.run()

    async def _bench(self, ctx: Any) -> None:
        case, manager = self.case, self.manager
        assert case is not None
        store = manager.rq.memory.data
        for address, word in enumerate(case.memory):
            ctx.set(store[address], word)
        predicted = Prediction(case)
        model = predicted.model
        before: list[Step] = []
        expected_read: int | None = None
        held = False
        script = iter(case.clocks)
        ending = 2
        while ending:
            doing = next(script, None)
            if doing is None:
                doing = Clock()
                ending -= not model.busy
            held = held or doing.start is not None
            self._drive(ctx, doing, held)
            was_done = model.done
            steps = predicted.clock(doing)
            self._compare(ctx, doing, steps, before)
            if expected_read is not None:
                assert ctx.get(manager.rq_read_data) == expected_read
            assert ctx.get(manager.sq_done) == (was_done or any(step.act is Act.DONE for step in steps))
            assert ctx.get(manager.sq_taken) == (was_done and not model.done)
            held = held and not ctx.get(manager.sq_taken)
            expected_read = None if doing.read is None else model.memory[doing.read]
            before = steps
            await ctx.tick()
        assert [ctx.get(store[address]) for address in range(len(case.memory))] == model.memory
        assert ctx.get(manager.state) == State.IDLE
        assert ctx.get(manager.vi) == 0

    def _drive(self, ctx: Any, doing: Clock, held: bool) -> None:
        manager = self.manager
        ctx.set(manager.rq_read, doing.read is not None)
        ctx.set(manager.rq_read_addr, doing.read or 0)
        address, word = doing.write or (0, 0)
        ctx.set(manager.rq_write, doing.write is not None)
        ctx.set(manager.rq_write_addr, address)
        ctx.set(manager.rq_write_data, word)
        if doing.start is not None:
            ctx.set(manager.sq_pd, doing.start[0])
            ctx.set(manager.sq_key, doing.start[1])
        ctx.set(manager.sq_start, held)

    def _compare(self, ctx: Any, doing: Clock, steps: list[Step], before: list[Step]) -> None:
        """The memory's ports and the results of comparisons in this clock."""
        manager, model_acts = self.manager, {step.act: step for step in steps}
        reads = [step for step in steps if step.act in (Act.READ_DOMAIN, Act.READ_KEY)]
        clear = model_acts.get(Act.CLEAR)
        assert ctx.get(manager.rmb_mem_re) == (doing.read is not None or bool(reads))
        if doing.read is not None or reads:
            address = reads[0].address if reads else doing.read
            assert ctx.get(manager.rmb_mem_rd_addr) == address
        assert ctx.get(manager.rmb_mem_we) == (doing.write is not None or clear is not None)
        if doing.write is not None:
            assert ctx.get(manager.rmb_mem_wr_addr) == doing.write[0]
        elif clear is not None:
            assert ctx.get(manager.rmb_mem_wr_addr) == clear.address
            assert ctx.get(manager.vi) == clear.vi
        compared = [step for step in before if step.act in (Act.READ_DOMAIN, Act.READ_KEY)]
        failed = {step.act for step in compared if not step.matched}
        assert ctx.get(manager.pd_fail) == (Act.READ_DOMAIN in failed)
        assert ctx.get(manager.key_fail) == (Act.READ_KEY in failed)
        assert ctx.get(manager.rq_busy) == (doing.read is not None or doing.write is not None)


@functools.cache
def gates(vis: int, keys: int) -> Gates:
    """One simulation a size."""
    return Gates(vis, keys)


def check(case: Case) -> None:
    """The gates and the model agree in every clock of ``case``."""
    gates(case.vis, case.keys).check(case)


def main() -> None:
    """So many cases that hypothesis chooses."""
    parser = argparse.ArgumentParser(description="The gates beside the functional model.")
    parser.add_argument("--cases", type=int, default=100_000)
    asked = parser.parse_args().cases
    tried = 0

    @settings(max_examples=asked, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(cases())
    def run(case: Case) -> None:
        nonlocal tried
        tried += 1
        check(case)

    run()
    print(f"{tried} cases: gates and model agree in every clock")


if __name__ == "__main__":
    main()
