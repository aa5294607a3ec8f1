"""Rules of single verbs, each with the least that it needs: what is refused, what counts, whose a key is."""

import errno
import mmap
import os
import threading
from types import SimpleNamespace

import pytest
from verbs_fake_driver import OTHER_GID, FakeCompletion, FakeDriver, FakeRegistry

from machine_speed import limit_s
from softhca.driver.errors import DriverError
from softhca.machine.primitives import address_of
from softhca.queues.control_fields import MAX_DM_BYTES
from softhca.verbs import enums as e
from softhca.verbs import memory_access, sharing
from softhca.verbs.addr import AH, GID, AHAttr, GlobalRoute
from softhca.verbs.cm_parameters import AddrInfo
from softhca.verbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx, PollCqAttr
from softhca.verbs.device import DM, AllocDmAttr, Context
from softhca.verbs.extensions import SOFTHCA_WR_REG_MR
from softhca.verbs.fast_registration import FastMR
from softhca.verbs.flow_rules import value_and_mask
from softhca.verbs.librdmacm_enums import RAI_NUMERICHOST, RAI_PASSIVE
from softhca.verbs.memory_access import MappedRange
from softhca.verbs.mr import DMMR, MR, MW, DMAHandle, DmaHandleInitAttr, MWBind, MWBindInfo
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import QP, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from softhca.verbs.spec import Ipv4ExtSpec
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr, SrqInitAttrEx
from softhca.verbs.wr import SendWR
from softhca.verbs.xrcd import XRCD, XRCDInitAttr

PAGE = 4096
XRCD_MASK = e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS


def code_of(call) -> int:
    with pytest.raises(PyverbsRDMAError) as refused:
        call()
    return refused.value.error_code


@pytest.fixture
def pd(context: Context) -> PD:
    return PD(context)


@pytest.fixture
def cq(context: Context) -> CQ:
    return CQ(context, 10)


@pytest.fixture
def other(registry: FakeRegistry):
    """A second context."""
    with Context(name="fake1") as opened:
        yield opened


def queue_pair(pd: PD, cq: CQ) -> QP:
    return QP(pd, QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=4)))


def extended(pd: PD, cq: CQ, kind: int = e.IBV_QPT_RC) -> QPEx:
    mask = e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
    attr = QPInitAttrEx(kind, scq=cq, rcq=cq, pd=pd, comp_mask=mask, send_ops_flags=e.IBV_QP_EX_WITH_SEND)
    return QPEx(pd.ctx, attr)


# memory


@pytest.fixture
def freed() -> list[str]:
    return []


@pytest.fixture
def stretch(freed: list[str]) -> MappedRange:
    memory = bytearray(16)
    return MappedRange(address_of(memory), 16, lambda: freed.append(f"{len(memory)} bytes"))


def test_memory_is_let_go_once(stretch: MappedRange, freed: list[str]) -> None:
    stretch.end()
    stretch.end()
    assert freed == ["16 bytes"]
    assert stretch.read(1, 0) is None


def test_memory_that_ends_in_the_middle_of_its_own_copy_is_let_go_behind_that(
    stretch: MappedRange, freed: list[str]
) -> None:
    """As a signal's handler may end it; another copy in between changes nothing."""

    class Ends(str):
        def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
            stretch.end()
            assert stretch.read(1, 0) is None
            assert not freed
            return b"ab"

    assert stretch.write(Ends("ab"), 2, 0)
    assert freed == ["16 bytes"]


def test_a_refused_region_gives_its_memory_back(pd: PD, driver: FakeDriver) -> None:
    driver.refusals["reg_mr"] = errno.ENOMEM
    assert code_of(lambda: MR(pd, 100, 1)) == errno.ENOMEM
    assert driver.calls.count(("free", 100)) == 1
    buffer = bytearray(100)
    driver.refusals["reg_mr"] = errno.ENOMEM
    assert code_of(lambda: MR(pd, access=1, buffer=buffer)) == errno.ENOMEM
    buffer.append(0)  # which is locked while a region has it


@pytest.mark.parametrize("steps", [1, 2], ids=["made so", "changed to it"])
def test_a_region_on_demand_stays_one_when_it_gets_other_memory(
    pd: PD, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(memory_access, "read_mapped", lambda address, length: asked.append(address) or b"?")
    first, second = mmap.mmap(-1, PAGE), mmap.mmap(-1, PAGE)
    mr = MR(pd, PAGE, e.IBV_ACCESS_ON_DEMAND if steps == 1 else 0, address=address_of(first))
    if steps == 2:
        mr.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=e.IBV_ACCESS_ON_DEMAND)
    mr.rereg(e.IBV_REREG_MR_CHANGE_TRANSLATION, addr=address_of(second), length=PAGE)
    assert mr.read(1, 0) == b"?"
    assert asked == [address_of(second)]


def test_an_import_without_an_address_has_no_bytes_and_is_not_reregistered(pd: PD) -> None:
    made = MR(pd, 64, 1)
    imported = MR(pd, handle=made.handle)
    assert imported.length == 64
    with pytest.raises(PyverbsUserError, match="outside"):
        imported.write(b"x", 1)
    memory = bytearray(8)
    change = e.IBV_REREG_MR_CHANGE_TRANSLATION
    assert code_of(lambda: imported.rereg(change, addr=address_of(memory), length=8)) == errno.EINVAL


def test_a_fast_region_is_of_whole_pages_and_from_the_address_that_is_asked_for(
    pd: PD, driver: FakeDriver
) -> None:
    driver.alloc_fast_mr = lambda pd, pages: (5, 0x500)
    driver.dereg_fast_mr = lambda number: None
    driver.pages_of = lambda handle, offset, length: (1, -(-length // PAGE), offset % PAGE)
    mr, fast = MR(pd, 4 * PAGE, 1), FastMR(pd, 4)
    wr = SendWR(opcode=SOFTHCA_WR_REG_MR)
    wr.set_reg_wr(fast, [(mr, 8, PAGE - 8), (mr, PAGE, 100)], 1, iova=0)
    assert (wr.remote_addr, wr.compare_add) == (0, PAGE + 92)
    assert (wr.swap & 0xFFFFFFFF, wr.swap >> 32) == (8, 1)
    wr.set_reg_wr(fast, [(mr, 8, PAGE - 8)], 1)
    assert wr.remote_addr == mr.buf + 8
    wr.set_reg_wr(fast, [(mr, 0, PAGE), (mr, PAGE, PAGE)], 1)
    assert wr.swap & 0xFFFFFFFF == 0
    for pieces in ([(mr, 0, 100), (mr, PAGE, PAGE)], [(mr, 0, PAGE), (mr, PAGE + 8, 8)]):
        assert code_of(lambda pieces=pieces: wr.set_reg_wr(fast, pieces, 1)) == errno.EINVAL


# device memory


@pytest.fixture
def device_memory(driver: FakeDriver) -> FakeDriver:
    """The driver allocates and registers it."""

    def allocate(length: int) -> SimpleNamespace:
        driver.refuse_if_asked("alloc_dm")
        memory = bytearray(min(length, PAGE))
        return SimpleNamespace(address=address_of(memory), memory=memory, number=7, free=lambda: None)

    driver.alloc_dm = allocate
    driver.reg_dm = lambda pd, memory, offset, length, access: driver.reg_mr(pd, 0, length, access)
    return driver


def test_a_context_has_so_much_device_memory_in_all(context: Context, device_memory: FakeDriver) -> None:
    device_memory.refusals["alloc_dm"] = errno.ENOMEM
    assert code_of(lambda: DM(context, AllocDmAttr(MAX_DM_BYTES))) == errno.ENOMEM
    first = DM(context, AllocDmAttr(MAX_DM_BYTES - 4))  # what was refused does not count
    second = DM(context, AllocDmAttr(4))
    assert code_of(lambda: DM(context, AllocDmAttr(4))) == errno.ENOMEM
    second.close()
    DM(context, AllocDmAttr(4)).close()
    first.close()


def test_a_region_of_device_memory_begins_where_it_says_and_ends_inside(
    pd: PD, device_memory: FakeDriver
) -> None:
    dm = DM(pd.ctx, AllocDmAttr(16))
    mr = DMMR(pd, 8, e.IBV_ACCESS_ZERO_BASED, dm, 8)
    dm.copy_to_dm(8, b"here", 4)
    assert mr.read(4, 0) == b"here"
    mr.write(b"more", 4, 4)
    assert dm.copy_from_dm(12, 4) == b"more"
    assert code_of(lambda: DMMR(pd, 8, e.IBV_ACCESS_ZERO_BASED, dm, 12)) == errno.EINVAL


def test_a_hint_names_a_processor_that_there_is(context: Context) -> None:
    count, mask = os.cpu_count() or 1, e.IBV_DMAH_INIT_ATTR_MASK_CPU_ID
    DMAHandle(context, DmaHandleInitAttr(mask, cpu_id=count - 1)).close()
    assert code_of(lambda: DMAHandle(context, DmaHandleInitAttr(mask, cpu_id=count))) == errno.EINVAL


# what is imported


def test_an_element_is_found_by_its_kind_and_while_it_is_open(pd: PD, driver: FakeDriver) -> None:
    mr = MR(pd, 8, 1)
    driver.alloc_mw = lambda pd, kind: (mr.handle + 1, 0x700)
    driver.dealloc_mw = lambda number: None
    window = MW(pd, e.IBV_MW_TYPE_1)
    assert code_of(lambda: sharing.element_of(pd, MR, window.handle, "MR")) == errno.ENOENT
    ends = SimpleNamespace(_children={1: mr})  # a parent that still knows it
    assert sharing.element_of(ends, MR, mr.handle, "MR") is mr
    number = mr.handle
    mr.close()
    assert code_of(lambda: sharing.element_of(ends, MR, number, "MR")) == errno.ENOENT


def test_a_descriptor_stands_for_a_device_that_is_open(registry: FakeRegistry) -> None:
    ends = os.pipe()
    try:
        context = Context(name="fake0")
        sharing.remember(context, ends[0])
        assert sharing.context_of(ends[0]) is context
        context._driver.alive = False
        assert sharing.context_of(ends[0]) is None
        context._driver.alive = True
        context.close()
        context._driver.alive = True
        assert sharing.context_of(ends[0]) is None
    finally:
        os.close(ends[0])
        os.close(ends[1])


# windows


@pytest.fixture
def windows(pd: PD, driver: FakeDriver) -> list[MW]:
    numbers = iter(range(40, 50))

    def allocate(pd: int, kind: int) -> tuple[int, int]:
        number = next(numbers)
        return number, number << 8

    driver.alloc_mw, driver.dealloc_mw = allocate, lambda number: None
    return [MW(pd, e.IBV_MW_TYPE_2) for _ in range(3)]


def binding(window: MW, mr: MR, flags: int = 0) -> SendWR:
    wr = SendWR(opcode=e.IBV_WR_BIND_MW, send_flags=flags)
    wr.set_bind_wr(window, MWBindInfo(mr, mr.buf, 8, e.IBV_ACCESS_REMOTE_WRITE))
    return wr


def test_windows_whose_binds_were_posted_have_the_new_keys(pd: PD, cq: CQ, windows: list[MW]) -> None:
    qp, mr, bad = queue_pair(pd, cq), MR(pd, 64, 1), SendWR(opcode=e.IBV_WR_BIND_MW)
    before = [each.rkey for each in windows]
    chain = [binding(windows[0], mr), binding(windows[1], mr, flags=16), binding(windows[2], mr)]
    chain[0].next_wr, chain[1].next_wr = chain[1], chain[2]
    assert code_of(lambda: qp.post_send(chain[0], bad)) == errno.EINVAL
    assert [each.rkey for each in windows] == [before[0] + 1, before[1], before[2]]
    bad.send_flags = 0  # it has become the request that was refused, with its window and those behind it
    qp.post_send(bad)
    assert [each.rkey for each in windows] == [each + 1 for each in before]


def test_a_bind_that_has_become_another_windows_gives_the_former_one_no_key(
    pd: PD, cq: CQ, windows: list[MW]
) -> None:
    qp, mr = queue_pair(pd, cq), MR(pd, 64, 1)
    wr, before = binding(windows[0], mr), windows[0].rkey
    wr.set_wr_rdma(windows[1].handle, mr.buf)
    qp.post_send(wr)
    assert windows[0].rkey == before


def test_a_bind_is_not_inline(pd: PD, cq: CQ, driver: FakeDriver) -> None:
    driver.alloc_mw, driver.dealloc_mw = lambda pd, kind: (40, 0x4000), lambda number: None
    qp, mr, window = queue_pair(pd, cq), MR(pd, 64, 1), MW(pd, e.IBV_MW_TYPE_1)
    info = MWBindInfo(mr, mr.buf, 8, e.IBV_ACCESS_REMOTE_WRITE)
    for flags in (e.IBV_SEND_INLINE, 16):
        assert code_of(lambda flags=flags: qp.bind_mw(window, MWBind(info, 1, flags))) == errno.EINVAL
    assert window.rkey == 0x4000
    assert not qp.handle.sent


# queues


def test_what_a_queue_pair_is_made_of_is_of_one_context(
    context: Context, other: Context, pd: PD, cq: CQ
) -> None:
    strange = PD(other)
    attr = QPInitAttrEx(e.IBV_QPT_RC, scq=cq, rcq=cq, pd=strange, comp_mask=e.IBV_QP_INIT_ATTR_PD)
    with pytest.raises(PyverbsUserError, match="The PD"):
        QP(context, attr)
    other._driver.open_xrcd, other._driver.close_xrcd = lambda *arguments: 5, lambda number: None
    domain = XRCD(other, XRCDInitAttr(XRCD_MASK, os.O_CREAT, -1))
    with pytest.raises(PyverbsUserError, match="XRC domain"):
        QP(context, QPInitAttrEx(e.IBV_QPT_XRC_RECV, xrcd=domain, comp_mask=e.IBV_QP_INIT_ATTR_XRCD))


def test_creation_flags_count_where_the_mask_says_so(context: Context, pd: PD, cq: CQ) -> None:
    attr = QPInitAttrEx(e.IBV_QPT_RC, scq=cq, rcq=cq, pd=pd, comp_mask=e.IBV_QP_INIT_ATTR_PD, create_flags=2)
    assert QP(context, attr).qp_num
    attr.comp_mask |= e.IBV_QP_INIT_ATTR_CREATE_FLAGS
    assert code_of(lambda: QP(context, attr)) == errno.EOPNOTSUPP


def test_a_shared_receive_queues_parts_count_by_its_mask_and_are_of_one_context(
    context: Context, other: Context, pd: PD
) -> None:
    attr = SrqInitAttrEx(max_wr=3)
    attr.pd, attr.comp_mask, attr.srq_type = pd, e.IBV_SRQ_INIT_ATTR_PD, e.IBV_SRQT_XRC
    assert SRQ(context, attr).handle.max_wr == 3  # a basic one
    driver = context._driver
    driver.open_xrcd, driver.close_xrcd = lambda *arguments: 5, lambda number: None
    attr.xrcd = XRCD(context, XRCDInitAttr(XRCD_MASK, os.O_CREAT, -1))
    attr.comp_mask = (
        e.IBV_SRQ_INIT_ATTR_PD | e.IBV_SRQ_INIT_ATTR_TYPE | e.IBV_SRQ_INIT_ATTR_XRCD | e.IBV_SRQ_INIT_ATTR_CQ
    )
    attr.cq = CQ(other, 4)
    with pytest.raises(PyverbsUserError, match="another context"):
        SRQ(context, attr)


def test_a_limit_of_0_disarms(pd: PD, driver: FakeDriver) -> None:
    srq = SRQ(pd, SrqInitAttr(SrqAttr(5)))
    srq.modify(SrqAttr(srq_limit=0), e.IBV_SRQ_LIMIT)
    assert driver.calls[-1] == ("modify_srq", None, 0)


def test_a_closed_address_is_none(pd: PD, cq: CQ) -> None:
    qp = extended(pd, cq, e.IBV_QPT_UD)
    handle = AH(pd, attr=AHAttr(is_global=1, gr=GlobalRoute(dgid=GID.from_bytes(OTHER_GID))))
    qp.wr_start()
    qp.wr_send()
    handle.close()
    with pytest.raises(PyverbsUserError, match="closed"):
        qp.wr_set_ud_addr(handle, 5, 6)
    qp.wr_abort()


def waits_for_turn(begin) -> None:
    """Another thread's call ends, although this one's turn goes on."""
    thread = threading.Thread(target=begin, daemon=True)
    thread.start()
    thread.join(limit_s(10))
    assert not thread.is_alive()


def test_nobody_waits_for_the_turn_of_a_closed_queue(context: Context, pd: PD, cq: CQ) -> None:
    qp, polled = extended(pd, cq), CQEX(context)
    qp.wr_start()
    batch = qp._batch
    qp.close()
    waits_for_turn(lambda: batch.begin())
    polled.handle.completions.append(FakeCompletion(wr_id=1))
    assert polled.start_poll() == 0
    turn = polled._round
    polled.close()
    waits_for_turn(lambda: turn.begin())


# completions


def test_a_completion_without_immediate_tells_the_key_as_it_is(context: Context) -> None:
    cq = CQEX(context, CqInitAttrEx(wc_flags=e.IBV_WC_EX_WITH_IMM))
    for flags, told in ((e.IBV_WC_WITH_INV, 0x11223344), (e.IBV_WC_WITH_IMM, 0x44332211)):
        cq.handle.completions.append(FakeCompletion(imm_data=0x11223344, wc_flags=flags))
        assert cq.start_poll() == 0
        assert cq.read_imm_data() == told
        cq.end_poll()


def test_polling_has_no_extensions(context: Context) -> None:
    cq, attr = CQEX(context), PollCqAttr()
    cq.handle.completions.append(FakeCompletion())
    attr.comp_mask = 1
    assert cq.start_poll(attr) == errno.EINVAL
    assert cq.start_poll(PollCqAttr()) == 0
    cq.end_poll()


def test_no_fewer_events_than_none_are_acknowledged(cq: CQ) -> None:
    with pytest.raises(PyverbsUserError, match="-1"):
        cq.ack_events(-1)
    assert cq.num_events == 0


def test_without_an_event_a_descriptor_that_does_not_block_says_so(
    context: Context, driver: FakeDriver
) -> None:
    channel = CompChannel(context)
    cq = CQ(context, 4, channel=channel)
    assert code_of(lambda: channel.get_cq_event(cq, 0)) == errno.ETIMEDOUT
    driver.would_block = lambda channel=None: False
    assert code_of(lambda: channel.get_cq_event(cq)) == errno.EAGAIN


def test_bits_outside_a_mask_do_not_count() -> None:
    exact = value_and_mask([Ipv4ExtSpec(dst_ip="10.1.2.0", dst_ip_mask="255.255.255.0")])
    assert value_and_mask([Ipv4ExtSpec(dst_ip="10.1.2.77", dst_ip_mask="255.255.255.0")]) == exact


def test_a_drivers_refusal_of_a_domain_is_told(context: Context, driver: FakeDriver) -> None:
    def refuses(*arguments: object) -> int:
        raise DriverError(errno.EBADF, "no such file")

    driver.open_xrcd = refuses
    assert code_of(lambda: XRCD(context, XRCDInitAttr(XRCD_MASK, 0, 5))) == errno.EBADF


def test_addresses_that_are_said_to_be_no_names_are_not_looked_up() -> None:
    for flags in (RAI_NUMERICHOST, RAI_NUMERICHOST | RAI_PASSIVE):
        side = {"src": "localhost"} if flags & RAI_PASSIVE else {"dst": "localhost"}
        assert code_of(lambda flags=flags, side=side: AddrInfo(flags=flags, **side)) == errno.EADDRNOTAVAIL
        assert AddrInfo(flags=flags, **{key: "127.0.0.1" for key in side})
    both = {"src": "localhost", "dst": "127.0.0.1"}
    assert code_of(lambda: AddrInfo(flags=RAI_NUMERICHOST, **both)) == errno.EADDRNOTAVAIL
    assert AddrInfo(dst="localhost")
