"""Each refusal of a command says which attribute breaks which rule, to the program that asked."""

import errno

import pytest
from refused_attributes import COMMANDS, MODIFY

from softhca.adapter import commands
from softhca.driver.errors import DriverError
from softhca.queues import control_fields as control
from softhca.testing.ends import RC, End
from softhca.testing.network import Network


@pytest.fixture
def end():
    world = Network()
    yield End(world.add(1, max_qp_rd_atom=16))
    world.close()


@pytest.mark.parametrize(("kind", "before", "attributes", "text"), MODIFY, ids=map(str, range(len(MODIFY))))
def test_modify_qp_names_the_attribute_and_the_rule(end, kind, before, attributes, text):
    qp = end.qp(kind)
    for each in before:
        qp.modify(each)
    with pytest.raises(DriverError) as error:
        qp.modify(attributes)
    assert error.value.errno in (errno.EINVAL, errno.EOPNOTSUPP)
    assert error.value.message.startswith("MODIFY_QP: ")
    assert text in error.value.message


@pytest.mark.parametrize(
    ("command", "fields", "number", "text"), COMMANDS, ids=map(str, range(len(COMMANDS)))
)
def test_commands_name_the_attribute_and_the_rule(end, command, fields, number, text):
    if fields.get("pd") == 1:
        fields = {**fields, "pd": end.pd}
    with pytest.raises(DriverError) as error:
        end.device.session.call(command, **fields)
    assert error.value.errno == number
    assert error.value.message.startswith(control.COMMANDS[command][0] + ": ")
    assert text in error.value.message


def test_what_an_adapter_writes_is_shown_on_one_line(end, monkeypatch):
    refusal = errno.EINVAL, {}, "first\nsecond\x1b[2J"
    monkeypatch.setattr(commands, "execute", lambda *asked: refusal)
    with pytest.raises(DriverError) as error:
        end.device.dealloc_pd(99)
    assert error.value.message == "DEALLOC_PD: first?second?[2J"


@pytest.mark.parametrize("place", range(5))
def test_what_the_adapter_has_at_most_can_be_had_and_no_more(place):
    """Work requests, elements of both queues, inline data."""
    world = Network()
    try:
        end = End(world.add(1, max_qp_wr=8, max_sge=4, max_inline_bytes=100))
        caps = [1, 1, 1, 1, 0]
        caps[place] = (8, 8, 4, 4, 100)[place]
        assert end.device.create_qp(end.pd, RC, end.cq, end.cq, None, *caps, True).number
        caps[place] += 1
        with pytest.raises(DriverError, match=f"{caps[place]} is beyond"):
            end.device.create_qp(end.pd, RC, end.cq, end.cq, None, *caps, True)
    finally:
        world.close()
