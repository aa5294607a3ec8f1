"""A network namespace of a test's own, in which it may give addresses to interfaces and take them away."""

from __future__ import annotations

import shutil
import subprocess
from types import TracebackType

import pytest

PAIR = "ip link add here type veth peer name there && ip link set there up && ip link set here up"
"""``here`` is an interface with a neighbour, so that it has routes for groups of both versions of IP."""


class Namespace:
    """Made with the shell's ``words`` run inside, its loopback up; what `prefix` stands before runs there.
    The test is skipped where this user can have none.
    """

    def __init__(self, words: str = PAIR) -> None:
        if any(shutil.which(each) is None for each in ("unshare", "nsenter", "ip")):
            pytest.skip("needs unshare and nsenter (util-linux) and ip (iproute2)")
        script = f"ip link set lo up && {words} && echo ready && exec cat"
        self._keeper = subprocess.Popen(
            ["unshare", "--map-root-user", "--net", "sh", "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline() != "ready\n":
            said = self._keeper.communicate()[1]
            pytest.skip(f"no network namespace: {said.strip()}")

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a command begins with that runs inside."""
        return ("nsenter", f"--target={self._keeper.pid}", "--user", "--net", "--preserve-credentials")

    def ip(self, *words: str) -> None:
        """Run ``ip`` inside; it must succeed."""
        subprocess.run([*self.prefix, "ip", *words], check=True, capture_output=True)

    def __enter__(self) -> Namespace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._keeper.communicate()
