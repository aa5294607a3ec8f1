"""What is asked of the kernel over rtnetlink, and what is made of its answers; the kernel is a script."""

from __future__ import annotations

import errno
import socket
import struct
from typing import Any

import pytest

from softhca.links import interfaces, netlink
from softhca.links.netlink import InterfaceAddress

OWN, PEER, FAR = bytes((198, 18, 0, 1)), bytes((198, 18, 0, 2)), bytes((192, 0, 2, 1))
NEW_ADDRESS, NEW_ROUTE = 20, 24
DESTINATION, INTERFACE, GATEWAY, MULTIPATH, VIA = 1, 4, 5, 9, 18


def message(kind: int, body: bytes, sequence: int = 1) -> bytes:
    """One message as the kernel sends it, with the padding behind it."""
    padding = bytes(-len(body) % 4)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, sequence, 0) + body + padding


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value


class Kernel:
    """A netlink socket: ``replies`` are packets; what was asked is in ``asked``."""

    def __init__(self, *replies: bytes) -> None:
        self.replies = list(replies)
        self.asked: list[bytes] = []

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def settimeout(self, _: float) -> None:
        pass

    def send(self, data: bytes) -> None:
        self.asked.append(data)

    def recv(self, _: int) -> bytes:
        return self.replies.pop(0)


def kernel(monkeypatch: pytest.MonkeyPatch, *replies: bytes) -> Kernel:
    made = Kernel(*replies)

    def open_one(*_: Any) -> Kernel:
        return made

    monkeypatch.setattr(socket, "socket", open_one)
    return made


def route_of(*attributes: bytes) -> bytes:
    return message(NEW_ROUTE, struct.pack("=BBBBBBBBI", 2, 32, 32, 0, 0, 0, 0, 1, 0) + b"".join(attributes))


@pytest.mark.parametrize("between", [GATEWAY, VIA, MULTIPATH])
def test_a_route_by_way_of_anybody_is_not_on_the_link(monkeypatch: pytest.MonkeyPatch, between: int) -> None:
    kernel(monkeypatch, route_of(attribute(INTERFACE, struct.pack("=I", 7)), attribute(between, bytes(8))))
    answer = netlink.route(OWN, FAR)
    assert (answer.local, answer.interface_index, answer.on_link) == (False, 7, False)


def test_a_route_without_anybody_between_is_on_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, route_of(attribute(INTERFACE, struct.pack("=I", 7)), attribute(DESTINATION, FAR)))
    assert netlink.route(OWN, FAR).on_link


@pytest.mark.parametrize("scope", [0, 5])
def test_a_link_local_destination_is_asked_for_on_its_interface(
    monkeypatch: pytest.MonkeyPatch, scope: int
) -> None:
    asked = kernel(monkeypatch, route_of()).asked
    netlink.route(bytes(16), bytes(16), scope)
    found = netlink._attributes(asked[0][16 + 12 :])
    assert found.get(INTERFACE) == (struct.pack("=I", scope) if scope else None)


def test_the_last_attribute_may_be_empty() -> None:
    assert netlink._attributes(struct.pack("=HHI", 8, 3, 5) + struct.pack("=HH", 4, 7)) == {
        3: struct.pack("=I", 5), 7: b"",
    }  # fmt: skip


def test_the_errno_of_the_kernel_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, message(2, struct.pack("=i", -errno.ENETUNREACH)))
    with pytest.raises(OSError, match="route look-up") as refused:
        netlink.route(OWN, FAR)
    assert refused.value.errno == errno.ENETUNREACH


def test_of_a_point_to_point_interface_the_near_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def address_of(*attributes: bytes) -> bytes:
        return message(NEW_ADDRESS, struct.pack("=BBBBI", 2, 30, 0, 0, 9) + b"".join(attributes))

    first = address_of(attribute(1, PEER), attribute(2, OWN)) + message(99, b"odd")
    kernel(monkeypatch, first + address_of(attribute(1, FAR)), address_of() + message(3, b""))
    assert netlink.addresses() == [InterfaceAddress(9, OWN, 30), InterfaceAddress(9, FAR, 30)]


def test_only_127_8_is_the_loopback_s_whatever_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    index = socket.if_nametoindex("lo")
    entries = [InterfaceAddress(index + 1000, b"\x7f" + bytes(15), 64)]
    monkeypatch.setattr(netlink, "addresses", lambda: entries)
    with pytest.raises(OSError, match="no interface"):
        interfaces.interface_of_address("127.0.0.9")
    entries.append(InterfaceAddress(index, bytes((127, 0, 0, 1)), 8))
    assert interfaces.interface_of_address("127.0.0.9") == "lo"


@pytest.mark.parametrize("name", ["", "i" * 16])
def test_a_name_that_the_kernel_has_no_room_for_is_none(name: str) -> None:
    with pytest.raises(ValueError, match="no interface name"):
        interfaces.mtu_of_interface(name)


def address(packed: bytes, flags: int, *attributes: bytes, family: int | None = None) -> bytes:
    family = family or (socket.AF_INET if len(packed) == 4 else socket.AF_INET6)
    body = struct.pack("=BBBBI", family, 64, flags, 0, 9) + attribute(1, packed) + b"".join(attributes)
    return message(NEW_ADDRESS, body)


@pytest.mark.parametrize(
    ("flags", "wide", "usable"),
    [
        (0, None, True), (0x80, None, True), (0x40, None, False), (0x08, None, False),
        (0, 0x40, False), (0x40, 0x100, True), (0, 0x08, False),
    ],
)  # fmt: skip
def test_an_address_that_is_still_probed_for_or_somebody_else_s_is_not_usable(
    monkeypatch: pytest.MonkeyPatch, flags: int, wide: int | None, usable: bool
) -> None:
    further = [] if wide is None else [attribute(8, struct.pack("=I", wide))]
    kernel(monkeypatch, address(bytes(15) + b"\1", flags, *further) + message(3, b""))
    assert netlink.addresses() == [InterfaceAddress(9, bytes(15) + b"\1", 64, usable)]


def test_flags_of_another_length_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, address(OWN, 0x40, attribute(8, b"\0\0")) + message(3, b""))
    assert not netlink.addresses()[0].usable


def test_what_is_no_address_of_its_family_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = [
        message(NEW_ADDRESS, bytes(7)), address(OWN, 0, family=socket.AF_INET6),
        address(bytes(16), 0, family=socket.AF_INET), address(bytes(5), 0), address(OWN, 0, family=77),
    ]  # fmt: skip
    kernel(monkeypatch, b"".join(odd) + address(FAR, 0) + message(3, b""))
    assert netlink.addresses() == [InterfaceAddress(9, FAR, 64)]


def test_a_dump_that_a_change_came_between_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(data: bytes) -> bytes:
        return data[:6] + struct.pack("=H", 0x10) + data[8:]

    first = address(OWN, 0) + interrupted(address(PEER, 0))
    made = kernel(monkeypatch, first, address(FAR, 0) + message(3, b""))
    assert netlink.addresses() == [InterfaceAddress(9, FAR, 64)]
    assert len(made.asked) == 2
    kernel(monkeypatch, *[address(OWN, 0) + interrupted(message(3, b""))] * 9)
    with pytest.raises(InterruptedError):
        netlink.addresses()
