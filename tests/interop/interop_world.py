"""A guest with SoftRoCE and our side next to it, joined by a network; all is taken down whatever happens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial

from interop_capture import Capture
from interop_connections import OurAdapter
from interop_guest import Guest
from interop_image import Bootable, Images
from interop_matrix import Sides
from interop_network import COMMAND_HOST, GUEST_HOST, MTU_BYTES, PEER_HOST, Network, address
from interop_peer import (
    PROGRAM,
    GuestChannel,
    Peer,
    ProcessChannel,
    our_command,
    our_environment,
    program_files,
)

ADD_RXE = ("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0")
GUEST_PROGRAM = f"/guest/{PROGRAM.name}"
MEETING = """
import socket, subprocess, sys, time
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
for _ in range(120):
    with socket.socket(family, socket.SOCK_DGRAM) as nothing:
        nothing.sendto(b"", (sys.argv[1], 9))
    if b"lladdr" in subprocess.check_output(["ip", "neigh", "show", "to", sys.argv[1]]):
        sys.exit()
    time.sleep(0.25)
sys.exit("nobody answers for " + sys.argv[1])
"""
"""A queue pair's way to RTR waits a second for its neighbour and fails: too short on a busy machine."""


def configure(guest: Guest, host: int) -> None:
    """Addresses of a guest's interface and its SoftRoCE device."""
    for command in (
        "ip link set lo up",
        f"ip link set eth0 mtu {MTU_BYTES} up",
        f"ip address add {address(host, 4)}/24 dev eth0",
        f"ip address add {address(host, 6)}/64 dev eth0 nodad",
    ):
        guest.run(*command.split())
    guest.run(*ADD_RXE)


def meet(guest: Guest, addresses: Iterable[str]) -> None:
    """Wait until the guest's kernel knows its neighbours at these addresses."""
    for one in addresses:
        guest.run("python3", "-c", MEETING, one)


def restart(guest: Guest, peer: Peer) -> None:
    """Kill a side's program and start it again; the guest's adapter is made anew, too, so that it counts its
    queue pairs as it did.
    """
    peer.close()
    if isinstance(peer.channel, GuestChannel):
        guest.run("rdma", "link", "delete", "rxe0")
        guest.run(*ADD_RXE)
    peer.start()


class World:
    """One guest, its namespace, and a program on both sides."""

    def __init__(self, images: Images, kernel: Bootable) -> None:
        with ExitStack() as stack:
            self.network = stack.enter_context(Network())
            self.guest = stack.enter_context(
                Guest(
                    images, kernel, prefix=self.network.prefix, nets=self.network.tap(GUEST_HOST),
                    files=program_files(),
                )
            )  # fmt: skip
            configure(self.guest, GUEST_HOST)
            kernel_side = Peer("kernel", partial(GuestChannel, self.guest, ["python3", GUEST_PROGRAM]))
            stack.callback(kernel_side.close)
            ours = {}
            for version in (4, 6):
                ours[version] = self.our_peer(version)
                stack.callback(ours[version].close)
            self.sides = Sides(
                self.guest, kernel_side, ours,
                {version: address(GUEST_HOST, version) for version in ours},
                {version: address(PEER_HOST, version) for version in ours},
                self.start_ours,
                self.network.wait_listening,
                partial(restart, self.guest),
                partial(self.network.connect_cable, GUEST_HOST),
                partial(Capture, self.network.prefix, f"guest{GUEST_HOST}"),
                self.our_adapter,
            )  # fmt: skip
            meet(self.guest, self.sides.our_addresses.values())
            self._stack = stack.pop_all()

    @staticmethod
    def devices(host: int, version: int) -> str:
        """Our ``SOFTHCA_DEVICES`` on the address ``host`` of an IP version."""
        own = address(host, version)
        return f"softhca0=udp:{own}" if version == 4 else f"softhca0=udp:[{own}]"

    def our_peer(self, version: int) -> Peer:
        """The program on our side, in the namespace."""
        argv = [*self.network.prefix, *our_command(PROGRAM)]
        return Peer(
            "softhca", partial(ProcessChannel, argv, our_environment(self.devices(PEER_HOST, version)))
        )

    def our_adapter(self, version: int) -> OurAdapter:
        """An adapter process in the namespace, on the address of our commands."""
        return OurAdapter(self.network.prefix, self.devices(COMMAND_HOST, version))

    def start_ours(self, version: int, words: Sequence[str]) -> subprocess.Popen[str]:
        """Start softhca's command in the namespace."""
        return subprocess.Popen(
            [*self.network.prefix, sys.executable, "-m", "softhca", *words],
            env=our_environment(self.devices(COMMAND_HOST, version)), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def close(self) -> None:
        """Take everything down."""
        self._stack.close()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
