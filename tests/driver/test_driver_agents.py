"""A management agent's handle and the ring in which its datagrams come, with an adapter that is a script."""

import errno

import pytest
from scripted_channel import ScriptedDriver

from softhca.driver.agents import AgentHandle, MadAddress
from softhca.driver.entry_ring import EntryRing
from softhca.driver.errors import DriverError
from softhca.machine.primitives import address_of
from softhca.management.constants import (
    MAD_BYTES,
    METHOD_GET,
    METHOD_REPORT,
    METHOD_SEND,
    METHOD_SET,
    METHOD_TRAP,
    METHOD_TRAP_REPRESS,
    RESPONSE,
)
from softhca.queues import control_fields as control
from softhca.queues.layout import MAD_ENTRY_BYTES, MAD_HEADER, MAX_AGENT_ENTRIES
from softhca.queues.ring import RingProducer

GID = bytes(range(16))
HEADER = {
    "status": 0, "qpn": 9, "qkey": 10, "pkey": 11, "lid": 12, "sl": 3, "path_bits": 4, "has_grh": 1,
    "traffic_class": 6, "gid_prefix": int.from_bytes(GID[:8], "big"),
    "gid_interface": int.from_bytes(GID[8:], "big"), "own_gid_prefix": 1, "own_gid_interface": 2,
}  # fmt: skip


def mad(method=METHOD_GET, transaction=1):
    """A datagram."""
    return bytes(3) + bytes([method]) + bytes(4) + transaction.to_bytes(8, "big") + bytes(MAD_BYTES - 16)


class Answering(ScriptedDriver):
    """An adapter that registers agents, and puts datagrams into their rings."""

    def __init__(self):
        super().__init__()
        self.refuses = 0
        self.on_send = lambda fields: None
        self.channel.answer = self.answer

    def answer(self, command):
        if self.refuses:
            raise DriverError(self.refuses, "no")
        if command.command == control.SEND_MAD:
            self.on_send(command.fields)
        return {"agent": 5} if command.command == control.REGISTER_AGENT else {}

    def asked(self, command):
        """The fields of the last command of a kind."""
        return [each.fields for each in self.channel.asked if each.command == command][-1]

    def agent(self, entries=4, methods=(METHOD_GET,)):
        return AgentHandle(self, 1, 0x32, 1, methods, entries)

    def put(self, agent, datagram, length=MAD_ENTRY_BYTES, **header):
        put(agent._ring, MAD_HEADER.packing().pack(*{**HEADER, **header}.values()) + datagram, length)


def put(ring, entry, length):
    """An entry as the adapter writes it."""
    if not hasattr(ring, "producer"):
        ring.producer = RingProducer(ring.layout)
    buffer = bytearray(entry)
    assert ring.producer.push(address_of(buffer), length)


@pytest.fixture
def driver():
    made = Answering()
    yield made
    made.close()


def code_of(call, *arguments):
    with pytest.raises(DriverError) as caught:
        call(*arguments)
    return caught.value.errno


# registration


@pytest.mark.parametrize(("entries", "allowed"), [
    (0, False), (1, True), (MAX_AGENT_ENTRIES, True), (MAX_AGENT_ENTRIES + 1, False), (-1, False),
])  # fmt: skip
def test_an_agent_has_some_room_and_not_too_much(driver, entries, allowed):
    if allowed:
        assert (driver.agent(entries).number, driver.agent(entries).entries) == (5, entries)
    else:
        assert code_of(driver.agent, entries) == errno.EINVAL
        assert not driver.channel.asked


@pytest.mark.parametrize(
    ("method", "low", "high"), [(0, 1, 0), (63, 1 << 63, 0), (64, 0, 1), (127, 0, 1 << 63)]
)
def test_methods_are_bits(driver, method, low, high):
    driver.agent(methods=(method, method))
    asked = driver.asked(control.REGISTER_AGENT)
    assert (asked["methods_low"], asked["methods_high"]) == (low, high)
    assert (asked["port_num"], asked["mgmt_class"], asked["class_version"]) == (1, 0x32, 1)


@pytest.mark.parametrize("method", [-1, 128])
def test_there_are_no_other_methods(driver, method):
    assert code_of(driver.agent, 4, (method,)) == errno.EINVAL


def test_a_registration_that_is_refused_or_ended_leaves_no_memory(driver):
    free = driver.free_pages()
    driver.refuses = errno.EBUSY
    assert code_of(driver.agent) == errno.EBUSY
    assert driver.free_pages() == free
    driver.refuses = 0
    agent = driver.agent()
    assert driver.free_pages() < free
    driver.refuses = errno.EIO
    assert code_of(agent.unregister) == errno.EIO
    driver.put(agent, mad())
    assert agent.receive(0).mad == mad(), "it is registered still"
    driver.refuses = 0
    agent.unregister()
    assert driver.free_pages() == free
    assert code_of(agent.receive, 0) == errno.EINVAL


# sending and receiving


@pytest.mark.parametrize("gid", [GID, None])
def test_a_datagram_goes_where_its_address_says(driver, gid):
    agent = driver.agent()
    agent.send(mad(), MadAddress(gid, 2, 3, 4, 5, 6, 7, 8), 9, 10)
    asked = dict(driver.asked(control.SEND_MAD))
    assert asked == {
        "agent": 5, "timeout_ms": 9, "retries": 10, "dgid": gid or bytes(16), "qpn": 2, "qkey": 3,
        "pkey_index": 4, "dlid": 5, "sl": 6, "path_bits": 7, "traffic_class": 8,
        "is_global": int(gid is not None), "mad": mad(),
    }  # fmt: skip


@pytest.mark.parametrize("has_grh", [0, 1])
def test_what_has_come_can_be_answered(driver, has_grh):
    agent = driver.agent()
    assert agent.idle
    driver.put(agent, mad(METHOD_SET), has_grh=has_grh)
    assert not agent.idle
    arrival = agent.receive(0)
    assert (arrival.mad, arrival.status) == (mad(METHOD_SET), 0)
    source = MadAddress(GID if has_grh else None, 9, 10, 0, 12, 3, 4, 6, 11)
    assert arrival.source == source
    assert agent.idle


def test_requests_that_nobody_answers_come_back_with_a_status(driver):
    agent = driver.agent()
    driver.put(agent, mad(), status=errno.ETIMEDOUT)
    assert agent.receive(0).status == errno.ETIMEDOUT


# asking


@pytest.mark.parametrize("change", [
    {"method": METHOD_GET | RESPONSE}, {"method": METHOD_SEND}, {"method": METHOD_TRAP},
    {"method": METHOD_TRAP_REPRESS}, {"timeout_ms": 0}, {"timeout_ms": -1}, {"cut": 1},
])  # fmt: skip
def test_what_has_no_answer_is_not_asked(driver, change):
    agent = driver.agent()
    request = mad(change.get("method", METHOD_GET))[change.get("cut", 0):]
    assert code_of(agent.ask, request, MadAddress(), change.get("timeout_ms", 1), 0) == errno.EINVAL
    assert [each.command for each in driver.channel.asked] == [control.REGISTER_AGENT]


@pytest.mark.parametrize("method", [METHOD_GET, METHOD_SET, METHOD_REPORT])
def test_the_answer_is_what_belongs_to_the_question(driver, method):
    agent = driver.agent(8)

    def answers(fields):
        driver.put(agent, mad(method, 7))  # somebody asks here, with the same number
        driver.put(agent, mad(method | RESPONSE, 8))  # an answer to another question
        driver.put(agent, mad(method, 8), status=errno.ETIMEDOUT)  # which was not answered at all
        driver.put(agent, mad(method | RESPONSE, 7)[:-1] + b"!")

    driver.on_send = answers
    assert agent.ask(mad(method, 7), MadAddress(), 100, 3) == mad(method | RESPONSE, 7)[:-1] + b"!"
    asked = driver.asked(control.SEND_MAD)
    assert (asked["timeout_ms"], asked["retries"]) == (100, 3)


def test_a_question_may_be_asked_again_with_its_number(driver):
    agent = driver.agent(8)
    driver.on_send = lambda fields: driver.put(agent, mad(1 | RESPONSE, 7))
    for _ in range(2):
        assert agent.ask(mad(1, 7), MadAddress(), 100, 3) == mad(1 | RESPONSE, 7)
    assert agent._asked == {}


def test_a_question_that_nobody_answers_is_an_error(driver):
    agent = driver.agent()
    driver.on_send = lambda fields: driver.put(agent, mad(METHOD_GET, 7), status=errno.ETIMEDOUT)
    assert code_of(agent.ask, mad(METHOD_GET, 7), MadAddress(), 100, 3) == errno.ETIMEDOUT
    assert agent.idle


# the ring itself


@pytest.fixture
def ring(driver):
    driver.taken = []
    return EntryRing(driver.session, 4, 8, bytes, "the owner", lambda: driver.taken.append(1))


def words(ring, *found):
    for word in found:
        put(ring, word.ljust(8, b"."), 8)


def test_a_ring_gives_its_entries_in_order_and_makes_room(driver, ring):
    for number in range(20):
        words(ring, b"%d" % number, b"b")
        assert [ring.receive(0), ring.receive(0)] == [(b"%d" % number).ljust(8, b"."), b"b......."]
    assert len(driver.taken) == 40
    assert driver.channel.noted == []


def test_who_polls_drives_the_engine_once_and_looks_again(driver, ring):
    assert ring.receive(0) is None
    assert driver.channel.noted == ["progress"]
    driver.channel.progress = lambda: words(ring, b"late")
    assert ring.receive(0) == b"late...."


def test_who_waits_is_given_the_time_that_he_asked_for(driver, ring):
    assert ring.receive(1.5) is None
    assert driver.channel.noted == ["wait 1.5"]
    driver.channel.on_wait = [lambda: None, lambda: words(ring, b"late")]
    assert ring.receive(None) == b"late...."


class Interrupted(BaseException):
    """Ctrl-C, say."""


def test_what_an_interrupted_thread_has_taken_comes_first_again(driver, ring):
    def wait(ready, timeout_s):
        words(ring, b"1", b"2")
        assert ready()
        assert ready(), "and takes no second one"
        raise Interrupted

    plain, driver.channel.wait = driver.channel.wait, wait
    with pytest.raises(Interrupted):
        ring.receive(None)
    assert not ring.idle
    driver.channel.wait = plain
    assert [ring.receive(0), ring.receive(0), ring.receive(0)] == [b"1.......", b"2.......", None]
    assert ring.idle


def test_what_was_put_back_waits(driver, ring):
    def wait(ready, timeout_s):
        words(ring, b"1")
        assert ready()
        raise Interrupted

    driver.channel.wait = wait
    with pytest.raises(Interrupted):
        ring.receive(None)
    assert not ring.idle
    assert ring.receive(0) == b"1......."
    assert ring.idle


def test_what_is_put_back_comes_before_what_another_thread_has_put_back_meanwhile(driver, ring):
    """That one was interrupted, too, and had taken a later entry."""
    words(ring, b"1", b"2")

    def wait(ready, timeout_s):
        words(ring, b"1", b"2")
        assert ready()
        ring._kept.append(ring._take())
        raise Interrupted

    assert [ring.receive(0), ring.receive(0)] == [b"1.......", b"2......."]
    driver.channel.wait = wait
    with pytest.raises(Interrupted):
        ring.receive(None)
    assert [ring.receive(0), ring.receive(0)] == [b"1.......", b"2......."]


@pytest.mark.parametrize("length", [4, 9])
def test_an_entry_of_another_length_is_malformed_for_good(driver, ring, length):
    put(ring, bytes(16), length)
    words(ring, b"good")
    for timeout_s in (0, None):
        assert code_of(ring.receive, timeout_s) == errno.EIO
    assert ring.idle


def test_a_wait_ends_with_the_owner_and_with_the_adapter(driver, ring):
    driver.channel.on_wait = [ring.end, lambda: pytest.fail("it waits on")]
    assert code_of(ring.receive, None) == errno.EINVAL
    assert ring.idle
    driver.channel.living = False
    assert code_of(ring.receive, None) == errno.EIO
    assert driver.channel.noted == ["wait None"], "it was known before"


def test_the_owners_end_wakes_who_waits(driver, ring):
    ring.end()
    ring.free()
    assert driver.channel.noted == ["wake"]
