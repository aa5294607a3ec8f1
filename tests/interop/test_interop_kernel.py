"""Which kernels a guest starts unpacked."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from interop_kernel import ELF, ENTRY, bare

KERNEL = ELF + bytes(100) + ENTRY + bytes(8)


def wrapped(folder: Path, data: bytes) -> Path:
    place = folder / "vmlinuz"
    place.write_bytes(b"what unpacks it" + data)
    return place


def test_a_kernel_is_unpacked_once_whatever_stands_behind_it(tmp_path: Path) -> None:
    place = wrapped(tmp_path, lzma.compress(KERNEL) + b"its length")
    found = bare(place)
    assert found.read_bytes() == KERNEL
    made = found.stat().st_mtime_ns
    assert bare(place) == found
    assert found.stat().st_mtime_ns == made
    assert sorted(each.name for each in tmp_path.iterdir()) == ["vmlinux", "vmlinuz"]


@pytest.mark.parametrize(
    "data",
    [
        b"packed otherwise",
        lzma.compress(KERNEL)[:20] + b"\xff" * 60,
        lzma.compress(ELF + bytes(100)),
        lzma.compress(bytes(4) + KERNEL),
    ],
    ids=["no xz", "spoilt", "no way in", "no program"],
)
def test_another_one_starts_as_it_is(tmp_path: Path, data: bytes) -> None:
    place = wrapped(tmp_path, data)
    assert bare(place) == place
    assert list(tmp_path.iterdir()) == [place]
