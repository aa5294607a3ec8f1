"""A kernel without its wrapping: to unpack it within a guest takes a third of the time until that is up."""

from __future__ import annotations

import lzma
import os
from pathlib import Path

XZ = b"\xfd7zXZ\0"
ELF = b"\x7fELF"
ENTRY = b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0"
"""The note that says where a kernel begins that nobody has unpacked (PVH); qemu starts those that have it."""


def bare(wrapped: Path) -> Path:
    """The kernel of Debian's file, unpacked beside it the first time; that file itself where it is packed
    otherwise or would not start."""
    place = wrapped.with_name("vmlinux")
    if not place.exists():
        data = wrapped.read_bytes()
        try:
            kernel = lzma.LZMADecompressor().decompress(data[data.index(XZ) :])
        except (ValueError, lzma.LZMAError):
            return wrapped
        if not kernel.startswith(ELF) or ENTRY not in kernel:
            return wrapped
        part = wrapped.with_name(f"vmlinux.{os.getpid()}")
        part.write_bytes(kernel)
        part.rename(place)
    return place
