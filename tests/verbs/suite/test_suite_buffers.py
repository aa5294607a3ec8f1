"""Buffers that the device allocates, regions over them, DMA handles, and what is refused."""

import errno
import os
import re

import pytest

from softhca.verbs.device_enums import ibv_access_flags as access_flags
from softhca.verbs.device_enums import ibv_dmah_init_attr_mask as masks
from softhca.verbs.device_enums import ibv_parent_domain_init_attr_mask as domain_masks
from softhca.verbs.mr import Buf, BufMR, DMAHandle, DmaHandleInitAttr, MREx
from softhca.verbs.pd import PD, ParentDomain, ParentDomainInitAttr
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError

PAGE = 4096
WRITE = int(access_flags.IBV_ACCESS_LOCAL_WRITE)
ALL = int(masks.IBV_DMAH_INIT_ATTR_MASK_CPU_ID | masks.IBV_DMAH_INIT_ATTR_MASK_PH
          | masks.IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE)  # fmt: skip


@pytest.fixture
def context(verbs_pair):
    return verbs_pair.client


@pytest.fixture
def pd(context):
    with PD(context) as domain:
        yield domain


def refused(code):
    return pytest.raises(PyverbsRDMAError, match=re.escape(os.strerror(code)))


def by_reg_buf_mr(pd, buf, length, offset=0):
    return BufMR(pd, buf, length, WRITE, offset=offset)


def by_reg_mr_ex(pd, buf, length, offset=0):
    return MREx(pd, length, WRITE, address=buf.addr + offset, buf=buf)


@pytest.mark.parametrize("register", [by_reg_buf_mr, by_reg_mr_ex])
def test_regions_over_parts_of_a_buffer(pd, register):
    with Buf(pd, 2 * PAGE) as buf:
        assert buf.size == 2 * PAGE
        first, second = register(pd, buf, PAGE), register(pd, buf, PAGE, PAGE)
        assert (first.buf, second.buf) == (buf.addr, buf.addr + PAGE)
        assert first.lkey != second.lkey
        assert first.read(PAGE, 0) == bytes(PAGE)
        first.write(b"a" * PAGE, PAGE)
        second.write(b"b" * PAGE, PAGE)
        assert (first.read(2, PAGE - 2), second.read(2, 0)) == (b"aa", b"bb")
        first.close()
        assert second.read(1, 0) == b"b"


@pytest.mark.parametrize("register", [by_reg_buf_mr, by_reg_mr_ex])
@pytest.mark.parametrize(("length", "offset"), [(2 * PAGE, 0), (PAGE, 1), (1, PAGE), (0, 0), (1, -1)])
def test_a_region_is_inside_its_buffer(pd, register, length, offset):
    with Buf(pd, PAGE) as buf, pytest.raises((PyverbsRDMAError, OverflowError)) as error:
        register(pd, buf, length, offset)
    assert getattr(error.value, "error_code", errno.EINVAL) == errno.EINVAL


@pytest.mark.parametrize("register", [by_reg_buf_mr, by_reg_mr_ex])
def test_a_region_has_its_buffers_domain(context, pd, register):
    with PD(context) as other, Buf(pd, PAGE) as buf, refused(errno.EINVAL):
        register(other, buf, PAGE)


def test_a_buffer_ends_with_its_regions_first(pd):
    buf = Buf(pd, PAGE)
    region = BufMR(pd, buf, PAGE, WRITE)
    buf.close()
    for call in (lambda: region.read(1, 0), lambda: buf.addr, lambda: BufMR(pd, buf, PAGE, WRITE)):
        with pytest.raises(PyverbsUserError):
            call()
    with refused(errno.EINVAL):
        Buf(pd, 0)


def test_a_buffer_has_no_dma_buf(pd):
    with Buf(pd, PAGE) as buf, refused(errno.ENODATA):
        buf.export_dmabuf_fd()


def test_a_buffer_of_a_domain_that_is_closed_is_freed(context):
    with PD(context) as domain:
        buf = Buf(domain, PAGE)
    with pytest.raises(PyverbsUserError):
        buf.addr  # noqa: B018 - the property raises


def test_an_extended_region_over_a_whole_buffer(pd):
    with Buf(pd, PAGE) as buf, MREx(pd, PAGE, WRITE, buf=buf) as region:
        assert region.buf == buf.addr


def test_a_dma_handle_goes_with_a_region(context, pd):
    with DMAHandle(context, DmaHandleInitAttr(ALL, 0, 3, 1)) as handle:
        region = MREx(pd, PAGE, WRITE, dmah=handle)
        region.write(b"x", 1)
    with pytest.raises(PyverbsUserError):
        region.read(1, 0)


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        (DmaHandleInitAttr(ALL, ph=4), errno.EINVAL),
        (DmaHandleInitAttr(ALL, tph_mem_type=2), errno.EINVAL),
        (DmaHandleInitAttr(ALL, cpu_id=0xFFFF), errno.EINVAL),
        (DmaHandleInitAttr(8), errno.EOPNOTSUPP),
    ],
)
def test_hints_that_cannot_be_are_refused(context, attributes, code):
    with refused(code):
        DMAHandle(context, attributes)


def test_hints_that_are_not_given_are_not_looked_at(context):
    with DMAHandle(context, DmaHandleInitAttr(0, 0xFFFF, 9, 9)):
        pass


def test_hints_and_memory_of_descriptors_do_not_go_with_everything(context, pd):
    on_demand = WRITE | int(access_flags.IBV_ACCESS_ON_DEMAND)
    with DMAHandle(context, DmaHandleInitAttr()) as handle:
        for arguments in (
            {"access": on_demand, "dmah": handle},
            {"implicit": True, "dmah": handle},
            {"fd": 0},
        ):
            with refused(errno.EOPNOTSUPP):
                MREx(pd, PAGE, **arguments)


def test_a_parent_domain_may_allow_unprotected_memory(context, pd):
    allowed = int(domain_masks.IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC)
    with (
        ParentDomain(context, ParentDomainInitAttr(pd, comp_mask=allowed)) as domain,
        Buf(domain, PAGE) as buf,
    ):
        assert BufMR(domain, buf, PAGE, WRITE).read(1, 0) == b"\0"
        with refused(errno.EINVAL):
            BufMR(pd, buf, PAGE, WRITE)
    with refused(errno.EOPNOTSUPP):
        ParentDomain(context, ParentDomainInitAttr(pd, comp_mask=allowed << 1))
