"""RESET and ERR are entered with no attribute but the state (IBTA vol. 1, 11.2.5.2)."""

from __future__ import annotations

from errno import EINVAL

import pytest

from softhca.transport.states import ERR, RESET, RTS


@pytest.mark.parametrize("target", [RESET, ERR])
@pytest.mark.parametrize(
    "attribute", [{"timeout": 9}, {"timeout": 99}, {"min_rnr_timer": 3}, {"pkey_index": 0}]
)
def test_attributes_beside_reset_or_error_are_refused_and_change_nothing(pair, target, attribute):
    end = pair().left
    before = end.qp.query()
    assert before["qp_state"] == RTS
    assert end.qp.modify({"qp_state": target, **attribute}) == EINVAL
    assert end.qp.query() == before


def test_a_reset_queue_pair_takes_no_attribute_without_a_state(pair):
    end = pair().left
    assert end.qp.modify({"qp_state": RESET}) == 0
    assert end.qp.modify({"timeout": 9}) == EINVAL
