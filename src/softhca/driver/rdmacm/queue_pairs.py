"""Attributes that take an identifier's queue pair through its states (IBTA vol. 1, 12.9.8)."""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, Any

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm.groups import UDP_QKEY
from softhca.driver.services import Path
from softhca.memory.regions import REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from softhca.queues.states import ERR, INIT, RTR, RTS

if TYPE_CHECKING:
    from softhca.driver.qp import QpHandle
    from softhca.driver.rdmacm.identifier import Identifier

RIGHTS = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
FOREVER = 7
RNR_TIMER_OF_COUNTED_TRIES = 0
"""655.36 ms, Linux's value: where the peer's tries are counted, a program may be as late with its next
receive as with a kernel, before the connection is lost."""
RNR_TIMER_OF_ENDLESS_TRIES = 22
"""20.48 ms: a peer that tries for ever need not wait longer for a program that is late."""


def attributes(owner: Identifier, state: int) -> dict[str, Any]:
    """What takes the queue pair of ``owner`` to a state.  EINVAL: not INIT, RTR or RTS, or not known yet."""
    if state == INIT:
        found: dict[str, Any] = {"pkey_index": owner.route.pkey_index, "port_num": owner.place.port}
        if owner.connected:
            found["qp_access_flags"] = RIGHTS
        else:
            found["qkey"] = UDP_QKEY
    elif state == RTR:
        found = _receiving(owner) if owner.connected else {}
    elif state == RTS:
        found = _sending(owner) if owner.connected else {"sq_psn": owner.psn}
    else:
        raise DriverError(errno.EINVAL, f"qp_state = {state}: nothing is known of the way there")
    return {"qp_state": state, **found}


def _receiving(owner: Identifier) -> dict[str, Any]:
    connection, place = owner.connection, owner.place
    if connection.peer is None or connection.path is None:
        raise DriverError(errno.EINVAL, "dest_qp_num: the peer's queue pair is not known yet")
    path = connection.path
    resources = connection.own.responder_resources if connection.own else connection.peer.initiator_depth
    tries = (connection.own or connection.peer).rnr_retry  # the peer's, before this end has named a number
    return {
        "ah_attr": Path(
            None if place.is_native else path.gid,  # within a subnet packets have no GRH
            place.gid_index,
            path.sl,
            owner.traffic_class or path.traffic_class,
            path.flow_label,
            dlid=path.lid,
            port_num=place.port,
        ).vector(),
        "path_mtu": min(path.path_mtu, place.mtu),
        "pkey_index": owner.route.pkey_index,
        "dest_qp_num": connection.peer.qp_num,
        "rq_psn": owner.psn,
        "max_dest_rd_atomic": resources,
        "min_rnr_timer": RNR_TIMER_OF_ENDLESS_TRIES if tries >= FOREVER else RNR_TIMER_OF_COUNTED_TRIES,
    }


def _sending(owner: Identifier) -> dict[str, Any]:
    connection = owner.connection
    if connection.peer is None or connection.path is None:
        raise DriverError(errno.EINVAL, "dest_qp_num: the peer's queue pair is not known yet")
    # Who was asked obeys the request, who asks what it asked for.
    end = connection.own if connection.active and connection.own is not None else connection.peer
    depth = connection.own.initiator_depth if connection.own else connection.peer.responder_resources
    return {
        "sq_psn": connection.peer.starting_psn,
        "timeout": connection.path.ack_timeout if owner.ack_timeout is None else owner.ack_timeout,
        "retry_cnt": end.retry_cnt,
        "rnr_retry": connection.peer.rnr_retry,  # what each end names is for the other one
        "max_rd_atomic": depth,
    }


def begin(owner: Identifier, queue_pair: QpHandle) -> None:
    """A new queue pair of ``owner``: to INIT, one for datagrams to RTS."""
    queue_pair.modify(attributes(owner, INIT))
    if not owner.connected:
        queue_pair.modify(attributes(owner, RTR))
        queue_pair.modify(attributes(owner, RTS))


def to_ready(owner: Identifier, queue_pair: QpHandle) -> None:
    """The queue pair of ``owner``, which is in INIT, to RTR and RTS.  DriverError also where another thread
    has destroyed it meanwhile."""
    queue_pair.modify(attributes(owner, RTR))
    queue_pair.modify(attributes(owner, RTS))


def to_error(owner: Identifier) -> None:
    """The queue pair to ERR, if there is one: what is posted completes flushed."""
    queue_pair = owner.queue_pair
    if queue_pair is not None:
        with contextlib.suppress(DriverError):  # it may be destroyed
            queue_pair.modify({"qp_state": ERR})
