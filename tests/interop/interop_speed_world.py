"""Two guests with two devices each: SoftRoCE on one network card, softhca on another of the same kind, in a
network namespace of the guest's own, because SoftRoCE takes the UDP port of all addresses around it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from interop_disk import PLACE, make_disk
from interop_guest import Guest, Session
from interop_image import Bootable, Images
from interop_network import MTU_BYTES, Network, address
from interop_peer import PROGRAM, GuestChannel, Peer, program_files
from interop_world import configure

HOSTS = (2, 3)
OUR_HOSTS = (12, 13)
NAMESPACE = "softhca"
INSIDE = ("ip", "netns", "exec", NAMESPACE)

_PROGRAM = PROGRAM.with_name("speed.py")
_PLACES = 2
_HOSTS_A_PLACE = 10


class SpeedWorld:
    """Both guests, joined by a bridge.  ``version`` is IP's.

    Each adapter of ours has an address of its own, so that several programs can wait for their turn: 0 and
    1.
    """

    def __init__(self, images: Images, kernel: Bootable, version: int) -> None:
        self.version = version
        with ExitStack() as stack:
            folder = tempfile.mkdtemp(prefix="softhca-speed-")
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            self.disk = Path(folder, "softhca.ext4")
            make_disk(self.disk)
            self.network = stack.enter_context(Network())
            self.guests = [stack.enter_context(self._guest(images, kernel, side)) for side in range(2)]
            for side, guest in enumerate(self.guests):
                configure(guest, HOSTS[side])
                self._configure_ours(guest, side)
            self._stack = stack.pop_all()

    def _guest(self, images: Images, kernel: Bootable, side: int) -> Guest:
        return Guest(
            images, kernel, prefix=self.network.prefix, drives=[self.disk],
            nets=[*self.network.tap(HOSTS[side]), *self.network.tap(OUR_HOSTS[side], "ours")],
            files=program_files() | {_PROGRAM.name: _PROGRAM.read_bytes()},
        )  # fmt: skip

    def _configure_ours(self, guest: Guest, side: int) -> None:
        """The second card in its namespace, and softhca where it is found."""
        for command in (
            f"mkdir -p {PLACE}",
            f"mount -t ext4 -o ro /dev/vdb {PLACE}",
            f"ip netns add {NAMESPACE}",
            f"ip link set eth1 netns {NAMESPACE}",
            f"ip -n {NAMESPACE} link set lo up",
            f"ip -n {NAMESPACE} link set eth1 mtu {MTU_BYTES} up",
        ):
            guest.run(*command.split())
        bits, more = ("24", []) if self.version == 4 else ("64", ["nodad"])
        for number in range(_PLACES):
            own = f"{self.our_address(side, number)}/{bits}"
            guest.run("ip", "-n", NAMESPACE, "address", "add", own, "dev", "eth1", *more)

    def our_address(self, side: int, number: int = 0) -> str:
        """Where softhca is in a guest."""
        return address(OUR_HOSTS[side] + _HOSTS_A_PLACE * number, self.version)

    def kernel_address(self, side: int) -> str:
        """Where SoftRoCE is in a guest."""
        return address(HOSTS[side], self.version)

    def _environment(self, side: int, number: int) -> dict[str, str]:
        """For a program in a guest that uses softhca."""
        own = self.our_address(side, number)
        device = f"softhca0=udp:{own}" if self.version == 4 else f"softhca0=udp:[{own}]"
        return {"PYTHONPATH": PLACE, "SOFTHCA_DEVICES": device}

    def start_ours(self, side: int, argv: Sequence[str], number: int = 0) -> Session:
        """Start a program that uses softhca in a guest."""
        return self.guests[side].start(*INSIDE, *argv, env=self._environment(side, number))

    def kernel_peers(self) -> list[Peer]:
        """The measuring program in both guests, on SoftRoCE."""
        argv = ["python3", f"/guest/{_PROGRAM.name}"]
        return [Peer("SoftRoCE", partial(GuestChannel, guest, argv)) for guest in self.guests]

    def our_peers(self) -> list[Peer]:
        """The same on softhca."""
        argv = [*INSIDE, "python3", "-m", "softhca.pyverbs_alias", f"/guest/{_PROGRAM.name}"]
        return [
            Peer("softhca", partial(GuestChannel, guest, argv, self._environment(side, 0)))
            for side, guest in enumerate(self.guests)
        ]

    def listening(self, pattern: str) -> bool:
        """Whether a TCP socket of the second guest has a line in /proc/net that fits ``pattern``."""
        files = ("/proc/net/tcp", "/proc/net/tcp6")
        search = ("busybox", "grep", "-q", pattern, *files)
        return any(
            not self.guests[1].run(*argv, check=False).status for argv in (search, (*INSIDE, *search))
        )

    def close(self) -> None:
        """Take everything down."""
        self._stack.close()

    def __enter__(self) -> SpeedWorld:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
