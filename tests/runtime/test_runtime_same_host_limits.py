"""What shared memory takes of a program: descriptors, address space, and where it is not taken unasked."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import socket
from types import SimpleNamespace

import pytest

from softhca.memory.shared_layout import FIXED_SIZE, MAX_ARENA_NUMBER
from softhca.runtime import same_host_limits as limits
from softhca.runtime import same_host_peers as peers
from softhca.runtime.same_host_process import PeerProcess

INFINITE = resource.RLIM_INFINITY


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """The limits of this process, which may be changed."""
    values = {resource.RLIMIT_NOFILE: 1024, resource.RLIMIT_AS: INFINITE}
    monkeypatch.setattr(limits.resource, "getrlimit", lambda which: (values[which], INFINITE))
    monkeypatch.setattr(limits, "unsupported", lambda: "")
    return values


def test_so_few_descriptors_are_left_to_the_program(said: dict[int, int]) -> None:
    for most, reason in ((limits.LEAST_DESCRIPTORS - 1, "few descriptors"), (limits.LEAST_DESCRIPTORS, ""),
                         (INFINITE, "")):  # fmt: skip
        said[resource.RLIMIT_NOFILE] = most
        assert reason in limits.not_automatic()
        assert bool(limits.not_automatic()) == bool(reason)


def test_the_program_keeps_half_of_its_descriptors(said: dict[int, int]) -> None:
    for most, descriptor, may in ((1024, 511, True), (1024, 512, False), (INFINITE, 1 << 20, True)):
        said[resource.RLIMIT_NOFILE] = most
        assert limits.may_keep(descriptor) == may


def test_where_address_space_is_limited_or_another_user_acts_nothing_is_shared_unasked(
    said: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert limits.not_automatic() == ""
    said[resource.RLIMIT_AS] = 1 << 40
    assert "address space" in limits.not_automatic()
    monkeypatch.setattr(limits, "os", SimpleNamespace(geteuid=lambda: 0, getuid=lambda: 1000))
    assert "another user" in limits.not_automatic()
    monkeypatch.setattr(limits, "unsupported", lambda: "no way")
    assert limits.not_automatic() == "no way"


def test_machines_whose_order_of_memory_is_not_known_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for processor, atomic, reason in (
        ("x86_64", True, ""), ("AMD64", True, ""), ("x86_64", False, "libatomic"),
        ("aarch64", True, "aarch64"),
    ):  # fmt: skip
        monkeypatch.setattr(limits, "PROCESSOR", processor)
        monkeypatch.setattr(limits.primitives, "ATOMIC_BETWEEN_PROCESSES", atomic)
        assert reason in limits.unsupported()
        assert bool(limits.unsupported()) == bool(reason)


def test_mapped_arenas_have_a_bound_and_give_back_what_they_took() -> None:
    mapped = limits.MappedArenas()
    assert mapped.take(limits.MAX_MAPPED_BYTES - 8192)
    assert not mapped.take(8193)
    assert mapped.take(8192)
    assert not mapped.take(1)
    mapped.give(8192)
    assert mapped.size_bytes == limits.MAX_MAPPED_BYTES - 8192
    assert not mapped.take(8193)


@pytest.fixture
def peer():
    """A peer that has given its memory, and what its path is told of arenas."""
    told: list[tuple[int, int]] = []
    path = SimpleNamespace(
        alive=True, close=lambda: None, set_arena=lambda number, address, size: told.append((number, size))
    )
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made = peers.OutboundPeer(None, path, left, PeerProcess(left))
    yield made, told
    made.close()
    right.close()


def arena(peer: peers.OutboundPeer, number: int, size_bytes: int) -> None:
    descriptor = os.memfd_create("arena", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, size_bytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, FIXED_SIZE)
        peer.take({"arena": number, "bytes": size_bytes}, [descriptor])
    finally:
        os.close(descriptor)


def test_the_last_number_and_the_largest_size_are_taken(peer, monkeypatch: pytest.MonkeyPatch) -> None:
    made, told = peer
    monkeypatch.setattr(peers, "MAX_ARENA_BYTES", mmap.PAGESIZE)
    arena(made, MAX_ARENA_NUMBER, mmap.PAGESIZE)
    assert told == [(MAX_ARENA_NUMBER, mmap.PAGESIZE)]
    for number, size_bytes in ((MAX_ARENA_NUMBER, mmap.PAGESIZE), (MAX_ARENA_NUMBER + 1, mmap.PAGESIZE),
                               (0, mmap.PAGESIZE), (3, 2 * mmap.PAGESIZE)):  # fmt: skip
        with pytest.raises(OSError, match="an arena that cannot be") as refused:
            arena(made, number, size_bytes)
        assert refused.value.errno == errno.EPROTO


def test_a_process_is_in_reach_where_it_has_what_it_says(peer, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = peer
    monkeypatch.setattr(peers.os, "getpid", lambda: 1)
    for moved, said, found in (
        (peers.PROBE_BYTES, bytes(peers.PROBE_BYTES), made.process.pid), (peers.PROBE_BYTES, b"\1" * 16, -1),
        (peers.PROBE_BYTES - 1, bytes(peers.PROBE_BYTES), -1),
    ):  # fmt: skip
        monkeypatch.setattr(peers.primitives, "read_process", lambda *_, moved=moved: moved)
        assert made._process_in_reach({"probe": 4096, "probe_bytes": said.hex()}) == found
