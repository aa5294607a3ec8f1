"""Ethernet frames and VXLAN headers: what a frame's key says, whatever its bytes are."""

import random

import pytest

from softhca.wire import ethernet as key
from softhca.wire.drops import DROP_FRAME, DROP_TRUNCATED
from softhca.wire.vxlan import HEADER_BYTES, FrameView, put_vxlan

MACS = bytes.fromhex("020000000002" "020000000001")
IPV4 = bytes.fromhex("45a40034beef4000401100000a0000010a000002")
IPV6 = bytes.fromhex("6ab12345000c0640" "fd000000000000000000000000000001" "fd000000000000000000000000000002")
PORTS = bytes.fromhex("0bb807d0")


def of(frame):
    return key.frame_key(bytearray(b"\xee" * 5 + frame + b"\xee" * 5), 5, len(frame))


def test_a_frame_of_another_ethertype_has_addresses_and_type_alone():
    assert of(MACS + b"\x88\xb5" + bytes(range(50))) == MACS + b"\x88\xb5" + bytes(50)


def test_the_fields_of_udp_over_ipv4():
    got = of(MACS + b"\x08\x00" + IPV4 + PORTS + b"data")
    assert got[:16] == MACS + b"\x08\x00\0\0"
    assert (got[key.L3], got[key.PROTOCOL], got[key.TRAFFIC_CLASS], got[key.HOP_LIMIT]) == (4, 17, 0xA4, 64)
    assert got[key.FLAGS] == 2  # do not fragment
    assert got[key.SRC_IP : key.SRC_IP + 16] == b"\x0a\0\0\x01" + bytes(12)
    assert got[key.DST_IP : key.DST_IP + 16] == b"\x0a\0\0\x02" + bytes(12)
    assert got[key.SRC_PORT : key.L4 + 1] == PORTS + b"\x11"


def test_the_fields_of_tcp_over_ipv6_behind_a_vlan_tag():
    got = of(MACS + b"\x81\x00\x60\x07\x86\xdd" + IPV6 + PORTS)
    assert got[12:16] == b"\x86\xdd\x60\x07"
    assert (got[key.L3], got[key.PROTOCOL], got[key.TRAFFIC_CLASS], got[key.HOP_LIMIT]) == (6, 6, 0xAB, 64)
    assert got[key.FLOW_LABEL : key.FLOW_LABEL + 3] == b"\x01\x23\x45"
    assert got[key.SRC_IP : key.SRC_IP + 32] == IPV6[8:]
    assert got[key.SRC_PORT : key.L4 + 1] == PORTS + b"\x06"


def test_a_vlan_tag_may_be_all_that_follows_and_a_flow_label_has_twenty_bits():
    assert of(MACS + b"\x81\x00\x60\x07\x88\xb5")[12:16] == b"\x88\xb5\x60\x07"
    got = of(MACS + b"\x86\xdd" + b"\x6a\xbf" + IPV6[2:] + PORTS)
    assert got[key.FLOW_LABEL : key.FLOW_LABEL + 3] == b"\x0f\x23\x45"


@pytest.mark.parametrize("offset_bytes", [b"\x20\x01", b"\x00\x10"])
def test_a_later_fragment_has_no_ports(offset_bytes):
    got = of(MACS + b"\x08\x00" + IPV4[:6] + offset_bytes + IPV4[8:] + PORTS)
    assert got[key.L3] == 4
    assert got[key.SRC_PORT : key.L4 + 1] == bytes(5)


def test_what_is_cut_short_has_no_fields_of_what_is_missing():
    whole = MACS + b"\x08\x00" + IPV4 + PORTS
    for n in range(14, len(whole)):
        got = of(whole[:n])
        assert got[key.L3] == (4 if n >= 34 else 0)
        assert got[key.L4] == 0


def test_options_of_ipv4_stand_before_the_ports():
    got = of(MACS + b"\x08\x00" + b"\x46" + IPV4[1:] + bytes(4) + PORTS)
    assert got[key.SRC_PORT : key.L4] == PORTS


def test_any_bytes_have_a_key():
    dice = random.Random(5)
    for _ in range(2000):
        frame = bytearray(dice.randbytes(dice.randrange(14, 90)))
        frame[12:14] = dice.choice((b"\x08\x00", b"\x86\xdd", b"\x81\x00"))
        assert len(key.frame_key(frame, 0, len(frame))) == key.KEY_BYTES


def test_a_vxlan_header_is_read_as_it_was_written():
    data, view = bytearray(b"\xff" * 40), FrameView()
    put_vxlan(data, 3, 0x123456)
    assert data[3:11] == bytes.fromhex("0800000012345600")
    put_vxlan(data, 11, 0xFEDCBA)
    assert data[11:19] == bytes.fromhex("08000000fedcba00")
    assert view.open(data, 3, HEADER_BYTES + 14, 0x123456) == 0
    assert (view.payload, view.payload_bytes) == (11, 14)


def test_what_is_no_vxlan_datagram_of_the_segment_is_refused():
    data, view = bytearray(40), FrameView()
    put_vxlan(data, 0, 7)
    assert view.open(data, 0, HEADER_BYTES + 13, 7) == DROP_TRUNCATED
    assert view.open(data, 0, 30, 8) == DROP_FRAME
    data[0] = 0xF7  # all bits but I
    assert view.open(data, 0, 30, 7) == DROP_FRAME
    data[:4], data[7] = b"\xff" * 4, 0xFF  # reserved bits mean nothing
    assert view.open(data, 0, 30, 7) == 0
