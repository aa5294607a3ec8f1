"""What softhca has beyond libibverbs: UC queue pairs that tell of messages lost (IBTA o9-131)."""

import contextlib
import errno

import pytest
from traffic import wait_until

from softhca.verbs import enums as e
from softhca.verbs.addr import AHAttr, GlobalRoute
from softhca.verbs.cq import CQ
from softhca.verbs.device import translate_event_type
from softhca.verbs.extensions import SOFTHCA_EVENT_MESSAGES_LOST, SOFTHCA_QP_CREATE_TELLS_LOSSES
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttrEx
from softhca.verbs.wr import SGE, SendWR

MASK = e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_CREATE_FLAGS


def test_numbers_are_none_of_libibverbs():
    assert SOFTHCA_EVENT_MESSAGES_LOST not in {int(each) for each in e.ibv_event_type}
    assert SOFTHCA_QP_CREATE_TELLS_LOSSES not in {int(each) for each in e.ibv_qp_create_flags}
    assert translate_event_type(SOFTHCA_EVENT_MESSAGES_LOST) == "SOFTHCA_EVENT_MESSAGES_LOST"


@pytest.mark.parametrize("tells", [True, False])
def test_o9_131_a_gap_in_the_psns_is_an_event_for_who_asked(verbs_pair, tells: bool) -> None:
    context = verbs_pair.client
    with PD(context) as pd, CQ(context, 8) as cq:
        flags = SOFTHCA_QP_CREATE_TELLS_LOSSES if tells else 0
        init = QPInitAttrEx(
            e.IBV_QPT_UC, scq=cq, rcq=cq, pd=pd, cap=QPCap(), comp_mask=MASK, create_flags=flags
        )
        sender, receiver = QP(context, init), QP(context, init)
        here = AHAttr(is_global=1, gr=GlobalRoute(context.query_gid(1, 0)))
        for one, other, psn in ((sender, receiver, 9), (receiver, sender, 0)):
            path = QPAttr()
            path.dest_qp_num, path.ah_attr, path.sq_psn = other.qp_num, here, psn
            one.to_rts(path)
        sender.post_send(SendWR(num_sge=1, sg=[SGE(0, 0, 0)]))

        def missed() -> int:
            context.progress()
            return context.query_counters(qp=receiver.qp_num)["out_of_sequence"]

        wait_until(missed)
        found = []
        with contextlib.suppress(PyverbsRDMAError):
            while True:
                event = context.get_async_event(timeout_s=0)
                event.ack()
                found.append((event.event_type, event.element))
        assert found.count((SOFTHCA_EVENT_MESSAGES_LOST, receiver.qp_num)) == tells
        sender.close()
        receiver.close()


def test_other_services_cannot_tell(verbs_pair) -> None:
    context = verbs_pair.client
    with PD(context) as pd, CQ(context, 8) as cq:
        init = QPInitAttrEx(
            e.IBV_QPT_RC, scq=cq, rcq=cq, pd=pd, comp_mask=MASK, create_flags=SOFTHCA_QP_CREATE_TELLS_LOSSES
        )
        with pytest.raises(PyverbsRDMAError) as caught:
            QP(context, init)
        assert caught.value.error_code == errno.EINVAL
