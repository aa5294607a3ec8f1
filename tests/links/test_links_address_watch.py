"""What a watch of an interface's addresses makes of the kernel's notifications; the kernel is a script."""

from __future__ import annotations

import errno
import ipaddress
import struct
from typing import Any

import pytest

from softhca.links import address_watch, interfaces, netlink
from softhca.links.address_watch import MESSAGES_A_LOOK, AddressWatch
from softhca.links.netlink import InterfaceAddress

NEW_ADDRESS, DELETED_ADDRESS, NEW_LINK = 20, 21, 16
INDEX, OTHER = 9, 4


def message(kind: int, index: int = INDEX, length: int | None = None, body: bytes = b"") -> bytes:
    content = struct.pack("=BBBBI", 2, 24, 0, 0, index) + body
    return struct.pack("=IHHII", 16 + len(content) if length is None else length, kind, 0, 0, 0) + content


class Kernel:
    """A netlink socket: ``told`` are packets (with the sender's number) and errors, in their order."""

    def __init__(self) -> None:
        self.told: list[tuple[bytes, int] | OSError] = []
        self.bound: Any = None
        self.refuses: OSError | None = None
        self.closed = False

    def bind(self, address: Any) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.bound = address

    def fileno(self) -> int:
        return 77

    def recvfrom(self, _: int) -> tuple[bytes, tuple[int, int]]:
        if not self.told:
            raise BlockingIOError
        first = self.told.pop(0)
        if isinstance(first, OSError):
            raise first
        return first[0], (first[1], 0x10)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(address_watch.socket, "socket", lambda *_: made)
    monkeypatch.setattr(interfaces, "interface_of_address", lambda text: "eth9")
    monkeypatch.setattr(interfaces, "index_of_interface", lambda name: INDEX)
    return made


@pytest.fixture
def watch(kernel: Kernel) -> AddressWatch:
    return AddressWatch("10.0.0.1")


def test_it_listens_for_addresses_of_both_versions(kernel: Kernel, watch: AddressWatch) -> None:
    assert kernel.bound == (0, 0x110)
    assert (watch.fileno(), watch.interface) == (77, "eth9")
    watch.close()
    assert kernel.closed


def test_where_it_cannot_listen_nothing_is_left_open(kernel: Kernel) -> None:
    kernel.refuses = OSError(errno.EPERM, "no")
    with pytest.raises(OSError, match="no"):
        AddressWatch("10.0.0.1")
    assert kernel.closed


@pytest.mark.parametrize(
    ("told", "changed"),
    [
        ([message(NEW_ADDRESS)], True),
        ([message(DELETED_ADDRESS)], True),
        ([message(NEW_ADDRESS, OTHER)], False),
        ([message(DELETED_ADDRESS, INDEX + 256)], False),
        ([message(NEW_LINK)], False),
        ([message(NEW_LINK) + message(NEW_ADDRESS, OTHER) + message(DELETED_ADDRESS)], True),
        ([message(NEW_ADDRESS, OTHER, body=bytes(4)) + message(NEW_ADDRESS)], True),
        ([message(NEW_ADDRESS, OTHER), message(NEW_ADDRESS)], True),
        ([], False),
        ([b""], False),
        # no messages as they should be
        ([bytes(15)], True),
        ([message(NEW_ADDRESS, OTHER, length=15)], True),
        ([message(NEW_ADDRESS, OTHER, length=0)], True),
        ([message(NEW_ADDRESS, OTHER, length=25)], True),
        ([message(NEW_ADDRESS, OTHER)[:23]], True),
        ([message(NEW_ADDRESS, OTHER, length=23)], True),
        ([message(NEW_LINK, OTHER, length=20)], True),
        ([message(NEW_ADDRESS, OTHER) + b"\1"], True),
    ],
)
def test_what_may_have_changed(kernel: Kernel, watch: AddressWatch, told: list[bytes], changed: bool) -> None:
    kernel.told = [(each, 0) for each in told]
    assert watch.changed() is changed
    assert kernel.told == []
    assert watch.changed() is False


def test_a_message_ends_at_a_full_word(kernel: Kernel, watch: AddressWatch) -> None:
    kernel.told = [(message(NEW_LINK, length=17) + bytes(4) + message(NEW_ADDRESS), 0)]
    assert not netlink.may_change_addresses(message(NEW_LINK, length=21)[:24], INDEX)
    assert watch.changed()


def test_what_another_process_says_is_not_believed(kernel: Kernel, watch: AddressWatch) -> None:
    kernel.told = [(message(NEW_ADDRESS), 4711)]
    assert not watch.changed()


def test_lost_notifications_are_a_change(kernel: Kernel, watch: AddressWatch) -> None:
    kernel.told = [OSError(errno.ENOBUFS, "lost"), (message(NEW_ADDRESS, OTHER), 0)]
    assert watch.changed()
    assert kernel.told == []
    kernel.told = [OSError(errno.EIO, "odd"), (message(NEW_ADDRESS, OTHER), 0)]
    assert watch.changed()
    assert len(kernel.told) == 1
    assert not watch.changed()


def test_a_flood_is_taken_in_pieces(kernel: Kernel, watch: AddressWatch) -> None:
    kernel.told = [(message(NEW_ADDRESS, OTHER), 0)] * MESSAGES_A_LOOK + [(message(NEW_ADDRESS), 0)]
    assert not watch.changed()
    assert watch.changed()
    kernel.told = [(message(NEW_ADDRESS, OTHER), 0)] * (MESSAGES_A_LOOK - 1) + [(message(NEW_ADDRESS), 0)]
    assert watch.changed()


def entry(text: str, index: int = INDEX, usable: bool = True) -> InterfaceAddress:
    return InterfaceAddress(index, ipaddress.ip_address(text).packed, 24, usable)


@pytest.mark.parametrize(
    ("own", "listed", "found"),
    [
        ("10.0.0.1", [entry("10.0.0.1"), entry("2001:db8::1")], ["10.0.0.1", "2001:db8::1"]),
        ("10.0.0.1", [entry("2001:db8::1"), entry("10.0.0.1", OTHER)], ["2001:db8::1"]),
        ("10.0.0.1", [entry("2001:db8::1", usable=False), entry("10.0.0.1")], ["10.0.0.1"]),
        ("10.0.0.1", [entry("10.0.0.1"), entry("10.0.0.1"), entry("fe80::1")], ["10.0.0.1"]),
        ("fe80::1", [entry("fe80::1"), entry("fe80::2"), entry("169.254.0.1")], ["fe80::1%9", "169.254.0.1"]),
        ("127.0.0.9", [entry("127.0.0.1"), entry("::1")], ["127.0.0.9", "127.0.0.1", "::1"]),
        ("127.0.0.9", [entry("127.0.0.9"), entry("127.0.0.1")], ["127.0.0.9", "127.0.0.1"]),
        ("127.0.0.9", [entry("::1"), entry("10.0.0.1")], ["::1", "10.0.0.1"]),
        ("::1", [entry("127.0.0.1")], ["127.0.0.1"]),
        ("10.0.0.1", [entry("127.0.0.1")], ["127.0.0.1"]),
        ("10.0.0.1", [], []),
    ],
)
def test_the_addresses_that_a_port_can_have(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, own: str, listed: list[InterfaceAddress],
    found: list[str],
) -> None:
    monkeypatch.setattr(netlink, "addresses", lambda: listed)
    assert AddressWatch(own).addresses() == found


def test_the_kernel_tells_of_an_address_of_the_loopback_s() -> None:
    with_kernel = AddressWatch("127.0.0.1")
    try:
        assert with_kernel.interface == "lo"
        assert "127.0.0.1" in with_kernel.addresses()
        assert not with_kernel.changed()
    finally:
        with_kernel.close()
