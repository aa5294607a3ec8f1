"""Hostile management datagrams at the dispatchers of a port: nothing raises, everything stays bounded, each
datagram has one fate that is counted, and what is answered can be sent.

Input: which queue pair; then one datagram after another: what it is made from, what is wrong with it, whether
it comes from the wire or from a client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fuzz_choices import Choices

from softhca.management import constants as c
from softhca.management.agents import ServiceAgent, SubnetManagementAgent
from softhca.management.attributes import NodeInfo, PortInfo
from softhca.management.dispatcher import MAX_OUTSTANDING, Client, Dispatcher
from softhca.management.mad import Address, Mad, MadHeader

SOURCES = tuple(Address(qpn=1, lid=lid, gid=gid) for lid, gid in ((0, bytes(16)), (5, None), (0xFFFF, None)))
CLASSES = (c.CLASS_SUBN_LID, c.CLASS_SUBN_DIRECTED, c.CLASS_SUBN_ADM, c.CLASS_PERF, c.CLASS_COMM_MGT, 0x32)
METHODS = (1, 2, c.METHOD_SEND, c.METHOD_TRAP, c.METHOD_GET_RESPONSE, c.METHOD_GET_TABLE)
ATTRIBUTES = (
    c.ATTRIBUTE_CLASS_PORT_INFO,
    c.ATTRIBUTE_NODE_DESCRIPTION,
    c.ATTRIBUTE_NODE_INFO,
    c.ATTRIBUTE_PORT_INFO,
)
MOST_SENT = 8
FATES = ("answered", "delivered", "drops_client_full")


class Node:
    """One port that refuses every second LID."""

    description = "fuzz"

    def __init__(self) -> None:
        self.info = PortInfo(lid=4)

    def node_info(self) -> NodeInfo:
        return NodeInfo()

    def port_info(self, port_number: int) -> PortInfo | None:
        return self.info if port_number in (0, 1) else None

    def set_port_info(self, port_number: int, values: Mapping[str, int]) -> None:
        if values["lid"] & 1:
            raise ValueError("an odd LID")
        self.info = replace(self.info, **values)


class Place:
    """A dispatcher with agents and two clients."""

    def __init__(self, qpn: int) -> None:
        self.sent: list[tuple[bytes, Address]] = []
        self.got: list[bytes] = []
        self.dispatcher = Dispatcher(1, qpn, self.transmit)
        if qpn == c.SUBNET_QPN:
            for each in sorted(c.SUBNET_CLASSES):
                self.dispatcher.register(SubnetManagementAgent(each, Node()))
        else:
            self.dispatcher.register(ServiceAgent(c.CLASS_PERF))
        own = c.CLASS_SUBN_DIRECTED if qpn == c.SUBNET_QPN else c.CLASS_COMM_MGT
        self.clients = [Client(own, 1, methods, self.deliver) for methods in ({c.METHOD_SEND}, set())]
        for client in self.clients:
            self.dispatcher.register(client)

    def transmit(self, data: bytes, address: Address) -> bool:
        assert len(data) == c.MAD_BYTES
        self.sent.append((data, address))
        return len(self.sent) <= MOST_SENT

    def deliver(self, data: bytes, address: Address) -> bool:
        assert len(data) == c.MAD_BYTES
        self.got.append(data)
        return len(self.got) <= MOST_SENT


def datagram(choices: Choices, place: Place) -> bytes:
    """A sound one, one that was sent before, or any bytes; then some of its bytes changed."""
    kind = choices.below(4)
    if kind == 0:
        return choices.run()
    if kind == 1 and place.sent:
        mad = Mad.decode(choices.pick(place.sent)[0])
        data = bytearray((mad.response() if choices.below(2) else mad).encode())
    else:
        header = MadHeader(
            management_class=choices.pick(CLASSES),
            method=choices.pick(METHODS),
            attribute_id=choices.pick(ATTRIBUTES),
            attribute_modifier=choices.below(3),
            class_specific=choices.below(4) << 8 | choices.below(3),
            status=c.DIRECTION if choices.once_in(2) else 0,
            transaction_id=choices.number(2),
        )
        data = bytearray(Mad.make(header, choices.block(64)).encode())
        if choices.below(2):
            data[32:36] = b"\xff" * 4  # permissive LIDs
            data[129] = data[193] = 1
    for _ in range(choices.below(3)):
        data[choices.byte()] = choices.byte()
    return bytes(data)


def one_input(data: bytes) -> None:
    choices = Choices(data)
    place = Place(choices.below(2))
    dispatcher = place.dispatcher
    while choices.more:
        mad = datagram(choices, place)
        source = choices.pick(SOURCES)
        before = dict(dispatcher.counters)
        if choices.below(2):
            dispatcher.receive(mad, source)
            counted = {name: n - before[name] for name, n in dispatcher.counters.items() if n != before[name]}
            assert counted.pop("received") >= 1
            assert counted, "a datagram without a fate"
        else:
            try:
                dispatcher.send(choices.pick(place.clients), mad, source)
            except OSError:
                assert dispatcher.counters["sent"] == before["sent"]
        assert dispatcher.outstanding() <= MAX_OUTSTANDING
        assert all(count >= before[name] for name, count in dispatcher.counters.items())
    for client in place.clients:
        dispatcher.unregister(client)
    assert dispatcher.outstanding() == 0


def seeds() -> Iterator[bytes]:
    """Requests of every kind, and a request with its response."""
    for qpn in (0, 1):
        for number, _ in enumerate(CLASSES):
            for method in range(len(METHODS)):
                yield bytes([qpn, 2, number, method, method % 4, 0, 1, 1, 1, 0, 7]) + bytes(64) + b"\1\0\0\1"
    send = bytes([1, 2, 4, 0, 0, 0, 0, 0, 1, 0, 7]) + bytes(64) + bytes([0, 0, 0, 0, 0])
    yield send + bytes([1, 0, 1, 0, 0, 1])
