"""A guest and our side next to it without any privilege: qemu's network card is joined to Unix sockets."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from interop_guest import Guest
from interop_image import Bootable, Images
from interop_matrix import Sides
from interop_network import GUEST_HOST, MTU_BYTES, PEER_HOST, address
from interop_packages import Unavailable
from interop_peer import PROGRAM, GuestChannel, Peer, ProcessChannel, our_environment, program_files
from interop_world import GUEST_PROGRAM, configure, meet, restart

_LINK_PROGRAM = Path(__file__).with_name("interop_ethernet.py")


class UserNetwork:
    """Sockets for one guest and one adapter of ours for each IP version; qemu's own hub joins them."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="softhca-cable-")

    def _sockets(self, version: int) -> tuple[str, str]:
        """Ours and qemu's."""
        return str(Path(self._folder.name, f"ours{version}")), str(Path(self._folder.name, f"guest{version}"))

    def card(self, host: int) -> list[str]:
        """Qemu's options for the card of guest ``host``."""
        options = []
        for version in (4, 6):
            ours, its = self._sockets(version)
            options += [
                "-netdev",
                f"dgram,id=cable{version},local.type=unix,local.path={its},remote.type=unix,remote.path={ours}",
                "-netdev", f"hubport,id=port{version},hubid=0,netdev=cable{version}",
            ]  # fmt: skip
        return [
            *options, "-netdev", "hubport,id=net,hubid=0",
            "-device",
            f"virtio-net-pci,netdev=net,mac=02:00:00:00:77:{host:02x},host_mtu={MTU_BYTES},romfile=",
        ]  # fmt: skip

    def command(self, version: int, program: Path) -> list[str]:
        """Runs a pyverbs program on softhca with a link to the guest."""
        mac = f"0200000077f{version}"
        return [
            sys.executable, str(_LINK_PROGRAM), *self._sockets(version), mac, address(PEER_HOST, version),
            str(program),
        ]  # fmt: skip

    def close(self) -> None:
        """Remove the sockets' folder; may be called again."""
        self._folder.cleanup()

    def __enter__(self) -> UserNetwork:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _absent(*words: object) -> Any:
    """What takes a network: cells that need it do not run here."""
    raise Unavailable("there is no IP network on our side")


class UserWorld:
    """As `interop_world.World`, without root."""

    def __init__(self, images: Images, kernel: Bootable) -> None:
        with ExitStack() as stack:
            self.network = stack.enter_context(UserNetwork())
            self.guest = stack.enter_context(
                Guest(
                    images, kernel, nets=self.network.card(GUEST_HOST),
                    files=program_files(),
                )
            )  # fmt: skip
            configure(self.guest, GUEST_HOST)
            kernel_side = Peer("kernel", partial(GuestChannel, self.guest, ["python3", GUEST_PROGRAM]))
            stack.callback(kernel_side.close)
            ours = {}
            for version in (4, 6):
                argv = self.network.command(version, PROGRAM)
                ours[version] = Peer("softhca", partial(ProcessChannel, argv, our_environment("")))
                stack.callback(ours[version].close)
            self.sides = Sides(
                self.guest, kernel_side, ours,
                {version: address(GUEST_HOST, version) for version in ours},
                {version: address(PEER_HOST, version) for version in ours},
                _absent, _absent, partial(restart, self.guest), _absent,
            )  # fmt: skip
            meet(self.guest, self.sides.our_addresses.values())
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Take everything down."""
        self._stack.close()

    def __enter__(self) -> UserWorld:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
