"""Messages that end a connection, or refuse one: REJ, DREQ, DREP; and which requests can be taken."""

from __future__ import annotations

from softhca.management.cm import messages as m
from softhca.management.cm import states
from softhca.management.cm.elements import Connection, number_of, padded


def rejection(connection: Connection, reason: int, ari: bytes = b"", private_data: bytes = b"") -> m.Rej:
    """The REJ of what the connection's state waits for."""
    rejected = {states.REQ_RCVD: m.OF_REQ, states.REP_RCVD: m.OF_REP}.get(connection.state, m.OF_NONE)
    return m.Rej(
        connection.number,
        connection.remote_comm_id,
        rejected,
        reject_info_length=len(ari),
        reason=reason,
        ari=ari.ljust(72, b"\0"),
        private_data=padded(m.Rej, private_data),
    )


def disconnect(
    connection: Connection, kind: type[m.Dreq] | type[m.Drep], private_data: bytes
) -> m.Dreq | m.Drep:
    """The DREQ, or the DREP, of a connection."""
    if kind is m.Dreq:
        return m.Dreq(
            connection.number,
            connection.remote_comm_id,
            number_of(connection.remote_end),
            private_data=private_data,
        )
    return m.Drep(connection.number, connection.remote_comm_id, private_data)


def is_supported(request: m.Req) -> bool:
    """Whether a request is for a service that this manager connects."""
    if request.transport_service_type == m.SERVICE_EXTENDED:
        return request.extended_transport_type == m.EXTENDED_XRC
    if asks_for_datagrams(request) and not request.local_eecn:
        return False
    return request.transport_service_type in (m.SERVICE_RC, m.SERVICE_UC, m.SERVICE_RD)


def asks_for_datagrams(request: m.Req) -> bool:
    """Whether a request connects EE contexts of reliable datagrams."""
    return request.transport_service_type == m.SERVICE_RD
