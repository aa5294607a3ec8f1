"""One route that is turned to each arriving flow makes the ICRCs that a route of its own would make."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.machine.primitives import address_of
from softhca.wire import icrc
from softhca.wire.arriving import ArrivingRoute
from softhca.wire.framing import NATIVE, ROCE_V4, ROCE_V6
from softhca.wire.identification import recover
from softhca.wire.route import V4_MAPPED_PREFIX, Route

ADDRESS = {
    ROCE_V4: st.binary(min_size=4, max_size=4).map(lambda data: V4_MAPPED_PREFIX + data),
    ROCE_V6: st.binary(min_size=16, max_size=16),
}


@pytest.mark.parametrize("framing", [ROCE_V4, ROCE_V6])
@settings(deadline=None)
@given(data=st.data())
def test_flows_in_turn_have_the_icrc_of_routes_of_their_own(framing, data):
    arriving = ArrivingRoute(framing)
    flows = st.tuples(ADDRESS[framing], ADDRESS[framing], st.integers(0, 0xFFFF))
    several = data.draw(st.lists(flows, min_size=1, max_size=4))
    for turn in data.draw(st.lists(st.integers(0, len(several) - 1), max_size=8)):
        source, destination, port = several[turn]
        packet = bytearray(data.draw(st.binary(min_size=12, max_size=60)))
        own = Route(framing, source, destination, port)
        packet += icrc.compute(own, address_of(packet), len(packet)).to_bytes(4, "little")
        assert arriving.aim(source, destination, port)
        assert icrc.syndrome(arriving, address_of(packet), len(packet)) == 0
        packet[-1] ^= 1
        assert icrc.syndrome(arriving, address_of(packet), len(packet)) != 0


def test_only_the_port_changes():
    ends = V4_MAPPED_PREFIX + b"\1\2\3\4", V4_MAPPED_PREFIX + b"\1\2\3\5"
    arriving = ArrivingRoute(ROCE_V4)
    for port in (0xC000, 0xC001, 0xC000, 0xC000):
        packet = bytearray(range(64))
        packet += icrc.compute(Route(ROCE_V4, *ends, port), address_of(packet), 64).to_bytes(4, "little")
        assert arriving.aim(*ends, port)
        assert icrc.syndrome(arriving, address_of(packet), 68) == 0


def test_flows_whose_packets_are_as_long_have_seeds_of_their_own():
    """Of the last two lengths the seeds are kept, of no flow but the last."""
    arriving = ArrivingRoute(ROCE_V4)
    for last, lengths in ((4, (64, 32)), (5, (64, 32)), (6, (32, 64))):
        ends = V4_MAPPED_PREFIX + bytes((1, 2, 3, last)), V4_MAPPED_PREFIX + b"\1\2\3\x09"
        assert arriving.aim(*ends, 0xC000)
        for n in lengths:
            assert arriving.seed(n) == Route(ROCE_V4, *ends, 0xC000).seed(n)


def test_an_identification_is_recovered_with_it():
    ends = V4_MAPPED_PREFIX + b"\1\2\3\4", V4_MAPPED_PREFIX + b"\1\2\3\5"
    packet = bytearray(64)
    route = Route(ROCE_V4, *ends, 0xC000, identification=0xBEEF)
    packet += icrc.compute(route, address_of(packet), 64).to_bytes(4, "little")
    arriving = ArrivingRoute(ROCE_V4)
    arriving.aim(*ends, 0xC000)
    assert recover(arriving, icrc.syndrome(arriving, address_of(packet), 68), 68) == 0xBEEF


@pytest.mark.parametrize("framing", [ROCE_V4, ROCE_V6])
@pytest.mark.parametrize("wrong", [None, b"", bytes(15), bytes(17)])
def test_what_is_no_address_changes_nothing(framing, wrong):
    right = V4_MAPPED_PREFIX + b"\1\2\3\4"
    arriving = ArrivingRoute(framing)
    assert arriving.aim(right, right, 7)
    assert not arriving.aim(wrong, right, 8)
    assert not arriving.aim(right, wrong, 8)
    assert (arriving.source, arriving.destination, arriving.source_port) == (right, right, 7)


def test_ipv4_takes_mapped_addresses_only():
    right = V4_MAPPED_PREFIX + b"\1\2\3\4"
    arriving = ArrivingRoute(ROCE_V4)
    assert not arriving.aim(bytes(15) + b"\1", right, 8)
    assert not arriving.aim(right, bytes(15) + b"\1", 8)


def test_there_is_none_of_a_native_port():
    with pytest.raises(ValueError, match="framing 0"):
        ArrivingRoute(NATIVE)
