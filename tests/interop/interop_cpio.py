"""Initial RAM file systems: the "newc" cpio form, as the kernel unpacks it."""

from __future__ import annotations

import stat
from collections.abc import Mapping

_TRAILER = "TRAILER!!!"


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def _entry(number: int, name: str, mode: int, data: bytes) -> bytes:
    path = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(head + path) + _padded(data)


def archive(files: Mapping[str, tuple[int, bytes]]) -> bytes:
    """``files``: path without a leading slash → (permissions, content); their folders are made.  A path that
    ends with a slash is an empty folder.

    Archives can be put one after the other; the kernel unpacks them in order.
    """
    folders = sorted(
        {"/".join(parts[:n]) for parts in (f.split("/") for f in files) for n in range(1, len(parts))}
    )
    entries = [(folder, stat.S_IFDIR | 0o755, b"") for folder in folders]
    entries += [(name, stat.S_IFREG | mode, data) for name, (mode, data) in files.items() if name[-1] != "/"]
    packed = [_entry(number, *entry) for number, entry in enumerate(entries, 1)]
    return b"".join([*packed, _entry(0, _TRAILER, 0, b"")])
