"""What passes between a guest and the bridge, into a pcap file; runs as a process inside the namespace."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from softhca.wire.pcap import PcapWriter

ETHERNET = 1  # link type
ROCE_PORT = 4791
_ALL_PROTOCOLS = 3
_ETHERNET_BYTES, _IPV4, _IPV6, _UDP = 14, 0x0800, 0x86DD, 17
_LISTENS = "capturing"
_LAST_WAIT_S = 0.2


class Capture:
    """Writes the RoCEv2 packets of an interface to ``path`` until it is closed."""

    def __init__(self, prefix: Sequence[str], interface: str, path: Path) -> None:
        self._process = subprocess.Popen(
            [*prefix, sys.executable, __file__, interface, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == _LISTENS

    def close(self) -> None:
        """End it; everything that has come is in the file."""
        self._process.send_signal(signal.SIGINT)
        self._process.communicate()

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def is_roce(frame: bytes) -> bool:
    """Whether a frame holds a RoCEv2 packet."""
    kind = int.from_bytes(frame[12:14], "big")
    if kind == _IPV4:
        protocol, udp = frame[23], _ETHERNET_BYTES + 4 * (frame[14] & 15)
    elif kind == _IPV6:
        protocol, udp = frame[20], _ETHERNET_BYTES + 40
    else:
        return False
    return protocol == _UDP and int.from_bytes(frame[udp + 2 : udp + 4], "big") == ROCE_PORT


def main() -> None:
    interface, path = sys.argv[1:]
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS)) as raw,
        Path(path).open("wb") as stream,
    ):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 25)
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
            return


def _keep(raw: socket.socket, writer: PcapWriter) -> None:
    frame = raw.recv(65536)
    if is_roce(frame):
        writer.write(time.time_ns(), frame)


if __name__ == "__main__":
    main()
