"""Proofs about who is served later: the scheduler's linked lists, and the timer's queue pairs that wait.

The scheduler is held to a model that has a shift register a level.
"""

from __future__ import annotations

from collections.abc import Iterable

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value

from softhca.hardware.claims import Claims, Registers, all_of, any_of, past, stays
from softhca.hardware.retry_timer import LATER_BIT, TIME_SHIFT, RetryTimer
from softhca.hardware.work_scheduler import HIGH_LIMIT_BYTES, PRESENT_BIT, WorkScheduler


class SchedulerClaims(Claims):
    """The scheduler's lists.

    * *order*: who is offered is the one that has waited longest on its level, and stays until its turn ends.
    * *level*: that level has one that waits; it is the highest such one while the lower ones' share of bytes
      is not used up.
    * *works*: it never rests for three clocks while somebody waits.
    * *state*: the linked lists are the model's queues: each queue pair that was put is in one of them, once.
    """

    names = ("order", "level", "works", "state")
    block: WorkScheduler

    def claim(self, m: Module, platform: Registers) -> dict[str, Value]:
        """See the class."""
        block, vis = self.block, self.block.vis
        count, put = block.levels, block.put
        queues = [Array(Signal(range(vis), name=f"model_{i}_{j}") for j in range(vis)) for i in range(count)]
        lengths = Array(Signal(range(vis + 1), name=f"model_length_{i}") for i in range(count))
        fronts = Array(queue[0] for queue in queues)
        levels = Array(platform.words(vis, len(block.chosen)))
        links = Array(platform.words(vis, len(put.qp), int(len(block.chosen) == len(put.qp))))
        waits = [
            any_of((lengths[i] > j) & (queues[i][j] == qp) for i in range(count) for j in range(vis))
            for qp in range(vis)
        ]
        asked, waits_already = Signal(range(count)), Signal()
        m.d.comb += [asked.eq(levels[put.qp]), waits_already.eq(Array(waits)[put.qp])]
        for i, queue in enumerate(queues):
            with m.If(block.offers & (block.chosen == i)):
                m.d.sync += [queue[j].eq(queue[j + 1]) for j in range(vis - 1)]
                m.d.sync += lengths[i].eq(lengths[i] - 1)
            with m.If(put.valid & put.ready & ~waits_already & (asked == i)):
                m.d.sync += [queue[lengths[i]].eq(put.qp), lengths[i].eq(lengths[i] + 1)]
        present, offered = block.engine.scheduler_next[PRESENT_BIT], block.engine.scheduler_next[:PRESENT_BIT]
        expected = Signal(range(vis))
        with m.If(block.offers):
            m.d.sync += expected.eq(fronts[block.chosen])
        some = any_of(length != 0 for length in lengths)
        rested = past(m, ~present & some, "rested")
        long = past(m, rested & ~present & some, "rested_long")
        higher = any_of((lengths[i] != 0) & (block.chosen < i) for i in range(count))
        spent = block.high_bytes >= HIGH_LIMIT_BYTES
        level = (lengths[block.chosen] != 0) & (~higher | spent)
        taken = block.engine.write_scheduler_take.strobe
        order = (~present | (offered == expected)) & (
            ~past(m, present & ~taken, "stays") | (present & (offered == past(m, offered, "offered")))
        )
        return {
            "order": ~order,
            "level": block.offers & ~level,
            "works": long & rested & ~present & some,
            "state": ~all_of(self._state(links, platform.words(vis, 1), queues, lengths, waits)),
        }

    def _state(
        self, links: Array, marks: list[Signal], queues: list[Array], lengths: Array, waits: list[Value]
    ) -> Iterable[Value]:
        """How heads, tails and links stand for the queues."""
        block, vis = self.block, self.block.vis
        yield Cat(*marks) == Cat(*waits)
        entries = []
        for i, queue in enumerate(queues):
            length = lengths[i]
            yield length <= vis
            yield block.waiting[i] == (length != 0)
            yield (length == 0) | (block.heads[i] == queue[0])
            for j in range(vis):
                yield (length != j + 1) | (block.tails[i] == queue[j])
                if j + 1 < vis:
                    yield (length <= j + 1) | (links[queue[j]] == queue[j + 1])
                entries.append((length > j, queue[j]))
        for at, (there, one) in enumerate(entries):
            for also, another in entries[:at]:
                yield ~(there & also) | (one != another)


class TimerClaims(Claims):
    """The timer of queue pairs that wait.

    * *kept*: who has asked for a later turn, and has had none since, has its place still, or its turn is due.
    * *once*: nobody has more turns than it has asked for.
    * *first*: what the doorbell manager rings goes before, and is taken as if no timer were there; a turn
      that is due stays until it is taken.
    * *passes*: all else that the engine writes reaches the wake-up block, and it sees that one's bits.
    """

    names = ("kept", "once", "first", "passes")
    block: RetryTimer

    def claim(self, m: Module, platform: Registers) -> dict[str, Value]:
        """See the class."""
        block, vis = self.block, self.block.vis
        write, put, ring = block.engine.write_wake, block.put, block.ring
        words = platform.words(vis, 1)
        kept, once = [], []
        served = put.valid & put.ready & ~ring.valid
        for qp in range(vis):
            asks = write.strobe & write.data[LATER_BIT] & (write.data[:24] == qp)
            has, owed, owes = served & (put.qp == qp), Signal(name=f"owed_{qp}"), Signal(2, name=f"owes_{qp}")
            with m.If(asks):
                m.d.sync += owed.eq(1)
            with m.Elif(has):
                m.d.sync += owed.eq(0)
            more = Mux(owes == 2, 2, owes + 1)
            m.d.sync += owes.eq(Mux(asks, more, owes) - has)
            due = block.due & (block.number == qp)
            kept.append(~owed | words[qp] | due)
            once += [words[qp] + due <= owes, ~has | (owes != 0), owes <= 2]
        first = [
            ring.ready == (put.ready & ring.valid),
            ~ring.valid | (put.valid & (put.qp == ring.qp)),
            stays(m, block.due & ~served, [block.due, block.number], "due"),
        ]
        passes = [
            block.wake.write_wake.strobe == (write.strobe & ~write.data[LATER_BIT]),
            block.wake.write_wake.data == write.data,
            block.engine.wake[:TIME_SHIFT] == block.wake.wake[:TIME_SHIFT],
        ]
        return {
            "kept": ~all_of(kept),
            "once": ~all_of(once),
            "first": ~all_of(first),
            "passes": ~all_of(passes),
        }
