"""Asynchronous events: each has a cause, and what needs an event has one (IBTA vol. 1, 11.6.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from softhca.queues.control_fields import (
    EVENT_CQ_ERR,
    EVENT_QP_ACCESS_ERR,
    EVENT_QP_LAST_WQE_REACHED,
    EVENT_QP_REQ_ERR,
    EVENT_SRQ_LIMIT_REACHED,
    QP_ERROR_EVENTS,
)
from softhca.simulation.access_violations import QUEUE_PAIR, REMOTE
from softhca.simulation.endpoint import Endpoint
from softhca.simulation.host import Host
from softhca.simulation.kinds import RC, REMOTE_ACCESS
from softhca.simulation.node import Node


def complain(node: Node, text: str) -> None:
    """An event was delivered that should not be, or the other way round."""
    node.world.report.fail("events report errors", text)


def check_events(host: Host, programs: Sequence[Endpoint]) -> None:
    """The world is at rest: look at all events that were delivered to a host's programs."""
    if not host.alive:
        return
    host.node.hear()
    for program in programs:
        _check_program(program, host.node.events)
    if host.srq is not None:
        receives = programs[0].receives
        reached = len(receives.buffers) - receives.taken < host.srq_limit
        if reached and (EVENT_SRQ_LIMIT_REACHED, host.srq.number) not in host.node.events:
            complain(host.node, f"adapter {host.node.number}: the shared receive queue had no limit event")


def _check_program(program: Endpoint, events: Counter[tuple[int, int]]) -> None:
    node, order, number = program.node, program.oracles.order, program.qp.number
    if (EVENT_CQ_ERR, program.send_poller.cq.number) in events:
        # it cannot see all its completions
        order.abandoned = True
    last = program.host.srq is not None and order.failed and not order.abandoned
    if last and (EVENT_QP_LAST_WQE_REACHED, number) not in events:
        complain(node, f"{program.name}: no event for its last receive")
    errors = {
        kind: times
        for (kind, element), times in events.items()
        if element == number and kind in QP_ERROR_EVENTS
    }
    if sum(errors.values()) > 1 and not order.abandoned:
        complain(node, f"{program.name}: one error was reported by several events: {errors}")
    if errors and order.receive_error and not order.abandoned:
        text = f"a receive ended with {order.receive_error}, and events {errors} tell of it too"
        complain(node, f"{program.name}: {text}")
    if errors and not (order.failed or order.flushable or order.abandoned):
        complain(node, f"{program.name}: event {errors} without an error")
    expected = _event_of(program.peer)
    if expected and expected not in errors:
        complain(node, f"{program.name}: event {expected} was not delivered, but {errors or 'none'}")


def _event_of(offender: Endpoint) -> int:
    """The event that a program's peer gets when its access violation was refused; 0: none."""
    order = offender.oracles.order
    if order.failed_at not in order.expected or offender.scenario.service != RC:
        return 0
    violation = offender.operations[order.failed_at].violation
    if violation is None or violation.side not in (REMOTE, QUEUE_PAIR):
        return 0
    return EVENT_QP_ACCESS_ERR if violation.status == REMOTE_ACCESS else EVENT_QP_REQ_ERR
