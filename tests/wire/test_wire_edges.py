"""Single fields of a FETH, of frames' flags and fragments, and of groups' addresses."""

import pytest

from softhca.wire import opcodes
from softhca.wire.build import put_bth, put_feth, put_icrc, put_reth
from softhca.wire.ethernet import frame_key
from softhca.wire.packet_view import PacketView
from softhca.wire.route import is_multicast


@pytest.mark.parametrize(("selectivity", "placement"), [(0, 1), (1, 2), (2, 3), (3, 15)])
def test_a_feth_has_its_two_fields_in_its_last_byte(selectivity, placement):
    data = bytearray(64)
    o = put_bth(data, 0, opcodes.RC_FLUSH, False, 0, 0xFFFF, 5, True, 9)
    data[o : o + 3] = b"\xff\xff\xff"
    end = put_feth(data, o, selectivity, placement)
    assert data[o:end] == bytes([0, 0, 0, selectivity << 4 | placement])
    end = put_icrc(data, put_reth(data, end, 1, 2, 3), 0)
    view = PacketView()
    assert view.decode(data, 0, end) == 0
    assert (view.selectivity, view.placement) == (selectivity, placement)
    assert put_feth(data, o, selectivity + 4, placement + 16) == o + 4
    assert data[o + 2 : o + 4] == bytes([0, selectivity << 4 | placement])


def frame(flags_and_offset):
    """A frame of TCP over IPv4 from port 1 to port 2."""
    ip = bytes([0x45, 0, 0, 40, 0, 0]) + flags_and_offset.to_bytes(2, "big") + bytes([64, 6, 0, 0])
    return bytes(12) + b"\x08\x00" + ip + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + bytes([0, 1, 0, 2]) + bytes(16)


def key(flags_and_offset):
    data = bytearray(frame(flags_and_offset))
    return bytes(frame_key(data, 0, len(data)))


@pytest.mark.parametrize("offset", [1, 0xFF, 0x100, 0x1000, 0x1FFF])
def test_what_follows_the_first_fragment_has_no_ports(offset):
    whole, fragment = key(0), key(offset)
    differing = [i for i in range(len(whole)) if whole[i] != fragment[i]]
    assert [whole[i] for i in differing][:2] == [1, 2]
    assert not any(fragment[i] for i in differing)


def test_each_flag_of_a_fragment_is_one_of_its_key():
    flags = {bits: key(bits << 13)[20] for bits in range(4)}
    assert flags[0] == 0
    assert len(set(flags.values())) == 4
    assert flags[3] == flags[1] | flags[2]
    assert key(4 << 13) == key(0)


@pytest.mark.parametrize(
    ("gid", "group"),
    [
        ("ff0e" + 14 * "00", True), ("fe80" + 14 * "00", False),
        (10 * "00" + "ffff" + "e0000001", True), (10 * "00" + "ffff" + "efffffff", True),
        (10 * "00" + "ffff" + "dfffffff", False), (10 * "00" + "ffff" + "f0000001", False),
        ("2001" + 10 * "00" + "e0000001", False),
    ],
)  # fmt: skip
def test_groups_are_known_by_their_first_bits(gid, group):
    assert bool(is_multicast(bytes.fromhex(gid))) is group
