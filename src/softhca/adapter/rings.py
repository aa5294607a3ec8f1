"""Rings that a host asks for: the frames in its command become a layout in this process, or a refusal."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from softhca.memory.arenas import AddressMap
from softhca.queues.ring import RingLayout, plan


def layout_of(
    address_map: AddressMap,
    entries: int,
    body_bytes: int,
    runs: Sequence[tuple[int, int]],
    least_body_bytes: int,
) -> RingLayout:
    """The layout of ``entries`` references and ``body_bytes`` of bodies over runs of frames.

    EINVAL for sizes that cannot be, too few body bytes or another number of frames; EFAULT for frames that
    are not mapped here.
    """
    pages = plan(entries, body_bytes)
    if body_bytes < least_body_bytes or sum(count for _, count in runs) != pages:
        raise OSError(
            errno.EINVAL, f"a ring of {entries} entries takes {least_body_bytes} bytes and {pages} frames"
        )
    frames = [frame for first, count in runs for frame in range(first, first + count)]
    return RingLayout.over(frames, address_map, entries, body_bytes)
