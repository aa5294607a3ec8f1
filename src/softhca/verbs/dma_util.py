"""Barriers towards a device, and writes to its registers, as pyverbs offers them.

The device runs on the same processors as the program, so that order and visibility are those of memory.
"""

from softhca.verbs.mem_alloc import writebe32, writebe64


def udma_to_dev_barrier() -> None:
    """What was written before is seen before what is written after."""


def udma_from_dev_barrier() -> None:
    """What is read after is no older than what was read before."""


def mmio_write64_as_be(addr: int, val: int) -> None:
    """Write ``val`` to ``addr``, eight bytes, big-endian."""
    writebe64(addr, val)


def mmio_write32_as_be(addr: int, val: int) -> None:
    """Write ``val`` to ``addr``, four bytes, big-endian."""
    writebe32(addr, val)
