"""A running guest: qemu without KVM, and the agent in it that runs what we ask for."""

from __future__ import annotations

import base64
import json
import queue
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop_cpio import archive
from interop_image import Bootable, Images
from interop_kernel import bare
from interop_packages import Unavailable

MEMORY_MIB = 512
CPU = "max,-erms"
"""Without KVM string copies go byte by byte: a guest that is not told that they are fast copies by words."""
BOOT_S = 240.0
COMMAND_S = 60.0

_GUEST = Path(__file__).parent / "guest"
_QEMU = "qemu-system-x86_64"
# On a busy machine the timer's own check fails, and the kernel gives up.
_UNHURRIED = "no_timer_check"


class GuestError(Exception):
    """The guest is gone, silent, or a command in it failed."""


@dataclass(frozen=True)
class Result:
    """What a command in a guest said."""

    status: int
    out: str
    err: str


class Session:
    """One process in a guest.  Lines that it says are in ``lines`` as (``out`` or ``err``, text)."""

    def __init__(self, guest: Guest, number: int, argv: Sequence[str]) -> None:
        self.guest = guest
        self.number = number
        self.name = argv[0]
        self.lines: queue.Queue[tuple[str, str]] = queue.Queue()
        self.status: int | None = None

    def take(self, timeout_s: float) -> tuple[str, str] | None:
        """The next line; None when the process has ended.  Raises :class:`GuestError` after ``timeout_s``."""
        if self.status is not None:
            return None
        try:
            kind, text = self.lines.get(timeout=timeout_s)
        except queue.Empty:
            raise GuestError(f"{self.name} in the guest said nothing for {timeout_s:g} s") from None
        if kind == "status":
            self.status = int(text)
            return None
        if kind == "gone":
            self.status = -signal.SIGKILL
            raise GuestError(f"the guest is gone: {text}")
        return kind, text

    def ended(self) -> bool:
        """Whether its last line has come."""
        return self.status is not None or any(kind == "status" for kind, _ in list(self.lines.queue))

    def write(self, text: str) -> None:
        """Give ``text`` to its standard input."""
        self.guest.ask(id=self.number, do="input", text=text)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal."""
        self.guest.ask(id=self.number, do="signal", number=number)

    def wait(self, timeout_s: float = COMMAND_S) -> Result:
        """Wait for its end.  Killed, and :class:`GuestError`, after ``timeout_s``."""
        deadline_s = time.monotonic() + timeout_s
        said: dict[str, list[str]] = {"out": [], "err": []}
        while True:
            try:
                line = self.take(max(0.0, deadline_s - time.monotonic()))
            except GuestError:
                if self.status is None:
                    self.kill()
                raise GuestError(f"{self.name} in the guest did not end within {timeout_s:g} s") from None
            if line is None:
                return Result(self.status or 0, "\n".join(said["out"]), "\n".join(said["err"]))
            said[line[0]].append(line[1])


def _drives(files: Sequence[Path]) -> list[str]:
    """Qemu's options for file systems that are only read, so that many guests can share them."""
    options = [f"file={file},if=virtio,format=raw,readonly=on,file.locking=off" for file in files]
    return [word for option in options for word in ("-drive", option)]


class Guest:
    """One guest; ``prefix`` is put in front of qemu's command, ``nets`` are its network options; file systems
    in ``drives`` are its /dev/vdb, /dev/vdc …

    Ready when the constructor returns.  Raises :class:`Unavailable` without qemu, :class:`GuestError` when it
    does not come up within ``BOOT_S``; ``release`` is its kernel.
    """

    def __init__(
        self, images: Images, kernel: Bootable, *, prefix: Sequence[str] = (), nets: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None, drives: Sequence[Path] = (),
    ) -> None:  # fmt: skip
        if shutil.which(_QEMU) is None:
            raise Unavailable(f"there is no {_QEMU}")
        self._folder = tempfile.TemporaryDirectory(prefix="softhca-guest-")
        self._sessions: dict[int, Session] = {}
        self._next = 1
        self._lock = threading.Lock()
        self._said_last = ""
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._start(images, kernel, prefix, [*nets, *_drives(drives)], files or {})
        except BaseException:
            self.close()
            raise

    def _start(
        self,
        images: Images,
        kernel: Bootable,
        prefix: Sequence[str],
        nets: Sequence[str],
        files: Mapping[str, bytes],
    ) -> None:
        place = Path(self._folder.name)
        own = {"guest/agent.py": (0o644, (_GUEST / "agent.py").read_bytes())}
        own |= {f"guest/{name}": (0o644, data) for name, data in files.items()}
        (place / "initrd").write_bytes(kernel.initrd.read_bytes() + archive(own))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(place / "agent"))
        listener.listen(1)
        listener.settimeout(0.5)
        argv = [*prefix, *self._command(images, kernel, place), *nets]
        with (place / "qemu").open("wb") as said, listener:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
            self._stream = self._connected(listener)
        hello = Session(self, 0, ["the agent"])
        self._sessions[0] = hello
        threading.Thread(target=self._read, daemon=True).start()
        try:
            line = hello.take(BOOT_S)
        except GuestError as error:
            raise GuestError(f"the guest did not come up: {error}\n{self.console()}") from None
        if line is None or line[0] != "out":
            raise GuestError(f"the guest did not come up: {self.console()}")
        self.release = line[1]

    @staticmethod
    def _command(images: Images, kernel: Bootable, place: Path) -> list[str]:
        """Qemu's command without a network."""
        return [
            _QEMU, "-accel", "tcg", "-cpu", CPU, "-m", str(MEMORY_MIB), "-nodefaults", "-no-user-config",
            "-display", "none", "-no-reboot", "-serial", f"file:{place / 'console'}",
            "-kernel", str(bare(kernel.kernel)), "-initrd", str(place / "initrd"),
            "-append", f"console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off {_UNHURRIED}",
            *_drives([images.root]),
            "-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,path={place / 'agent'}",
            "-device", "virtserialport,chardev=agent,name=agent",
        ]  # fmt: skip

    def _connected(self, listener: socket.socket) -> socket.socket:
        assert self._process is not None
        while True:
            try:
                return listener.accept()[0]
            except TimeoutError:
                if self._process.poll() is not None:
                    said = (Path(self._folder.name) / "qemu").read_text(errors="replace").strip()
                    raise GuestError(f"qemu: {said or self._process.returncode}") from None

    @property
    def pid(self) -> int:
        """Process id of qemu."""
        assert self._process is not None
        return self._process.pid

    def console(self) -> str:
        """What the kernel has said."""
        return (Path(self._folder.name) / "console").read_text(errors="replace").strip()

    def ask(self, **message: Any) -> None:
        """One line to the agent."""
        try:
            with self._lock:
                self._stream.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise GuestError(f"the guest is gone: {error.strerror}") from None

    def _read(self) -> None:
        """Hand what the agent tells to the sessions, until it is gone."""
        reason = "its agent ended"
        try:
            with self._stream.makefile("rb") as stream:
                for line in stream:
                    told = json.loads(line)
                    session = self._sessions.get(told["id"])
                    for kind in ("out", "err", "status"):
                        if session is not None and kind in told:
                            session.lines.put((kind, str(told[kind])))
        except (OSError, ValueError) as error:
            reason = str(error)
        for session in list(self._sessions.values()):
            session.lines.put(("gone", reason))

    def start(self, *argv: str, env: Mapping[str, str] | None = None) -> Session:
        """Start a process in the guest."""
        session = self._session(argv)
        self.ask(id=session.number, do="start", argv=list(argv), env=dict(env or {}))
        return session

    def _session(self, argv: Sequence[str]) -> Session:
        session = Session(self, self._next, argv)
        self._next += 1
        self._sessions[session.number] = session
        return session

    def run(self, *argv: str, timeout_s: float = COMMAND_S, check: bool = True) -> Result:
        """Run a command.  With ``check`` a status other than 0 raises :class:`GuestError`."""
        result = self.start(*argv).wait(timeout_s)
        if check and result.status:
            raise GuestError(f"{' '.join(argv)}: status {result.status}: {result.err or result.out}")
        return result

    def put(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file in the guest."""
        session = self._session(["put"])
        self.ask(id=session.number, do="put", path=path, data=base64.b64encode(data).decode(), mode=mode)
        session.wait()

    def kill(self) -> None:
        """End it as a power failure does."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End it and remove its files; may be called again."""
        self.kill()
        if hasattr(self, "_stream"):
            self._stream.close()
        self._folder.cleanup()

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
