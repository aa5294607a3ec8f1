"""Rules of RDMA CM's identifiers that programs rarely meet, by owners and devices that a test makes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from rdmacm_parts import Device, address, owner_of

from softhca.driver.connections import (
    CM_DISCONNECTED,
    CM_SIDR_REPLY,
    CM_UNREACHABLE,
    CmEvent,
    CmPath,
    CmQueuePair,
)
from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import connecting, events, groups, listening, queue_pairs, states
from softhca.driver.rdmacm.connecting import Connection
from softhca.driver.rdmacm.events import ConnectionParameters, EventChannel
from softhca.driver.rdmacm.groups import Groups
from softhca.driver.rdmacm.listening import Listener
from softhca.driver.rdmacm.local_devices import LocalDevices
from softhca.driver.rdmacm.port_numbers import PortNumbers
from softhca.driver.rdmacm.routes import Route, index_of
from softhca.management.group_queries import GroupAnswer
from softhca.management.ip_service import TCP, UDP

# port numbers


@pytest.mark.parametrize("first", ["0.0.0.0", "127.9.0.1"])
def test_a_port_of_all_addresses_is_one_of_each(first: str) -> None:
    ports = PortNumbers(1)
    held = ports.bind(TCP, address(first, 7000))
    for other in ("0.0.0.0", "127.9.0.1"):
        with pytest.raises(DriverError) as refused:
            ports.bind(TCP, address(other, 7000))
        assert refused.value.errno == errno.EADDRINUSE
    ports.bind(UDP, address(first, 7000))
    ports.release(held)
    ports.bind(TCP, address(first, 7000))


def test_a_port_that_was_given_back_is_free_for_who_names_none() -> None:
    ports = PortNumbers(1)
    held = ports.bind(TCP, address("127.9.0.1"))
    ports.release(held)
    ports.release(held)
    assert ports._bound == {}
    assert PortNumbers(1).bind(TCP, address("127.9.0.1")).port == held.port


# listeners


class Port:
    """A port that listens, or refuses to."""

    def __init__(self, refuses: bool = False) -> None:
        self.refuses = refuses
        self.listening: list[int] = []

    def listen(self, service: int, backlog: int, taker: object) -> None:
        if self.refuses:
            raise DriverError(errno.EADDRINUSE, "refused")
        self.listening.append(backlog)

    def stop(self, service: int, taker: object) -> None:
        self.listening.pop()


def listener_of(monkeypatch: pytest.MonkeyPatch, ports: list[Port], backlog: int = 0) -> tuple[Any, Callable]:
    """An owner at all devices, whose ports are these, and what makes it listen."""
    by_device = {f"device{number}": port for number, port in enumerate(ports)}
    monkeypatch.setattr(listening, "port_of", lambda device, number: by_device[device])
    released: list[str] = []
    places = [SimpleNamespace(device=device, port=1) for device in by_device]
    owner = owner_of(
        local=None, released=released, attached=[],
        devices=SimpleNamespace(all=lambda: places, release=released.append),
    )  # fmt: skip
    owner.attach = owner.attached.append
    return owner, lambda: Listener(owner, backlog)


def test_a_listener_that_one_port_refuses_lets_go_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = [Port(), Port(refuses=True), Port()]
    owner, listen = listener_of(monkeypatch, ports)
    with pytest.raises(DriverError, match="refused"):
        listen()
    assert [port.listening for port in ports] == [[], [], []]
    assert sorted(owner.released) == ["device0", "device1", "device2"]
    assert owner.attached == []


@pytest.mark.parametrize(("asked", "waits"), [(0, 128), (-1, 128), (5, 5), (1024, 1024), (1025, 1024)])
def test_as_many_requests_wait_as_an_adapter_takes(
    monkeypatch: pytest.MonkeyPatch, asked: int, waits: int
) -> None:
    port = Port()
    _, listen = listener_of(monkeypatch, [port], asked)
    listen()
    assert port.listening == [waits]


# connections


def event_of(kind: int, status: int = 0) -> CmEvent:
    nowhere = CmPath(bytes(16)), CmQueuePair(0, 0)
    return CmEvent(kind, 1, 0, status, 0, 0, bytes(16), *nowhere, 0xFFFF, 0, b"")


def test_more_retries_than_there_are_are_the_most() -> None:
    connection = Connection(owner_of())
    for wanted, gets in ((3, 3), (7, 7), (8, 7), (255, 7)):
        end = connection._end(ConnectionParameters(retry_count=wanted, rnr_retry_count=wanted), None)
        assert (end.retry_cnt, end.rnr_retry) == (gets, gets)


def test_a_service_that_is_refused_closes_who_asked() -> None:
    owner = owner_of(state=states.CONNECTING, connected=False, space=UDP)
    refused = event_of(CM_SIDR_REPLY, 2)
    found = Connection(owner)._take(refused)
    assert found is not None
    assert (found.kind, found.status, owner.state) == (events.UNREACHABLE, 2, states.CLOSED)


def test_a_connection_that_its_peer_has_forgotten_flushes_what_is_posted() -> None:
    changed: list[dict[str, Any]] = []
    owner = owner_of(queue_pair=SimpleNamespace(modify=changed.append))
    found = Connection(owner)._take(event_of(CM_DISCONNECTED))
    assert found is not None
    assert (found.kind, owner.state) == (events.DISCONNECTED, states.DISCONNECTED)
    assert changed == [{"qp_state": queue_pairs.ERR}]


def test_a_datagram_service_that_nobody_answers_for_flushes_nothing() -> None:
    changed: list[dict[str, Any]] = []
    pair = SimpleNamespace(modify=changed.append)
    owner = owner_of(state=states.CONNECTING, connected=False, space=UDP, queue_pair=pair)
    found = Connection(owner)._take(event_of(CM_UNREACHABLE))
    assert found is not None
    assert (found.kind, owner.state, changed) == (events.UNREACHABLE, states.CLOSED, [])


def test_an_answer_that_the_adapter_refuses_leaves_the_request_open() -> None:
    def refuse(*arguments: object) -> None:
        raise DriverError(errno.EINVAL, "private_data: too many")

    owner = owner_of(state=states.REQUESTED, connected=False, space=UDP)
    connection = Connection(owner)
    connection._port = SimpleNamespace(channel=SimpleNamespace(answer=refuse))  # type: ignore[assignment]
    with pytest.raises(DriverError, match="too many"):
        connection.accept()
    assert owner.state == states.REQUESTED


def test_a_request_names_no_more_than_the_route_s_mtu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[CmPath] = []
    channel = SimpleNamespace(connect=lambda service, path, *rest: asked.append(path) or 1)
    port = SimpleNamespace(channel=channel, register=lambda number, receiver: None)
    monkeypatch.setattr(connecting, "port_of", lambda device, number: port)
    for route, place in ((3, 5), (5, 3)):
        owner = owner_of(state=states.ROUTED, route=Route(7, mtu=route))
        owner.place.mtu = place
        Connection(owner).connect()
    assert [path.path_mtu for path in asked] == [3, 3]


def test_a_queue_pair_answers_no_more_reads_than_was_agreed() -> None:
    owner = owner_of()
    owner.connection = SimpleNamespace(
        peer=CmQueuePair(9, 1, initiator_depth=8), path=CmPath(bytes(16)),
        own=CmQueuePair(3, 7, responder_resources=2),
    )  # fmt: skip
    assert queue_pairs.attributes(owner, queue_pairs.RTR)["max_dest_rd_atomic"] == 2
    owner.connection.own = None
    assert queue_pairs.attributes(owner, queue_pairs.RTR)["max_dest_rd_atomic"] == 8


# groups


def test_a_group_of_the_other_ip_version_is_refused() -> None:
    joined = Groups(owner_of())
    for other in ("ff12::1", "127.9.0.1"):
        with pytest.raises(DriverError) as refused:
            joined.join(address(other))
        assert refused.value.errno == errno.EINVAL
    assert joined._joined == {}


def test_who_leaves_while_he_joins_is_in_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    group = address("239.1.2.3")
    device = Device()
    owner = owner_of(queue_pair=SimpleNamespace(device=device, number=3))
    owner.place.is_native = True
    joined = Groups(owner)
    answer = GroupAnswer(0, bytes(16), 5, 0xC001, 0, 0, 0)

    def answered(*arguments: object) -> GroupAnswer:
        if leaves:
            joined.leave(group)
        return answer

    monkeypatch.setattr(groups, "join_group", answered)
    leaves = True
    joined.join(group)
    assert device.noted == []
    leaves = False
    joined.join(group)
    assert device.noted == [("attach", 3, bytes(16), 0xC001)]
    found = owner.posted[-1]()
    assert found.datagram.vector["hop_limit"] == 1  # a group's hop limit of 0 leads nowhere


# events and devices


def test_an_event_of_a_program_s_call_wakes_who_waits_at_a_device() -> None:
    channel, device = EventChannel(), Device()
    identifier: Any = SimpleNamespace(lost=lambda: None)
    identifiers: Any = device
    channel.attach(identifiers, Hashed(identifier))
    channel.post(identifier, lambda: None, here=False)
    assert device.noted == []
    channel.post(identifier, lambda: None)
    assert device.noted == ["wake"]
    channel.close()


class Hashed:
    """An identifier that can be a key."""

    def __init__(self, identifier: Any) -> None:
        self.lost = identifier.lost


def test_an_empty_entry_of_a_table_of_keys_is_no_partition() -> None:
    device = SimpleNamespace(
        query_port=lambda port: {"pkey_tbl_len": 3}, query_pkey=lambda port, index: (0xFFFF, 0, 0x0012)[index]
    )
    place: Any = SimpleNamespace(device=device, port=1)
    assert [index_of(place, key) for key in (0x7FFF, 0x8012, 0x8000, 0)] == [0, 2, -1, -1]


def test_a_device_whose_ports_cannot_be_asked_is_closed() -> None:
    class Dumb:
        alive = True
        events = SimpleNamespace(waits=True, gid_changes=lambda: 0)

        def query_device(self) -> None:
            raise DriverError(errno.EIO, "the adapter does not answer")

        def close(self) -> None:
            self.alive = False

    made = Dumb()
    devices = LocalDevices(lambda: ["one"], lambda name: made)  # type: ignore[arg-type, return-value]
    with pytest.raises(DriverError) as refused:
        devices.at(address("127.9.0.1"))
    assert refused.value.errno == errno.EIO
    assert not made.alive
    assert not devices.adapters.open_adapters()
