"""Commands at one end: what is refused, what all of them leave, and attributes of its queue pairs."""

import pytest

from softhca.adapter.commands import execute
from softhca.adapter.resources import Kind
from softhca.driver.errors import DriverError
from softhca.testing.addressing import gid
from softhca.testing.ends import ALL_RIGHTS

INIT = {"qp_state": 1, "pkey_index": 0, "port_num": 1, "qp_access_flags": ALL_RIGHTS}
VECTOR = {"dgid": gid(2), "sgid_index": 0, "is_global": 1, "port_num": 1}
RTR = {
    "qp_state": 2,
    "ah_attr": VECTOR,
    "path_mtu": 3,
    "dest_qp_num": 5,
    "rq_psn": 1,
    "max_dest_rd_atomic": 1,
    "min_rnr_timer": 1,
}
RTS = {"qp_state": 3, "sq_psn": 9, "timeout": 14, "retry_cnt": 7, "rnr_retry": 7, "max_rd_atomic": 1}


def census(end):
    """How many of everything the adapter has."""
    return {kind: end.node.adapter.resources.count(kind) for kind in Kind}


def refused(end, code, call, *arguments, **options):
    """``call`` is refused with ``code`` and nothing is made or lost, neither there nor here."""
    before, free = census(end), end.device.session.memory.free_pages
    with pytest.raises(DriverError) as error:
        call(*arguments, **options)
    assert error.value.errno == code
    assert "was refused" not in error.value.message, "a refusal has a reason"
    assert census(end) == before
    assert end.device.session.memory.free_pages == free


def call(end, command, **fields):
    return end.device.session.call(command, **fields)


def run(end, command, **fields):
    """The errno and the reply of a command that host 1 gives in no ring."""
    adapter = end.node.adapter
    return execute(adapter, adapter.hosts[1], command, fields, 0)[:2]
