"""The two sides of a test from where the test stands: each obeys the same words (`guest/peer.py`)."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from interop_guest import Guest, GuestError

PROGRAM = Path(__file__).parent / "guest" / "connections.py"
"""Runs on both sides, and knows the words of `mix.py` and `peer.py` as well."""
START_S = 240.0
END_S = 10.0
SAID_CHARACTERS = 1000
ANSWER_S = 180.0


class PeerError(Exception):
    """A side refused what it was asked, or is gone."""


class _Channel(Protocol):
    def write(self, text: str) -> None: ...

    def line(self, timeout_s: float) -> str: ...

    def close(self) -> None: ...


class GuestChannel:
    """The program in a guest."""

    def __init__(self, guest: Guest, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.session = guest.start(*argv, env=env)

    def write(self, text: str) -> None:
        """Give ``text`` to the program."""
        self.session.write(text)

    def line(self, timeout_s: float) -> str:
        """Its next line."""
        said: list[str] = []
        while True:
            try:
                taken = self.session.take(timeout_s)
            except GuestError as error:
                raise PeerError("\n".join([str(error), *said])) from None
            if taken is None:
                raise PeerError("\n".join(["the program in the guest ended", *said]))
            if taken[0] == "out":
                return taken[1]
            said.append(taken[1])

    def close(self) -> None:
        """End the program."""
        with contextlib.suppress(GuestError):
            if self.session.status is None:
                self.session.kill()
                while self.session.take(END_S) is not None:
                    pass


class ProcessChannel:
    """The program in a process of this machine."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115    (`close` closes it)
        self.process = subprocess.Popen(
            argv, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
        )
        self._waiting = b""

    def write(self, text: str) -> None:
        """Give ``text`` to the program."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(text.encode())
        except BrokenPipeError:
            raise PeerError("our program ended") from None

    def line(self, timeout_s: float) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        while b"\n" not in self._waiting:
            if not select.select([self.process.stdout], [], [], timeout_s)[0]:
                raise PeerError(f"our program said nothing for {timeout_s:g} s")
            part = self.process.stdout.read(65536)
            if not part:
                raise PeerError(f"our program ended with status {self.process.wait()}: {self._said()}")
            self._waiting += part
        line, _, self._waiting = self._waiting.partition(b"\n")
        return line.decode()

    def _said(self) -> str:
        """The end of what it wrote to its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-SAID_CHARACTERS:]

    def close(self) -> None:
        """End the program."""
        self._errors.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


class Peer:
    """One side.  Every word of the program is a method; ``gids`` are its GIDs with their indexes."""

    def __init__(self, name: str, start: Callable[[], _Channel]) -> None:
        self.name = name
        self._start = start
        self.start()

    def start(self) -> None:
        """Start the program."""
        self.channel = self._start()
        self._answer(START_S)
        self.gids: dict[str, int] = self.ask("gids")["gids"]

    def ask(self, what: str, timeout_s: float = ANSWER_S, **words: Any) -> Any:
        """Have the program do something.  Raises :class:`PeerError` when it refuses."""
        self.begin(what, **words)
        return self._answer(timeout_s)

    def begin(self, what: str, **words: Any) -> None:
        """Have the program do something and do not wait; `end` brings the answer."""
        self.channel.write(json.dumps({"do": what} | words) + "\n")

    def end(self, timeout_s: float = ANSWER_S) -> Any:
        """The answer to what was begun."""
        return self._answer(timeout_s)

    def _answer(self, timeout_s: float) -> Any:
        answer = json.loads(self.channel.line(timeout_s))
        if "error" in answer:
            raise PeerError(f"{self.name}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the program."""
        self.channel.close()


def program_files() -> dict[str, bytes]:
    """What a guest needs of the program."""
    names = (PROGRAM.name, "mix.py", "peer.py")
    return {name: PROGRAM.with_name(name).read_bytes() for name in names}


def our_environment(devices: str) -> dict[str, str]:
    """The environment of a process with our devices."""
    environment = dict(os.environ)
    for name in ("SOFTHCA_CAPTURE", "SOFTHCA_FAULTS", "SOFTHCA_ADAPTER"):
        environment.pop(name, None)
    return environment | {"SOFTHCA_DEVICES": devices}


def our_command(program: Path) -> list[str]:
    """Runs a pyverbs program on softhca with this interpreter."""
    return [sys.executable, "-m", "softhca.pyverbs_alias", str(program)]
