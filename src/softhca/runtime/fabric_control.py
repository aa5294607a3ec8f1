"""How commands reach a fabric that is served: one JSON object each way on an abstract Unix socket.

Only programs of the same user, or root, are answered.  A request (`fabric_commands`) is at most `LARGEST`
bytes.  The reply is an object, with ``error`` where it could not be done.

``{"do": "capture", "links": ["leaf[3]"], "packets": 0}`` comes with the descriptor of a file: packets that
adapters send over these links go there, until so many are written, the client says ``stop``, or goes.
"""

from __future__ import annotations

import json
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any

from softhca.runtime import messages
from softhca.runtime.fabric_capture import LinkCapture
from softhca.runtime.fabric_commands import ControlError, find_end, perform
from softhca.runtime.fabric_loop import FabricLoop

if TYPE_CHECKING:
    from softhca.runtime.fabric_commands import Packets

__all__ = ["Connection", "ControlError", "ControlSocket", "ask", "control_name", "perform"]

LARGEST = 4096
MOST_CONNECTIONS = 16
MOST_CAPTURED = 1 << 40


def control_name(name: str) -> str:
    """The abstract name of the control socket of the fabric that this user serves under ``name``."""
    return f"\0softhca/fabric/{os.geteuid()}/{name}"


class ControlSocket:
    """Answers requests on ``loop``; ``packets`` are those of adapters, if there are any.  OSError EADDRINUSE:
    the name has a server."""

    def __init__(self, loop: FabricLoop, name: str, packets: Packets | None = None) -> None:
        self._loop = loop
        self._packets = packets
        self._connections: set[socket.socket] = set()
        self._captures: dict[socket.socket, LinkCapture] = {}
        self._waiting: dict[socket.socket, deque[bytes]] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            self._listener.bind(control_name(name))
            self._listener.listen(MOST_CONNECTIONS)
            loop.watch(self._listener.fileno(), self._accept)
        except BaseException:
            self._listener.close()
            raise
        loop.flushes.append(self._flush)

    def _accept(self) -> None:
        try:
            made, _ = self._listener.accept()
        except OSError:
            return
        made.setblocking(False)
        _, uid = messages.peer_of(made)
        if uid not in (0, os.geteuid()) or len(self._connections) >= MOST_CONNECTIONS:
            made.close()
            return
        self._connections.add(made)
        self._loop.watch(made.fileno(), lambda: self._take(made), lambda: self._send_waiting(made))

    def _take(self, made: socket.socket) -> None:
        try:
            received = messages.receive_packet(made, wait=False)
        except BlockingIOError:
            return
        except OSError:
            received = None
        if received is None:
            self._drop(made)
            return
        data, descriptors = received
        self._tell(made, self._reply(made, data, descriptors))

    def _tell(self, made: socket.socket, answer: dict[str, Any]) -> None:
        """Send an answer, behind those that wait for room.  Nothing more is asked by who does not take
        answers: the end of its capture is all that can come to wait beside one answer."""
        self._waiting.setdefault(made, deque()).append(json.dumps(answer).encode())
        self._send_waiting(made)

    def _send_waiting(self, made: socket.socket) -> None:
        waiting = self._waiting.get(made)
        while waiting:
            try:
                made.send(waiting[0], socket.MSG_NOSIGNAL)
            except BlockingIOError:
                break
            except OSError:
                self._drop(made)
                return
            waiting.popleft()
        if not waiting:
            self._waiting.pop(made, None)
        self._loop.want(made.fileno(), reads=not waiting, writes=bool(waiting))

    def _reply(self, made: socket.socket, data: bytes, descriptors: list[int]) -> dict[str, Any]:
        try:
            if len(data) > LARGEST:
                raise ControlError("the request is too long")
            request = json.loads(data)
            what = request.get("do") if isinstance(request, dict) else None
            if what == "capture":
                return self._capture(made, request, descriptors)
            if what == "stop":
                return self._stop(made)
            return perform(self._loop.plane, request, self._loop.clock(), self._packets)
        except ControlError as error:
            return {"error": str(error)}
        except (ValueError, RecursionError):
            return {"error": "a request is one JSON object"}
        finally:
            messages.close_all(descriptors)

    # captures

    def _capture(
        self, made: socket.socket, request: dict[str, Any], descriptors: list[int]
    ) -> dict[str, Any]:
        if self._packets is None or len(descriptors) != 1 or made in self._captures:
            raise ControlError("a capture comes with one file, and there is one for each connection")
        links, most = request.get("links"), request.get("packets", 0)
        if not isinstance(links, list) or not links:
            raise ControlError("which links?")
        if not isinstance(most, int) or not 0 <= most <= MOST_CAPTURED:
            raise ControlError("the number of packets cannot be")
        ends = [find_end(self._loop.plane, str(text)) for text in links]
        try:
            self._captures[made] = LinkCapture(self._packets, ends, descriptors[0], most)
        except OSError as error:
            raise ControlError(error.strerror or str(error)) from None
        return {"capturing": len(ends)}

    def _stop(self, made: socket.socket) -> dict[str, Any]:
        capture = self._captures.pop(made, None)
        if capture is None:
            raise ControlError("there is no capture to stop")
        return capture.close()

    def _flush(self) -> None:
        """End captures that have all that they were to have."""
        for made, capture in list(self._captures.items()):
            if capture.is_complete:
                del self._captures[made]
                self._tell(made, capture.close())

    def _drop(self, made: socket.socket) -> None:
        capture = self._captures.pop(made, None)
        if capture is not None:
            capture.close()
        self._loop.forget(made.fileno())
        self._connections.discard(made)
        self._waiting.pop(made, None)
        made.close()

    def close(self) -> None:
        """Close it and all connections."""
        for made in list(self._connections):
            self._drop(made)
        self._loop.forget(self._listener.fileno())
        self._listener.close()


class Connection:
    """To the server of the fabric ``name``.  ControlError: nobody serves one."""

    def __init__(self, name: str, timeout_s: float | None = 10.0) -> None:
        self._name = name
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(timeout_s)
        try:
            self.socket.connect(control_name(name))
        except OSError as error:
            self.socket.close()
            if isinstance(error, ConnectionRefusedError | FileNotFoundError):
                raise ControlError(f"nobody serves a fabric under the name {name!r}") from None
            raise ControlError(f"the server of {name!r} does not answer: {error}") from None

    def ask(self, request: dict[str, Any], descriptors: tuple[int, ...] = ()) -> dict[str, Any]:
        """Ask for something.  ControlError: it cannot be done."""
        try:
            messages.send_packet(self.socket, json.dumps(request).encode(), descriptors)
        except OSError as error:
            raise ControlError(f"the server of {self._name!r} does not answer: {error}") from None
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next that the server says.  ControlError: that it cannot be done, or nothing."""
        try:
            answer = json.loads(self.socket.recv(1 << 22) or b"{}")
        except (OSError, ValueError) as error:
            raise ControlError(f"the server of {self._name!r} does not answer: {error}") from None
        if not isinstance(answer, dict) or "error" in answer or not answer:
            why = answer.get("error", "it went away") if isinstance(answer, dict) else "no object"
            raise ControlError(str(why))
        return answer

    def close(self) -> None:
        """Take leave."""
        self.socket.close()


def ask(name: str, request: dict[str, Any], timeout_s: float = 10.0) -> dict[str, Any]:
    """Ask the server of a fabric.  ControlError: nobody serves one under the name, or it cannot be done."""
    connection = Connection(name, timeout_s)
    try:
        return connection.ask(request)
    finally:
        connection.close()
