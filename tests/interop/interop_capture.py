"""What passes between a guest and the bridge, into a pcap file; runs as a process inside the namespace."""

from __future__ import annotations

import ipaddress
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softhca.wire.captures import read_capture
from softhca.wire.pcap import PcapWriter

ETHERNET = 1  # link type
ROCE_PORT = 4791
_ALL_PROTOCOLS = 3
_ETHERNET_BYTES, _IPV4, _IPV6, _UDP = 14, 0x0800, 0x86DD, 17
_LEAST_BYTES = 8 + 12 + 4  # headers of UDP and BTH, and the ICRC
_LISTENS = "capturing"
_LAST_WAIT_S = 0.2
_SO_RCVBUFFORCE = 33  # past the system's limit; the socket module does not name it
_BUFFER_BYTES = 1 << 28
_SOL_PACKET, _PACKET_STATISTICS = 263, 6


class CaptureError(Exception):
    """What was to be captured was not, so nothing can be said of it."""


class Capture:
    """Writes the RoCEv2 packets of an interface to ``path`` until it is closed."""

    def __init__(self, prefix: Sequence[str], interface: str, path: Path) -> None:
        self._process = subprocess.Popen(
            [*prefix, sys.executable, __file__, interface, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == _LISTENS

    def close(self) -> None:
        """End it; everything that has come is in the file.  Raises :class:`CaptureError` when it is not."""
        self._process.send_signal(signal.SIGINT)
        said, _ = self._process.communicate()
        if int(said or 0):
            raise CaptureError(f"{said.strip()} packets are missing in the capture")

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def is_roce(frame: bytes) -> bool:
    """Whether a frame holds a RoCEv2 packet; one that netem has damaged may have anything in its headers."""
    kind = int.from_bytes(frame[12:14], "big")
    if kind == _IPV4 and frame[14] >> 4 == 4:
        protocol, udp = frame[23], _ETHERNET_BYTES + 4 * (frame[14] & 15)
    elif kind == _IPV6 and frame[14] >> 4 == 6:
        protocol, udp = frame[20], _ETHERNET_BYTES + 40
    else:
        return False
    if len(frame) < udp + _LEAST_BYTES:
        return False
    return protocol == _UDP and int.from_bytes(frame[udp + 2 : udp + 4], "big") == ROCE_PORT


def read_frames(path: Path) -> list[dict[str, Any]]:
    """The headers of the RoCEv2 packets in a file that `Capture` wrote, in their order.

    ``time_ns``, ``source``, ``hops``, ``class``, ``label`` (0 over IPv4), ``port`` (the source's),
    ``opcode``, ``qpn`` (the destination's), ``ack_request``, ``psn`` and ``syndrome`` (-1: no AETH).
    """
    found = []
    with path.open("rb") as stream:
        for record in read_capture(stream):
            frame = bytes(record.data)
            if is_roce(frame):
                found.append({"time_ns": record.time_ns} | _headers(frame))
    return found


def _headers(frame: bytes) -> dict[str, Any]:
    ip = frame[_ETHERNET_BYTES:]
    if ip[0] >> 4 == 4:
        told: dict[str, Any] = {
            "source": str(ipaddress.IPv4Address(ip[12:16])), "hops": ip[8], "class": ip[1], "label": 0
        }  # fmt: skip
        udp = ip[4 * (ip[0] & 15) :]
    else:
        first = int.from_bytes(ip[:4], "big")
        told = {
            "source": str(ipaddress.IPv6Address(ip[8:24])), "hops": ip[7], "class": first >> 20 & 0xFF,
            "label": first & 0xFFFFF,
        }  # fmt: skip
        udp = ip[40:]
    bth = udp[8:]
    aeth = bth[12] if 13 <= bth[0] <= 18 and bth[0] != 14 else -1
    return told | {
        "port": int.from_bytes(udp[:2], "big"), "opcode": bth[0], "qpn": int.from_bytes(bth[5:8], "big"),
        "ack_request": bth[8] >> 7, "psn": int.from_bytes(bth[9:12], "big"), "syndrome": aeth,
    }  # fmt: skip


def main() -> None:
    interface, path = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS)) as raw,
        Path(path).open("wb") as stream,
    ):
        raw.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        raw.bind((interface, _ALL_PROTOCOLS))
        writer = PcapWriter(stream, ETHERNET)
        print(_LISTENS, flush=True)
        try:
            while True:
                _keep(raw, writer)
        except KeyboardInterrupt:
            raw.settimeout(_LAST_WAIT_S)
        try:
            while True:
                _keep(raw, writer)
        except TimeoutError:
            told = raw.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, struct.calcsize("=II"))
            print(struct.unpack("=II", told)[1])  # dropped, for want of room


def _keep(raw: socket.socket, writer: PcapWriter) -> None:
    frame = raw.recv(65536)
    if is_roce(frame):
        writer.write(time.time_ns(), frame)


if __name__ == "__main__":
    main()
