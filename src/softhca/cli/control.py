"""The TCP connection over which two ends of a test tell each other their queue pairs."""

from __future__ import annotations

import contextlib
import errno
import select
import socket

from softhca.cli.errors import CommandError

DEFAULT_PORT = 18515
STEP_TIMEOUT_S = 60.0


class ControlConnection:
    """Exact reads and whole writes on one TCP connection.

    Every failure, also a peer that goes away, is a :class:`CommandError`.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, message: bytes) -> None:
        """Write all of ``message``."""
        try:
            self._socket.settimeout(STEP_TIMEOUT_S)
            self._socket.sendall(message)
        except OSError as error:
            raise CommandError(f"the peer went away: {error.strerror or error}") from error

    def receive(self, length_bytes: int, timeout_s: float | None = STEP_TIMEOUT_S) -> bytes:
        """Exactly ``length_bytes`` bytes; ``timeout_s`` None waits as long as the peer lives."""
        received = bytearray()
        try:
            self._socket.settimeout(timeout_s)
            while len(received) < length_bytes:
                part = self._socket.recv(length_bytes - len(received))
                if not part:
                    raise CommandError("the peer closed the connection in the middle of the exchange")
                received += part
        except TimeoutError as error:
            raise CommandError(
                f"the peer was silent for {timeout_s:g} s", "see what it says, and whether it still runs"
            ) from error
        except OSError as error:
            raise CommandError(f"the peer went away: {error.strerror or error}") from error
        return bytes(received)

    def readable(self, timeout_s: float | None = 0.0) -> bool:
        """Whether the peer has said something, or has gone; waits for that up to ``timeout_s`` (None: for
        ever).
        """
        poll = select.poll()  # not select(): that knows no descriptor beyond 1023
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))

    def part(self, timeout_s: float = STEP_TIMEOUT_S) -> None:
        """Say that this end is done, and wait until the other one is done, too, or has gone.

        Meanwhile this end's adapter answers what is sent again because an acknowledgement was lost.  The C
        programs have closed their end long before, so they are not waited for.
        """
        with contextlib.suppress(OSError):  # closed by the peer
            self._socket.shutdown(socket.SHUT_WR)
        self.readable(timeout_s)

    def close(self) -> None:
        """Close it; harmless when closed."""
        self._socket.close()

    def __enter__(self) -> ControlConnection:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def listen(port: int, address: str = "") -> socket.socket:
    """A listening socket on ``port`` (0: any free one) of ``address`` (empty: of every address)."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    both = not address and socket.has_dualstack_ipv6()
    try:
        if both:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1)
        return socket.create_server((address, port), family=family, backlog=1)
    except OSError as error:
        remedy = "take another one at both ends: --port" if error.errno == errno.EADDRINUSE else ""
        raise CommandError(f"cannot listen on port {port}: {error.strerror}", remedy) from error


def accept(listener: socket.socket) -> ControlConnection:
    """The first connection on ``listener``, which is closed."""
    with listener:
        connection, _ = listener.accept()
    return ControlConnection(connection)


def connect(host: str, port: int) -> ControlConnection:
    """A connection to ``host``."""
    try:
        return ControlConnection(socket.create_connection((host, port), timeout=STEP_TIMEOUT_S))
    except OSError as error:
        raise CommandError(
            f"cannot connect to {host} port {port}: {error.strerror or error}",
            f"start the same command with --listen there, and let TCP port {port} and UDP port 4791 pass",
        ) from error
