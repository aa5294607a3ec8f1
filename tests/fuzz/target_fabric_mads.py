"""Hostile programs at a fabric: management datagrams in all classes, sessions of the simulator protocol, and
requests of the control socket.

Nothing raises, each datagram has one fate that is counted, what is answered goes to who asked, tables stay
bounded, and PortInfo can be told of every port whatever was set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from fuzz_choices import Choices

from softhca.fabric import umad_sessions as u
from softhca.fabric.generators import torus
from softhca.fabric.mad_plane import FATES, MadPlane
from softhca.fabric.node_state import LINEAR_ENTRIES
from softhca.fabric.subnet_agent import ATTRIBUTES
from softhca.management import constants as c
from softhca.management.attributes import PortInfo
from softhca.management.mad import MadHeader
from softhca.runtime.fabric_control import ControlError, perform

TOPOLOGY = torus([3])
CLASSES = (c.CLASS_SUBN_DIRECTED, c.CLASS_SUBN_LID, c.CLASS_PERF, c.CLASS_SUBN_ADM, 0x32)
METHODS = (1, 2, c.METHOD_TRAP_REPRESS, c.METHOD_TRAP, c.METHOD_GET_RESPONSE, 0x12, 3)
SUBNET = tuple(ATTRIBUTES)
PERFORMANCE = (c.ATTRIBUTE_CLASS_PORT_INFO, 0x12, 0x15, 0x16, 0x1D)
ENDS = tuple(f"{node.name}[{port}]" for node in TOPOLOGY.nodes for port in (0, 1, 2))
COUNTS = (*FATES, "drops_method", "refused_version", "refused_value", "refused_attribute", "drops_m_key")
MOST_STEPS = 60
STEP_NS = 1 << 28


def datagram(choices: Choices) -> bytes:
    """A packet of a program: mostly a sound request, then some of its bytes changed."""
    management_class = choices.pick(CLASSES)
    attributes = PERFORMANCE if management_class == c.CLASS_PERF else SUBNET
    hops = choices.below(5)
    header = MadHeader(
        management_class=management_class,
        method=choices.pick(METHODS),
        attribute_id=choices.pick(attributes),
        attribute_modifier=choices.pick((0, 1, 2, 3, 0x10001, 0x30002, choices.number(4))),
        class_specific=hops if management_class == c.CLASS_SUBN_DIRECTED else 0,
        transaction_id=choices.number(2),
    )
    mad = bytearray(header.encode().ljust(256, b"\0"))
    mad[32:36] = b"\xff" * 4
    mad[64:128] = choices.block(64) if choices.once_in(2) else bytes(64)
    mad[128:133] = bytes([0, *(1 + choices.below(4) for _ in range(4))])
    if choices.once_in(3):
        lid, state, m_key = choices.below(20), choices.below(5), choices.below(2)
        mad[64:128] = PortInfo(lid=lid, sm_lid=1, state=state, m_key=m_key).encode()
    for _ in range(choices.below(3)):
        mad[choices.byte()] = choices.byte()
    lids = [choices.pick((0, 1, 2, 9, 0xBFFF, 0xC000, 0xFFFF)) for _ in range(2)]
    packet = u.PACKET.pack(*lids, 1, 1, 0, 256, bytes(mad))
    return packet if not choices.once_in(16) else choices.run()


def one_input(data: bytes) -> None:
    choices = Choices(data)
    plane = MadPlane(TOPOLOGY)
    at = u.UmadSessions(plane)
    now = 0
    for _ in range(MOST_STEPS):
        if not choices.more:
            break
        kind = choices.below(8)
        now += STEP_NS if kind & 1 else 0
        if kind == 0:
            name = choices.pick((b"", b"h1", b"s1", b"nobody"))
            asked = u.CONTROL.pack(u.MAGIC, 0, u.CONNECT, 44, u._CONNECT.pack(7, 0, 0, name))
            at.control(asked, "a", now)
        elif kind == 1:
            asked = u.CONTROL.pack(u.MAGIC, choices.below(3), choices.below(12), 4, choices.block(8))
            reply = at.control(asked if choices.below(4) else choices.run(), choices.pick(("a", "b")), now)
            assert reply is None or len(reply) == u.CONTROL.size
        elif kind == 2:
            change(plane, choices, now)
        elif at.sessions:
            send(at, choices, now)
        plane.expire(now)
    check(plane)


def change(plane: MadPlane, choices: Choices, now: int) -> None:
    """A command on the control socket: sound, or any text that is JSON."""
    request: object = {
        "do": choices.pick(("fail", "restore", "count", "counters")),
        "link": choices.pick(ENDS),
        "errors": {choices.pick(("symbol_error", "xmit_data")): choices.byte()},
    }
    if choices.once_in(3):
        try:
            request = json.loads(choices.run())
        except (ValueError, RecursionError):
            return
    try:
        perform(plane, request, now)
    except ControlError as error:
        assert "\n" not in str(error)


def send(at: u.UmadSessions, choices: Choices, now: int) -> None:
    """One of the programs sends, and all read."""
    plane = at.plane
    session = choices.pick(list(at.sessions.values()))
    before = {name: plane.counters[name] for name in COUNTS}
    bad = at.counters["packets_bad"]
    packet = datagram(choices)
    at.receive(session, packet, now)
    counted = sum(plane.counters[name] - before[name] for name in COUNTS)
    assert counted >= 1 or at.counters["packets_bad"] == bad + 1
    for each in at.sessions.values():
        for told in each.outgoing:
            assert len(told) == u.PACKET.size
            answers = told[32 + 3] & c.RESPONSE
            assert each is session or not answers or packet[32 + 3] & c.RESPONSE, (
                "an answer to who did not ask"
            )
        each.outgoing.clear()
        at.ready.discard(each)


def check(plane: MadPlane) -> None:
    """All that was set is bounded, and can be told."""
    for node in plane.nodes:
        assert len(node.linear) <= LINEAR_ENTRIES
        assert all(each == 0xFF or each < len(node.ports) for each in node.linear)
        for port in node.ports:
            if port is None:
                continue
            assert PortInfo.decode(port.encoded) == port.info
            assert port.up == (port.info.phys_state == 5)
            assert len(port.pkeys) <= 2
            assert len(port.arbitration) <= 2
            assert len(port.sl_to_vl) <= len(node.ports)
            end = plane.topology.peer(node.index, port.number)
            other = plane.nodes[end.node].ports[end.port] if end is not None else None
            assert other is None or other.up == port.up


def seeds() -> Iterator[bytes]:
    """A program that attaches and asks every attribute, and one that sets them."""
    for management_class in range(len(CLASSES)):
        for method in (0, 1, 2):
            steps = b"".join(
                bytes(
                    [
                        4,
                        0 if management_class == 0 else 1,
                        management_class,
                        attribute,
                        hops,
                        method,
                        attribute,
                    ]
                )
                + bytes([0] * 8)
                for attribute in range(len(SUBNET))
                for hops in (0, 2)
            )
            yield bytes([0, 0]) + steps[:1800]
