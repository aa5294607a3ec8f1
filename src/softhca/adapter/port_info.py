"""What a subnet manager sets at a native port (PortInfo, IBTA vol. 1, 14.2.5.6), carried through the adapter.

Queue pairs and address handles keep their address vectors; what these say of the own port (path bits, a GID's
index) means the port's present LID and GIDs, so their routes are made anew when those change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from softhca.adapter.path_migration import port_failed
from softhca.adapter.paths import route_of
from softhca.adapter.port import PORT_ACTIVE, Port
from softhca.adapter.queue_pair_commands import connection_path
from softhca.queues.control_fields import (
    EVENT_GID_CHANGE,
    EVENT_LID_CHANGE,
    EVENT_PKEY_CHANGE,
    EVENT_PORT_ACTIVE,
    EVENT_PORT_ERR,
    EVENT_SM_CHANGE,
)

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter

_EVENTS = (
    (("lid", "lmc"), EVENT_LID_CHANGE),
    (("gid_prefix",), EVENT_GID_CHANGE),
    (("sm_lid", "sm_sl"), EVENT_SM_CHANGE),
)


def set_port_info(adapter: Adapter, port_number: int, **values: int) -> None:
    """Set fields of `Port.set_info`, renew routes, and report what has changed to every host.  ValueError:
    nothing has changed.
    """
    try:
        port = adapter.port_of(port_number)
    except OSError as error:
        raise ValueError(error.strerror) from None
    before = port.info()
    if not port.set_info(**values):
        return
    after = port.info()
    if any(before[name] != after[name] for name in ("lid", "lmc", "gid_prefix")):
        _renew_routes(adapter, port)
    events = [kind for names, kind in _EVENTS if any(before[name] != after[name] for name in names)]
    if (before["state"] == PORT_ACTIVE) != (after["state"] == PORT_ACTIVE):
        events.append(EVENT_PORT_ACTIVE if after["state"] == PORT_ACTIVE else EVENT_PORT_ERR)
    for host in adapter.hosts.values():
        for kind in events:
            host.report_event(kind, port_number)
    if EVENT_PORT_ERR in events:
        port_failed(adapter, port, adapter.now)


def set_pkeys(adapter: Adapter, port_number: int, pkeys: tuple[int, ...]) -> None:
    """Give a port other P_Keys: its queue pairs have what stands at their index now, and every host hears of
    it (10.9.2, 11.6.3).  ValueError: there are too many, or no such port; nothing has changed.
    """
    try:
        port = adapter.port_of(port_number)
    except OSError as error:
        raise ValueError(error.strerror) from None
    if len(pkeys) > adapter.config.pkey_table_length or not all(0 <= key <= 0xFFFF for key in pkeys):
        raise ValueError(f"{len(pkeys)} P_Keys, or one that cannot be")
    if port.pkeys == pkeys:
        return
    port.pkeys = pkeys
    for queue_pair in adapter.queue_pairs.values():
        if queue_pair.flow.port_number == port_number:
            queue_pair.pkey = port.pkey(queue_pair.pkey_index)
    for host in adapter.hosts.values():
        host.report_event(EVENT_PKEY_CHANGE, port_number)


def _renew_routes(adapter: Adapter, port: Port) -> None:
    port.paths.clear()
    for queue_pair in adapter.queue_pairs.values():
        vector = queue_pair.attributes.get("ah_attr")
        flow = queue_pair.flow
        if vector is not None and flow.route is not None and flow.port_number == port.number:
            _, flow.route = connection_path(port, queue_pair, vector, queue_pair.dest_qp)
    for handle in adapter.handles.values():
        if handle.port_number == port.number and handle.vector is not None:
            handle.route = route_of(handle.vector, port, handle.number)
