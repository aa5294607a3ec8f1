"""Where an engine's clocks go: the instructions of `send` and `receive` by what they are for.

A subroutine that many tasks use (a look into the context, a word of the descriptor, payload) counts to the
task that called it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from softhca.hardware.activity import IDLE, WAITS, engine_states, loaded_program
from softhca.hardware.context_memory import RECEIVE, SEND
from softhca.hardware.subsystem_bench import SubsystemBench

TURN, BEGIN, NEWS, ROOM, HEADERS = "turn", "message", "news", "room", "headers"
PAYLOAD, END, COMPLETE, BIND = "payload", "end of packet", "completion", "bind"
ANSWER, READ, PLACE = "answer", "READ", "place"
CALLER = ""
"""A subroutine."""
_TASKS: Mapping[int, Mapping[str, str]] = {
    SEND: {
        "idle": TURN, "flush": COMPLETE, "over": TURN, "begin": BEGIN, "going_on": NEWS,
        "finish": COMPLETE, "rest": NEWS, "packet": ROOM, "header": HEADERS, "payload": PAYLOAD,
        "gathered": END, "thrown": END, "bind": BIND, "tell": COMPLETE, "in_time": CALLER,
    },
    RECEIVE: {
        "next": TURN, "packet": HEADERS, "in_order": PLACE, "leave": END, "read": READ, "unfit": END,
        "answers": NEWS, "respond": READ, "drain": CALLER, "answer": ANSWER, "room": CALLER, "aeth": ANSWER,
        "one_more": CALLER, "complete": COMPLETE, "immediate": CALLER, "span": CALLER,
        "scatter": PAYLOAD, "allowed": CALLER,
    },
}  # fmt: skip
"""From which label on, in the order of addresses, an engine is at what."""


class TaskClocks(NamedTuple):
    """Clocks of ``engine`` (SEND or RECEIVE) at ``task``: in ``works`` it carried out an instruction, in
    ``waits`` it looked whether host memory or a look-up is done."""

    engine: int
    task: str
    works: int
    waits: int


def tasks_of(engine: int, vis: int) -> list[str]:
    """What the instruction at each address of the engine's program is for; `CALLER` in a subroutine."""
    tasks = _TASKS[engine]
    program = loaded_program(engine, vis)
    begins = sorted((program.labels[label], task) for label, task in tasks.items())
    found: list[str] = []
    for number, (address, task) in enumerate(begins):
        end = begins[number + 1][0] if number + 1 < len(begins) else len(program.halves)
        found += [CALLER] * (address - len(found)) + [task] * (end - address)
    return found


class Budget:
    """Counts the clocks of ``bench``'s engines from now on."""

    def __init__(self, bench: SubsystemBench) -> None:
        vis = bench.subsystem.vis
        self._tasks = {engine: tasks_of(engine, vis) for engine in (SEND, RECEIVE)}
        self._states = {engine: engine_states(engine, vis) for engine in (SEND, RECEIVE)}
        self._last = {SEND: TURN, RECEIVE: TURN}
        self._clocks: Counter[tuple[int, str, bool]] = Counter()
        self._addresses = [engine.address for engine in bench.subsystem.engines]
        bench.simulator.add_testbench(self._watch, background=True)

    async def _watch(self, context: Any) -> None:
        async for _, _, *addresses in context.tick().sample(*self._addresses):
            for engine, address in enumerate(addresses):
                state = self._states[engine].get(address)
                if state == IDLE or address >= len(self._tasks[engine]):
                    continue
                task = self._tasks[engine][address] or self._last[engine]
                self._last[engine] = task
                self._clocks[engine, task, state == WAITS] += 1

    def take(self) -> list[TaskClocks]:
        """What was counted since the last time, the task with most clocks first; both engines, SQ's first."""
        counted, self._clocks = self._clocks, Counter()
        pairs = {(engine, task) for engine, task, _ in counted}
        rows = [
            TaskClocks(engine, task, counted[engine, task, False], counted[engine, task, True])
            for engine, task in pairs
        ]
        return sorted(rows, key=lambda row: (row.engine, -row.works - row.waits, row.task))
