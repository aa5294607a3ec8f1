"""What the blocks have in common: a written micro-register, and the bus to the host's memory."""

from __future__ import annotations

from amaranth.lib.wiring import In, Out, Signature

WORD_BITS = 32
BYTES = 4
"""Of a word."""
ADDRESS_BITS = 44
"""Physical addresses: 2^32 pages of 4 KiB, 16 TiB."""


class RegisterWrite(Signature):
    """A micro-register that a block takes: ``strobe`` for one clock, with its ``data``.  Who writes has it
    ``Out``."""

    def __init__(self) -> None:
        super().__init__({"strobe": Out(1), "data": Out(WORD_BITS)})


class HostBus(Signature):
    """One word of the host's memory, seen from who asks.

    ``valid``, ``write``, ``address`` (in bytes, of whole words), ``write_data`` and ``mask`` stay until the
    clock in which ``done`` is high; with it come ``read_data`` and ``error``: the host refuses the address.
    A write changes the bytes whose bit of ``mask`` is set: all, unless the block says otherwise.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "write": Out(1),
                "address": Out(ADDRESS_BITS),
                "write_data": Out(WORD_BITS),
                "mask": Out(BYTES, init=(1 << BYTES) - 1),
                "done": In(1),
                "read_data": In(WORD_BITS),
                "error": In(1),
            }
        )


def check_power_of_two(what: str, value: int, least: int, most: int) -> None:
    """ValueError that says the bounds of a parameter which must be a power of two."""
    if not least <= value <= most or value & (value - 1):
        raise ValueError(f"{what} must be a power of two in {least}…{most}, not {value}")
