"""Sockets of a link where what stands between the program and Linux knows less than Linux does."""

from __future__ import annotations

import errno
import socket
import sys
from typing import Any

import pytest
from roce_links import needs_ipv6

from softhca.links import sockets
from softhca.machine.kernel_sockets import KernelSocket

V4_GROUPS = (socket.IPPROTO_IP, socket.IP_MULTICAST_IF)
V6_GROUPS = (socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF)
AUTOMATIC_LABEL, SENT_LABEL = (socket.IPPROTO_IPV6, 70), (socket.IPPROTO_IPV6, 33)
SPARE = {"127.0.0.1": [V4_GROUPS], "::1": [V6_GROUPS, AUTOMATIC_LABEL, SENT_LABEL]}
NEEDED = {
    "127.0.0.1": [(socket.IPPROTO_IP, 10), (socket.IPPROTO_IP, socket.IP_TTL)],
    "::1": [(socket.IPPROTO_IPV6, 23), (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS)],
}


class Lesser:
    """Sockets that refuse some options with ``number``, and remember which they were asked for."""

    def __init__(self, refused: list[tuple[int, int]], number: int) -> None:
        self.asked: list[tuple[int, int]] = []
        self.made: list[socket.socket] = []
        lesser = self

        class Made(KernelSocket):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                lesser.made.append(self)

            def setsockopt(self, level: int, option: int, *value: Any) -> None:
                lesser.asked.append((level, option))
                if (level, option) in refused:
                    raise OSError(number, "no such option")
                super().setsockopt(level, option, *value)

        self.kind = Made


@pytest.mark.parametrize("address", SPARE)
def test_an_emulator_without_choice_of_interface_and_label_sends_all_the_same(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lesser = Lesser(SPARE[address], errno.ENOPROTOOPT)
    monkeypatch.setattr(sockets, "KernelSocket", lesser.kind)
    with sockets.open_sender(address, 0, 0, 4096) as sender:
        assert set(SPARE[address]) <= set(lesser.asked)
        receiver = socket.socket(sender.family, socket.SOCK_DGRAM)
        with receiver:
            receiver.bind((address, 0))
            receiver.settimeout(60)
            sender.sendto(b"it arrives", receiver.getsockname())
            assert receiver.recv(64) == b"it arrives"


@pytest.mark.parametrize(
    ("address", "option"),
    [(address, option) for address, options in SPARE.items() for option in options],
)
def test_any_other_refusal_of_these_options_is_an_error(
    address: str, option: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lesser = Lesser([option], errno.EPERM)
    monkeypatch.setattr(sockets, "KernelSocket", lesser.kind)
    with pytest.raises(PermissionError):
        sockets.open_sender(address, 0, 0, 4096)
    assert [made.fileno() for made in lesser.made] == [-1]


@pytest.mark.parametrize(
    ("address", "option"),
    [(address, option) for address, options in NEEDED.items() for option in options],
)
def test_what_packets_depend_on_cannot_be_done_without(
    address: str, option: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Linux may cut packets it numbers them, and the ICRC covers the number."""
    lesser = Lesser([option], errno.ENOPROTOOPT)
    monkeypatch.setattr(sockets, "KernelSocket", lesser.kind)
    with pytest.raises(OSError, match="no such option") as refused:
        sockets.open_sender(address, 0, 0, 4096)
    assert refused.value.errno == errno.ENOPROTOOPT
    assert [made.fileno() for made in lesser.made] == [-1]


class Told:
    """Sockets that remember what was set, and do nothing of it."""

    def __init__(self, privileged: bool = True) -> None:
        self.set: list[tuple[int, int, Any]] = []
        told = self

        class Made(KernelSocket):
            def setsockopt(self, level: int, option: int, *value: Any) -> None:
                if option in (32, 33) and level == socket.SOL_SOCKET and not privileged:
                    raise PermissionError(errno.EPERM, "CAP_NET_ADMIN")
                told.set.append((level, option, value[0]))

        self.kind = Made


def test_what_leaves_has_its_hops_and_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels begin with these hops, too, unless somebody has told them otherwise."""
    told = Told()
    monkeypatch.setattr(sockets, "KernelSocket", told.kind)
    sockets.open_sender("127.0.0.1", 0, 0, 5000, interface=3).close()
    by = bytes(4) + bytes((127, 0, 0, 1)) + (3).to_bytes(4, sys.byteorder)
    assert told.set == [
        (socket.IPPROTO_IP, 10, 2), (socket.IPPROTO_IP, socket.IP_TTL, sockets.HOP_LIMIT),
        (socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, sockets.HOP_LIMIT), (*V4_GROUPS, by),
        (socket.SOL_SOCKET, socket.SO_RCVBUF, 0), (socket.SOL_SOCKET, 32, 5000),
    ]  # fmt: skip


@needs_ipv6
def test_what_leaves_by_ipv6_too(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    monkeypatch.setattr(sockets, "KernelSocket", told.kind)
    sockets.open_sender("::1", 0, 0, 5000, interface=3).close()
    assert told.set[:6] == [
        (socket.IPPROTO_IPV6, 23, 2), (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, sockets.HOP_LIMIT),
        (socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, sockets.HOP_LIMIT), (*V6_GROUPS, 3),
        (*AUTOMATIC_LABEL, 0), (*SENT_LABEL, 1),
    ]  # fmt: skip


def test_who_may_not_go_past_the_limit_asks_for_a_buffer_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(privileged=False)
    monkeypatch.setattr(sockets, "KernelSocket", told.kind)
    endpoint, _ = sockets.open_receiver("127.0.0.1", 0, 0, 7000, False)
    endpoint.close()
    sockets.open_sender("127.0.0.1", 0, 0, 5000).close()
    assert (socket.SOL_SOCKET, socket.SO_RCVBUF, 7000) in told.set
    assert (socket.SOL_SOCKET, socket.SO_SNDBUF, 5000) in told.set


def test_datagrams_are_merged_where_that_is_wanted() -> None:
    for gro in (False, True):
        endpoint, merges = sockets.open_receiver("127.0.0.1", 0, 0, 7000, gro)
        with endpoint:
            assert endpoint.getsockopt(17, 104) == int(merges)
            assert gro or not merges


def test_senders_that_were_closed_begin_anew() -> None:
    senders, before = sockets.Senders("127.0.0.1", 0, 5000), sockets.open_senders.count
    for _ in range(2):
        port, descriptor = senders.choose(5)
        assert senders.choose(5) == (port, descriptor)
        assert (len(senders), sockets.open_senders.count) == (1, before + 1)
        for _ in range(2):
            senders.close()
        assert (len(senders), sockets.open_senders.count) == (0, before)
