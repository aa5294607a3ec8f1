"""Single bytes and bounds: directed routes through switches, the ends of long answers, questions of hosts."""

import pytest

from softhca.management import address_queries, group_queries, path_queries
from softhca.management.administration_attributes import (
    ATTRIBUTE_PORT_INFO_RECORD,
    AdministrationHeader,
    MCMemberRecord,
    PortInfoRecord,
)
from softhca.management.administration_tables import PORT_CAPABILITIES, component, mask_of
from softhca.management.attributes import PortInfo
from softhca.management.constants import MAD_BYTES
from softhca.management.directed_route import BY_LID, LOST, TAKEN, begin, enter
from softhca.management.ip_service import service_id
from softhca.management.mad import Mad, MadHeader
from softhca.management.rmpp import ABORT, ACK, ACTIVE, DATA, HEADER_AT, STOP, Receiver, Sender, stop
from softhca.management.subnet_attributes import Table
from softhca.wire.errors import WireError

POINTER, COUNT, DIRECTION, SLID, DLID, INITIAL, RETURN = 6, 7, 4, 32, 34, 128, 192


def packet(pointer, count, returning=False, initial=(), back=(), slid=0xFFFF, dlid=0xFFFF):
    """A directed-route packet's bytes; its paths begin with port 0, which is nobody's."""
    data = bytearray(MAD_BYTES)
    data[POINTER], data[COUNT], data[DIRECTION] = pointer, count, 0x80 if returning else 0
    data[SLID : SLID + 4] = slid.to_bytes(2, "big") + dlid.to_bytes(2, "big")
    data[INITIAL : INITIAL + len(initial)] = bytes(initial)
    data[RETURN : RETURN + len(back)] = bytes(back)
    return data


# directed routes


def test_a_switch_passes_on_by_the_next_port_and_notes_its_entrance():
    data = packet(1, 3, initial=(0, 1, 7, 9))
    assert enter(data, 5, is_switch=True) == 7
    assert (data[POINTER], bytes(data[RETURN : RETURN + 4])) == (2, bytes([0, 5, 0, 0]))


def test_a_switch_passes_back_by_the_port_that_it_had_noted():
    data = packet(3, 3, returning=True, back=(0, 4, 5, 6))
    assert enter(data, 7, is_switch=True) == 5
    assert data[POINTER] == 2
    assert bytes(data[RETURN : RETURN + 4]) == bytes([0, 4, 5, 6])


@pytest.mark.parametrize("returning", [False, True])
def test_a_way_by_port_0_is_lost(returning):
    assert enter(packet(2, 3, returning, back=(0, 0, 0, 0)), 5, is_switch=True) == LOST


@pytest.mark.parametrize(("entrance", "port"), [(0, 4), (1, LOST)])
def test_a_way_begins_at_a_switch_that_it_has_come_to_by_lid(entrance, port):
    data = packet(0, 2, initial=(0, 4, 5))
    assert enter(data, entrance, is_switch=True) == port
    assert data[POINTER] == (1 if port == 4 else 0)


@pytest.mark.parametrize("is_switch", [False, True])
@pytest.mark.parametrize("returning", [False, True])
def test_who_comes_to_the_end_goes_on_by_the_lid_of_its_direction_from_a_switch(is_switch, returning):
    data = packet(1, 1, returning, initial=(0, 3), slid=5 if returning else 0xFFFF, dlid=0xFFFF)
    if not returning:
        data[DLID : DLID + 2] = (5).to_bytes(2, "big")
    assert enter(data, 8, is_switch) == (BY_LID if is_switch else LOST)
    assert data[POINTER] == (0 if returning else 2)
    assert data[RETURN + 1] == (0 if returning else 8)


def test_an_agents_answer_leaves_by_the_port_that_its_question_came_by():
    data = packet(3, 2, returning=True, initial=(0, 1, 2), back=(0, 6, 7))
    assert begin(data) == 7
    assert data[POINTER] == 2
    assert begin(packet(0, 2, initial=(0, 4, 5))) == 4
    assert begin(packet(1, 2, initial=(0, 4, 5))) == LOST
    assert enter(packet(0, 0), 1, is_switch=False) == TAKEN


# long answers

HEADER = MadHeader(management_class=3, method=0x81)


def said(mad):
    return AdministrationHeader.decode(mad, HEADER_AT)


def test_a_sender_that_gives_up_says_that_it_has_tried_too_often():
    sender = Sender(HEADER, AdministrationHeader(), bytes(500), timeout_ns=10, retries=1)
    (first,) = sender.start(0)
    assert (said(first).rmpp_type, said(first).rmpp_flags) == (DATA, ACTIVE | 2)
    assert len(sender.expire(10)) == 1
    (last,) = sender.expire(20)
    found = said(last)
    assert (found.rmpp_type, found.rmpp_status, found.rmpp_flags) == (ABORT, 126, ACTIVE)
    assert found.segment_number == 0
    assert sender.done


def test_an_answer_longer_than_its_receiver_takes_is_aborted():
    sender, receiver = Sender(HEADER, AdministrationHeader(), bytes(500)), Receiver(most=100)
    (first,) = sender.start(0)
    answer = receiver.receive(first)
    assert len(answer) == MAD_BYTES
    found = said(answer)
    assert (found.rmpp_type, found.rmpp_status, found.rmpp_flags) == (ABORT, 127, ACTIVE)
    assert receiver.failed
    assert not receiver.done


@pytest.mark.parametrize("kind", [STOP, ABORT])
def test_a_receiver_whose_sender_ends_has_failed_and_says_nothing(kind):
    receiver = Receiver()
    front = AdministrationHeader(rmpp_version=1, rmpp_type=kind, rmpp_flags=ACTIVE)
    assert receiver.receive((HEADER.encode() + front.encode()).ljust(MAD_BYTES, b"\0")) is None
    assert receiver.failed


def test_what_is_no_segment_is_refused_by_its_type():
    receiver = Receiver()
    front = AdministrationHeader(rmpp_version=1, rmpp_type=ACK, rmpp_flags=ACTIVE)
    found = said(receiver.receive((HEADER.encode() + front.encode()).ljust(MAD_BYTES, b"\0")))
    assert (found.rmpp_type, found.rmpp_status, found.rmpp_flags) == (ABORT, 121, ACTIVE)
    assert receiver.failed


def test_a_segment_of_another_version_is_refused_by_its_version():
    receiver = Receiver()
    front = AdministrationHeader(rmpp_version=2, rmpp_type=DATA, rmpp_flags=ACTIVE, segment_number=1)
    found = said(receiver.receive((HEADER.encode() + front.encode()).ljust(MAD_BYTES, b"\0")))
    assert (found.rmpp_type, found.rmpp_status, found.rmpp_version) == (ABORT, 125, 1)
    assert receiver.failed


def test_a_segment_for_which_there_is_no_room_is_stopped():
    front = AdministrationHeader(sm_key=5, rmpp_version=1, rmpp_type=DATA, rmpp_flags=7, segment_number=3)
    answer = stop((HEADER.encode() + front.encode()).ljust(MAD_BYTES, b"x"))
    assert len(answer) == MAD_BYTES
    found = said(answer)
    assert (found.sm_key, found.rmpp_type, found.rmpp_flags, found.rmpp_status) == (5, STOP, ACTIVE, 1)
    assert (found.segment_number, found.payload_length) == (0, 0)
    assert MadHeader.decode(answer).method == 0x01


# questions of hosts

A, B = bytes(range(16)), bytes(range(16, 32))
V4 = bytes(10) + b"\xff\xff" + bytes([10, 1, 2, 3])


def question(mad):
    """Its header's first bytes, attribute and component mask, and its record."""
    assert len(mad) == MAD_BYTES
    return mad[:4], int.from_bytes(mad[8:16], "big"), mad[16:18], int.from_bytes(mad[48:56], "big"), mad[56:]


def test_a_path_is_asked_for_by_its_two_gids():
    front, transaction, attribute, components, record = question(path_queries.question(A, B, 77))
    assert (front, transaction, attribute) == (bytes([1, 3, 2, 1]), 77, b"\x00\x35")
    assert components == 1 << 2 | 1 << 3 | 1 << 11 | 1 << 12
    assert (record[8:24], record[24:40], record[49]) == (B, A, 0x81)


def test_a_port_joins_a_group_as_a_full_member():
    asked = group_queries.question(A, B, 0x11, 0x1234, group_queries.FULL_MEMBER, 78)
    front, transaction, attribute, components, record = question(asked)
    assert (front, transaction, attribute) == (bytes([1, 3, 2, 2]), 78, b"\x00\x38")
    wanted = MCMemberRecord(mgid=A, port_gid=B, qkey=0x11, pkey=0x9234, join_state=1)
    assert MCMemberRecord.decode(record) == wanted
    names = "mgid port_gid qkey traffic_class pkey sl flow_label join_state"
    assert components == sum(component(MCMemberRecord, name) for name in names.split())


def test_who_only_sends_joins_as_that():
    asked = question(group_queries.question(A, B, 0, 0x1234, group_queries.SEND_ONLY, 78))
    assert MCMemberRecord.decode(asked[-1]).join_state == 4


def test_capabilities_of_ports_are_asked_for_by_their_component():
    every = PortInfoRecord(port_info=PortInfo(capability_mask=0xFFFF_FFFF).encode())
    bare = PortInfoRecord(port_info=PortInfo().encode())
    mask = mask_of(ATTRIBUTE_PORT_INFO_RECORD, 1 << PORT_CAPABILITIES)
    assert mask == int.from_bytes(every.encode(), "big") ^ int.from_bytes(bare.encode(), "big")


@pytest.mark.parametrize(
    ("group", "mgid"),
    [
        (bytes(10) + b"\xff\xff" + bytes([0xE1, 2, 3, 4]),
         bytes.fromhex("ff124001 8005") + bytes(6) + bytes([1, 2, 3, 4])),
        (bytes.fromhex("ff02") + bytes(12) + b"\x12\x34",
         bytes.fromhex("ff126001 8005") + bytes(8) + b"\x12\x34"),
        (bytes.fromhex("ff12a01b") + bytes(12), bytes.fromhex("ff12a01b") + bytes(12)),
        (bytes.fromhex("ff1ea01b") + bytes(12), bytes.fromhex("ff1ea01b") + bytes(12)),
        (bytes.fromhex("ff12a01c") + bytes(12), bytes.fromhex("ff126001 8005") + bytes(10)),
    ],
    ids=["ipv4", "ipv6", "given", "given-in-another-scope", "not-given"],
)  # fmt: skip
def test_the_group_of_an_ip_group_in_a_partition(group, mgid):
    assert group_queries.mgid_of(group, 5).hex() == mgid.hex()


@pytest.mark.parametrize(
    ("ask", "components", "gid", "data"),
    [
        (lambda: address_queries.question_of_port(A, 79), 1 | 1 << 1, A, bytes(16)),
        (lambda: address_queries.question_of_address(B, 79), 1, bytes(16), B),
        (lambda: address_queries.question_of_address(V4, 79), 1, bytes(16), bytes(12) + V4[12:]),
    ],
    ids=["port", "ipv6", "ipv4"],
)
def test_addresses_and_ports_are_asked_for_by_service_records(ask, components, gid, data):
    front, transaction, attribute, mask, record = question(ask())
    assert (front, transaction, attribute) == (bytes([1, 3, 2, 1]), 79, b"\x00\x31")
    of_data = sum(1 << 7 + each for each in range(16))  # ServiceData8.1 … 16
    assert mask == components | (0 if components & 2 else of_data)
    assert (record[8:24], record[112:128]) == (gid, data)


@pytest.mark.parametrize(
    ("data", "address"),
    [(bytes(12) + V4[12:], V4), (B, B), (bytes(11) + B[:5], bytes(11) + B[:5])],
    ids=["ipv4", "ipv6", "ipv6-of-few-bytes"],
)
def test_the_address_of_a_port_is_told_as_a_gid(data, address):
    answer = bytearray(MAD_BYTES)
    answer[64:80], answer[168:184] = A, data
    assert address_queries.answer(bytes(answer)) == (0, A, address)


# bounds


def test_a_datagram_is_read_where_its_256_bytes_are():
    buffer = bytes(MAD_BYTES + 4)
    assert Mad.decode(buffer, 4).body == bytes(232)
    for offset in (-1, 5):
        with pytest.raises(WireError):
            Mad.decode(buffer, offset)


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_ports_have_16_bits_and_0_is_none(port):
    assert service_id(0x0106, 65_535) & 0xFFFF == 65_535
    with pytest.raises(ValueError, match="no port"):
        service_id(0x0106, port)


@pytest.mark.parametrize("value", [-1, 256])
def test_what_does_not_fit_into_an_entry_is_not_written(value):
    table = Table(2, 8)
    assert table.encode([0, 255]) == b"\x00\xff"
    with pytest.raises(WireError):
        table.encode([value, 0])
