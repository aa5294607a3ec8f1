"""What shared memory takes of a program: descriptors, address space, and where it is not taken unasked."""

from __future__ import annotations

import resource
from types import SimpleNamespace

import pytest

from softhca.runtime import same_host_limits as limits

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
