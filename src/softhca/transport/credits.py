"""End-to-end flow control: the credit field of an AETH (IBTA vol. 1, 9.7.7.2, table 46)."""

from __future__ import annotations

INVALID = 31  # "no limit": the responder does not count its receives

# credit code → receive work requests that it stands for: powers of two and the midpoints between them
CREDITS: tuple[int, ...] = (
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048, 3_072,
    4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768,
)  # fmt: skip


def encode(count: int) -> int:
    """The greatest code 0…30 that stands for no more than ``count`` receives."""
    if count < 2:
        return count
    if count >= 32_768:
        return 30
    power = 1
    while count >> (power + 1):
        power += 1
    return 2 * power + ((count >> (power - 1)) & 1)
