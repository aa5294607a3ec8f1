"""Null regions: zeros come out, what goes in is gone, and nobody but who has the local key gets in."""

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.machine import primitives
from softhca.memory.null import NULL_BYTES, is_null, register_null
from softhca.memory.regions import (
    LOCAL_WRITE,
    MW_BIND,
    REFUSED_KEY,
    REFUSED_PD,
    REFUSED_RANGE,
    REFUSED_RIGHTS,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    RegionTable,
)
from softhca.memory.tpt import TranslationTable

PD = 5
LAST = (1 << 64) - 1


@pytest.fixture
def table():
    return RegionTable(TranslationTable(64), random.Random(1), 3)


def copied(region, va, n, fill=0xA5):
    room = bytearray([fill]) * n
    result = region.read(va, primitives.address_of(room) if n else 0, n)
    return result or bytes(room)


@given(st.integers(0, LAST), st.integers(0, 100))
def test_zeros_are_read_wherever_a_request_looks(va, n):
    region = register_null(RegionTable(TranslationTable(64), random.Random(1), 3), PD)
    source = b"x" * n
    wrote = region.write(va, primitives.address_of(source, False) if n else 0, n)
    if va + n > NULL_BYTES:
        assert (wrote, copied(region, va, n)) == (-errno.EFAULT, -errno.EFAULT)
    else:
        assert (wrote, copied(region, va, n)) == (0, bytes(n))


def test_what_is_written_is_gone(table):
    region = register_null(table, PD)
    assert region.write(0x1000, primitives.address_of(b"something", False), 9) == 0
    assert copied(region, 0x1000, 9) == bytes(9)
    assert region.fetch_add(8, 5) == 0
    assert region.fetch_add(8, 5) == 0
    assert region.fault == 0
    assert region.compare_swap(8, 5, 6) == 0


def test_only_the_domain_s_local_key_gives_a_right(table):
    region = register_null(table, PD)
    assert is_null(region)
    assert table.find(region.key, PD, 12345, 100, LOCAL_WRITE) is region
    assert table.find(region.key, PD, 12345, 100, 0) is region
    for right in (REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC, MW_BIND):
        assert table.find(region.key, PD, 0, 1, right) is None
        assert table.refusal == REFUSED_RIGHTS
    assert table.find(region.key, PD + 1, 0, 1, LOCAL_WRITE) is None
    assert table.refusal == REFUSED_PD
    assert table.find(region.key, PD, LAST, 1, LOCAL_WRITE) is None
    assert table.refusal == REFUSED_RANGE


def test_it_ends_with_its_registration_and_takes_no_table_entries(table):
    region = register_null(table, PD)
    key = region.key
    assert table.tpt.free_entries == 64
    table.deregister(region)
    assert table.find(key, PD, 0, 1, 0) is None
    assert table.refusal == REFUSED_KEY
    assert copied(region, 0, 4) == -errno.EACCES
    assert region.write(0, 0, 0) == -errno.EACCES
    assert table.tpt.free_entries == 64


def test_nothing_is_given_while_data_access_is_stopped(table):
    region = register_null(table, PD)
    table.tpt.stopped = True
    assert copied(region, 0, 4) == -errno.EAGAIN
    assert region.write(0, 0, 0) == -errno.EAGAIN
    table.tpt.stopped = False
    assert copied(region, 0, 4) == bytes(4)


def test_they_are_bounded_and_belong_to_a_domain(table):
    with pytest.raises(OSError, match=rf"\[Errno {errno.EINVAL}\]"):
        register_null(table, 0)
    for _ in range(3):
        register_null(table, PD)
    with pytest.raises(OSError, match=rf"\[Errno {errno.ENOMEM}\]"):
        register_null(table, PD)
