"""The programs that take one message apart still find their way through the driver."""

import cost_picture
import lone_message
import pytest

from softhca.runtime import devices


@pytest.fixture
def joined(loopback_address):
    made = []

    def ends(kind, join):
        devices.add(",".join(f"{name}=udp:{loopback_address()}?same_host=0" for name in ("left", "right")))
        made.extend(kind(name) for name in ("left", "right"))
        join(*made)
        join(*made[::-1])
        return made

    yield ends
    for end in made:
        end.context.close()
    for name in ("left", "right"):
        devices.remove(name)


def test_the_stages_of_a_chain_are_what_it_takes(joined):
    left, right = joined(cost_picture.End, cost_picture.join)
    for _, size, count in cost_picture.CASES:
        figures = cost_picture.measure(left, right, size, count, 1)
        assert set(figures) == {name for name, _, _ in cost_picture.STAGES}
        # a stage may be less than nothing where an adapter's own thread sends meanwhile; all of them are not
        assert sum(figures.values()) > 0


def test_a_lone_message_is_one_system_call_to_send_and_one_to_find(joined):
    left, right = joined(lone_message.End, lone_message.End.join)
    for end in (left, right):
        end.watch(True)
    found = lone_message.rounds_of(left, right, 2)
    assert [set(each) for each in found] == [set(lone_message.CALLS)] * 4
    assert {each["post_send"][2] for each in found} == {1}
