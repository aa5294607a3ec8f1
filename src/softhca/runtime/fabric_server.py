"""A fabric that is served: programs of libibumad, adapters and commands meet in one process, on one loop."""

from __future__ import annotations

from pathlib import Path

from softhca.fabric.ethernet.plane import EthernetPlane
from softhca.fabric.packet_plane import PacketPlane
from softhca.fabric.topology import End
from softhca.fabric.umad_sessions import UmadSessions
from softhca.runtime.fabric_adapters import FabricAdapters
from softhca.runtime.fabric_capture import LinkCapture
from softhca.runtime.fabric_control import ControlSocket
from softhca.runtime.fabric_loop import FabricLoop
from softhca.runtime.umad_server import UmadServer


class FabricServer:
    """The fabric of ``loop``'s plane under ``name``; programs of libibumad come by UDP where ``address`` says
    one.  At an Ethernet there are none."""

    def __init__(self, loop: FabricLoop, name: str, address: tuple[str, int] | None = None) -> None:
        self.loop = loop
        self.name = name
        self.address = address
        plane = loop.plane
        self.packets: PacketPlane | EthernetPlane
        self.sessions: UmadSessions | None = None
        if isinstance(plane, EthernetPlane):
            self.packets = plane
        else:
            self.packets = PacketPlane(plane)
            self.sessions = UmadSessions(plane)
        self.programs: UmadServer | None = None
        self.control: ControlSocket | None = None
        self.adapters: FabricAdapters | None = None
        self._capture: LinkCapture | None = None

    def open(self) -> None:
        """Listen.  OSError EADDRINUSE: somebody serves a fabric under this name; `close` all the same."""
        if self.sessions is not None:
            self.programs = UmadServer(self.loop, self.sessions, self.name, self.address)
        self.control = ControlSocket(self.loop, self.name, self.packets)
        self.adapters = FabricAdapters(self.loop, self.packets, self.name)

    def capture(self, file: Path) -> None:
        """Write what adapters send, as it leaves them, into a file.  OSError: it cannot be."""
        topology = self.loop.plane.topology
        ends = [
            End(node, port)
            for node in topology.end_nodes
            for port in topology.nodes[node].addressed_ports
            if topology.peer(node, port) is not None
        ]
        with file.open("wb") as stream:
            self._capture = LinkCapture(self.packets, ends, stream.fileno(), one_way=True)

    def counters(self) -> dict[str, int]:
        """What has become of all datagrams and packets."""
        counters = {**self.loop.plane.counters, **self.packets.counters}
        if self.sessions is not None:
            counters |= {f"programs_{name}": count for name, count in self.sessions.counters.items()}
        if self.programs is not None:
            counters["programs_refused"] = self.programs.refused
        if self.adapters is not None:
            counters |= self.adapters.counters
        return counters

    def close(self) -> None:
        """Close all sockets, and the loop."""
        for each in (self.adapters, self.control, self.programs):
            if each is not None:
                each.close()
        if self._capture is not None:
            self._capture.close()
        self.loop.close()
