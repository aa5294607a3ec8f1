"""Rings that a host asks for: the frames in its command become a layout in this process, or a refusal."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from softhca.memory.arenas import AddressMap
from softhca.queues.control_fields import RING
from softhca.queues.ring import RingLayout, plan

FULL_RING_RETRY_NS = 10_000_000
"""A ring that had no room is looked at again so much later."""
_LENGTH_BYTES = 4
_ADDRESS_BYTES = 8


def cost_of(layout: RingLayout | None, produces: bool = False) -> int:
    """Bytes of its own that the adapter needs for a ring: the addresses of its pages, and where it
    ``produces`` a length an entry.
    """
    if layout is None:
        return 0
    pages = plan(layout.entries, layout.body_bytes)
    return int(pages * _ADDRESS_BYTES + (layout.entries * _LENGTH_BYTES if produces else 0))


def layout_of(
    address_map: AddressMap,
    ring: Mapping[str, Any],
    *,
    least_entries: int,
    most_entries: int,
    least_entry_bytes: int,
    most_entry_bytes: int,
    prefix: str = "",
) -> RingLayout:
    """The layout of the ring that the fields ``control_fields.RING``, after a ``prefix``, describe.

    The bounds are what the adapter's limits allow, for the adapter keeps a few bytes an entry and a page
    itself.  EINVAL for ``entries`` outside of them, a body store that cannot hold the least number of
    shortest entries or is longer than all entries at their longest, or another number of frames; EFAULT for
    frames that are not mapped here.
    """
    entries, body_bytes, runs = (ring[prefix + name] for name, _ in RING)
    if not 0 < least_entries <= entries <= most_entries:
        raise OSError(
            errno.EINVAL, f"{prefix}entries = {entries}: a ring here has {least_entries}…{most_entries}"
        )
    least_bytes, most_bytes = least_entries * least_entry_bytes, entries * most_entry_bytes
    if not least_bytes <= body_bytes <= most_bytes:
        raise OSError(
            errno.EINVAL,
            f"{prefix}body_bytes = {body_bytes}: {entries} entries take {least_bytes}…{most_bytes}",
        )
    pages = plan(entries, body_bytes)
    if sum(count for _, count in runs) != pages:
        raise OSError(errno.EINVAL, f"{prefix}frames: {entries} entries and {body_bytes} bytes take {pages}")
    frames = [frame for first, count in runs for frame in range(first, first + count)]
    return RingLayout.over(frames, address_map, entries, body_bytes)
