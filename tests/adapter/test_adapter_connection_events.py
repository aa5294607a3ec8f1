"""Whatever a peer's messages say becomes an entry of a channel's ring."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.adapter.connection_manager import entry_of
from softhca.management.cm import elements as e
from softhca.management.cm import messages as m
from softhca.management.cm.manager import ConnectionManager
from softhca.management.mad import Address
from softhca.queues.control_fields import QPT_RC, QPT_UC, QPT_XRC_SEND
from softhca.queues.layout import CM_ENTRY_BYTES, CM_HEADER

SOURCE = Address(qpn=1, gid=bytes(range(16)), own_gid=bytes(16))
SERVICE = 7


def asked(request):
    """What a listener is told of ``request``; None: it was refused."""
    told = []

    class Program:
        def deliver(self, event):
            told.append(event)
            return True

    manager = ConnectionManager(lambda data, to: True, 1, 1)
    manager.listen(Program(), SERVICE, 8)
    manager.receive(m.encode(request, 1), SOURCE, 0)
    return told[0] if told else None


def fields_of(event):
    return dict(zip(CM_HEADER.names, CM_HEADER.packing().unpack_from(entry_of(event)), strict=True))


@pytest.mark.parametrize("extended", range(8))
@pytest.mark.parametrize(
    ("service", "qp_type"),
    [(m.SERVICE_RC, QPT_RC), (m.SERVICE_UC, QPT_UC), (m.SERVICE_EXTENDED, QPT_XRC_SEND)],
)
def test_the_extended_type_counts_with_the_extended_service_alone(service, qp_type, extended):
    request = m.Req(service_id=SERVICE, transport_service_type=service, extended_transport_type=extended)
    event = asked(request)
    if service == m.SERVICE_EXTENDED and extended != m.EXTENDED_XRC:
        assert event is None
    else:
        assert fields_of(event)["qp_type"] == qp_type


KINDS = {e.REQUEST: m.Req, e.REPLIED: m.Rep, e.ESTABLISHED: m.Rtu, e.REJECTED: m.Rej,
         e.DISCONNECT_REQUEST: m.Dreq, e.DISCONNECTED: m.Drep, e.SIDR_REQUEST: m.SidrReq,
         e.SIDR_REPLY: m.SidrRep}  # fmt: skip


@given(kind=st.sampled_from(sorted(KINDS)), data=st.binary(min_size=232, max_size=232), bare=st.booleans())
def test_any_octets_of_a_message_make_an_entry(kind, data, bare):
    message = KINDS[kind].decode(data)
    source = Address(qpn=1) if bare else SOURCE
    entry = entry_of(e.Event(kind, 1, source, status=getattr(message, "reason", 0), message=message))
    assert len(entry) == CM_ENTRY_BYTES
    assert entry.endswith(message.private_data.ljust(224, b"\0"))
