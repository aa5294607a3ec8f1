"""Checks of the verbs, one by one, on a device that refuses nothing itself: masks, bounds, what belongs
together, error codes, and what a way back is made of."""

import errno
import gc
import os
import struct
import time
import weakref
from types import SimpleNamespace

import pytest
from verbs_fake_driver import GID as OWN_GID
from verbs_fake_driver import OTHER_GID, FakeCompletion, FakeDriver, FakeKey, FakeRegistry

from softhca.driver import paging
from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import events, queue_pairs
from softhca.driver.rdmacm.events import EventChannel
from softhca.driver.rdmacm.identifier import OPTION_ID, Identifier
from softhca.machine.primitives import address_of
from softhca.verbs import addr
from softhca.verbs import cm_enums as ce
from softhca.verbs import enums as e
from softhca.verbs.addr import AH, AHAttr, source_of_grh
from softhca.verbs.cmid import CMID, AddrInfo, CMEventChannel, JoinMCAttrEx
from softhca.verbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx
from softhca.verbs.device import Context
from softhca.verbs.extensions import SOFTHCA_QPT_RD
from softhca.verbs.mr import MR, MW, MWBind, MWBindInfo
from softhca.verbs.pageable import PageableMemory, PageableMR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import ECE, QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx, QPRateLimitAttr
from softhca.verbs.qp_ex import DataBuffer
from softhca.verbs.rdd import RDDomain
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr, SrqInitAttrEx
from softhca.verbs.wc import WC
from softhca.verbs.wq import RwqIndTable, RxHashConf
from softhca.verbs.wr import SGE, RecvWR, SendWR
from softhca.verbs.xrcd import XRCD, XRCDInitAttr

XRCD_MASK = e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS
MISUSE = -1
"""Of a call that is refused as misuse."""


def code_of(call) -> int:
    """The error code of a refusal; `MISUSE`, 0 where there is none."""
    try:
        call()
    except PyverbsRDMAError as refused:
        return refused.error_code
    except PyverbsUserError:
        return MISUSE
    return 0


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


def queue_pair(pd: PD, cq: CQ, **cap: int) -> QP:
    return QP(pd, QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=4, **cap)))


def extended(pd: PD, cq: CQ, operations: int) -> QPEx:
    mask = e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
    cap = QPCap(max_send_wr=9)
    attr = QPInitAttrEx(
        e.IBV_QPT_RC, scq=cq, rcq=cq, pd=pd, comp_mask=mask, send_ops_flags=operations, cap=cap
    )
    return QPEx(pd.ctx, attr)


# the way back of a datagram


def ipv4_header(first: int = 0x45, source: bytes = OTHER_GID, target: bytes = OWN_GID) -> bytearray:
    return bytearray(20) + struct.pack(
        ">BBHIBBH4s4s", first, 0x2E, 100, 0, 63, 17, 0, source[12:], target[12:]
    )


def ipv6_header(version: int = 6, source: bytes = OTHER_GID, target: bytes = OWN_GID) -> bytearray:
    word = version << 28 | 0x5A << 20 | 0xFEDCB
    return bytearray(struct.pack(">IHBB16s16s", word, 100, 0x1B, 62, source, target))


def way_back(pd: PD, header: bytearray, **wc: int) -> dict:
    """The vector that a handle is made of."""
    received = WC(slid=0x77, sl=5, dlid_path_bits=3, **{"wc_flags": e.IBV_WC_GRH, **wc})
    handle = AH(pd, wc=received, grh=address_of(header), port_num=1)
    return pd.ctx._driver.address_vectors[handle.number]


@pytest.mark.parametrize(
    ("header", "expected"), [(ipv4_header(), (63, 0x2E, 0)), (ipv6_header(), (62, 0x5A, 0xFEDCB))]
)
def test_a_datagram_is_answered_where_it_came_from_by_what_it_was_sent_to(
    pd: PD, header: bytearray, expected: tuple[int, int, int]
) -> None:
    vector = way_back(pd, header)
    assert (vector["dgid"], vector["sgid_index"]) == (OTHER_GID, 1)
    assert (vector["hop_limit"], vector["traffic_class"], vector["flow_label"]) == expected
    assert (vector["dlid"], vector["sl"], vector["src_path_bits"], vector["is_global"]) == (0x77, 5, 3, 1)


def test_a_datagram_to_the_first_address_is_answered_from_it(pd: PD) -> None:
    vector = way_back(pd, ipv4_header(source=OWN_GID, target=OTHER_GID))
    assert (vector["dgid"], vector["sgid_index"]) == (OWN_GID, 0)


def test_a_datagram_without_a_header_is_answered_by_lid_and_path_bits(pd: PD) -> None:
    vector = way_back(pd, bytearray(40), wc_flags=0)
    assert (vector["dlid"], vector["sl"], vector["src_path_bits"], vector["is_global"]) == (0x77, 5, 3, 0)


@pytest.mark.parametrize("header", [ipv4_header(0x46), ipv4_header(0x55), ipv6_header(7), bytearray(40)])
def test_what_is_no_header_leads_nowhere(pd: PD, header: bytearray) -> None:
    assert code_of(lambda: way_back(pd, header)) == errno.EPROTONOSUPPORT
    assert source_of_grh(bytes(header)) == bytes(16)


def test_a_datagram_to_an_address_that_the_port_has_not_is_not_answered(pd: PD) -> None:
    strange = OTHER_GID[:-1] + b"\x63"
    assert code_of(lambda: way_back(pd, ipv4_header(target=strange))) == errno.ENOENT


def test_a_handle_is_of_an_open_domain(pd: PD) -> None:
    pd.close()
    assert code_of(lambda: AH(pd, attr=AHAttr())) == MISUSE
    assert code_of(lambda: MR(pd, 64, 1)) == MISUSE
    assert code_of(lambda: MW(pd, e.IBV_MW_TYPE_1)) == MISUSE


def test_a_vector_of_nothing_leaves_by_port_1() -> None:
    assert AHAttr.from_dict({}).port_num == 1
    assert AHAttr.from_dict({"port_num": 2}).port_num == 2


# completion queues


def test_flags_and_domains_of_a_queue_count_where_the_mask_says_so(context: Context, pd: PD) -> None:
    assert CQEX(context, CqInitAttrEx(flags=1 << 7, parent_domain=pd)).cqe
    assert code_of(lambda: CQEX(context, CqInitAttrEx(flags=1 << 7, comp_mask=1))) == errno.EOPNOTSUPP
    for domain in (None, pd):
        attr = CqInitAttrEx(comp_mask=e.IBV_CQ_INIT_ATTR_MASK_PD, parent_domain=domain)
        assert code_of(lambda attr=attr: CQEX(context, attr)) == errno.EINVAL
    assert code_of(lambda: CQEX(context, CqInitAttrEx(comp_mask=1 << 9))) == errno.EOPNOTSUPP


def test_a_round_that_fails_has_not_begun(context: Context, driver: FakeDriver) -> None:
    cq = CQEX(context)
    driver.refusals["poll"] = errno.EIO
    assert code_of(cq.start_poll) == errno.EIO
    cq.handle.completions.append(FakeCompletion(wr_id=9))
    assert cq.start_poll() == 0
    assert cq.wr_id == 9
    cq.end_poll()


def test_a_completions_time_is_told_by_the_systems_clock(context: Context) -> None:
    cq = CQEX(context, CqInitAttrEx(wc_flags=e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK))
    cq.handle.completions.append(FakeCompletion(timestamp_ns=time.monotonic_ns() - 10**9))
    assert cq.start_poll() == 0
    assert abs(time.time_ns() - 10**9 - cq.read_completion_wallclock_ns()) < 10**9 // 2
    cq.end_poll()


def test_a_channel_that_is_closed_says_so_to_whoever_waits(context: Context, driver: FakeDriver) -> None:
    channel = CompChannel(context)
    cq = CQ(context, 4, channel=channel)

    def ends(token, timeout_s, ended):
        channel._open = False
        return None

    driver.wait_completion = ends
    assert code_of(lambda: channel.get_cq_event(cq)) == errno.EBADF
    channel._open = True


def test_a_channel_that_does_not_block_is_looked_at_once(context: Context, driver: FakeDriver) -> None:
    channel = CompChannel(context)
    cq = CQ(context, 4, channel=channel)
    driver.would_block = lambda token: False
    assert code_of(lambda: channel.get_cq_event(cq)) == errno.EAGAIN
    assert driver.calls[-1] == ("wait_completion", channel.token, 0)


# batches


def test_a_batch_does_not_begin_in_a_batch(pd: PD, cq: CQ) -> None:
    qp = extended(pd, cq, e.IBV_QP_EX_WITH_SEND)
    began = []
    qp._batch = SimpleNamespace(
        mine=lambda: True, begin=lambda: began.append(1) or True, call_off=lambda: None
    )
    assert code_of(qp.wr_start) == MISUSE
    assert began == []


def test_a_flush_says_what_it_is_in_four_bits_each(pd: PD, cq: CQ) -> None:
    qp = extended(pd, cq, e.IBV_QP_EX_WITH_FLUSH)
    for kind, level, expected in ((1, 1, 0x11), (15, 2, 0x2F), (16, 2, 0), (17, 1, 0)):
        qp.wr_start()
        qp.wr_flush(7, 0x1000, 8, kind, level)
        qp.wr_complete()
        assert (qp.handle.sent[-1]["swap"], qp.handle.sent[-1]["compare"]) == (expected, 8)


def test_so_many_buffers_are_taken_as_are_named(pd: PD, cq: CQ) -> None:
    qp, memory = extended(pd, cq, e.IBV_QP_EX_WITH_SEND), bytearray(b"abcdef")
    buffers = [DataBuffer(address_of(memory) + at, 2) for at in (0, 2, 4)]
    elements = [SGE(at, 2, 5) for at in (0x10, 0x20, 0x30)]
    for count in (-1, 4):
        qp.wr_start()
        qp.wr_send()
        assert code_of(lambda count=count: qp.wr_set_inline_data_list(count, buffers)) == MISUSE
        assert code_of(lambda count=count: qp.wr_set_sge_list(count, elements)) == MISUSE
        qp.wr_abort()
    qp.wr_start()
    qp.wr_send()
    qp.wr_set_inline_data_list(2, buffers)
    qp.wr_send()
    qp.wr_set_sge_list(2, elements)
    qp.wr_complete()
    assert [each["sges"] for each in qp.handle.sent] == [b"abcd", ((0x10, 2, 5), (0x20, 2, 5))]


def test_a_refused_batch_speaks_of_the_flags_by_their_own_name(pd: PD, cq: CQ) -> None:
    qp = extended(pd, cq, e.IBV_QP_EX_WITH_SEND)

    def refuses(first):
        raise DriverError(errno.EINVAL, "send_flags = 0x10: there are no such flags")

    qp._post_chain = refuses
    qp.wr_start()
    qp.wr_send()
    with pytest.raises(PyverbsRDMAError, match="wr_flags = 0x10"):
        qp.wr_complete()


# windows


@pytest.fixture
def window(pd: PD, driver: FakeDriver) -> MW:
    driver.alloc_mw, driver.dealloc_mw = lambda pd, kind: (40, 0x4000), lambda number: None
    return MW(pd, e.IBV_MW_TYPE_2)


@pytest.mark.parametrize("batch", [False, True])
def test_a_region_lives_as_long_as_the_window_that_is_bound_to_it(
    pd: PD, cq: CQ, window: MW, batch: bool
) -> None:
    mr = MR(pd, 64, 1)
    lives = weakref.ref(mr)
    info = MWBindInfo(mr, mr.buf, 8, e.IBV_ACCESS_REMOTE_WRITE)
    if batch:
        qp = extended(pd, cq, e.IBV_QP_EX_WITH_BIND_MW)
        qp.wr_start()
        qp.wr_bind_mw(window, 5, info)
        qp.wr_complete()
        assert qp.handle.sent[-1]["imm"] == 5
    else:
        SendWR(opcode=e.IBV_WR_BIND_MW).set_bind_wr(window, info)
    del mr, info
    gc.collect()
    assert lives() is not None
    window.close()
    gc.collect()
    assert lives() is None


def test_a_request_that_binds_nothing_any_more_gives_no_key(pd: PD, cq: CQ, window: MW) -> None:
    qp, mr = queue_pair(pd, cq), MR(pd, 64, 1)
    wr = SendWR(opcode=e.IBV_WR_BIND_MW)
    wr.set_bind_wr(window, MWBindInfo(mr, mr.buf, 8, e.IBV_ACCESS_REMOTE_WRITE))
    bind = SendWR(opcode=e.IBV_WR_BIND_MW)
    bind.set_bind_wr(window, MWBindInfo(mr, mr.buf, 8, e.IBV_ACCESS_REMOTE_WRITE))
    wr.opcode, bind.remote_rkey, wr.next_wr = e.IBV_WR_SEND, 41, bind
    qp.post_send(wr)
    assert window.rkey == 0x4000


# work requests


def test_elements_are_used_as_far_as_they_are_counted() -> None:
    elements = [SGE(at, 2, 5) for at in (0x10, 0x20)]
    for make in (RecvWR, lambda wr_id, count, sg: SendWR(wr_id, num_sge=count, sg=sg)):
        assert code_of(lambda make=make: make(1, -1, elements)) == MISUSE
        wr = make(1, 1, elements)
        assert wr.sg_list == ((0x10, 2, 5),)
        wr.sg_list = [SGE(at, 2, 5) for at in (0x30, 0x40, 0x50)]
        assert wr.num_sge == 3
        for count in (2, 3, 0):
            wr.num_sge = count
            assert wr.sg_list == ((0x30, 2, 5), (0x40, 2, 5), (0x50, 2, 5))[:count]
        for count in (-1, 4):
            with pytest.raises(IndexError):
                wr.num_sge = count


def test_a_raw_datagram_has_its_service_in_place_of_a_queue_pair(pd: PD) -> None:
    wr = SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=[SGE(1, 2, 3)])
    handle = AH(pd, attr=AHAttr())
    for nothing in (None, 5, pd):
        with pytest.raises(TypeError):
            wr.set_wr_ud(nothing, 1, 2)
    wr.set_wr_raw(handle, 0x88B5)
    assert (wr.ah, wr.remote_qpn, wr.remote_qkey) == (handle, 0x88B5, 0)


# shared receive queues


@pytest.fixture
def domain(context: Context, driver: FakeDriver) -> XRCD:
    driver.open_xrcd, driver.close_xrcd = lambda *arguments: 5, lambda number: None
    return XRCD(context, XRCDInitAttr(XRCD_MASK, os.O_CREAT, -1))


def test_a_shared_receive_queue_is_of_its_type_and_of_one_context(
    context: Context, other: Context, pd: PD, cq: CQ, domain: XRCD
) -> None:
    made = []
    context._driver.create_srq = lambda *given: made.append(given) or SimpleNamespace(destroy=lambda: None)
    other._driver.open_xrcd, other._driver.close_xrcd = domain._driver.open_xrcd, domain._driver.close_xrcd
    strange = XRCD(other, XRCDInitAttr(XRCD_MASK, os.O_CREAT, -1))
    pd_mask, cq_mask = e.IBV_SRQ_INIT_ATTR_PD, e.IBV_SRQ_INIT_ATTR_CQ
    whole = pd_mask | cq_mask | e.IBV_SRQ_INIT_ATTR_TYPE | e.IBV_SRQ_INIT_ATTR_XRCD

    def asked(mask: int, **parts: object) -> int:
        attr = SrqInitAttrEx(max_wr=3)
        attr.comp_mask, attr.srq_type = mask, parts.pop("type", e.IBV_SRQT_BASIC)
        for name, value in {"pd": pd, "xrcd": domain, "cq": cq, **parts}.items():
            setattr(attr, name, value)
        return code_of(lambda: SRQ(context, attr))

    assert asked(pd_mask, xrcd=strange, cq=CQ(other, 4)) == 0, "a basic one has neither"
    assert made[-1][4:] == (None, 0) or len(made[-1]) == 4
    assert asked(whole, type=e.IBV_SRQT_XRC) == 0
    assert asked(whole, type=e.IBV_SRQT_XRC, xrcd=strange) == MISUSE
    assert asked(whole, type=e.IBV_SRQT_XRC, pd=PD(other)) == MISUSE
    assert asked(whole) == errno.EOPNOTSUPP, "a basic one with more than a domain"
    assert asked(pd_mask | cq_mask) == errno.EOPNOTSUPP
    assert asked(cq_mask | e.IBV_SRQ_INIT_ATTR_TYPE, type=e.IBV_SRQT_XRC) == errno.EINVAL
    assert asked(whole, type=e.IBV_SRQT_XRC, cq=None) == errno.EINVAL
    assert asked(whole, type=7) == errno.EOPNOTSUPP


# queue pairs


def test_a_queue_pair_goes_to_rtr_from_init_alone(pd: PD, cq: CQ) -> None:
    qp = queue_pair(pd, cq)
    attr = QPAttr()
    for steps, expected in ((qp.to_rtr, [1, 2]), (qp.to_rtr, [1, 2]), (qp.to_rts, [3]), (qp.to_rtr, [1, 2])):
        before = len(qp.handle.modified)
        steps(attr)
        assert [each["qp_state"] for each in qp.handle.modified[before:]] == expected


def test_a_rate_limit_has_three_numbers_and_no_mask(pd: PD, cq: CQ) -> None:
    qp = queue_pair(pd, cq)
    qp.modify_rate_limit(QPRateLimitAttr(1000, 2000, 300))
    assert qp.handle.modified[-1] == {"rate_limit": 1000, "max_burst_sz": 2000, "typical_pkt_sz": 300}
    assert code_of(lambda: qp.modify_rate_limit(QPRateLimitAttr(1000, comp_mask=1))) == errno.EINVAL
    assert len(qp.handle.modified) == 1


def test_there_are_no_options_of_connection_establishment(pd: PD, cq: CQ) -> None:
    qp = queue_pair(pd, cq)
    cmid = CMID(creator=CMEventChannel())
    for sets in (qp.set_ece, cmid.set_local_ece):
        assert code_of(lambda sets=sets: sets(ECE(vendor_id=5))) == errno.EOPNOTSUPP
        assert code_of(lambda sets=sets: sets(ECE())) == 0
    cmid.close()


def test_an_xrc_target_has_no_queues(context: Context, pd: PD, cq: CQ, domain: XRCD) -> None:
    mask = e.IBV_QP_INIT_ATTR_XRCD
    attr = QPInitAttrEx(e.IBV_QPT_XRC_RECV, scq=cq, rcq=cq, xrcd=domain, comp_mask=mask)
    qp = QP(context, attr)
    assert qp.handle.queues == (None, None, None)
    qp.close()
    attr.comp_mask = 0
    assert code_of(lambda: QP(context, attr)) == errno.EINVAL
    assert code_of(lambda: QP(pd, QPInitAttr(e.IBV_QPT_XRC_RECV, scq=cq, rcq=cq))) == errno.EINVAL


def test_an_xrc_target_answers_and_waits_and_asks_for_nothing(context: Context, domain: XRCD) -> None:
    attr = QPInitAttrEx(e.IBV_QPT_XRC_RECV, xrcd=domain, comp_mask=e.IBV_QP_INIT_ATTR_XRCD)
    qp = QP(context, attr)
    qp.to_rts(QPAttr())
    assert [set(step) - {"qp_state"} for step in qp.handle.modified] == [
        {"pkey_index", "port_num", "qp_access_flags"},
        {"ah_attr", "path_mtu", "dest_qp_num", "rq_psn", "max_dest_rd_atomic", "min_rnr_timer"},
        {"sq_psn", "timeout"},
    ]


def test_the_rd_domain_of_a_queue_pair_is_of_its_context(
    context: Context, other: Context, pd: PD, cq: CQ
) -> None:
    for each in (context, other):
        each._driver.alloc_rdd, each._driver.dealloc_rdd = lambda: 5, lambda number: None
    for owner, code in ((context, 0), (other, MISUSE)):
        attr = QPInitAttr(SOFTHCA_QPT_RD, scq=cq, rcq=cq)
        attr.rdd = RDDomain(owner)
        assert code_of(lambda attr=attr: QP(pd, attr)) == code


def test_a_window_of_type_1_is_bound_at_once_and_has_its_next_key(
    pd: PD, cq: CQ, driver: FakeDriver
) -> None:
    driver.alloc_mw, driver.dealloc_mw = lambda pd, kind: (40, 0x40FF), lambda number: None
    window, mr, qp = MW(pd, e.IBV_MW_TYPE_1), MR(pd, 64, 1), queue_pair(pd, cq)
    info = MWBindInfo(mr, mr.buf, 8, e.IBV_ACCESS_REMOTE_WRITE)
    for flags in (e.IBV_SEND_INLINE, 1 << 20):
        assert code_of(lambda flags=flags: qp.bind_mw(window, MWBind(info, 1, flags))) == errno.EINVAL
    assert (window.rkey, qp.handle.rings) == (0x40FF, 0)
    qp.bind_mw(window, MWBind(info, 7, e.IBV_SEND_SIGNALED))
    assert (window.rkey, qp.handle.rings, qp.handle.sent[-1]["imm"]) == (0x4000, 1, 0x4000)
    assert qp.handle.sent[-1]["wr_id"] == 7


def test_a_queue_pair_that_scales_has_a_table_and_no_queue(
    context: Context, other: Context, pd: PD, cq: CQ
) -> None:
    made = []

    def create(pd, table, *how):
        made.append(how)
        return context._driver.create_qp(pd, e.IBV_QPT_RAW_PACKET, None, None, None, 0, 0, 0, 0, 0, False)

    context._driver.create_rss_qp = create
    tables = [RwqIndTable.__new__(RwqIndTable) for _ in range(2)]
    for table, owner in zip(tables, (context, other), strict=True):
        table._driver, table._number, table._open = owner._driver, 7, True
    key = bytes(range(40))
    scaling = e.IBV_QP_INIT_ATTR_RX_HASH | e.IBV_QP_INIT_ATTR_IND_TABLE
    whole = e.IBV_QP_INIT_ATTR_PD | scaling

    def asked(kind: int = e.IBV_QPT_RAW_PACKET, mask: int = whole, **parts: object) -> int:
        how = RxHashConf(1, parts.pop("length", 40), key, 3)
        attr = QPInitAttrEx(kind, scq=cq, rcq=cq, pd=pd, comp_mask=mask, cap=QPCap(0, 0, 0, 0, 0))
        attr.ind_table, attr.hash_conf = tables[0], how
        for name, value in parts.items():
            setattr(attr, name, value)
        return code_of(lambda: QP(context, attr))

    for change, code in (
        ({"kind": e.IBV_QPT_UD}, errno.EOPNOTSUPP),
        ({"mask": whole & ~e.IBV_QP_INIT_ATTR_RX_HASH}, errno.EINVAL),
        ({"mask": whole & ~e.IBV_QP_INIT_ATTR_IND_TABLE}, errno.EINVAL),
        ({"mask": whole | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS}, errno.EOPNOTSUPP),
        ({"max_recv_wr": 1}, errno.EINVAL),
        ({"max_send_wr": 1}, errno.EINVAL),
        ({"max_recv_sge": 1}, errno.EINVAL),
        ({"srq": SRQ(pd, SrqInitAttr(SrqAttr(5)))}, errno.EINVAL),
        ({"length": 39}, errno.EINVAL),
        ({"length": 41}, errno.EINVAL),
        ({"ind_table": tables[1]}, MISUSE),
    ):
        assert asked(**change) == code, change
    assert made == []
    for table in tables:
        table._open = False


# identifiers


def test_a_group_is_joined_where_the_mask_says_which() -> None:
    cmid = CMID(creator=CMEventChannel())
    addresses = AddrInfo(src="224.1.2.3", port_space=ce.RDMA_PS_UDP)
    assert code_of(lambda: cmid.join_multicast(mc_attr=JoinMCAttrEx(addresses))) == errno.EINVAL
    assert code_of(cmid.join_multicast) == MISUSE
    cmid.close()


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        (events.REJECTED, 28, errno.ECONNREFUSED),
        (events.DEVICE_REMOVAL, 0, errno.ENODEV),
        (events.DISCONNECTED, 0, errno.ECONNRESET),
        (events.UNREACHABLE, -errno.ETIMEDOUT, errno.ETIMEDOUT),
        (events.UNREACHABLE, 5, errno.ECONNREFUSED),
        (events.ESTABLISHED, 0, 0),
    ],
)
def test_who_waits_learns_why_it_did_not_come_about(kind: int, status: int, code: int) -> None:
    cmid = CMID()
    cmid._sync = SimpleNamespace(next_event=lambda: SimpleNamespace(kind=kind, status=status))
    assert code_of(lambda: cmid._await(events.ESTABLISHED, "Failed")) == code


@pytest.mark.parametrize(
    ("kind", "code"), [(events.ESTABLISHED, errno.EINVAL), (events.DEVICE_REMOVAL, errno.ENODEV)]
)
def test_a_listener_that_hears_of_something_else_has_no_request(kind: int, code: int) -> None:
    cmid = CMID(creator=CMEventChannel())
    assert code_of(cmid.get_request) == errno.EINVAL, "it is told by its channel"
    cmid._sync = SimpleNamespace(next_event=lambda: SimpleNamespace(kind=kind, status=0), close=lambda: None)
    assert code_of(cmid.get_request) == code
    cmid.close()


# numbers of requests


@pytest.mark.parametrize(
    "make",
    [
        lambda: SGE(1 << 64, 1, 1), lambda: SGE(-1, 1, 1), lambda: SGE(1, -1, 1), lambda: SGE(1, 1 << 32, 1),
        lambda: SGE(1, 1, 1 << 32), lambda: RecvWR(-1), lambda: RecvWR(1 << 64), lambda: sends(wr_id=1 << 64),
        lambda: sends(wr_id=-1), lambda: sends(imm_data=1 << 32), lambda: sends(send_flags=-1),
        lambda: sends().set_wr_rdma(1 << 32, 1), lambda: sends().set_wr_rdma(1, -1),
        lambda: sends().set_wr_atomic(1, 1, 1 << 64), lambda: sends().set_wr_atomic(1, 1, 1, -1),
    ],
)  # fmt: skip
def test_a_number_that_its_field_has_no_room_for_is_refused_where_it_is_given(make) -> None:
    with pytest.raises(OverflowError):
        make()


def sends(**values: int) -> SendWR:
    return SendWR(num_sge=1, sg=[SGE(1, 1, 1)], **values)


# regions


def test_a_region_that_changes_is_of_its_new_domain_with_its_new_rights(pd: PD, driver: FakeDriver) -> None:
    memory, other = bytearray(64), PD(pd.ctx)
    mr = MR(pd, access=1, buffer=memory)
    with pytest.raises(BufferError):
        memory.append(0)
    mr.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=3 | e.IBV_ACCESS_RELAXED_ORDERING | e.IBV_ACCESS_HUGETLB)
    assert driver.calls[-1][-1] == 3, "hints are not the device's"
    mr.rereg(e.IBV_REREG_MR_CHANGE_PD, pd=other)
    assert mr.pd is other
    more = bytearray(32)
    mr.rereg(e.IBV_REREG_MR_CHANGE_TRANSLATION, addr=address_of(more), length=32)
    memory.append(0)
    assert (mr.buf, mr.length) == (address_of(more), 32)
    pd.close()
    assert mr.lkey
    other.close()
    assert code_of(lambda: mr.lkey) == MISUSE


@pytest.mark.parametrize(
    "right", [e.IBV_ACCESS_LOCAL_WRITE, e.IBV_ACCESS_REMOTE_WRITE, e.IBV_ACCESS_REMOTE_ATOMIC]
)
def test_memory_that_is_read_only_has_no_right_to_write(pd: PD, right: int) -> None:
    assert code_of(lambda: MR(pd, access=int(right), buffer=b"constant")) == MISUSE
    assert MR(pd, access=int(e.IBV_ACCESS_REMOTE_READ), buffer=b"constant").length == 8


def test_a_region_of_another_process_is_let_go_and_stays(
    pd: PD, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PD, "source", SimpleNamespace(is_foreign=True))
    driver.import_mr = lambda domain, handle: (FakeKey(handle, 7, 8), 4096)
    mr = MR(pd, handle=5)
    assert (mr.length, mr.lkey, mr.rkey, mr.handle) == (4096, 7, 8, 5)
    assert code_of(lambda: mr.read(1, 0)) == MISUSE, "nobody says where it is"
    driver.calls.clear()
    mr.close()
    assert driver.calls == []


# pageable memory


@pytest.fixture
def pageable(pd: PD, driver: FakeDriver):
    memory = PageableMemory(4096, pager=False)
    driver.reg_paged = lambda *given: driver.reg_mr(given[0], 0, 4096, given[2], given[3])
    yield PageableMR(pd, memory, 1)
    memory.close()


def test_pageable_memory_is_read_behind_what_the_device_brings_and_written_as_far_as_asked(
    driver: FakeDriver, pageable: PageableMR
) -> None:
    memory = pageable.memory
    assert memory.rights == 15
    memory.write(b"abcdef", 3)
    assert memory.read(6) == b"abc\0\0\0"
    before = driver.progressed, driver.looked
    assert pageable.read(3, 1) == b"bc\0"
    assert (driver.progressed, driver.looked) == (before[0], before[1] + 1), "who reads does not nap"
    pageable.write("xy", 2, 4)
    assert memory.read(6) == b"abc\0xy"
    memory.set_rights(3)
    assert memory.rights == 3


def test_a_closed_registration_of_pageable_memory_does_nothing(
    driver: FakeDriver, pageable: PageableMR
) -> None:
    handle = pageable.handle
    pageable.close()
    assert ("dereg_mr", handle) in driver.calls
    for use in (
        lambda: pageable.buf, lambda: pageable.lkey, lambda: pageable.rkey, lambda: pageable.handle,
        lambda: pageable.read(1, 0), lambda: pageable.write(b"x", 1),
    ):  # fmt: skip
        assert code_of(use) == MISUSE
    assert pageable.memory.read(1) == b"\0"


def test_a_part_of_pageable_memory_is_fetched_where_it_is_asked_for(
    pageable: PageableMR, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    for name in ("fetch", "swap_out"):
        monkeypatch.setattr(
            paging.PageableMemory, name, lambda self, *given, name=name: asked.append((name, *given))
        )
    pageable.memory.fetch(8, 16)
    pageable.memory.swap_out(24, 32)
    assert asked == [("fetch", 8, 16), ("swap_out", 24, 32)]


# more of identifiers


def test_an_identifiers_queue_pair_is_as_it_was_asked_for(pd: PD, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_pairs, "begin", lambda identifier, handle: None)
    cmid = CMID(creator=CMEventChannel(), pd=pd)
    srq = SRQ(pd, SrqInitAttr(SrqAttr(5)))
    asked = QPInitAttr(e.IBV_QPT_RC, srq=srq, cap=QPCap(max_send_wr=3, max_recv_wr=9), sq_sig_all=1)
    cmid.create_qp(asked)
    assert asked.cap.max_send_wr == 4, "as the device says"
    handle = cmid._qp.handle
    send, receive, shared = handle.queues
    assert (send.entries, receive.entries, shared, handle.signal_all) == (3, 9, srq.handle, True)
    assert cmid.qpn == handle.number
    cmid.close()
    assert handle.destroyed
    assert send.destroyed
    assert receive.destroyed


def test_what_takes_a_queue_pair_of_the_programs_own_on_is_named_by_a_mask(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"qp_state": 1, "pkey_index": 0, "port_num": 2}
    monkeypatch.setattr(queue_pairs, "attributes", lambda identifier, state: {**found, "qp_state": state})
    cmid = CMID(creator=CMEventChannel())
    attr, mask = cmid.init_qp_attr(e.IBV_QPS_INIT)
    assert mask == e.IBV_QP_STATE | e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT
    assert (attr.qp_state, attr.port_num) == (e.IBV_QPS_INIT, 2)
    cmid.close()


def test_an_identifier_has_no_port_before_it_has_a_device() -> None:
    cmid = CMID()
    assert cmid.port_num == 0
    cmid._id = SimpleNamespace(local=None)
    assert cmid.port_num == 0
    cmid._id = SimpleNamespace(local=SimpleNamespace(port=2))
    assert cmid.port_num == 2
    cmid._id = None


def test_an_identifier_is_told_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    for name in ("listen", "migrate", "set_option"):
        monkeypatch.setattr(Identifier, name, lambda self, *given, name=name: told.append((name, *given)))
    channel, cmid = CMEventChannel(), CMID(creator=CMEventChannel())
    cmid.listen(17)
    cmid.set_option(OPTION_ID, 3, 19, 1)
    assert told == [("listen", 17), ("set_option", 3, 19)]
    assert code_of(lambda: cmid.set_option(OPTION_ID + 1, 3, 19, 1)) == errno.ENOSYS
    cmid._sync = EventChannel()
    cmid.migrate(channel)
    assert told[2:] == [("migrate", channel.channel)]
    assert (cmid.event_channel, cmid._sync) == (channel, None)
    nothing = AddrInfo()
    for asks in (cmid.bind_addr, cmid.resolve_addr, cmid.leave_multicast):
        assert code_of(lambda asks=asks: asks(nothing)) == errno.EINVAL
    assert code_of(cmid.query_addrinfo) == errno.ENODATA
    cmid.close()


def test_the_way_back_begins_at_the_port_that_was_reached():
    gids = {(1, 0): b"a" * 16, (1, 1): b"b" * 16, (2, 0): b"c" * 16, (2, 1): b"a" * 16}
    pd = SimpleNamespace(_driver=SimpleNamespace(
        query_port=lambda port: {"gid_tbl_len": 2}, query_gid=lambda port, index: gids[port, index]
    ))  # fmt: skip
    header = bytearray(b"\x6f\xef\xed\xcb" + bytes(4) + b"s" * 16 + b"a" * 16)
    back = addr._reply_vector(pd, WC(wc_flags=1, slid=4), address_of(header), 2)
    assert (back.port_num, back.sgid_index, back.dlid) == (2, 1, 4)
    assert (back.traffic_class, back.flow_label) == (0xFE, 0xFEDCB)
