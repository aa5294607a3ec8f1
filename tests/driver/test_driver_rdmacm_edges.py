"""What takes queue pairs of identifiers to their states, which options and addresses there are, and which
listeners are apart."""

from __future__ import annotations

import errno
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from native_route_port import PEER, Device, place
from rdmacm_parts import Lock, address, owner_of

from softhca.driver.connections import CmPath, CmQueuePair
from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import queue_pairs, states
from softhca.driver.rdmacm.addresses import SocketAddress, look_up, of_gid
from softhca.driver.rdmacm.identifier import (
    OPTION_ACK_TIMEOUT,
    OPTION_AFONLY,
    OPTION_REUSEADDR,
    OPTION_TOS,
    Identifier,
)
from softhca.driver.rdmacm.listening import Listener
from softhca.driver.rdmacm.routes import Route, find_route
from softhca.queues.states import ERR, INIT, RTR, RTS

RIGHTS = 2 | 4 | 8


def code_of(call: Any, *arguments: Any) -> int:
    with pytest.raises(DriverError) as refused:
        call(*arguments)
    return refused.value.errno or 0


# queue pairs


def connected_owner(**values: Any) -> Any:
    owner = owner_of(route=Route(pkey_index=3), **values)
    peer = CmQueuePair(
        9, 11, responder_resources=6, initiator_depth=8, retry_cnt=5, rnr_retry=7,
    )  # fmt: skip
    own = CmQueuePair(3, 7, responder_resources=2, initiator_depth=4, retry_cnt=3, rnr_retry=2)
    path = CmPath(PEER, sl=4, ack_timeout=16, path_mtu=3, lid=77)
    owner.connection = SimpleNamespace(peer=peer, own=own, path=path, active=False)
    return owner


def test_a_queue_pair_begins_with_rights_or_with_the_key_of_all_datagrams() -> None:
    common = {"qp_state": INIT, "pkey_index": 3, "port_num": 1}
    assert queue_pairs.attributes(connected_owner(), INIT) == {**common, "qp_access_flags": RIGHTS}
    assert queue_pairs.attributes(connected_owner(connected=False), INIT) == {**common, "qkey": 0x01234567}
    datagrams = connected_owner(connected=False)
    assert queue_pairs.attributes(datagrams, RTR) == {"qp_state": RTR}
    assert queue_pairs.attributes(datagrams, RTS) == {"qp_state": RTS, "sq_psn": 7}
    assert code_of(queue_pairs.attributes, datagrams, ERR) == errno.EINVAL


@pytest.mark.parametrize(("native", "gid"), [(False, PEER), (True, None)])
def test_only_packets_to_another_subnet_have_a_global_header(native: bool, gid: bytes | None) -> None:
    owner = connected_owner()
    owner.place.is_native = native
    found = queue_pairs.attributes(owner, RTR)
    vector = found["ah_attr"]
    assert bool(vector.get("is_global", 0)) is (gid is not None)
    assert (vector.get("dlid"), vector.get("sl")) == (77, 4)
    assert (found["path_mtu"], found["dest_qp_num"], found["rq_psn"], found["pkey_index"]) == (3, 9, 7, 3)
    owner.place.mtu = 2
    assert queue_pairs.attributes(owner, RTR)["path_mtu"] == 2


@pytest.mark.parametrize(("own", "peer", "timer"), [(7, 1, 22), (6, 7, 0), (None, 7, 22), (None, 6, 0)])
def test_a_peer_that_tries_for_ever_is_soon_asked_again(own: int | None, peer: int, timer: int) -> None:
    owner = connected_owner()
    owner.connection.peer = CmQueuePair(9, 11, rnr_retry=peer)
    owner.connection.own = None if own is None else CmQueuePair(3, 7, rnr_retry=own)
    assert queue_pairs.attributes(owner, RTR)["min_rnr_timer"] == timer


@pytest.mark.parametrize("active", [False, True])
def test_who_asks_has_its_own_retries_and_each_the_depth_that_it_has_named(active: bool) -> None:
    owner = connected_owner()
    owner.connection.active = active
    assert queue_pairs.attributes(owner, RTS) == {
        "qp_state": RTS, "sq_psn": 11, "timeout": 16, "retry_cnt": 3 if active else 5, "rnr_retry": 7,
        "max_rd_atomic": 4,
    }  # fmt: skip
    owner.connection.own, owner.ack_timeout = None, 0
    found = queue_pairs.attributes(owner, RTS)
    assert (found["retry_cnt"], found["max_rd_atomic"], found["timeout"]) == (5, 6, 0)


@pytest.mark.parametrize("missing", ["peer", "path"])
@pytest.mark.parametrize("state", [RTR, RTS])
def test_a_queue_pair_without_a_peer_goes_nowhere(missing: str, state: int) -> None:
    owner = connected_owner()
    setattr(owner.connection, missing, None)
    assert code_of(queue_pairs.attributes, owner, state) == errno.EINVAL


# options


def identifier(state: Any = states.IDLE) -> Any:
    return SimpleNamespace(
        lock=Lock(), state=state, traffic_class=1, ack_timeout=None, reuse=False, family_only=None
    )


@pytest.mark.parametrize(
    ("option", "name", "good", "bad"),
    [
        (OPTION_TOS, "traffic_class", (0, 255), (-1, 256)),
        (OPTION_ACK_TIMEOUT, "ack_timeout", (0, 31), (-1, 32)),
    ],
)
def test_options_have_their_range(option: int, name: str, good: Any, bad: Any) -> None:
    owner = identifier(states.CONNECTED)
    for value in good:
        Identifier.set_option(owner, option, value)
        assert getattr(owner, name) == value
    for value in bad:
        assert code_of(Identifier.set_option, owner, option, value) == errno.EINVAL
        assert getattr(owner, name) == good[-1]


def test_how_to_be_bound_is_said_before() -> None:
    owner = identifier()
    Identifier.set_option(owner, OPTION_REUSEADDR, 1)
    assert (owner.reuse, owner.family_only) == (True, None)
    Identifier.set_option(owner, OPTION_AFONLY, 1)
    Identifier.set_option(owner, OPTION_REUSEADDR, 0)
    assert (owner.reuse, owner.family_only) == (False, True)
    for option in (OPTION_REUSEADDR, OPTION_AFONLY):
        assert code_of(Identifier.set_option, identifier(states.CONNECTED), option, 1) == errno.EINVAL
    assert code_of(Identifier.set_option, owner, 4, 1) == errno.ENOSYS


# listeners

HERE, THERE = SimpleNamespace(address="here"), SimpleNamespace(address="there")


def listener(text: str, local: Any = None, family_only: bool | None = None) -> Any:
    owner = SimpleNamespace(source=address(text, 9), local=local, family_only=family_only)
    return SimpleNamespace(_owner=owner)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (("127.0.0.1", HERE), ("127.0.0.1", THERE), True),
        (("127.0.0.1", HERE), ("127.0.0.1", HERE), False),
        (("127.0.0.1", HERE), ("0.0.0.0", None), False),
        (("0.0.0.0", None), ("0.0.0.0", None), False),
        (("::", None), ("0.0.0.0", None), False),
        (("::", None, True), ("0.0.0.0", None), True),
        (("::", None, False), ("127.0.0.1", HERE), False),
        (("2001:db8::1", HERE), ("0.0.0.0", None), True),
    ],
)
def test_listeners_are_apart_by_their_address_or_its_version(one: Any, other: Any, apart: bool) -> None:
    first, second = listener(*one), listener(*other)
    assert Listener.is_apart(first, second) is apart
    assert Listener.is_apart(second, first) is apart


# addresses


def test_a_link_local_gid_is_of_an_interface() -> None:
    local, mapped = bytes.fromhex("fe80") + bytes(14), bytes(10) + b"\xff\xff" + bytes([10, 1, 2, 3])
    assert of_gid(local, 5, 3) == SocketAddress(local, 5, 3)
    assert of_gid(PEER, 5, 3) == SocketAddress(PEER, 5, 3 if PEER.startswith(b"\xfe\x80") else 0)
    assert of_gid(bytes.fromhex("2001") + bytes(14), 5, 3).scope == 0
    assert of_gid(mapped, 5, 3) == SocketAddress(bytes([10, 1, 2, 3]), 5)


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (socket.gaierror(socket.EAI_AGAIN, "later"), errno.EAGAIN),
        (socket.gaierror(socket.EAI_SERVICE, "no such service"), errno.EINVAL),
        (socket.gaierror(socket.EAI_FAIL, "something else"), errno.EADDRNOTAVAIL),
        (OSError(errno.ENETDOWN, "down"), errno.ENETDOWN),
        (UnicodeError("no name"), errno.EINVAL),
    ],
    ids=["again", "service", "other", "system", "name"],
)
def test_what_the_resolver_says_is_an_errno(monkeypatch: Any, raised: Exception, code: int) -> None:
    asked = []

    def getaddrinfo(*arguments: Any, **options: Any) -> Any:
        asked.append(options["flags"])
        raise raised

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert code_of(look_up, "host", "1") == code
    assert code_of(look_up, "host", "1", True) == code
    assert code_of(look_up, "host", "1", False, True) == code
    assert asked == [0, socket.AI_PASSIVE, socket.AI_NUMERICHOST]


@pytest.mark.parametrize("facts", [{"mtu": 1}, {"mtu": 5}, {"dlid": 0xBFFF}, {"dlid": 1}])
def test_routes_at_their_bounds_are_routes(facts: Any) -> None:
    found = find_route(place(Device(**facts)), PEER, 2000)
    for name, value in facts.items():
        assert getattr(found, name) == value
