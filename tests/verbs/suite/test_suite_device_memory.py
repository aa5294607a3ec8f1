"""Device memory, imports and parent domains, and how features that the device has not are refused."""

import errno
import fcntl
import gc
import os
import resource

import pytest

from softhca.testing.verbs import ALL_ACCESS
from softhca.verbs import enums as e
from softhca.verbs.absent import refuse
from softhca.verbs.comp_cntr import CompCntr
from softhca.verbs.device import DM, AllocDmAttr, Context
from softhca.verbs.dmabuf import DmaBuf
from softhca.verbs.flow import Flow, FlowAttr
from softhca.verbs.mr import DMMR, MR, DmaBufMR, MREx
from softhca.verbs.pd import PD, ParentDomain, ParentDomainInitAttr
from softhca.verbs.providers.efa.efadv import EfaContext
from softhca.verbs.providers.mlx5.mlx5dv import Mlx5Context, Mlx5DVContextAttr, Mlx5QP
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.spec import EthSpec, Ipv4ExtSpec, Ipv6Spec, TcpUdpSpec

DM_ACCESS = ALL_ACCESS | e.IBV_ACCESS_ZERO_BASED


def refused(call, code: int) -> str:
    with pytest.raises(PyverbsRDMAError) as caught:
        call()
    assert caught.value.error_code == code
    return str(caught.value)


@pytest.fixture
def ctx(verbs_pair):
    return verbs_pair.client


def test_bytes_that_are_copied_into_device_memory_come_back(ctx) -> None:
    with DM(ctx, AllocDmAttr(length=100, log_align_req=6)) as dm:
        assert dm.copy_from_dm(0, 100) == bytes(100)
        dm.copy_to_dm(8, b"twelve bytes", 12)
        assert dm.copy_from_dm(8, 12) == b"twelve bytes"
        dm.close()
        with pytest.raises(PyverbsUserError):
            dm.copy_from_dm(0, 4)


@pytest.mark.parametrize(("offset", "length"), [(1, 4), (4, 3), (100, 4), (0, 104), (-4, 4), (96, 8)])
def test_copies_outside_or_between_words_are_refused(ctx, offset: int, length: int) -> None:
    with DM(ctx, AllocDmAttr(length=100)) as dm:
        assert "Failed to copy from dm" in refused(lambda: dm.copy_from_dm(offset, length), errno.EINVAL)
        assert "Failed to copy to dm" in refused(
            lambda: dm.copy_to_dm(offset, bytes(200), length), errno.EINVAL
        )


def test_there_is_as_much_device_memory_as_the_device_says(ctx) -> None:
    most = ctx.query_device_ex().max_dm_size
    with DM(ctx, AllocDmAttr(length=most)):
        refused(lambda: DM(ctx, AllocDmAttr(length=4)), errno.ENOMEM)
    with DM(ctx, AllocDmAttr(length=most)):  # closing gives it back
        pass
    text = refused(lambda: DM(ctx, AllocDmAttr(length=most + 1)), errno.ENOMEM)
    assert f"Max available size {most}" in text
    for bad in (AllocDmAttr(4, 0, 1), AllocDmAttr(0), AllocDmAttr(4, 13)):
        refused(lambda bad=bad: DM(ctx, bad), errno.EINVAL)
    with pytest.raises(OverflowError):
        AllocDmAttr(-4)


def test_device_memory_that_is_dropped_is_given_back_at_once(ctx) -> None:
    """Without the collector."""
    gc.disable()
    try:
        for _ in range(3):
            DM(ctx, AllocDmAttr(length=ctx.query_device_ex().max_dm_size))
    finally:
        gc.enable()


def test_a_region_over_device_memory_ends_with_it(ctx) -> None:
    with PD(ctx) as pd:
        dm = DM(ctx, AllocDmAttr(length=64))
        whole, end, nothing = DMMR(pd, 64, DM_ACCESS, dm, 0), DMMR(pd, 8, DM_ACCESS, dm, 56), DMMR(
            pd, 0, DM_ACCESS, dm, 0
        )
        end.write(b"the  end", 8)
        assert whole.read(8, 56) == dm.copy_from_dm(56, 8) == b"the  end"
        assert (whole.length, nothing.length, whole.buf) == (64, 0, 0)
        for length, offset, access in ((65, 0, DM_ACCESS), (8, 60, DM_ACCESS), (64, 0, ALL_ACCESS)):
            text = refused(lambda a=access, n=length, o=offset: DMMR(pd, n, a, dm, o), errno.EINVAL)
            assert "Failed to register a device MR" in text
        dm.close()
        with pytest.raises(PyverbsUserError):
            _ = whole.lkey


def test_objects_are_imported_by_their_numbers(ctx) -> None:
    pd = PD(ctx)
    mr = MR(pd, 64, ALL_ACCESS)
    dm = DM(ctx, AllocDmAttr(length=64))
    again = Context(cmd_fd=os.dup(ctx.cmd_fd))
    domain = PD(again, handle=pd.handle)
    region = MR(domain, handle=mr.handle, address=mr.buf)
    memory = DM(again, handle=dm.handle)
    assert (region.lkey, region.rkey, region.length) == (mr.lkey, mr.rkey, mr.length)
    mr.write(b"shared", 6)
    dm.copy_to_dm(0, b"more", 4)
    assert (region.read(6, 0), memory.copy_from_dm(0, 4)) == (b"shared", b"more")
    for each in (region, domain, memory):
        each.unimport()
    for each in (mr, pd, dm):
        refused(each.unimport, errno.EINVAL)
    again.close()
    assert mr.read(6, 0) == b"shared"  # nothing of the originals has ended
    for handle in (lambda: PD(ctx, handle=4711), lambda: MR(pd, handle=4711), lambda: DM(ctx, handle=4711)):
        refused(handle, errno.ENOENT)


def test_an_import_ends_with_what_it_stands_for(ctx) -> None:
    pd = PD(ctx)
    mr = MR(pd, 64, ALL_ACCESS)
    again = Context(cmd_fd=os.dup(ctx.cmd_fd))
    region = MR(PD(again, handle=pd.handle), handle=mr.handle)
    assert region.length == 64
    with pytest.raises(PyverbsUserError):
        region.read(1, 0)  # where its bytes are was not said
    pd.close()
    with pytest.raises(PyverbsUserError):
        _ = region.lkey
    again.close()


def test_a_descriptor_that_stands_for_no_device_is_refused(ctx) -> None:
    reading, writing = os.pipe()
    refused(lambda: Context(cmd_fd=reading), errno.EOPNOTSUPP)
    last = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 4096) - 1
    closed = fcntl.fcntl(reading, fcntl.F_DUPFD_CLOEXEC, last)  # new ones get low numbers
    for each in (reading, writing, closed):
        os.close(each)
    refused(lambda: Context(cmd_fd=closed), errno.EBADF)


def test_a_parent_domain_is_its_protection_domain_under_another_name(ctx) -> None:
    with PD(ctx) as pd:
        parent = ParentDomain(ctx, ParentDomainInitAttr(pd))
        assert parent.handle == pd.handle
        with MR(parent, 64, ALL_ACCESS) as mr:
            parent.close()
            with pytest.raises(PyverbsUserError):
                _ = mr.lkey
        with pytest.raises(PyverbsUserError, match="require pd_context"):
            ParentDomainInitAttr(pd, comp_mask=1)
        refused(lambda: ParentDomain(ctx, ParentDomainInitAttr(pd, comp_mask=8)), errno.EOPNOTSUPP)


def test_what_the_device_has_not_is_refused_as_unsupported(ctx) -> None:
    with PD(ctx) as pd:
        for call in (
            lambda: refuse("x"),
            lambda: DmaBuf(1),
            lambda: DmaBufMR(pd, 1, 0),
            lambda: MREx(pd, 64, fd=3),
            lambda: CompCntr(ctx),
            lambda: Mlx5QP(ctx),
            lambda: Mlx5Context.device_timestamp_to_ns(ctx, 1),
            lambda: Context(attr=Mlx5DVContextAttr()),
            lambda: pd.advise_mr(3, 0, []),
        ):
            refused(call, errno.EOPNOTSUPP)
    for other in (lambda: Mlx5Context(Mlx5DVContextAttr(), name="x"), lambda: EfaContext(name="x")):
        with pytest.raises(PyverbsUserError):
            other()


def test_a_rule_takes_no_more_specifications_than_it_says() -> None:
    attr = FlowAttr(num_of_specs=1)
    attr.specs.extend([EthSpec(), EthSpec()])
    with pytest.raises(PyverbsUserError):
        Flow(None, attr)


def test_a_field_counts_whole_unless_its_mask_is_given() -> None:
    eth = EthSpec(dst_mac="01:02:03:04:05:06", ether_type=0x800)
    assert (eth.dst_mac_mask, eth.ether_type_mask, eth.vlan_tag_mask) == ("ff:ff:ff:ff:ff:ff", 0xFFFF, 0)
    ip = Ipv4ExtSpec(dst_ip="1.2.3.4", proto=17, src_ip="1.1.1.1", src_ip_mask="255.0.0.0")
    assert (ip.dst_ip_mask, ip.src_ip_mask, ip.proto_mask) == ("255.255.255.255", "255.0.0.0", 0xFF)
    assert Ipv6Spec(src_ip="0:0::1").src_ip == "::1"
    tcp = TcpUdpSpec(e.IBV_FLOW_SPEC_TCP, 1, is_inner=1)
    assert "IBV_FLOW_SPEC_TCP IBV_FLOW_SPEC_INNER" in str(tcp)
    assert [each.size for each in (eth, ip, tcp)] == [40, 32, 16]


def test_the_clock_of_timestamps_is_told(ctx) -> None:
    attr = ctx.query_device_ex()
    assert (attr.hca_core_clock, attr.completion_timestamp_mask) == (1_000_000, (1 << 64) - 1)
    before, after = ctx.query_rt_values_ex(), ctx.query_rt_values_ex()
    assert before <= after
    refused(lambda: ctx.query_rt_values_ex(2), errno.EINVAL)
