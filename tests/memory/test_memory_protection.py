"""Protection domains and their reference counts."""

import errno

import pytest

from softhca.memory.protection import ProtectionDomains


def fails(code):
    return pytest.raises(OSError, match=rf"\[Errno {code}\]")


def test_numbers_begin_at_1_and_are_used_again_as_late_as_possible():
    domains = ProtectionDomains(3)
    assert [domains.allocate() for _ in range(3)] == [1, 2, 3]
    with fails(errno.ENOMEM):
        domains.allocate()
    domains.free(2)
    domains.free(1)
    assert [domains.allocate(), domains.allocate()] == [2, 1]


def test_a_freed_number_waits_while_there_are_unused_ones():
    domains = ProtectionDomains(3)
    domains.free(domains.allocate())
    assert [domains.allocate() for _ in range(3)] == [2, 3, 1]


def test_a_domain_in_use_cannot_be_freed():
    domains = ProtectionDomains()
    pd = domains.allocate()
    domains.reference(pd)
    domains.reference(pd)
    domains.unreference(pd)
    with fails(errno.EBUSY):
        domains.free(pd)
    assert pd in domains
    assert domains.references(pd) == 1
    domains.unreference(pd)
    domains.free(pd)
    assert pd not in domains
    assert len(domains) == 0


def test_an_unknown_domain_is_refused_everywhere():
    domains = ProtectionDomains()
    for action in (domains.free, domains.reference, domains.unreference, domains.references):
        with fails(errno.EINVAL):
            action(1)
    pd = domains.allocate()
    with fails(errno.EINVAL):
        domains.unreference(pd)


@pytest.mark.parametrize("limit", [0, 1 << 24])
def test_a_limit_that_cannot_be_is_refused(limit):
    with fails(errno.EINVAL):
        ProtectionDomains(limit)
