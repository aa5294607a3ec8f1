"""The software beside the adapter in gates: what it takes for a new completion."""

from types import SimpleNamespace

import pytest

pytest.importorskip("amaranth")

from softhca.hardware import completion_engine as ce
from softhca.hardware.message_host import COMPLETION_RING, LOG_ENTRIES, Done, MessageHost

ENTRIES = 1 << LOG_ENTRIES


class Memory(dict):
    """Host memory that is not read for ever."""

    reads = 0

    def get(self, *arguments):
        self.reads += 1
        assert self.reads < 100 * ENTRIES
        return super().get(*arguments)


def put(memory, count):
    """The adapter's completion of that number, counted from 0, of work request ``count``."""
    place = COMPLETION_RING + ce.ENTRY_BYTES * (count % ENTRIES)
    phase = 1 - count // ENTRIES % 2
    for index, word in enumerate((3, count, 5 | 100 << 8, phase << ce.PHASE_BIT)):
        memory[place + 4 * index] = word


@pytest.mark.parametrize("together", [1, 3, ENTRIES])
def test_completions_are_new_once_in_each_round_of_their_ring(together):
    memory = Memory()
    host = MessageHost(SimpleNamespace(vis=4, memory=memory))
    assert host.poll() == []
    for first in range(0, 3 * ENTRIES, together):
        fresh = range(first, first + together)
        for count in fresh:
            put(memory, count)
        assert host.poll() == [Done(3, count, 5, 100) for count in fresh]
        assert host.poll() == []  # what stands in the places of a round before is not new
