"""Two adapters with memory that others may reach in part, and hostile packets between them: what targets of
single services have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuzz_choices import Choices

from softhca.adapter.resources import Kind
from softhca.machine.primitives import address_of
from softhca.testing import SENT, Network
from softhca.testing.ends import End
from softhca.wire import icrc
from softhca.wire.framing import ROCE_V4
from softhca.wire.packet import Transport
from softhca.wire.route import Route

MOST_STEPS = 60
GUARDED_BYTES = 4096
PUBLIC_BYTES = 16_384
TIMES_NS = (0, 5_000, 1_000_000, 40_000_000)
STRANGER = bytes(10) + b"\xff\xff\xc0\x00\x02\x63"
ICRC_BYTES = 4


class Place:
    """An adapter's end whose memory others may reach in a part that a target registers; the rest must stay as
    it is."""

    def __init__(self, end: End) -> None:
        self.end = end
        end.device.dereg_mr(end.key.handle)
        end.memory[:] = b"\x5a" * len(end.memory)
        self.posted = 0

    def check(self) -> None:
        """What is not registered has not changed."""
        memory = self.end.memory
        assert memory.count(0x5A, 0, GUARDED_BYTES) == GUARDED_BYTES
        behind = GUARDED_BYTES + PUBLIC_BYTES
        assert memory.count(0x5A, behind) == len(memory) - behind


class HostileNetwork:
    """Two places, made by ``place``, and all that they send, once `record` was called."""

    def __init__(self, place: Callable[[Network], Any]) -> None:
        self.network = Network(seed=1)
        self.places = [place(self.network) for _ in range(2)]

    def record(self) -> None:
        """What is sent from now on is kept, for `packet`."""
        self.sent = self.network.record(SENT)

    def packet(self, choices: Choices) -> None:
        """Something like what was sent, again."""
        if not self.sent:
            return
        template = self.sent[choices.below(min(256, len(self.sent)))]
        target = self.places[choices.below(2)].end.node
        data = bytearray(template.data[:-ICRC_BYTES])
        for _ in range(choices.below(4)):
            data[choices.byte() % min(48, len(data))] = choices.byte()
        if choices.once_in(8):
            del data[choices.byte() % len(data) :]
        source = STRANGER if choices.once_in(4) else template.source.gid
        route = Route(ROCE_V4, source, target.gid)
        data += bytes(ICRC_BYTES)
        if len(data) >= 16:
            data[-ICRC_BYTES:] = icrc.compute(route, address_of(data), len(data) - ICRC_BYTES).to_bytes(
                ICRC_BYTES, "little"
            )
        self.network.inject(target, bytes(data), source)

    def run(self, choices: Choices, steps: Sequence[Callable[[Choices], None]]) -> None:
        """Take ``steps`` as the input chooses, or let time pass."""
        for _ in range(MOST_STEPS):
            if not choices.more:
                break
            which = choices.below(8)
            if which < len(steps):
                steps[which](choices)
            else:
                self.network.elapse(choices.pick(TIMES_NS))
        self.network.elapse(TIMES_NS[-1])

    def finish(self) -> None:
        """The targets' objects are gone: what was sent is well formed, and adapters have nothing left."""
        for sent in self.sent:
            if sent.packet is not None and isinstance(sent.packet.transport, Transport):
                assert sent.packet.icrc_ok
        self.network.close()
        for place in self.places:
            adapter = place.end.node.adapter
            left = {kind: count for kind in Kind if (count := adapter.resources.count(kind))}
            assert not left, left
            assert not adapter.timers.count()
