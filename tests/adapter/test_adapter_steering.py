"""Rules of flow steering and the segment of a port, alone: who gets a frame, and what is kept of whom."""

import errno
from types import SimpleNamespace

import pytest

from softhca.adapter.segment import MOST_STATIONS, MOST_VTEPS, NEIGHBOURS_NS, STATION_NS, Segment
from softhca.adapter.steering import MOST_MASKS, Rule, Steering
from softhca.queues.control_fields import FLOW_ALL_DEFAULT, FLOW_MC_DEFAULT, FLOW_NORMAL, FLOW_SNIFFER
from softhca.testing.addressing import gid
from softhca.wire.ethernet import DST_MAC, KEY_BYTES

OWN, OTHER, THIRD = gid(1), gid(2), gid(3)


def mac(number, group=False):
    return bytes([3 if group else 2, 0, *number.to_bytes(4, "big")])


def key(address, last=0):
    found = bytearray(KEY_BYTES)
    found[DST_MAC : DST_MAC + 6] = address
    found[-1] = last
    return bytes(found)


WHOLE = key(b"\xff" * 6)
LAST = key(bytes(6), 0xFF)


def rule(receiver, value=b"", mask=b"", kind=FLOW_NORMAL, priority=0):
    return Rule(receiver, 1, kind, priority, value, mask)


def steering(*rules):
    made = Steering()
    for each in rules:
        made.add(each)
    return made


# rules


@pytest.mark.parametrize(("kind", "value", "mask"), [
    (4, b"", b""), (FLOW_NORMAL, WHOLE, b""), (FLOW_NORMAL, WHOLE[1:], WHOLE[1:]), (FLOW_NORMAL, b"", WHOLE),
    (FLOW_ALL_DEFAULT, WHOLE, WHOLE), (FLOW_SNIFFER, WHOLE, WHOLE), (FLOW_MC_DEFAULT, WHOLE, WHOLE),
])  # fmt: skip
def test_what_is_no_rule_is_refused(kind, value, mask):
    with pytest.raises(OSError, match=r"type|value") as refused:
        rule("a", value, mask, kind)
    assert refused.value.errno == errno.EINVAL


def test_bits_of_the_value_outside_of_the_mask_do_not_count():
    found = steering(rule("a", key(mac(1), 9), WHOLE))
    assert found.receivers(key(mac(1))) == found.receivers(key(mac(1), 5)) == ("a",)


@pytest.mark.parametrize(("made", "station"), [
    (("a", key(mac(1)), WHOLE), mac(1)), (("a", key(mac(1, group=True)), WHOLE), b""),
    (("a", key(mac(1)), key(b"\xff" * 5 + b"\xfe")), b""), (("a", b"", b"", FLOW_ALL_DEFAULT), b""),
])  # fmt: skip
def test_a_rule_is_for_a_station_where_it_names_one_whole_address(made, station):
    assert rule(*made).station == station


def test_stations_are_known_as_long_as_a_rule_is_for_them():
    rules = [rule(each, key(mac(1)), WHOLE) for each in "ab"]
    found = steering(*rules)
    assert found.stations == {mac(1): 2}
    found.remove(rules[0])
    assert found.stations == {mac(1): 1}
    found.remove(rules[1])
    assert (found.stations, len(found)) == ({}, 0)


def test_the_least_priority_number_goes_first_and_of_equal_ones_the_mask_that_was_used_first():
    found = steering(rule("late", key(mac(1)), WHOLE, priority=1), rule("early", key(mac(1)), WHOLE))
    assert found.receivers(key(mac(1))) == ("early",)
    for first, second in ((LAST, WHOLE), (WHOLE, LAST)):
        frame = key(mac(1), 7)
        found = steering(rule("first", frame, first), rule("second", frame, second))
        assert found.receivers(frame) == ("first",)


def test_a_rule_without_any_bit_takes_all_that_no_rule_before_it_takes():
    nothing = bytes(KEY_BYTES)
    found = steering(rule("all", nothing, nothing), rule("one", key(mac(1)), WHOLE, priority=1))
    assert found.receivers(key(mac(1))) == ("all",)


def test_default_rules_take_what_no_other_takes_and_groups_go_to_both_kinds():
    found = steering(
        rule("any", kind=FLOW_ALL_DEFAULT), rule("groups", kind=FLOW_MC_DEFAULT),
        rule("both", kind=FLOW_SNIFFER), rule("one", key(mac(1)), WHOLE),
    )  # fmt: skip
    assert found.receivers(key(mac(1))) == ("one", "both")
    assert found.receivers(key(mac(2))) == ("any", "both")
    assert found.receivers(key(mac(2, group=True))) == ("groups", "any", "both")


def test_who_has_several_rules_gets_a_frame_once_and_equal_rules_of_others_a_copy_each():
    found = steering(
        *(rule(each, key(mac(1)), WHOLE) for each in ("a", "a", "b")), rule("a", kind=FLOW_SNIFFER)
    )
    assert found.receivers(key(mac(1))) == ("a", "b")


def test_rules_count_from_when_they_are_made_until_they_end():
    found, one = Steering(), rule("a", key(mac(1)), WHOLE)
    for _ in range(2):
        assert found.receivers(key(mac(1))) == ()
        found.add(one)
        assert found.receivers(key(mac(1))) == ("a",)
        found.remove(one)


def test_masks_that_are_used_no_more_leave_their_room():
    found = Steering()
    for first in (0, MOST_MASKS):
        priorities = range(first, first + MOST_MASKS)
        rules = [rule("a", key(mac(1)), WHOLE, priority=priority) for priority in priorities]
        for each in rules:
            found.add(each)
        found.add(same := rule("b", key(mac(2)), WHOLE, priority=first))
        with pytest.raises(OSError, match="mask") as refused:
            found.add(rule("a", key(mac(1)), WHOLE, priority=first + MOST_MASKS))
        assert refused.value.errno == errno.ENOSPC
        assert len(found) == MOST_MASKS + 1
        for each in (*rules, same):
            found.remove(each)
    assert len(found) == 0


def test_what_was_looked_up_is_kept_for_a_bounded_number_of_frames():
    found = steering(rule("a", kind=FLOW_ALL_DEFAULT))
    for number in range(3000):
        assert found.receivers(key(mac(number))) == ("a",)
        assert len(found._known) <= 1024


# the segment


def segment(vteps=(), number=1):
    port = SimpleNamespace(
        own=SimpleNamespace(gids=[OWN]), number=number, source_port_for=lambda *_: 0xC001,
        window_for=lambda peer: ("window", peer),
    )  # fmt: skip
    return Segment(port, 1, vteps)


def ways(made, address, now=0):
    return [route.destination for route, _ in made.destinations(address, now)]


def test_a_way_leads_from_the_port_to_the_vxlan_port_of_the_other_end():
    (route, window), = segment((OTHER,), number=2).destinations(mac(1), 0)
    assert (route.source, route.destination, route.port_number) == (OWN, OTHER, 2)
    assert (route.source_port, route.destination_port, window) == (0xC001, 4789, ("window", route.peer))


def test_a_station_is_where_it_was_heard_last_until_it_is_not_heard_for_long():
    made = segment((OTHER, THIRD))
    made.learn(mac(1), OTHER, 0)
    made.learn(mac(1), THIRD, 10)
    assert ways(made, mac(1), 10 + STATION_NS) == [THIRD]
    assert ways(made, mac(1), 11 + STATION_NS) == [OTHER, THIRD]
    made.learn(mac(1), THIRD, 11 + STATION_NS)
    assert ways(made, mac(1), 12 + STATION_NS) == [THIRD]
    made.learn(mac(1, group=True), OTHER, 0)
    assert ways(made, mac(1, group=True)) == [OTHER, THIRD]


def test_a_station_that_is_heard_again_makes_none_forgotten():
    made = segment()
    for number in range(MOST_STATIONS):
        made.learn(mac(number), OTHER, 0)
    made.learn(mac(5), THIRD, 1)
    assert ways(made, mac(0)) == [OTHER]
    made.learn(mac(MOST_STATIONS), OTHER, 1)
    assert (ways(made, mac(0)), ways(made, mac(5)), ways(made, mac(MOST_STATIONS))) == ([], [THIRD], [OTHER])


def test_the_own_port_gets_frames_where_it_has_rules():
    made = segment((OTHER, OWN))
    made.learn(mac(1), OWN, 0)
    assert (ways(made, mac(1)), ways(made, mac(2))) == ([], [OTHER])
    made.steering.add(rule("a", key(mac(3)), WHOLE))
    assert (ways(made, mac(1)), ways(made, mac(2)), ways(made, mac(3))) == ([OWN], [OWN, OTHER], [OWN])


def test_a_frame_for_all_goes_to_so_many_adapters_at_most():
    numbers = range(1, MOST_VTEPS + 10)
    made = segment(tuple(bytes([0x20, *bytes(13), *number.to_bytes(2, "big")]) for number in numbers))
    assert len(ways(made, mac(1))) == MOST_VTEPS


def test_adapters_of_this_host_are_looked_for_again_after_a_while():
    made, found = segment(), [(OTHER,), (THIRD,)]
    made.neighbours = lambda: found.pop(0)
    assert ways(made, mac(1), 5) == ways(made, mac(1), 4 + NEIGHBOURS_NS) == [OTHER]
    assert ways(made, mac(1), 5 + NEIGHBOURS_NS) == [THIRD]


def test_ways_are_kept_to_a_bounded_number_of_adapters():
    made = segment()
    for number in range(2 * MOST_STATIONS):
        to = bytes([0x20, *bytes(11), *number.to_bytes(4, "big")])
        made.learn(mac(number), to, 0)
        assert ways(made, mac(number)) == [to]
    assert len(made._destinations) <= MOST_STATIONS
