"""RDMA CM's parts that need no device: addresses, port numbers, the table of states."""

import errno
import ipaddress

import pytest

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import states
from softhca.driver.rdmacm.addresses import SocketAddress, any_address, look_up, of_gid
from softhca.driver.rdmacm.port_numbers import FIRST_EPHEMERAL, LAST_EPHEMERAL, PortNumbers
from softhca.management.ip_service import TCP, UDP


def address(text, port=0):
    return SocketAddress(ipaddress.ip_address(text).packed, port)


def code_of(call, *arguments, **options):
    with pytest.raises(DriverError) as refused:
        call(*arguments, **options)
    return refused.value.errno


# addresses


@pytest.mark.parametrize(
    ("text", "gid", "is_any", "is_multicast"),
    [
        ("10.0.0.7", "00000000000000000000ffff0a000007", False, False),
        ("0.0.0.0", "00000000000000000000ffff00000000", True, False),
        ("239.1.2.3", "00000000000000000000ffffef010203", False, True),
        ("224.0.0.1", "00000000000000000000ffffe0000001", False, True),
        ("223.255.255.255", "00000000000000000000ffffdfffffff", False, False),
        ("240.0.0.1", "00000000000000000000fffff0000001", False, False),
        ("2001:db8::7", "20010db8000000000000000000000007", False, False),
        ("::", "00000000000000000000000000000000", True, False),
        ("ff0e::1", "ff0e0000000000000000000000000001", False, True),
    ],
)
def test_an_address_is_a_gid(text, gid, is_any, is_multicast):
    found = address(text, 7471)
    assert (found.gid.hex(), found.is_any, found.is_multicast) == (gid, is_any, is_multicast)
    assert found.host == text
    assert of_gid(found.gid, 7471) == found


def test_addresses_as_text():
    assert str(address("10.0.0.7", 80)) == "10.0.0.7:80"
    assert str(SocketAddress(address("fe80::1").packed, 80, 3)) == "[fe80::1%3]:80"
    assert any_address(address("2001:db8::7", 9)) == address("::")


def test_what_the_resolver_says():
    assert look_up("127.0.0.2", "7471") == address("127.0.0.2", 7471)
    assert look_up("::1", None) == address("::1")
    assert look_up(None, "7471", passive=True).is_any
    assert not look_up(None, "7471").is_any


@pytest.mark.parametrize(
    ("node", "service", "code"),
    [("999.1.1.1", None, errno.EADDRNOTAVAIL), ("127.0.0.1", "no-such-service", errno.EINVAL)],
)
def test_what_the_resolver_does_not_know_has_an_errno(node, service, code):
    assert code_of(look_up, node, service, numeric=True) == code


# port numbers


def test_a_port_is_one_identifiers_at_an_address():
    ports = PortNumbers(seed=1)
    ports.bind(TCP, address("10.0.0.1", 7000))
    assert code_of(ports.bind, TCP, address("10.0.0.1", 7000)) == errno.EADDRINUSE
    assert code_of(ports.bind, TCP, address("0.0.0.0", 7000)) == errno.EADDRINUSE
    assert ports.bind(TCP, address("10.0.0.2", 7000)).port == 7000
    assert ports.bind(UDP, address("10.0.0.1", 7000)).port == 7000
    assert ports.bind(TCP, address("::", 7000)).port == 7000


def test_a_port_is_free_when_it_was_given_back():
    ports = PortNumbers(seed=1)
    binding = ports.bind(TCP, address("10.0.0.1", 7000))
    ports.release(binding)
    ports.release(binding)
    ports.bind(TCP, address("0.0.0.0", 7000))


def test_reuse_shares_a_port_while_nobody_listens():
    ports = PortNumbers(seed=1)
    one = ports.bind(TCP, address("10.0.0.1", 7000), reuse=True)
    other = ports.bind(TCP, address("10.0.0.1", 7000), reuse=True)
    assert code_of(ports.bind, TCP, address("10.0.0.1", 7000)) == errno.EADDRINUSE
    assert code_of(ports.listen, one) == errno.EADDRINUSE
    ports.release(other)
    ports.listen(one)
    assert code_of(ports.bind, TCP, address("10.0.0.1", 7000), reuse=True) == errno.EADDRINUSE


def test_who_names_no_port_gets_a_free_one():
    ports = PortNumbers(seed=1)
    found = {ports.bind(TCP, address("10.0.0.1")).port for _ in range(200)}
    assert len(found) == 200
    assert all(FIRST_EPHEMERAL <= port <= LAST_EPHEMERAL for port in found)


def test_ports_end(monkeypatch):
    monkeypatch.setattr("softhca.driver.rdmacm.port_numbers.LAST_EPHEMERAL", FIRST_EPHEMERAL)
    ports = PortNumbers(seed=1)
    ports.bind(TCP, address("10.0.0.1"))
    assert code_of(ports.bind, TCP, address("10.0.0.1")) == errno.EADDRNOTAVAIL


# states


WAYS = {
    "active": [
        (states.BIND, states.BOUND),
        (states.RESOLVE_ADDRESS, states.RESOLVED),
        (states.RESOLVE_ROUTE, states.ROUTED),
        (states.CONNECT, states.CONNECTING),
        (states.RESPONSE, states.RESPONDED),
        (states.ESTABLISH, states.CONNECTED),
        (states.DISCONNECT, states.CLOSING),
        (states.GONE, states.DISCONNECTED),
        (states.OVER, states.CLOSED),
        (states.REMOVAL, states.REMOVED),
        (states.DISCONNECT, states.REMOVED),
    ],
    "passive": [
        (states.ACCEPT, states.ACCEPTED),
        (states.READY, states.CONNECTED),
        (states.GOODBYE, states.DISCONNECTED),
        (states.DISCONNECT, states.DISCONNECTED),
        (states.OVER, states.CLOSED),
        (states.DISCONNECT, states.CLOSED),
    ],
    "listening": [(states.BIND, states.BOUND), (states.LISTEN, states.LISTENING)],
}
ALLOWED = {
    "IDLE": "bind, resolve address, listen",
    "BOUND": "resolve address, listen, join multicast, device removal",
    "RESOLVED": "resolve route, join multicast, device removal",
    "ROUTED": "connect, join multicast, device removal",
    "CONNECTING": "disconnect, response, refusal, unreachable, device removal",
    "RESPONDED": "reject, establish, disconnect, refusal, unreachable, disconnect request, device removal",
    "REQUESTED": "accept, reject, refusal, unreachable, device removal",
    "ACCEPTED": "disconnect, ready to use, refusal, unreachable, disconnect request, device removal",
    "CONNECTED": "disconnect, join multicast, disconnect request, disconnected, device removal",
    "CLOSING": "disconnect, disconnect request, disconnected, device removal",
    "CLOSED": "disconnect, device removal",
    "LISTENING": "device removal",
    "DISCONNECTED": "disconnect, time-wait over, device removal",
    "REMOVED": "disconnect",
}


@pytest.mark.parametrize("way", WAYS)
def test_the_usual_ways(way):
    state = states.REQUESTED if way == "passive" else states.IDLE
    for step, expected in WAYS[way]:
        message = states.on_message(state, step)
        state = states.after(state, step) if step < states.RESPONSE else message
        assert state == expected


@pytest.mark.parametrize("state", range(len(states.STATES)))
@pytest.mark.parametrize("step", range(len(states.INPUTS)))
def test_every_cell(state, step):
    allowed = states.INPUTS[step] in ALLOWED[states.STATES[state]].split(", ")
    if step >= states.RESPONSE:
        assert (states.on_message(state, step) is not None) == allowed
    elif allowed:
        assert states.after(state, step) in range(len(states.STATES))
    else:
        assert code_of(states.after, state, step) == errno.EINVAL
