"""Captures of a fabric's links: what adapters send over them, as pcapng of InfiniBand packets, or of an
Ethernet's IP packets."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable
from typing import Any

from softhca.fabric.ethernet.plane import EthernetPlane
from softhca.fabric.packet_plane import LinkSide, PacketPlane
from softhca.fabric.topology import End
from softhca.wire.pcapng import MAX_INTERFACES, PcapngWriter


class LinkCapture:
    """Writes the packets over the links of ``ends`` to ``descriptor``, which is copied, each direction as an
    interface of its own: as they leave, before a link's faults.  ``most`` packets, 0: all that come.

    ``one_way``: only those that leave by these ends.  OSError: it is no file, or cannot be written.
    """

    def __init__(
        self, packets: PacketPlane | EthernetPlane, ends: Iterable[End], descriptor: int, most: int = 0,
        one_way: bool = False,
    ) -> None:  # fmt: skip
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "a capture is written to a file")
        self._packets = packets
        self._most = most
        self.count = 0
        self.error = ""
        self._taps: list[tuple[LinkSide, Callable[[bytes, int], None]]] = []
        self._stream = os.fdopen(os.dup(descriptor), "wb")
        try:
            writer = PcapngWriter(self._stream)
            for end in dict.fromkeys(self._directions(ends, one_way)):
                self._tap(writer, end)
            self._stream.flush()
        except BaseException:
            self.close()
            raise
        packets.changed()

    def _directions(self, ends: Iterable[End], one_way: bool) -> Iterable[End]:
        for end in ends:
            yield end
            peer = self._packets.topology.peer(*end)
            if peer is not None and not one_way:
                yield peer

    def _tap(self, writer: PcapngWriter, end: End) -> None:
        if len(self._taps) >= MAX_INTERFACES:
            raise OSError(errno.E2BIG, f"more than {MAX_INTERFACES} directions of links")
        topology = self._packets.topology
        peer = topology.peer(*end)
        name = f"{topology.end_text(end)} to {topology.end_text(peer) if peer else 'nowhere'}"
        interface = writer.add_interface(self._packets.link_type, name)

        def tap(data: bytes, now: int) -> None:
            if self.is_complete:
                return
            try:
                writer.write(interface, time.time_ns(), data)
            except OSError as error:
                self.error = error.strerror or str(error)
                return
            self.count += 1

        side = self._packets.side(end)
        side.taps.append(tap)
        self._taps.append((side, tap))

    @property
    def is_complete(self) -> bool:
        """Whether nothing more is written."""
        return bool(self.error) or (self._most > 0 and self.count >= self._most)

    def close(self) -> dict[str, Any]:
        """End it; what was captured.  May be called again."""
        for side, tap in self._taps:
            side.taps.remove(tap)
        self._taps.clear()
        self._packets.changed()
        try:
            self._stream.close()
        except OSError as error:
            self.error = self.error or error.strerror or str(error)
        return {"captured": self.count} | ({"error": self.error} if self.error else {})
