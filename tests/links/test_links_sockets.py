"""Sockets of a link where what stands between the program and Linux knows less than Linux does."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

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
