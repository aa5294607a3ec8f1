"""A receiver that gets no processor for a while loses nothing: its socket's buffer holds what is sent."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path as File

from runtime_pair import REMOTE_EVERYTHING, End, RemoteOperation

from softhca.driver import registry
from softhca.driver.services import Path, Reliability, connect
from softhca.runtime import devices
from softhca.transport.window import DEFAULT_LIMIT_BYTES, FULL_BURST_BYTES, STALL_NS

CONNECTIONS = 16
DEFAULT_BUFFER_BYTES = 212_992
LENGTH = 1 << 18
TIMEOUT = 20  # 8.6 s before a packet is sent again
UDP_GRO = 104
ROCE_PORT = 4791
POLLS_LIMIT = 50_000_000


def accounted_bytes(address: str) -> int:
    """What the kernel accounts for the datagrams that a socket on an IPv4 address has not read yet."""
    packed = int.from_bytes(ipaddress.IPv4Address(address).packed, "big")
    wanted = f"{socket.htonl(packed):08X}:{ROCE_PORT:04X}"
    rows = [row.split() for row in File("/proc/net/udp").read_text().splitlines()[1:]]
    (found,) = [int(row[4].split(":")[1], 16) for row in rows if row[1] == wanted]
    return found


def test_half_of_a_default_buffer_takes_all_that_is_sent_to_one_that_does_not_read(loopback_address):
    address = loopback_address()
    devices.add(f"near=udp:{loopback_address()}?same_host=0", "embedded")
    driver = registry.open_device("near")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)  # bursts stay uncut, as an adapter takes them
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DEFAULT_BUFFER_BYTES)  # the kernel doubles it
        silent.bind((address, ROCE_PORT))
        gid = ipaddress.IPv6Address(f"::ffff:{address}").packed
        ends = [End(driver, LENGTH) for _ in range(CONNECTIONS)]
        for end in ends:
            path = Path(gid, mtu=driver.query_port(1)["active_mtu"])
            connect(end.qp, path, 77, 1, 1, REMOTE_EVERYTHING, Reliability(timeout=TIMEOUT))
            element = end.element(LENGTH)
            end.qp.post_send(int(RemoteOperation.WRITE), 2, 0, 1, 4096, 1, 0, 0, 0, 0, 0, element, None)
            end.qp.ring()
        (window,) = devices.find("near").engine.adapter.ports[0].windows.values()
        for _ in range(POLLS_LIMIT):  # three waits in vain: 20, 40 and 80 ms
            assert not ends[0].cq.poll(1)
            if window.stall_ns >= 8 * STALL_NS:
                break
        assert window.stall_ns >= 8 * STALL_NS
        assert silent.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * DEFAULT_BUFFER_BYTES
        assert DEFAULT_LIMIT_BYTES - FULL_BURST_BYTES <= accounted_bytes(address) <= DEFAULT_BUFFER_BYTES
        for end in ends:
            end.close()
    driver.close()
    devices.remove("near")
