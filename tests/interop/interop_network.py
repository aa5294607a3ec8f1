"""A network namespace of the test's own, in which a bridge joins our adapter and the guests' taps."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

from interop_packages import Unavailable

MTU_BYTES = 9000
LISTEN_S = 60.0
PEER_HOST, GUEST_HOST, COMMAND_HOST = 1, 2, 101
"""The last bytes of addresses: our program's, the first guest's (others count on), and our commands'."""
NAME = "softhca-interop-"
BRIDGE = "guests"
PREFIX_V4, PREFIX_V6 = "10.77.0", "fd00:77:"


def address(host: int, version: int) -> str:
    """The address of a host."""
    return f"{PREFIX_V4}.{host}" if version == 4 else f"{PREFIX_V6}:{host}"


def unavailable() -> str:
    """Why there can be no namespace with taps here; empty when there can."""
    if os.geteuid() != 0:
        return "network namespaces and taps take root"
    if shutil.which("ip") is None:
        return "there is no ip (iproute2)"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    return ""


class Network:
    """The namespace; everything in it goes when it is closed."""

    def __init__(self) -> None:
        reason = unavailable()
        if reason:
            raise Unavailable(reason)
        self._sweep()
        self.name = f"{NAME}{os.getpid()}"
        self._ip("netns", "add", self.name)
        try:
            self._inside("link", "set", "lo", "up")
            self._inside("link", "add", BRIDGE, "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
            self._inside("link", "set", BRIDGE, "mtu", str(MTU_BYTES), "up")
            for host in (PEER_HOST, COMMAND_HOST):
                self._inside("address", "add", f"{address(host, 4)}/24", "dev", BRIDGE)
                self._inside("address", "add", f"{address(host, 6)}/64", "dev", BRIDGE, "nodad")
        except BaseException:
            self.close()
            raise

    def _sweep(self) -> None:
        """Remove the namespaces of runs that were killed."""
        for path in Path("/run/netns").glob(f"{NAME}*"):
            if not Path("/proc", path.name.removeprefix(NAME)).exists():
                with contextlib.suppress(Unavailable):  # another run has removed it just now
                    self._ip("netns", "delete", path.name)

    @property
    def prefix(self) -> list[str]:
        """Put in front of a command, runs it in the namespace."""
        return ["ip", "netns", "exec", self.name]

    def tap(self, host: int, card: str = "net") -> list[str]:
        """A tap for guest ``host``, joined to the bridge; qemu's options for it.  A guest with several has
        a ``card`` for each, and each its own host number.
        """
        name = f"guest{host}"
        self._inside("tuntap", "add", "dev", name, "mode", "tap")
        self._inside("link", "set", name, "mtu", str(MTU_BYTES), "master", BRIDGE, "up")
        return [
            "-netdev", f"tap,id={card},ifname={name},script=no,downscript=no",
            "-device",
            f"virtio-net-pci,netdev={card},mac=02:00:00:00:77:{host:02x},host_mtu={MTU_BYTES},romfile=",
        ]  # fmt: skip

    def connect_cable(self, host: int, connected: bool) -> None:
        """Join guest ``host`` to the bridge, or cut it off."""
        self._inside("link", "set", f"guest{host}", "up" if connected else "down")

    def wait_listening(self, port: int) -> None:
        """Wait until somebody in the namespace listens on a TCP port; `Unavailable` after ``LISTEN_S``."""
        wanted = f"0*:{port:04X} 0*:0000 0A"
        argv = [*self.prefix, "grep", "-qi", wanted, "/proc/net/tcp", "/proc/net/tcp6"]
        deadline_s = time.monotonic() + LISTEN_S
        while subprocess.run(argv, check=False, stderr=subprocess.DEVNULL).returncode:
            if time.monotonic() > deadline_s:
                raise Unavailable(f"nobody listens on port {port}")

    def close(self) -> None:
        """Remove the namespace; may be called again."""
        if Path("/run/netns", self.name).exists():
            self._ip("netns", "delete", self.name)

    def _inside(self, *words: str) -> None:
        self._ip("-n", self.name, *words)

    @staticmethod
    def _ip(*words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"ip {' '.join(words)}: {done.stderr.strip()}")

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
