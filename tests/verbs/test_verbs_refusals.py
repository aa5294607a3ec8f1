"""What verbs refuse themselves says which attribute is wrong, and what it may be."""

import errno
import os

import pytest

from softhca.verbs import enums as e
from softhca.verbs.cq import CQ, CQEX, CqInitAttrEx
from softhca.verbs.device import Context
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QP, QPInitAttrEx
from softhca.verbs.utils import bits_text
from softhca.verbs.wc import create_wc_flags_to_str
from softhca.verbs.xrcd import XRCD, XRCDInitAttr

XRCD_MASK = e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (0, ""),
        (e.IBV_WC_EX_WITH_CVLAN, "IBV_WC_EX_WITH_CVLAN"),
        (e.IBV_WC_EX_WITH_CVLAN | e.IBV_WC_EX_WITH_SL, "IBV_WC_EX_WITH_SL, IBV_WC_EX_WITH_CVLAN"),
        (1 << 40, "0x10000000000"),
        (1 << 63 | e.IBV_WC_EX_WITH_SL, "IBV_WC_EX_WITH_SL, 0x8000000000000000"),
    ],
)
def test_bits_without_a_name_are_told_as_numbers(bits: int, text: str) -> None:
    assert bits_text(bits, create_wc_flags_to_str) == text


def extended_cq(**attributes):
    return lambda context: CQEX(context, CqInitAttrEx(**attributes))


def extended_qp(**attributes):
    def make(context):
        cq = CQ(context, 4)
        return QP(context, QPInitAttrEx(e.IBV_QPT_RC, scq=cq, rcq=cq, pd=PD(context), **attributes))

    return make


def domain(*attributes):
    return lambda context: XRCD(context, XRCDInitAttr(*attributes))


PD_MASK = e.IBV_QP_INIT_ATTR_PD
REFUSALS = {
    "fields": (extended_cq(wc_flags=1 << 40), "EOPNOTSUPP", "completion fields: 0x10000000000"),
    "cq mask": (extended_cq(comp_mask=1 << 9), "EOPNOTSUPP", "comp_mask 0x200 is not"),
    "cq flags": (
        extended_cq(comp_mask=e.IBV_CQ_INIT_ATTR_MASK_FLAGS, flags=6), "EOPNOTSUPP", "flags 0x4 is not",
    ),
    "qp mask": (
        extended_qp(comp_mask=PD_MASK | 1 << 20 | e.IBV_QP_INIT_ATTR_MAX_TSO_HEADER), "EOPNOTSUPP",
        "comp_mask has IBV_QP_INIT_ATTR_MAX_TSO_HEADER, 0x100000",
    ),
    "qp flags": (
        extended_qp(comp_mask=PD_MASK | e.IBV_QP_INIT_ATTR_CREATE_FLAGS, create_flags=1 << 10),
        "EOPNOTSUPP", "create_flags 0x400 is not",
    ),
    "xrcd mask": (domain(1, 0, -1), "EINVAL", "comp_mask is 0x1, FD and OFLAGS are needed"),
    "xrcd flags": (domain(XRCD_MASK, os.O_CREAT | os.O_APPEND, -1), "EINVAL", "oflags has 0x400"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "code", "text"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_names_the_attribute_and_its_value(context: Context, make, code: str, text: str) -> None:
    with pytest.raises(PyverbsRDMAError) as refused:
        make(context)
    assert refused.value.error_code == getattr(errno, code)
    assert text in str(refused.value)


def test_a_descriptor_that_is_none_is_told_once() -> None:
    descriptor = os.memfd_create("another")
    with pytest.raises(PyverbsRDMAError) as refused:
        Context(cmd_fd=descriptor)
    os.close(descriptor)
    assert "no open device" in str(refused.value)
    assert str(refused.value).lower().count("import") == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda context: PD(context).advise_mr(0, 0, [3]),
        lambda context: context.query_device_ex(3),
        lambda context: CQEX(context, CqInitAttrEx(cqe=4)).start_poll(3),
    ],
    ids=["advise_mr", "query_device_ex", "start_poll"],
)
def test_an_object_of_the_wrong_kind_is_a_type_error(context: Context, call) -> None:
    with pytest.raises(TypeError, match="has incorrect type"):
        call(context)
