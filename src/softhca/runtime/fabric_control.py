"""How commands reach a fabric that is served: one JSON object each way on an abstract Unix socket.

Only programs of the same user, or root, are answered.  A request is at most `LARGEST` bytes: ``{"do": "fail",
"link": "leaf[3]"}``; a link is named by either of its ends.  The reply is an object, with ``error`` where it
could not be done.
"""

from __future__ import annotations

import json
import os
import re
import socket
from typing import Any

from softhca.fabric.mad_plane import MadPlane
from softhca.fabric.topology import End
from softhca.management.performance_attributes import (
    PortCounters,
    PortRcvErrorDetails,
    PortXmitDiscardDetails,
)
from softhca.runtime import messages
from softhca.runtime.fabric_loop import FabricLoop

LARGEST = 4096
MOST_CONNECTIONS = 16
MOST_COUNTED = 1 << 32
_END = re.compile(r"(.+)\[(\d{1,3})\]")
_NO_ERRORS = frozenset({
    "port_select", "counter_select", "counter_select2", "reserved8",
    "xmit_data", "rcv_data", "xmit_pkts", "rcv_pkts",
})  # fmt: skip
ERRORS = frozenset(
    field.name
    for layout in (PortCounters, PortRcvErrorDetails, PortXmitDiscardDetails)
    for field in layout.LAYOUT
    if field.name not in _NO_ERRORS
)
"""The counters that ``count`` adds to, by the names of `management.performance_attributes`."""


class ControlError(Exception):
    """What could not be done, in one line."""


def control_name(name: str) -> str:
    """The abstract name of the control socket of the fabric that this user serves under ``name``."""
    return f"\0softhca/fabric/{os.geteuid()}/{name}"


def find_end(plane: MadPlane, text: str) -> End:
    """The end of a link that is called ``NODE[PORT]``, by a node's name or description.  ControlError."""
    match = _END.fullmatch(text)
    nodes = plane.topology.nodes
    found = [] if match is None else [index for index, node in enumerate(nodes) if node.name == match[1]]
    if match is not None and not found:
        found = [index for index, node in enumerate(nodes) if node.description == match[1]]
    if match is None or not found:
        raise ControlError(f"no end of a link is called {text[:80]!r}: expected NODE[PORT]")
    if len(found) > 1:
        raise ControlError(f"{len(found)} nodes are called {match[1][:80]!r}: name it by its name")
    end = End(found[0], int(match[2]))
    if plane.topology.link_at(*end) is None:
        raise ControlError(f"there is no link at {text[:80]}")
    return end


def perform(plane: MadPlane, request: Any, now: int) -> dict[str, Any]:
    """Do what a request says: ``fail``, ``restore``, ``count`` (errors at a port), ``counters``.
    ControlError."""
    if not isinstance(request, dict):
        raise ControlError("a request is an object")
    what = request.get("do")
    if what == "counters":
        return {"counters": dict(plane.counters)}
    if what not in ("fail", "restore", "count"):
        raise ControlError(f"no request is called {str(what)[:40]!r}")
    end = find_end(plane, str(request.get("link")))
    index = plane.topology.link_at(*end)
    assert index is not None
    link = plane.topology.links[index]
    answer: dict[str, Any] = {"link": [plane.topology.end_text(each) for each in (link.end_a, link.end_b)]}
    if what == "count":
        _count(plane, end, request.get("errors"))
    else:
        answer["changed"] = plane.fail(index, now) if what == "fail" else plane.restore(index, now)
    return answer


def _count(plane: MadPlane, end: End, errors: Any) -> None:
    port = plane.nodes[end.node].ports[end.port]
    assert port is not None
    if not isinstance(errors, dict) or not errors:
        raise ControlError("no counters to add to")
    for name, by in errors.items():
        if name not in ERRORS:
            known = ", ".join(sorted(ERRORS))
            raise ControlError(f"there is no counter {str(name)[:40]!r}: there are {known}")
        if not isinstance(by, int) or not 0 <= by < MOST_COUNTED:
            raise ControlError(f"{name} cannot grow by {str(by)[:40]}")
    for name, by in errors.items():
        port.count(name, by)


class ControlSocket:
    """Answers requests on ``loop``.  OSError EADDRINUSE: the name has a server."""

    def __init__(self, loop: FabricLoop, name: str) -> None:
        self._loop = loop
        self._connections: set[socket.socket] = set()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            self._listener.bind(control_name(name))
            self._listener.listen(MOST_CONNECTIONS)
            loop.watch(self._listener.fileno(), self._accept)
        except BaseException:
            self._listener.close()
            raise

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
        self._loop.watch(made.fileno(), lambda: self._take(made))

    def _take(self, made: socket.socket) -> None:
        try:
            data = made.recv(LARGEST)
            if data:
                made.send(json.dumps(self._reply(data)).encode())
                return
        except OSError:
            pass
        self._drop(made)

    def _reply(self, data: bytes) -> dict[str, Any]:
        try:
            return perform(self._loop.plane, json.loads(data), self._loop.clock())
        except ControlError as error:
            return {"error": str(error)}
        except (ValueError, RecursionError):
            return {"error": "a request is one JSON object"}

    def _drop(self, made: socket.socket) -> None:
        self._loop.forget(made.fileno())
        self._connections.discard(made)
        made.close()

    def close(self) -> None:
        """Close it and all connections."""
        for made in list(self._connections):
            self._drop(made)
        self._loop.forget(self._listener.fileno())
        self._listener.close()


def ask(name: str, request: dict[str, Any], timeout_s: float = 10.0) -> dict[str, Any]:
    """Ask the server of a fabric.  ControlError: nobody serves one under the name, or it cannot be done."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
        made.settimeout(timeout_s)
        try:
            made.connect(control_name(name))
            made.send(json.dumps(request).encode())
            answer = json.loads(made.recv(1 << 16) or b"{}")
        except (ConnectionRefusedError, FileNotFoundError):
            raise ControlError(f"nobody serves a fabric under the name {name!r}") from None
        except (OSError, ValueError) as error:
            raise ControlError(f"the server of {name!r} does not answer: {error}") from None
    if not isinstance(answer, dict) or "error" in answer or not answer:
        why = answer.get("error", "it went away") if isinstance(answer, dict) else "no object"
        raise ControlError(str(why))
    return answer
