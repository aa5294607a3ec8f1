"""What the kernel's communication manager says, as captured from `rping` and `ucmatose`, and what ours says
in its place.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from connection_peers import Program

from softhca.management.cm import elements as e
from softhca.management.cm import messages as m
from softhca.management.cm.manager import ConnectionManager
from softhca.management.constants import CLASS_COMM_MGT
from softhca.management.mad import Address
from softhca.wire.captures import read_capture

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
ETHERNET, IPV4, UDP, BTH, DETH = 14, 20, 8, 12, 8
MAD_AT = ETHERNET + IPV4 + UDP + BTH + DETH
UD_SEND_ONLY = 0x64
RC_REQUESTS = (*range(0x0D), 0x13, 0x14)


def mads(name):
    """The connection management datagrams of a capture, with the address that each came from."""
    found = []
    with (CAPTURES / f"{name}.pcap").open("rb") as stream:
        packets = [packet.data for packet in read_capture(stream)]
    for data in packets:
        if data[MAD_AT - BTH - DETH] == UD_SEND_ONLY and data[MAD_AT + 1] == CLASS_COMM_MGT:
            found.append((data[ETHERNET + 12 : ETHERNET + 16], data[MAD_AT : MAD_AT + 256]))
    return found


def address(ip):
    return Address(qpn=1, gid=bytes(10) + b"\xff\xff" + ip)


def ours(sent, seed=1):
    """A manager that puts what it sends into ``sent``."""
    return ConnectionManager(lambda data, to: sent.append(m.decode(data)) or True, 0xA, seed)


@pytest.mark.parametrize(("name", "count"), [("rping", 5), ("ucmatose", 10)])
def test_every_message_is_decoded_and_encoded_to_the_same_octets(name, count):
    found = mads(name)
    assert len(found) == count
    for _, data in found:
        transaction_id, message = m.decode(data)
        assert m.encode(message, transaction_id) == data


@pytest.mark.parametrize("name", ["rping", "ucmatose"])
def test_each_side_begins_with_the_psn_that_the_other_has_named(name):
    named, first = {}, {}
    for ip, data in mads(name):
        _, message = m.decode(data)
        if isinstance(message, (m.Req, m.Rep)):
            # what this side wants to receive first, on its queue pair
            named[ip, message.local_qpn] = message.starting_psn
    with (CAPTURES / f"{name}.pcap").open("rb") as stream:
        for packet in read_capture(stream):
            bth = packet.data[MAD_AT - BTH - DETH : MAD_AT - DETH]
            if bth[0] in RC_REQUESTS:
                there = packet.data[ETHERNET + 16 : ETHERNET + 20], int.from_bytes(bth[5:8], "big")
                first.setdefault(there, int.from_bytes(bth[9:12], "big"))
    assert first
    assert first == {there: named[there] for there in first}


@pytest.mark.parametrize("name", ["rping", "ucmatose"])
def test_our_listener_answers_the_kernels_requests_as_the_kernels_does(name):
    sent, program = [], Program()
    manager = ours(sent)
    exchange = [(ip, *m.decode(data)) for ip, data in mads(name)]
    replies = {
        message.remote_comm_id: (number, message) for _, number, message in exchange if type(message) is m.Rep
    }
    for ip, number, message in exchange:
        if type(message) is not m.Req:
            continue
        if not program.events:
            manager.listen(program, message.service_id, 8)
        manager.receive(m.encode(message, number), address(ip), 0)
        asked = program.events[-1]
        assert (asked.kind, asked.message) == (e.REQUEST, message)
        transaction, kernel = replies[message.local_comm_id]
        manager.reply(program, asked.number, replace(kernel, local_comm_id=0, remote_comm_id=0), 0)
        assert sent[-1] == (transaction, replace(kernel, local_comm_id=asked.number, local_ca_guid=0xA))


@pytest.mark.parametrize("name", ["rping", "ucmatose"])
def test_our_requester_goes_through_the_kernels_answers(name):
    sent, program = [], Program()
    manager = ours(sent)
    exchange = [(ip, *m.decode(data)) for ip, data in mads(name)]
    ids = {}
    for ip, number, message in exchange:
        if type(message) is m.Req:
            mine = manager.connect(program, address(b"\x0a\x4d\0\3"), message, 0)
            ids[message.local_comm_id] = mine
            assert sent[-1][1] == replace(message, local_comm_id=mine, local_ca_guid=0xA)
        elif ip == b"\x0a\x4d\0\3":  # what the listening kernel sends
            mine = ids[message.remote_comm_id]
            if type(message) is m.Dreq or type(message) is m.Rep or type(message) is m.Drep:
                message = replace(message, remote_comm_id=mine)
            manager.receive(m.encode(message, number), address(ip), 0)
            if type(message) is m.Rep:
                assert program.events[-1].kind == e.REPLIED
                manager.ready(program, mine, b"", 0)
                assert sent[-1][1] == m.Rtu(mine, message.local_comm_id)
            elif type(message) is m.Dreq:
                assert program.events[-1].kind == e.DISCONNECT_REQUEST
                manager.disconnect(program, mine, b"", 0)
                assert sent[-1] == (number, m.Drep(mine, message.local_comm_id))
        elif type(message) is m.Dreq:
            mine = ids[message.local_comm_id]
            manager.disconnect(program, mine, b"", 0)
            assert sent[-1][1] == replace(message, local_comm_id=mine)
    assert all(manager.has(mine) for mine in ids.values())
    assert manager.counters["established"] == len(ids)
