"""Attribute objects that need no device: numbers as C has them, and no attribute that does not exist."""

import pytest
from verbs_fake_driver import FakeCompletion

from softhca.verbs.cm_parameters import ConnParam
from softhca.verbs.comp_cntr import CompCntrInitAttr
from softhca.verbs.cq import CQ
from softhca.verbs.device import AllocDmAttr, Context, QueryDeviceExInput
from softhca.verbs.flow import FlowAttr
from softhca.verbs.mr import DmaHandleInitAttr
from softhca.verbs.pd import PD, ParentDomainContext, ParentDomainInitAttr
from softhca.verbs.qp import DataBuffer
from softhca.verbs.qp_parts import ECE, QPRateLimitAttr
from softhca.verbs.srq import OpsWr
from softhca.verbs.wq import RwqIndTableInitAttr, RxHashConf, WQAttr, WQInitAttr
from softhca.verbs.xrcd import XRCDInitAttr

MADE = [
    lambda: AllocDmAttr(4), lambda: XRCDInitAttr(3, 0, -1), lambda: ParentDomainContext(None, print, print),
    lambda: QueryDeviceExInput(0), lambda: FlowAttr(), lambda: DmaHandleInitAttr(), lambda: DataBuffer(1, 2),
    lambda: ECE(), lambda: QPRateLimitAttr(), lambda: OpsWr(), lambda: RwqIndTableInitAttr(),
    lambda: RxHashConf(), lambda: WQAttr(), lambda: WQInitAttr(None, 0), lambda: ConnParam(),
    lambda: CompCntrInitAttr(),
]  # fmt: skip


@pytest.mark.parametrize("make", MADE, ids=lambda make: type(make()).__name__)
def test_an_attribute_that_does_not_exist_cannot_be_set(make) -> None:
    made = make()
    with pytest.raises(AttributeError):
        made.no_such = 1
    with pytest.raises(AttributeError):
        _ = made.no_such


def test_attributes_are_printed_by_name() -> None:
    assert "tph_mem_type" in str(DmaHandleInitAttr(ph=2))
    assert "ph = 2" in repr(DmaHandleInitAttr(ph=2))
    assert "rate_limit" in str(QPRateLimitAttr())


def test_a_parent_domain_s_attributes_have_no_others_either(context: Context) -> None:
    with PD(context) as pd:
        attr = ParentDomainInitAttr(pd)
        with pytest.raises(AttributeError):
            attr.pd_contexts = None
        with pytest.raises(AttributeError):
            attr.comp_mask = 4  # told at its making
        assert ParentDomainInitAttr(pd, ParentDomainContext(pd, print, print), 4).comp_mask == 7


@pytest.mark.parametrize("make", [
    lambda: AllocDmAttr(-1), lambda: AllocDmAttr(1 << 64), lambda: AllocDmAttr(1, -1),
    lambda: XRCDInitAttr(-1, 0, 0), lambda: XRCDInitAttr(3, 1 << 31, 0), lambda: XRCDInitAttr(3, 0, 1 << 31),
])  # fmt: skip
def test_numbers_that_do_not_fit_are_refused(make) -> None:
    with pytest.raises(OverflowError):
        make()


def test_numbers_are_truncated_and_text_is_none() -> None:
    assert (AllocDmAttr(4.9).length, XRCDInitAttr(3, 0, -1.5).fd) == (4, -1)
    for make in (lambda: AllocDmAttr("4"), lambda: XRCDInitAttr("3", 0, 0), lambda: XRCDInitAttr(3, 0, None)):
        with pytest.raises(TypeError):
            make()


def test_handles_are_numbers(context: Context) -> None:
    for handle, error in (("x", TypeError), (-1, OverflowError), (1 << 32, OverflowError)):
        with pytest.raises(error):
            PD(context, handle=handle)


def test_command_descriptors_are_numbers() -> None:
    for descriptor, error in (("x", TypeError), (1 << 31, OverflowError)):
        with pytest.raises(error):
            Context(cmd_fd=descriptor)


def test_a_queue_is_polled_for_a_number_of_completions(context: Context) -> None:
    with CQ(context, 8) as cq:
        for _ in range(3):
            cq._handle.completions.append(FakeCompletion())
        assert cq.poll(1.5)[0] == 2  # as long as there are fewer
        assert cq.poll(-1)[0] == 0
        for number in ("1", None, [1]):
            with pytest.raises(TypeError):
                cq.poll(number)
        assert cq.poll(True)[0] == 1
