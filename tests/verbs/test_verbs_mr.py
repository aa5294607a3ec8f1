"""Memory regions: the forms of memory, reading and writing, re-registration, misuse."""

import array
import errno
import mmap

import numpy
import pytest
from verbs_fake_driver import FakeDriver

from softhca.machine.primitives import address_of
from softhca.verbs import enums as e
from softhca.verbs import mem_alloc
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.wr import SGE

LOCAL_WRITE = 1


@pytest.fixture
def pd(context: Context) -> PD:
    return PD(context)


def registration(driver: FakeDriver, mr: MR) -> dict:
    return driver.registrations[mr.handle]


def test_without_memory_the_region_owns_host_memory(pd: PD, driver: FakeDriver) -> None:
    mr = MR(pd, 100, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ)
    made = registration(driver, mr)
    assert (made["pd"], made["length"], made["access"], made["buffer"], made["iova"]) == (
        pd.number,
        100,
        5,
        None,
        None,
    )
    assert made["address"] == mr.buf
    assert mr.length == 100
    assert mr.lkey == mr.rkey == mr.handle << 8
    assert mr.read(100, 0) == bytes(100)
    mr.close()
    assert ("free", 100) in driver.calls


def test_an_address_is_registered_as_it_is(pd: PD, driver: FakeDriver) -> None:
    memory = bytearray(b"0123456789")
    mr = MR(pd, 4, LOCAL_WRITE, address=address_of(memory) + 2)
    assert mr.buf == address_of(memory) + 2
    assert mr.read(4, 0) == b"2345"
    mr.write(b"xy", 2, 1)
    assert memory == b"012xy56789"
    mr.close()
    assert not any(call[0] == "free" for call in driver.calls)


@pytest.mark.parametrize(
    "buffer",
    [
        bytearray(64),
        array.array("Q", [0] * 8),
        numpy.zeros((2, 4), dtype=numpy.uint64),
        mmap.mmap(-1, 64),
        memoryview(bytearray(128))[32:96],
    ],
    ids=lambda each: type(each).__name__,
)
def test_any_buffer_is_registered_in_its_own_memory(pd: PD, driver: FakeDriver, buffer) -> None:
    mr = MR(pd, access=LOCAL_WRITE, buffer=buffer)
    assert mr.length == 64
    assert registration(driver, mr)["buffer"] is not None
    mr.write(b"\x07", 1, 63)
    assert bytes(memoryview(buffer).cast("B"))[63] == 7
    mr.close()


def test_a_buffer_is_locked_in_size_until_close(pd: PD) -> None:
    buffer = bytearray(10)
    mr = MR(pd, access=LOCAL_WRITE, buffer=buffer)
    with pytest.raises(BufferError):
        buffer.append(1)
    mr.close()
    buffer.append(1)


def test_length_selects_the_beginning_of_a_buffer(pd: PD, driver: FakeDriver) -> None:
    mr = MR(pd, 3, LOCAL_WRITE, buffer=bytearray(10))
    assert mr.length == registration(driver, mr)["length"] == 3


def test_read_only_memory_can_be_registered_for_reading_only(pd: PD) -> None:
    mr = MR(pd, access=e.IBV_ACCESS_REMOTE_READ, buffer=b"constant")
    assert mr.read(8, 0) == b"constant"
    with pytest.raises(PyverbsUserError, match="read-only"):
        mr.write(b"x", 1)
    for right in (e.IBV_ACCESS_LOCAL_WRITE, e.IBV_ACCESS_REMOTE_WRITE, e.IBV_ACCESS_REMOTE_ATOMIC):
        with pytest.raises(PyverbsUserError, match="read-only"):
            MR(pd, access=right, buffer=b"constant")


@pytest.mark.parametrize(
    "arguments",
    [
        {"buffer": bytearray(8), "address": 4096},
        {"buffer": bytearray(8), "length": 9},
        {"buffer": 5},
        {"buffer": numpy.zeros((4, 4))[:, 1]},
    ],
    ids=str,
)
def test_what_cannot_be_memory_is_refused_and_nothing_registered(
    pd: PD, driver: FakeDriver, arguments
) -> None:
    with pytest.raises(PyverbsUserError):
        MR(pd, access=LOCAL_WRITE, **arguments)
    for number in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            MR(pd, number, LOCAL_WRITE)
    assert driver.registrations == {}


@pytest.mark.parametrize("arguments", [{}, {"buffer": b""}])
def test_no_length_is_einval(pd: PD, arguments) -> None:
    with pytest.raises(PyverbsRDMAError) as caught:
        MR(pd, access=0, **arguments)
    assert caught.value.error_code == errno.EINVAL


def test_an_implicit_region_that_is_given_memory_is_as_long_as_that(pd: PD) -> None:
    mr = MR(pd, 10, e.IBV_ACCESS_ON_DEMAND, implicit=True)
    every = mr.length
    memory = bytearray(b"0123456789")
    mr.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=e.IBV_ACCESS_ON_DEMAND | LOCAL_WRITE)
    assert mr.length == every
    mr.rereg(e.IBV_REREG_MR_CHANGE_TRANSLATION, addr=address_of(memory), length=4)
    assert (mr.length, mr.read(4, 0)) == (4, b"0123")
    mr.close()



def test_an_implicit_region_is_all_memory_and_has_some_of_its_own(pd: PD, driver: FakeDriver) -> None:
    mr = MR(pd, 10, e.IBV_ACCESS_ON_DEMAND, implicit=True)
    made = registration(driver, mr)
    assert (made["address"], made["length"], made["access"]) == (0, (1 << 64) - 1, 64)
    assert (mr.length, mr.read(10, 0)) == ((1 << 64) - 1, bytes(10))


@pytest.mark.parametrize("held", [False, True])
def test_an_implicit_region_may_be_held_and_no_other(pd: PD, driver: FakeDriver, held: bool) -> None:
    mr = MR(pd, 10, e.IBV_ACCESS_ON_DEMAND, implicit=True, held=held)
    assert registration(driver, mr)["held"] is held
    with pytest.raises(PyverbsUserError, match="implicit"):
        MR(pd, 10, e.IBV_ACCESS_ON_DEMAND, held=True)


def test_advice_goes_to_the_device_by_keys_and_ranges(pd: PD, driver: FakeDriver) -> None:
    sges = [SGE(0x1000, 8, 5), SGE(0x2000, 9, 6)]
    pd.advise_mr(1, 1, sges)
    pd.advise_mr(0, 0, sges, 1)
    both = [(0x1000, 8, 5), (0x2000, 9, 6)]
    assert driver.calls[-2:] == [
        ("advise_mr", pd.number, 1, 1, both),
        ("advise_mr", pd.number, 0, 0, both[:1]),
    ]
    for wrong in ((-1, 0), (0, 1 << 32)):
        with pytest.raises(OverflowError):
            pd.advise_mr(*wrong, sges)


def test_hints_do_not_reach_the_device_and_rights_do(pd: PD, driver: FakeDriver) -> None:
    mr = MR(
        pd,
        10,
        e.IBV_ACCESS_LOCAL_WRITE
        | e.IBV_ACCESS_RELAXED_ORDERING
        | e.IBV_ACCESS_HUGETLB
        | e.IBV_ACCESS_ON_DEMAND
        | e.IBV_ACCESS_FLUSH_GLOBAL
        | e.IBV_ACCESS_FLUSH_PERSISTENT,
    )
    assert registration(driver, mr)["access"] == 1 | 64 | 256


def test_iova_reaches_the_device(pd: PD, driver: FakeDriver) -> None:
    mr = MR(pd, 10, 1, iova=0x1000)
    assert registration(driver, mr)["iova"] == 0x1000
    assert mr.buf == registration(driver, mr)["address"]


def test_a_refused_registration_has_the_devices_errno(pd: PD, driver: FakeDriver) -> None:
    driver.refusals["reg_mr"] = errno.EINVAL
    with pytest.raises(PyverbsRDMAError, match="length: 10, access flags: 2") as caught:
        MR(pd, 10, e.IBV_ACCESS_REMOTE_WRITE)
    assert caught.value.error_code == errno.EINVAL


def test_reading_drives_the_device_first(pd: PD, driver: FakeDriver) -> None:
    """By a call that does not nap: who reads a region word by word would beside busy programs, at each."""
    mr = MR(pd, 10, 1)
    mr.read(1, 0)
    assert (driver.looked, driver.progressed) == (1, 0)


@pytest.mark.parametrize(("length", "offset"), [(11, 0), (1, 10), (1, -1), (-1, 0), (5, 6)])
def test_reading_and_writing_stay_inside(pd: PD, length: int, offset: int) -> None:
    mr = MR(pd, 10, 1)
    with pytest.raises(PyverbsUserError):
        mr.read(length, offset)
    with pytest.raises(PyverbsUserError):
        mr.write(bytes(20), length, offset)
    assert mr.read(0, 10) == b""


def test_writing_takes_text_and_never_more_than_there_is(pd: PD) -> None:
    mr = MR(pd, 10, 1)
    mr.write("hé", 3, 0)
    assert mr.read(4, 0) == "hé".encode() + b"\x00"
    mr.write(memoryview(b"abcdef"), 2, 8)
    assert mr.read(2, 8) == b"ab"
    with pytest.raises(PyverbsUserError, match="the data has 2"):
        mr.write("ab", 3)


def test_rereg_changes_memory_and_frees_the_old(pd: PD, driver: FakeDriver) -> None:
    mr, memory = MR(pd, 10, 1), bytearray(20)
    mr.rereg(e.IBV_REREG_MR_CHANGE_TRANSLATION, addr=address_of(memory), length=20)
    assert (mr.buf, mr.length, mr.lkey) == (address_of(memory), 20, mr.handle << 8 | 1)
    assert ("free", 10) in driver.calls
    assert ("rereg_mr", mr.handle, 1, pd.number, address_of(memory), 20, 0) in driver.calls


def test_rereg_of_a_buffer_that_cannot_be_written_can_be(pd: PD) -> None:
    mr, memory = MR(pd, buffer=b"constant"), bytearray(8)
    with pytest.raises(PyverbsUserError, match="read-only"):
        mr.write(b"a", 1)
    flags = e.IBV_REREG_MR_CHANGE_TRANSLATION | e.IBV_REREG_MR_CHANGE_ACCESS
    mr.rereg(flags, addr=address_of(memory), length=8, access=e.IBV_ACCESS_LOCAL_WRITE)
    mr.write(b"a", 1)
    assert memory == b"a" + bytes(7)


def test_rereg_moves_the_region_to_another_pd(context: Context, pd: PD, driver: FakeDriver) -> None:
    mr, other = MR(pd, 10, 1), PD(context)
    mr.rereg(e.IBV_REREG_MR_CHANGE_PD, pd=other)
    pd.close()
    assert mr.length == 10
    other.close()
    assert driver.registrations == {}


def test_rereg_that_is_refused_changes_nothing(pd: PD, driver: FakeDriver) -> None:
    mr = MR(pd, 10, 1)
    before = (mr.buf, mr.length, mr.lkey)
    driver.refusals["rereg_mr"] = errno.EBUSY
    with pytest.raises(PyverbsRDMAError) as caught:
        mr.rereg(e.IBV_REREG_MR_CHANGE_TRANSLATION, addr=4096, length=4096)
    assert caught.value.error_code == errno.EBUSY
    assert (mr.buf, mr.length, mr.lkey) == before
    assert ("free", 10) not in driver.calls


@pytest.mark.parametrize(
    ("flags", "arguments", "error"),
    [
        (0, {}, PyverbsRDMAError),
        (8, {}, PyverbsRDMAError),
        (2, {}, TypeError),
        (1, {}, PyverbsUserError),
        (1, {"addr": 4096}, PyverbsUserError),
    ],
)
def test_rereg_misuse(pd: PD, driver: FakeDriver, flags: int, arguments: dict, error: type) -> None:
    mr = MR(pd, 10, 1)
    with pytest.raises(error):
        mr.rereg(flags, **arguments)
    assert not any(call[0] == "rereg_mr" for call in driver.calls)


def test_rereg_to_a_pd_of_another_context_is_refused(pd: PD) -> None:
    with Context(name="fake1") as other, pytest.raises(PyverbsUserError, match="another context"):
        MR(pd, 10, 1).rereg(e.IBV_REREG_MR_CHANGE_PD, pd=PD(other))


@pytest.mark.parametrize(
    "use",
    [
        lambda mr: mr.read(1, 0),
        lambda mr: mr.write(b"a", 1),
        lambda mr: mr.buf,
        lambda mr: mr.lkey,
        lambda mr: mr.rkey,
        lambda mr: mr.length,
        lambda mr: mr.handle,
        lambda mr: mr.rereg(4, access=1),
    ],
)
def test_a_closed_region_refuses_use(pd: PD, use) -> None:
    mr = MR(pd, 10, 1)
    mr.close()
    with pytest.raises(PyverbsUserError, match="closed"):
        use(mr)


def test_a_region_needs_a_pd(context: Context, pd: PD) -> None:
    with pytest.raises(TypeError, match="expected PD"):
        MR(context, 10, 1)
    pd.close()
    with pytest.raises(PyverbsUserError, match="closed"):
        MR(pd, 10, 1)
    with pytest.raises(TypeError, match="must not be None"):
        PD(None)
    with pytest.raises(PyverbsUserError, match="Cannot create PD"):
        PD(5)


def test_mem_alloc_gives_memory_and_takes_it_back() -> None:
    for address, free in (
        (mem_alloc.malloc(64), mem_alloc.free),
        (mem_alloc.posix_memalign(64, 4096), mem_alloc.free),
        (mem_alloc.mmap(length=64), lambda a: mem_alloc.munmap(a, 64)),
    ):
        mem_alloc.write(address, "abcdefgh", 8, 8)
        assert mem_alloc.read(address, 4, 10) == b"cdef"
        mem_alloc.writebe32(address, 0x01020304, 1)
        assert mem_alloc.read(address, 4, 4) == b"\x01\x02\x03\x04"
        assert mem_alloc.read32(address, 1) == 0x04030201
        mem_alloc.writebe64(address, 1, 2)
        assert mem_alloc.read64(address, 2) == 1 << 56
        free(address)


def test_mem_alloc_aligns_and_clears() -> None:
    address = mem_alloc.posix_memalign(100, 8192)
    assert address % 8192 == 0
    assert mem_alloc.read(address, 100) == bytes(100)
    mem_alloc.free(address)


def test_mem_alloc_says_when_it_cannot() -> None:
    with pytest.raises(MemoryError):
        mem_alloc.mmap(length=0)
    with pytest.raises(MemoryError):
        mem_alloc.posix_memalign(8, 3)
    with pytest.raises(MemoryError):
        mem_alloc.munmap(1, 4096)
    with pytest.raises(PyverbsRDMAError) as caught:
        mem_alloc.madvise(1, 4096)
    assert caught.value.error_code == errno.EINVAL
    address = mem_alloc.mmap(length=4096)
    mem_alloc.write(address, b"x", 1)
    mem_alloc.madvise(address, 4096)
    assert mem_alloc.read(address, 1) == b"\x00"
    mem_alloc.munmap(address, 4096)
