"""What closes itself when it is dropped has one owner: no copies, no pickles, as in pyverbs."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from softhca.testing import Network
from softhca.testing.verbs import make_end
from softhca.verbs import enums as e
from softhca.verbs.cq import CompChannel
from softhca.verbs.mr import MR
from softhca.verbs.qp import QP, QPCap, QPInitAttr
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
def test_an_object_of_the_device_has_one_owner(take: Callable[[Any], Any]) -> None:
    """A copy that was dropped closed the original, and later what had got its number."""
    with Network() as network:
        end = make_end(network.add().context())
        init = QPInitAttr(e.IBV_QPT_RC, scq=end.send_cq, rcq=end.recv_cq, cap=QPCap(1, 1, 1, 1))
        made = [
            end.context, end.pd, end.send_cq, CompChannel(end.context), QP(end.pd, init),
            MR(end.pd, 64, e.IBV_ACCESS_LOCAL_WRITE), SRQ(end.pd, SrqInitAttr(SrqAttr(4))),
        ]  # fmt: skip
        for each in made:
            with pytest.raises(TypeError, match=f"{type(each).__name__}"):
                take(each)
            assert each.is_open
