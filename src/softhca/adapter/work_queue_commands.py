"""The control commands of receive-side scaling (see ``commands.py``): work queues, indirection tables, and
the queue pairs that receive by them.

A work queue is a raw packet queue pair without a send queue, which no rule of flow steering can name: what it
receives was chosen for it (`scaling`).
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from softhca.adapter.queue_pair_commands import enter, work_ring
from softhca.adapter.resources import Kind, Resource
from softhca.adapter.rings import cost_of
from softhca.adapter.scaling import Scaling
from softhca.queues.control_fields import (
    MAX_RWQ_IND_TABLE_ENTRIES,
    RX_HASH_FIELDS,
    RX_HASH_TOEPLITZ,
    TOEPLITZ_KEY_BYTES,
    WQ_CURR_STATE,
    WQ_EVENTS,
    WQ_FLAGS,
    WQ_STATE,
    WQS_ERR,
    WQS_RDY,
    WQS_RESET,
)
from softhca.queues.wqe import receive_bytes
from softhca.transport.context import QueuePair
from softhca.transport.services import SCALED, WORK_QUEUE
from softhca.transport.states import ERR, INIT, RESET, RTR

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.adapter.hosts import Host

Fields = dict[str, Any]

STATES: Mapping[int, int] = {RESET: WQS_RESET, RTR: WQS_RDY, ERR: WQS_ERR}
"""The state of a work queue by that of its queue pair."""
STATE_NAMES = {WQS_RESET: "RESET", WQS_RDY: "RDY", WQS_ERR: "ERR"}
STEPS: Mapping[tuple[int, int], tuple[Mapping[str, int], ...]] = {
    (WQS_RESET, WQS_RESET): ({"qp_state": RESET},),
    (WQS_RESET, WQS_RDY): ({"qp_state": INIT, "port_num": 1}, {"qp_state": RTR}),
    (WQS_RDY, WQS_RESET): ({"qp_state": RESET},),
    (WQS_RDY, WQS_RDY): (),
    (WQS_RDY, WQS_ERR): ({"qp_state": ERR},),
    (WQS_ERR, WQS_RESET): ({"qp_state": RESET},),
    (WQS_ERR, WQS_ERR): (),
}
"""The transitions of work queues, and what their queue pairs do for each."""
_ENTRY_BYTES = 8


def _check_frames(adapter: Adapter) -> None:
    if not adapter.device_attributes.get("max_wq_type_rq"):
        raise OSError(errno.EOPNOTSUPP, "max_wq_type_rq = 0: no Ethernet frames arrive here")


def create_wq(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CREATE_WQ: a receive queue in RESET over the host's ring, whose receives complete in a queue of its own
    choice."""
    _check_frames(adapter)
    config = adapter.config
    for name, limit in (("max_wr", config.max_qp_wr), ("max_sge", config.max_sge)):
        if not 0 < fields[name] <= limit:
            raise OSError(errno.EINVAL, f"{name} = {fields[name]}: a work queue has 1…{limit}")
    uses = tuple(
        adapter.resources.find(kind, fields[name], host.number, name)
        for kind, name in ((Kind.PD, "pd"), (Kind.CQ, "cq"))
    )
    number = adapter.resources.reserve(Kind.WQ)
    ring = work_ring(adapter, host, fields, "", fields["max_wr"], receive_bytes(fields["max_sge"]))
    adapter.resources.afford(host.number, cost_of(ring.layout), config.max_host_bytes)
    queue = QueuePair(
        adapter,
        number,
        WORK_QUEUE,
        uses[0].number,
        None,
        ring,
        None,
        uses[1].element,
        max_recv_wr=fields["max_wr"],
        max_recv_sge=fields["max_sge"],
    )
    queue.owner = host.take_slot(queue)
    adapter.resources.add(Kind.WQ, number, host.number, queue, uses, cost_of(ring.layout))
    return {"wq_num": number, "doorbell": queue.owner}


def modify_wq(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """MODIFY_WQ: RESET → RDY → ERR → RESET, and from RDY back."""
    queue = adapter.resources.find(Kind.WQ, fields["wq_num"], host.number).element
    state, mask = STATES[queue.state], fields["attr_mask"]
    if not mask or mask & ~(WQ_STATE | WQ_CURR_STATE | WQ_FLAGS):
        raise OSError(errno.EINVAL, f"attr_mask = {mask:#x}: it names nothing, or what there is not")
    if mask & WQ_FLAGS:
        raise OSError(errno.EOPNOTSUPP, "attr_mask: a work queue has no flags")
    if mask & WQ_CURR_STATE and fields["curr_wq_state"] != state:
        raise OSError(errno.EINVAL, f"curr_wq_state: the work queue is in {STATE_NAMES[state]}")
    if not mask & WQ_STATE:
        return {}
    wanted = fields["wq_state"]
    if (state, wanted) not in STEPS:
        step = f"{STATE_NAMES[state]} to {STATE_NAMES.get(wanted, wanted)}"
        raise OSError(errno.EINVAL, f"wq_state: a work queue has no transition {step}")
    for attributes in STEPS[state, wanted]:
        queue.modify(dict(attributes), now)
    return {}


def destroy_wq(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """DESTROY_WQ: no completion of it comes afterwards.  EBUSY while a table has it."""
    destroy(adapter, host, adapter.resources.find(Kind.WQ, fields["wq_num"], host.number))
    return {}


def destroy(adapter: Adapter, host: Host, resource: Resource) -> None:
    """Free a work queue."""
    queue = resource.element
    adapter.resources.remove(resource)
    queue.close()
    adapter.timers.disarm(queue.flow)
    adapter.memory_waiters.remove(queue.flow)
    host.give_slot(queue.owner)
    host.forget(WQ_EVENTS, queue.number)


def create_rwq_ind_table(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CREATE_RWQ_IND_TABLE: so many work queues, any of them any number of times."""
    _check_frames(adapter)
    logarithm, runs = fields["log_ind_tbl_size"], fields["wqs"]
    if logarithm >= MAX_RWQ_IND_TABLE_ENTRIES.bit_length():
        raise OSError(
            errno.EINVAL,
            f"log_ind_tbl_size = {logarithm}: a table has at most {MAX_RWQ_IND_TABLE_ENTRIES} entries",
        )
    entries = 1 << logarithm
    if sum(count for _, count in runs) != entries:
        raise OSError(errno.EINVAL, f"wqs: a table of log_ind_tbl_size = {logarithm} has {entries} entries")
    find = adapter.resources.find
    found = [(find(Kind.WQ, queue, host.number, "wqs"), count) for queue, count in runs]
    number = adapter.resources.reserve(Kind.RWQ_IND_TABLE)
    cost_bytes = entries * _ENTRY_BYTES
    adapter.resources.afford(host.number, cost_bytes, adapter.config.max_host_bytes)
    queues = tuple(resource.element for resource, count in found for _ in range(count))
    uses = tuple(dict.fromkeys(resource for resource, _ in found))
    adapter.resources.add(Kind.RWQ_IND_TABLE, number, host.number, queues, uses, cost_bytes)
    return {"rwq_ind_tbl": number}


def destroy_rwq_ind_table(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """DESTROY_RWQ_IND_TABLE: EBUSY while a queue pair receives by it."""
    adapter.resources.remove(
        adapter.resources.find(Kind.RWQ_IND_TABLE, fields["rwq_ind_tbl"], host.number)
    )
    return {}


def create_rss_qp(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CREATE_RSS_QP: a raw packet queue pair without queues, for whose frames a hash chooses a work queue of
    the table."""
    _check_frames(adapter)
    domain = adapter.resources.find(Kind.PD, fields["pd"], host.number)
    table = adapter.resources.find(Kind.RWQ_IND_TABLE, fields["rwq_ind_tbl"], host.number)
    hashed, key = fields["rx_hash_fields_mask"], fields["rx_hash_key"]
    if fields["rx_hash_function"] != RX_HASH_TOEPLITZ:
        raise OSError(
            errno.EOPNOTSUPP, f"rx_hash_function = {fields['rx_hash_function']}: there is Toeplitz alone"
        )
    if hashed & ~RX_HASH_FIELDS:
        raise OSError(errno.EOPNOTSUPP, f"rx_hash_fields_mask = {hashed:#x}: not all of that is hashed")
    if not hashed and len(table.element) > 1:
        raise OSError(errno.EINVAL, "rx_hash_fields_mask = 0: all would go to the first entry")
    if len(key) != TOEPLITZ_KEY_BYTES:
        raise OSError(errno.EINVAL, f"rx_hash_key: {len(key)} bytes, a key has {TOEPLITZ_KEY_BYTES}")
    number = adapter.resources.reserve(Kind.QP)
    scaling = Scaling(table.element, hashed, bytes(key))
    queue_pair = QueuePair(adapter, number, SCALED, domain.number, None, None, None, None, domain=scaling)
    return {"qp_num": number, "doorbell": enter(adapter, host, queue_pair, (domain, table))}
