"""A guest with SoftRoCE and our side next to it, joined by a network; all is taken down whatever happens."""

from __future__ import annotations

from contextlib import ExitStack

from interop_guest import Guest
from interop_image import Bootable, Images
from interop_matrix import Sides
from interop_network import MTU_BYTES, Network, address
from interop_peer import PROGRAM, GuestChannel, Peer, ProcessChannel, our_command, our_environment

GUEST_HOST = 2
GUEST_PROGRAM = "/guest/peer.py"


def configure(guest: Guest, host: int) -> None:
    """Addresses of a guest's interface and its SoftRoCE device."""
    for command in (
        "ip link set lo up",
        f"ip link set eth0 mtu {MTU_BYTES} up",
        f"ip address add {address(host, 4)}/24 dev eth0",
        f"ip address add {address(host, 6)}/64 dev eth0 nodad",
        "rdma link add rxe0 type rxe netdev eth0",
    ):
        guest.run(*command.split())


class World:
    """One guest, its namespace, and a program on both sides."""

    def __init__(self, images: Images, kernel: Bootable) -> None:
        with ExitStack() as stack:
            self.network = stack.enter_context(Network())
            self.guest = stack.enter_context(
                Guest(
                    images, kernel, prefix=self.network.prefix, nets=self.network.tap(GUEST_HOST),
                    files={"peer.py": PROGRAM.read_bytes()},
                )
            )  # fmt: skip
            configure(self.guest, GUEST_HOST)
            kernel_side = Peer("kernel", GuestChannel(self.guest, ["python3", GUEST_PROGRAM]))
            stack.callback(kernel_side.close)
            ours = {}
            for version in (4, 6):
                ours[version] = self.our_peer(version)
                stack.callback(ours[version].close)
            self.sides = Sides(
                kernel_side, ours,
                {version: address(GUEST_HOST, version) for version in ours},
                {version: address(1, version) for version in ours},
            )  # fmt: skip
            self._stack = stack.pop_all()

    def devices(self, version: int) -> str:
        """Our ``SOFTHCA_DEVICES`` on the address of an IP version."""
        own = address(1, version)
        return f"softhca0=udp:{own}" if version == 4 else f"softhca0=udp:[{own}]"

    def our_peer(self, version: int) -> Peer:
        """The program on our side, in the namespace."""
        argv = [*self.network.prefix, *our_command(PROGRAM)]
        return Peer("softhca", ProcessChannel(argv, our_environment(self.devices(version))))

    def close(self) -> None:
        """Take everything down."""
        self._stack.close()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
