"""Verbs alone, over a driver that keeps what it is asked: specifications, work queues, domains, agents."""

import errno
import os
from collections import Counter
from typing import Any

import pytest
from verbs_fake_driver import FakeDriver, FakeRegistry

from softhca.driver.errors import PostError
from softhca.management.mad import Mad, MadHeader
from softhca.verbs import cm_contexts, device
from softhca.verbs import enums as e
from softhca.verbs.addr import AHAttr
from softhca.verbs.cq import CQ
from softhca.verbs.device import Context
from softhca.verbs.device_attributes import DeviceAttr
from softhca.verbs.flow import Flow, FlowAttr
from softhca.verbs.mad import MadAgent
from softhca.verbs.mem_alloc import free, malloc, read, writebe32, writebe64
from softhca.verbs.pd import PD, Identified, ParentDomain, ParentDomainContext, ParentDomainInitAttr
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.rdd import RDDomain
from softhca.verbs.spec import EthSpec, Ipv4ExtSpec, Ipv6Spec, TcpUdpSpec
from softhca.verbs.srq import SrqAttr, SrqInitAttr
from softhca.verbs.structures import INT32, UINT8
from softhca.verbs.wc import WC
from softhca.verbs.wq import WQ, RwqIndTable, RwqIndTableInitAttr, WQAttr, WQInitAttr
from softhca.verbs.wr import SGE, RecvWR
from softhca.verbs.xrcd import XRCD, XRCDInitAttr


class Handle:
    """What a driver makes: calls of its methods are kept in ``calls``."""

    number = 7

    def __init__(self, calls: list[tuple[Any, ...]]) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self._calls.append((name, *arguments))


class Calls(list):
    """The calls of a driver's methods, which give ``result``."""

    def of(self, driver: FakeDriver, name: str, result: Any = None) -> "Calls":
        def call(*arguments: Any, **fields: Any) -> Any:
            self.append((name, *arguments, *([fields] if fields else [])))
            return result

        setattr(driver, name, call)
        return self


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def other(registry: FakeRegistry):
    """A second context."""
    with Context(name="fake1") as opened:
        yield opened


def code_of(call) -> int:
    with pytest.raises(PyverbsRDMAError) as refused:
        call()
    return refused.value.error_code


# specifications of steering


def test_a_field_that_is_given_counts_whole_and_one_with_a_mask_as_far_as_that_says():
    spec = Ipv6Spec(flow_label=5, hop_limit=0, traffic_class=3, next_hdr=6, next_hdr_mask=0)
    assert (spec.flow_label, spec.flow_label_mask) == (5, 0xFFFFF)
    assert (spec.hop_limit, spec.hop_limit_mask) == (0, 0xFF)
    assert (spec.traffic_class, spec.traffic_class_mask) == (3, 0xFF)
    assert (spec.next_hdr, spec.next_hdr_mask) == (6, 0)
    assert (spec.dst_ip, spec.dst_ip_mask) == ("::", "::")
    ports = TcpUdpSpec(e.IBV_FLOW_SPEC_TCP, dst_port=0, dst_port_mask=0xF0, src_port=9)
    assert (ports.dst_port, ports.dst_port_mask, ports.src_port, ports.src_port_mask) == (0, 0xF0, 9, 0xFFFF)
    ethernet = EthSpec(ether_type=0x0800, src_mac_mask="ff:00:00:00:00:00")
    assert (ethernet.ether_type, ethernet.ether_type_mask, ethernet.vlan_tag_mask) == (0x0800, 0xFFFF, 0)
    assert (ethernet.src_mac, ethernet.src_mac_mask) == ("", "ff:00:00:00:00:00")
    assert (Ipv4ExtSpec(tos=1).tos_mask, Ipv4ExtSpec().tos_mask) == (0xFF, 0)


def test_an_inner_header_says_so():
    assert Ipv4ExtSpec(is_inner=1).spec_type == e.IBV_FLOW_SPEC_IPV4_EXT | e.IBV_FLOW_SPEC_INNER
    assert Ipv4ExtSpec(is_inner=1).type_to_str().endswith("IBV_FLOW_SPEC_INNER")
    assert Ipv4ExtSpec().spec_type == e.IBV_FLOW_SPEC_IPV4_EXT


@pytest.fixture
def raw_qp(context: Context):
    cq = CQ(context, 4)
    with QP(PD(context), QPInitAttr(e.IBV_QPT_RC, None, cq, cq, cap=QPCap())) as qp:
        yield qp


def test_a_rule_has_up_to_its_number_of_specifications_its_port_and_its_priority(raw_qp, driver, calls):
    calls.of(driver, "create_flow", 5).of(driver, "destroy_flow")
    attr = FlowAttr(num_of_specs=2, priority=3, port=2)
    attr.specs.append(EthSpec(dst_mac="02:00:00:00:00:01"))
    flow = Flow(raw_qp, attr)
    name, number, port, kind, priority, fields = calls.pop()
    assert (name, number, port, priority) == ("create_flow", raw_qp.handle.number, 2, 3)
    assert (kind, sorted(fields)) == (e.IBV_FLOW_ATTR_NORMAL, ["mask", "value"])
    flow.close()
    assert calls.pop() == ("destroy_flow", 5)
    attr.specs.extend([EthSpec(), EthSpec()])
    with pytest.raises(PyverbsUserError, match="3 specifications"):
        Flow(raw_qp, attr)
    assert code_of(lambda: Flow(raw_qp, FlowAttr(flags=1))) == errno.EOPNOTSUPP
    sniffer = FlowAttr(num_of_specs=1, flow_type=e.IBV_FLOW_ATTR_SNIFFER)
    assert Flow(raw_qp, sniffer)
    sniffer.specs.append(EthSpec())
    assert code_of(lambda: Flow(raw_qp, sniffer)) == errno.EINVAL


# work queues


@pytest.fixture
def queues(context: Context, driver: FakeDriver, calls: Calls):
    """A domain and a completion queue, of a driver that makes work queues."""
    calls.of(driver, "create_wq", Handle(calls)).of(driver, "create_rwq_ind_table", 9)
    calls.of(driver, "destroy_rwq_ind_table")
    return PD(context), CQ(context, 4)


def work_queue(context, pd, cq, **changes):
    return WQ(context, WQInitAttr(wq_pd=pd, wq_cq=cq, **changes))


def test_what_is_no_work_queue_is_refused(context, other, queues, calls):
    pd, cq = queues
    wrong = {"wq_type": 5}, {"comp_mask": 2}, {"wq_pd": None}, {"wq_cq": None}
    for changes in wrong:
        attr = WQInitAttr(**{"wq_pd": pd, "wq_cq": cq, **changes})
        assert code_of(lambda attr=attr: WQ(context, attr)) == errno.EINVAL
    flags = e.IBV_WQ_INIT_ATTR_FLAGS
    assert code_of(lambda: work_queue(context, pd, cq, comp_mask=flags, create_flags=1)) == errno.EOPNOTSUPP
    for domain, queue in ((PD(other), cq), (pd, CQ(other, 4))):
        with pytest.raises(PyverbsUserError, match="another context"):
            work_queue(context, domain, queue)
    closed = PD(context)
    closed.close()
    with pytest.raises(PyverbsUserError, match="closed"):
        work_queue(context, closed, cq)
    assert calls == []
    assert work_queue(context, pd, cq, create_flags=1)  # which no mask names
    assert work_queue(context, pd, cq, comp_mask=flags)


def test_a_work_queue_stands_in_memory_of_its_domains_allocators(context, queues, calls):
    pd, cq = queues
    lender = ParentDomain(
        context, ParentDomainInitAttr(pd, ParentDomainContext(pd, lambda *_: 0, lambda *_: None))
    )
    work_queue(context, lender, cq, max_wr=6, max_sge=3)
    name, number, handle, entries, elements, fields = calls[0]
    assert (name, number, handle, entries, elements) == ("create_wq", pd.number, cq.handle, 6, 3)
    assert fields == lender.lending
    assert list(fields) == ["allocator"]


def test_a_work_queue_is_changed_by_what_the_mask_names(context, queues, calls):
    wq = work_queue(context, *queues)
    calls.clear()
    for mask in (0, 8):
        assert code_of(lambda mask=mask: wq.modify(WQAttr(attr_mask=mask))) == errno.EINVAL
    assert calls == []
    wq.modify(WQAttr(attr_mask=3, wq_state=1, curr_wq_state=2))
    assert calls == [("modify_wq", 3, 1, 2)]


def test_a_receive_that_is_refused_is_told_by_the_one_that_it_is(context, queues):
    wq = work_queue(context, *queues)
    first, second, bad = (RecvWR(wr_id=number) for number in (1, 2, 3))
    refusal = PostError(errno.ENOMEM, "full", second)

    def refuse(error):
        def post(wr):
            raise error

        wq.handle.post_receives = post

    refuse(refusal)
    assert code_of(lambda: wq.post_recv(first, bad)) == errno.ENOMEM
    assert bad.wr_id == 2
    assert code_of(lambda: wq.post_recv(first)) == errno.ENOMEM
    refuse(OverflowError("too large"))
    with pytest.raises(PyverbsUserError, match="too large"):
        wq.post_recv(first)


def test_a_table_has_work_queues_of_its_context_and_is_closed_before_them(context, other, queues, calls):
    pd, cq = queues
    wq = work_queue(context, pd, cq)
    table = RwqIndTable(context, RwqIndTableInitAttr(1, [wq, wq]))
    assert calls[-1] == ("create_rwq_ind_table", 1, [wq.handle, wq.handle])
    assert code_of(lambda: RwqIndTable(context, RwqIndTableInitAttr(0, [wq], comp_mask=1))) == errno.EINVAL
    with pytest.raises(PyverbsUserError, match="another context"):
        RwqIndTable(other, RwqIndTableInitAttr(0, [wq]))
    calls.clear()
    cq.close()
    assert [call[0] for call in calls] == ["destroy_rwq_ind_table", "destroy"]
    for closed in (lambda: table.number, lambda: wq.handle):
        with pytest.raises(PyverbsUserError, match="closed"):
            closed()


# domains


def test_a_parent_domain_stands_on_a_domain_of_its_own_context_which_stays(context, other, driver):
    with PD(other) as foreign:
        assert code_of(lambda: ParentDomain(context, ParentDomainInitAttr(foreign))) == errno.EINVAL
    pd = PD(context)
    parent = ParentDomain(context, ParentDomainInitAttr(pd))
    parent.close()
    assert ("pd", pd.number) in driver.live
    parent = ParentDomain(context, ParentDomainInitAttr(pd))
    pd.close()
    with pytest.raises(PyverbsUserError, match="closed"):
        assert parent.number


@pytest.mark.parametrize(("gives", "address"), [
    (lambda *_: 4096, 4096), (lambda *_: None, 0), (lambda *_: "text", 0), (lambda *_: -1, 0),
    (lambda *_: 1 << 64, 0), (lambda *_: 1 // 0, 0),
])  # fmt: skip
def test_an_allocation_that_gives_no_address_has_failed(context, gives, address):
    pd, told = PD(context), []

    def allocate(*arguments):
        told.append(arguments)
        return gives()

    lender = ParentDomainContext(pd, allocate, lambda *arguments: told.append(arguments))
    allocator = ParentDomain(context, ParentDomainInitAttr(pd, lender)).lending["allocator"]
    assert allocator.allocate(8192, 4096, 5) == address
    allocator.free(4096, 5)
    assert told == [(pd, lender, 8192, 4096, 5), (pd, lender, 4096, 5)]


@pytest.fixture
def again(context: Context, driver: FakeDriver):
    """The context once more, by its descriptor."""
    descriptor = os.memfd_create("device")
    driver.command_descriptor = lambda: descriptor
    with Context(cmd_fd=os.dup(context.cmd_fd)) as opened:
        yield opened
    os.close(descriptor)


def test_an_import_of_a_domain_ends_with_the_domain_and_never_frees_it(context, driver, again):
    pd = PD(context)
    first = PD(again, handle=pd.handle)
    first.unimport()
    assert ("pd", pd.number) in driver.live
    with pytest.raises(PyverbsRDMAError, match="made here"):
        pd.unimport()
    second = PD(again, handle=pd.handle)
    assert (second.source, pd.source, second.is_foreign) == (pd, pd, False)
    pd.close()
    assert ("pd", pd._number) not in driver.live
    with pytest.raises(PyverbsUserError, match="closed"):
        assert second.number


def test_an_import_of_a_context_leaves_the_device_open_and_closes_its_descriptor(context, driver, again):
    assert (again.source, again.is_foreign, context.is_foreign) == (context, False, False)
    descriptor, closed = again.cmd_fd, []
    driver.closing, driver.close = (lambda name=name: closed.append(name) for name in ("closing", "close"))
    again.close()
    assert closed == []
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)
    with pytest.raises(PyverbsUserError, match="closed"):
        assert again.cmd_fd
    context.close()
    assert closed == ["closing", "close"]


def test_a_context_of_another_process_has_domains_of_that_one(registry, driver, calls):
    calls.of(driver, "import_pd").of(driver, "unimport_pd")
    descriptor = os.memfd_create("another's")
    registry.import_device = lambda number: driver
    driver.name = "fake0"
    with Context(cmd_fd=os.dup(descriptor)) as theirs:
        assert theirs.is_foreign
        pd = PD(theirs, handle=5)
        assert (pd.is_foreign, pd.number, calls) == (True, 5, [("import_pd", 5)])
        pd.unimport()
        assert calls[1:] == [("unimport_pd", 5)]
    os.close(descriptor)


def test_an_identifier_without_a_device_or_a_domain_has_none(context):
    class Identifier(Identified):
        context = domain = None
        pd = property(lambda self: self.domain)

    identifier = Identifier()
    for identifier.context, identifier.domain in ((None, None), (context, None), (None, PD(context))):
        with pytest.raises(PyverbsUserError, match="bound to no device"):
            PD(identifier)
    identifier.context, identifier.domain = context, PD(context)
    assert PD(identifier).number == identifier.domain.number


def test_advice_is_for_the_first_elements(context, driver, calls):
    pd = PD(context)
    calls.of(driver, "advise_mr")
    elements = [SGE(1, 2, 3), SGE(4, 5, 6)]
    pd.advise_mr(0, 0, elements, 1)
    pd.advise_mr(0, 0, elements, -1)
    pd.advise_mr(0, 0, elements)
    given = [call[-1] for call in calls]
    assert given == [[(1, 2, 3)], [], [(1, 2, 3), (4, 5, 6)]]
    with pytest.raises(IndexError):
        pd.advise_mr(0, 0, elements, 3)


def test_domains_of_datagrams_and_of_xrc_end_with_their_context(registry, calls):
    with Context(name="fake0") as context:
        driver = context._driver
        calls.of(driver, "alloc_rdd", 3).of(driver, "dealloc_rdd")
        calls.of(driver, "open_xrcd", 4).of(driver, "close_xrcd")
        mask = e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS
        for wrong in (mask | 4, e.IBV_XRCD_INIT_ATTR_FD, 0):
            assert code_of(lambda wrong=wrong: XRCD(context, XRCDInitAttr(wrong, 0, -1))) == errno.EINVAL
        assert code_of(lambda: XRCD(context, XRCDInitAttr(mask, os.O_TRUNC, -1))) == errno.EINVAL
        made = RDDomain(context), XRCD(context, XRCDInitAttr(mask, os.O_CREAT, -1))
        assert [each.number for each in made] == [3, 4]
        assert calls == [("alloc_rdd",), ("open_xrcd", -1, True, False)]
    assert sorted(calls[2:]) == [("close_xrcd", 4), ("dealloc_rdd", 3)]
    for each in made:
        with pytest.raises(PyverbsUserError, match="closed"):
            assert each.number


# contexts of identifiers


class Device:
    """A driver as identifiers need one; ``counts`` are its calls."""

    name = "fake"
    alive = True

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def alloc_pd(self) -> int:
        self.counts["alloc"] += 1
        return self.counts["alloc"]

    def dealloc_pd(self, number: int) -> None:
        self.counts["dealloc"] += 1

    def closing(self) -> None:
        self.counts["closing"] += 1

    def close(self) -> None:
        self.counts["close"] += 1


def test_identifiers_of_a_device_share_a_context_and_a_domain_until_the_last_one_leaves():
    driver: Any = Device()
    context = cm_contexts.join(driver)
    assert cm_contexts.join(driver) is context
    domain = cm_contexts.domain_of(driver)
    assert cm_contexts.domain_of(driver) is domain
    domain.close()
    second = cm_contexts.domain_of(driver)
    assert second is not domain
    assert second.number == 2
    cm_contexts.leave(driver)
    assert (context._open, second._open) == (True, True)
    cm_contexts.leave(driver)
    assert (context._open, second._open) == (False, False)
    assert (driver.counts["alloc"], driver.counts["dealloc"]) == (2, 2)
    assert driver.counts["close"] == 0  # the device is the identifiers'
    later = cm_contexts.join(driver)
    assert later is not context
    later.close()  # by a program
    third = cm_contexts.join(driver)
    assert third is not later
    assert cm_contexts.domain_of(driver).ctx is third
    cm_contexts.leave(driver)
    assert third._open
    cm_contexts.leave(driver)
    assert not third._open
    assert driver not in cm_contexts._shared


# agents, completions, memory


def test_an_agent_says_how_long_and_how_often_and_is_of_no_use_when_it_is_closed(context, driver, calls):
    calls.of(driver, "register_agent", Handle(calls))
    agent = MadAgent(context, 1, 4, 2, (1, 3), 32)
    assert calls.pop() == ("register_agent", 1, 4, 2, (1, 3), 32)
    get = Mad(MadHeader(management_class=4, class_version=2, method=1, attribute_id=1), bytes(232))
    answer = Mad(MadHeader(management_class=4, class_version=2, method=0x81, attribute_id=1), bytes(232))
    agent.send(get, "there", 20, 5)
    assert calls.pop() == ("send", get.encode(), "there", 20, 5)
    agent.receive(2.0)
    assert calls.pop() == ("receive", 2.0)
    agent._handle.ask = lambda *given: calls.append(given) or answer.encode()
    assert agent.ask(get, "there", 100, 7) == answer
    assert calls.pop() == (get.encode(), "there", 100, 7)
    for request, timeout_ms in ((get, 0), (get, -1), (answer, 10)):
        with pytest.raises(PyverbsUserError, match="what is asked"):
            agent.ask(request, "there", timeout_ms)
    agent.close()
    assert calls == [("unregister",)]
    for use in (lambda: agent.send(get, "there"), lambda: agent.receive(0), lambda: agent.ask(get, "there")):
        with pytest.raises(PyverbsUserError, match="closed"):
            use()
    assert calls == [("unregister",)]


def test_a_completion_has_each_value_in_its_place():
    names = ("wr_id", "status", "opcode", "vendor_err", "byte_len", "qp_num", "src_qp", "imm_data",
             "wc_flags", "pkey_index", "slid", "sl", "dlid_path_bits")  # fmt: skip
    made = WC(*range(1, len(names) + 1))
    assert [getattr(made, name) for name in names] == list(range(1, len(names) + 1))
    assert WC(wr_id=(1 << 64) - 1).wr_id == (1 << 64) - 1
    for wrong in ({"wr_id": 1 << 64}, {"status": 1 << 32}):
        with pytest.raises(OverflowError):
            WC(**wrong)


def test_numbers_are_written_big_endian_and_cut_to_their_width():
    address = malloc(32)
    writebe32(address, 0x1_FEDC_BA98, 1)
    writebe64(address, 1 << 64 | 0xFEDC_BA98_7654_3210, 1)
    assert read(address, 12, 4) == bytes.fromhex("fedcba98fedcba9876543210")
    free(address)


@pytest.mark.parametrize(("kind", "low", "high"), [(INT32, -(1 << 31), (1 << 31) - 1), (UINT8, 0, 255)])
def test_a_number_has_the_values_of_its_type(kind, low, high):
    assert (kind(low), kind(high), kind(float(high))) == (low, high, high)
    with pytest.raises(OverflowError, match="negative" if not low else "too large"):
        kind(low - 1)
    with pytest.raises(OverflowError, match="too large"):
        kind(high + 1)


def test_parts_that_must_be_there_cannot_be_none_and_nothing_is_deleted():
    attr = QPInitAttr()
    with pytest.raises(TypeError):
        attr.cap = None
    attr.max_send_wr = 5
    assert attr.cap.max_send_wr == 5
    with pytest.raises(NotImplementedError):
        del attr.qp_type
    assert attr.qp_type == e.IBV_QPT_UD
    with pytest.raises(AttributeError):
        del attr.nothing
    wanted = SrqInitAttr(SrqAttr(max_wr=3))
    with pytest.raises(AttributeError, match="not writable"):
        wanted.max_wr = 5
    assert wanted.max_wr == 3


def test_a_device_tells_both_of_its_identifiers():
    attr = DeviceAttr({"node_guid": 1, "sys_image_guid": 2})
    assert (attr.node_guid, attr.sys_image_guid) == (1 << 56, 2 << 56)


def test_attributes_are_given_to_the_driver_and_taken_from_it_each_under_its_name():
    attr = QPAttr()
    attr.ah_attr, attr.alt_ah_attr = AHAttr(dlid=1), AHAttr(dlid=2)
    attr.alt_port_num, attr.alt_timeout, attr.alt_pkey_index = 2, 3, 4
    attr.cap = QPCap(max_send_wr=9)
    chosen = attr.selected(e.IBV_QP_AV | e.IBV_QP_ALT_PATH | e.IBV_QP_CAP)
    assert (chosen["ah_attr"]["dlid"], chosen["alt_ah_attr"]["dlid"]) == (1, 2)
    assert (chosen["alt_port_num"], chosen["alt_timeout"], chosen["alt_pkey_index"]) == (2, 3, 4)
    assert chosen["cap"]["max_send_wr"] == 9
    assert sorted(attr.selected(e.IBV_QP_ALT_PATH)) == [
        "alt_ah_attr", "alt_pkey_index", "alt_port_num", "alt_timeout",
    ]  # fmt: skip
    found = QPAttr.of({**chosen, "sq_draining": 1, "qp_state": 3})
    assert (found.ah_attr.dlid, found.alt_ah_attr.dlid, found.sq_draining, found.qp_state) == (1, 2, 1, 3)
    assert (found.alt_port_num, found.alt_timeout, found.alt_pkey_index) == (2, 3, 4)


def test_a_table_of_gids_has_room_for_all_of_them_and_flags_are_none(context, driver):
    gids = {(1, 0): b"\1" * 16, (2, 1): b"\2" * 16}
    driver.query_device = lambda: {"phys_port_cnt": 2}
    driver.query_port = lambda number: {"gid_tbl_len": 2, "link_layer": number}
    driver.query_gid = lambda port, index: gids.get((port, index), bytes(16))
    found = context.query_gid_table(2)
    assert [(each.port_num, each.gid_index, each.gid_type) for each in found] == [(1, 0, 0), (2, 1, 2)]
    assert found[1].gid_str() == ":".join(["0202"] * 8)
    for most in (1, 0):
        assert code_of(lambda most=most: context.query_gid_table(most)) == -errno.EINVAL
    driver.query_gid = lambda port, index: gids.pop((port, index), bytes(16))  # they go as they are read
    assert [each.gid_index for each in context.query_gid_table(2)] == [0, 1]
    assert not gids
    assert context.query_gid_table(1) == []
    assert code_of(lambda: context.query_gid_table(0)) == -errno.EINVAL
    assert code_of(lambda: context.query_gid_table(1, 1)) == -errno.EINVAL
    assert code_of(lambda: context.query_gid_ex(1, 0, 1)) == errno.EINVAL
    assert code_of(lambda: context.query_gid_ex(1, 0)) == errno.ENODATA


@pytest.mark.parametrize(("width", "speed", "further", "told"), [
    (1, 1, 0, 25), (2, 32, 0, 1000), (4, 4, 0, 800), (8, 64, 0, 6000), (16, 16, 0, 280), (2, 64, 128, 4000),
    (2, 3, 0, 0), (3, 32, 0, 250),
])  # fmt: skip
def test_the_speed_of_a_port_is_that_of_its_lanes(context, driver, width, speed, further, told):
    values = {"active_width": width, "active_speed": speed, "active_speed_ex": further}
    driver.query_port = lambda number: values
    assert context.query_port_speed(1) == told


def test_the_clock_of_completions_is_told_alone_in_seconds_and_nanoseconds(context, monkeypatch):
    monkeypatch.setattr(device.time, "monotonic_ns", lambda: 3_000_000_007)
    assert context.query_rt_values_ex() == (3, 7)
    for mask in (0, 2, 3):
        assert code_of(lambda mask=mask: context.query_rt_values_ex(mask)) == errno.EINVAL


@pytest.mark.parametrize(("blocks", "timeout", "waits", "code"), [
    (True, 3, 3, errno.ETIMEDOUT), (True, None, None, errno.ETIMEDOUT), (False, None, 0, errno.EAGAIN),
    (False, 3, 0, errno.EAGAIN),
])  # fmt: skip
def test_who_asks_for_events_by_a_descriptor_that_does_not_block_is_not_kept(
    context, driver, calls, blocks, timeout, waits, code
):
    driver.would_block = lambda: blocks
    calls.of(driver, "next_event")
    assert code_of(lambda: context.get_async_event(timeout)) == code
    assert calls == [("next_event", waits)]


def test_an_extended_speed_counts_before_the_other_and_descriptors_are_forgotten():
    assert device.speed_to_str(64, 128) == "100.0 Gbps (128)"
    assert device.speed_to_str(64) == "50.0 Gbps (64)"
    found = device.FdArr([1, 2])
    assert found.count == 2
    found.close()
    assert (found.count, found.arr) == (0, [])
