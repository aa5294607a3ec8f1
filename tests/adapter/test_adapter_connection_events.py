"""Whatever a peer's messages say becomes an entry of a channel's ring."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.adapter.connection_manager import entry_of
from softhca.management.cm import elements as e
from softhca.management.cm import messages as m
from softhca.management.cm.manager import ConnectionManager
from softhca.management.mad import Address
from softhca.queues.control_fields import QPT_RC, QPT_RD, QPT_UC, QPT_XRC_SEND
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



def filled(kind, **given):
    """A message of ``kind`` in which no two fields of one width say the same, and none is 0."""
    values = {}
    for at, field in enumerate(kind.LAYOUT):
        if field.name in given or field.name.startswith(("private", "reserved")) or "_reserved" in field.name:
            continue
        if field.bits > 64:
            values[field.name] = bytes([at] * (field.bits // 8))
        else:
            values[field.name] = int.from_bytes(bytes([at + 1] * 9)) % ((1 << field.bits) - 1) + 1
    return kind(**{**values, **given})


def halves(gid):
    return int.from_bytes(gid[:8], "big"), int.from_bytes(gid[8:], "big")


def way(message):
    """The alternate path of a message as its receiver goes it."""
    names = ("flow_label", "ack_timeout", "traffic_class", "hop_limit", "sl", "packet_rate")
    found = {f"alternate_{name}": getattr(message, f"alternate_{name}") for name in names}
    found |= {"alternate_lid": message.alternate_local_lid, "alternate_own_lid": message.alternate_remote_lid}
    for side, name in (("local", "gid"), ("remote", "own_gid")):
        prefix, interface = halves(getattr(message, f"alternate_{side}_gid"))
        found |= {f"alternate_{name}_prefix": prefix, f"alternate_{name}_interface": interface}
    return found


def told(kind, message, **event):
    """What an entry says of a message and of where it came from, without what nobody said anything of."""
    source = Address(qpn=1, pkey=0x8123, lid=77, sl=3, gid=bytes(range(16)), own_gid=bytes(range(16, 32)),
                     traffic_class=99)  # fmt: skip
    return fields_of(e.Event(kind, 5, source, message=message, **event))


FROM = {
    "lid": 77, "id": 5, "gid_prefix": 0x0001020304050607, "gid_interface": 0x08090A0B0C0D0E0F,
    "own_gid_prefix": 0x1011121314151617, "own_gid_interface": 0x18191A1B1C1D1E1F,
}  # fmt: skip


def test_a_request_is_told_with_all_that_it_says():
    request = filled(m.Req, transport_service_type=m.SERVICE_RC, extended_transport_type=0)
    found = told(e.REQUEST, request, listener=6, service_id=1 << 63)
    expected = {
        **dict.fromkeys(CM_HEADER.names, 0), **FROM, **way(request), "kind": e.REQUEST, "listener": 6,
        "service_id": 1 << 63, "private_bytes": 92, "qp_type": QPT_RC, "qp_num": request.local_qpn,
        "remote_ca_guid": request.local_ca_guid, "qkey": request.local_qkey,
        "pkey": request.partition_key, "flow_label": request.primary_flow_label,
        "retry_cnt": request.retry_count, "rnr_retry": request.rnr_retry_count,
        "flow_control": request.end_to_end_flow_control, "ack_timeout": request.primary_ack_timeout,
        "traffic_class": request.primary_traffic_class, "hop_limit": request.primary_hop_limit,
        "sl": request.primary_sl, "path_mtu": request.path_mtu, "starting_psn": request.starting_psn,
        "responder_resources": request.responder_resources, "initiator_depth": request.initiator_depth,
        "srq": request.srq,
    }  # fmt: skip
    assert found == expected
    assert all(found[name] for name in expected if name not in ("own_lid", "status", "failover"))


@pytest.mark.parametrize("datagrams", [False, True])
def test_a_reply_is_told_with_all_that_it_says(datagrams):
    reply = filled(m.Rep, **({"local_qpn": 0} if datagrams else {"local_eecn": 0}))
    expected = {
        **dict.fromkeys(CM_HEADER.names, 0), **FROM, "kind": e.REPLIED, "private_bytes": 196, "pkey": 0x8123,
        "sl": 3, "traffic_class": 99, "qp_type": QPT_RD if datagrams else 0,
        "qp_num": reply.local_eecn if datagrams else reply.local_qpn, "srq": reply.srq,
        "remote_ca_guid": reply.local_ca_guid, "qkey": reply.local_qkey, "starting_psn": reply.starting_psn,
        "responder_resources": reply.responder_resources, "initiator_depth": reply.initiator_depth,
        "rnr_retry": reply.rnr_retry_count, "failover": reply.failover_accepted,
        "flow_control": reply.end_to_end_flow_control,
    }  # fmt: skip
    assert told(e.REPLIED, reply) == expected
    assert all((reply.failover_accepted, reply.rnr_retry_count, reply.srq, reply.end_to_end_flow_control))


def test_a_path_that_is_proposed_is_told_as_its_receiver_goes_it():
    lap = filled(m.Lap)
    expected = {
        **dict.fromkeys(CM_HEADER.names, 0), **FROM, **way(lap), "kind": e.PATH_REQUEST, "pkey": 0x8123,
        "sl": 3, "traffic_class": 99, "private_bytes": len(lap.private_data),
    }  # fmt: skip
    assert told(e.PATH_REQUEST, lap) == expected


def test_a_datagram_service_is_asked_for_with_a_key_and_answers_with_another():
    asked = told(e.SIDR_REQUEST, m.SidrReq(partition_key=0x9ABC))
    assert (asked["pkey"], asked["sl"], asked["qkey"]) == (0x9ABC, 3, 0)
    answered = told(e.SIDR_REPLY, m.SidrRep(qpn=0x123456, qkey=0x89ABCDEF), status=4)
    assert (answered["qp_num"], answered["qkey"], answered["status"]) == (0x123456, 0x89ABCDEF, 4)
    assert answered["pkey"] == 0x8123
