"""What attackers do to a round: floods of junk, forged packets, a client of the adapter process gone mad."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import socket
import struct
import time
from typing import Any

from softhca.machine.primitives import address_of, copy
from softhca.queues.handshake import ATTACH, DESCRIPTOR, DETACH, RESOURCES, encode_request
from softhca.runtime import messages
from softhca.runtime.adapter_process import AdapterProcess, connect_to
from softhca.runtime.process import ProcessChannel
from softhca.runtime.specification import parse_one
from softhca.wire import icrc
from softhca.wire.framing import ROCE_V4
from softhca.wire.route import V4_MAPPED_PREFIX, Route

ROCE_PORT = 4791
SPARE_DESCRIPTORS = 200
SLICE_S = 0.01
ACKNOWLEDGE, WRITE_ONLY, SEND_ONLY, READ_REQUEST, FETCH_ADD, READ_RESPONSE = (
    0x11,
    0x0A,
    0x04,
    0x0C,
    0x14,
    0x10,
)


def gid_of(address: str) -> bytes:
    return V4_MAPPED_PREFIX + socket.inet_aton(address)


def flood(source: str, targets: list[str], ports: int, rate: int, seconds: float, seed: int) -> None:
    """Junk from ``ports`` source ports in turn, ``rate`` datagrams a second: noise of any length, and noise
    behind a BTH that looks sound."""
    chance = random.Random(seed)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, ports + SPARE_DESCRIPTORS), hard))
    sockets = []
    with contextlib.suppress(OSError):
        while len(sockets) < ports:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((source, 0))
            sockets.append(made)
    junk = [chance.randbytes(chance.choice((0, 4, 12, 16, 60, 300, 1040))) for _ in range(64)]
    junk += [
        struct.pack(
            ">BBHII",
            chance.choice((WRITE_ONLY, SEND_ONLY, ACKNOWLEDGE)),
            0x40,
            0xFFFF,
            chance.getrandbits(24),
            chance.getrandbits(32),
        )
        + chance.randbytes(52)
        for _ in range(64)
    ]
    begin, sent = time.monotonic(), 0
    while (elapsed := time.monotonic() - begin) < seconds:
        for _ in range(min(int(elapsed * rate) - sent, rate // 20)):
            with contextlib.suppress(OSError):
                sockets[sent % len(sockets)].sendto(
                    junk[sent % len(junk)], (targets[sent % len(targets)], ROCE_PORT)
                )
            sent += 1
        sent = max(sent, int((time.monotonic() - begin) * rate) - rate // 20)
        time.sleep(SLICE_S / 4)


def forged(chance: random.Random, route: Route, victim: dict[str, Any]) -> bytes:
    """One packet with a good ICRC that would act, came it from the peer: it names a real queue pair and real
    keys and addresses."""
    opcode = chance.choice((ACKNOWLEDGE, WRITE_ONLY, SEND_ONLY, READ_REQUEST, FETCH_ADD, READ_RESPONSE))
    psn = (
        victim["psn"] + chance.choice((0, 1, 2, 3, chance.randrange(1 << 10), chance.randrange(1 << 16)))
    ) & 0xFFFFFF
    data = bytearray(struct.pack(">BBHII", opcode, 0x40, 0xFFFF, victim["qpn"], 1 << 31 | psn))
    va, key = chance.choice(((victim["va"], victim["rkey"]), (victim["private"], victim["lkey"])))
    if opcode in (WRITE_ONLY, READ_REQUEST):
        data += struct.pack(">QII", va, key, 64)
    elif opcode == FETCH_ADD:
        data += struct.pack(">QIQQ", va & ~7, key, 1, 0)
    elif opcode in (ACKNOWLEDGE, READ_RESPONSE):
        # Acknowledged, receiver not ready, sequence error, invalid request, access error, operational error.
        data += struct.pack(">I", chance.choice((0x1F, 0x20, 0x60, 0x61, 0x62, 0x63)) << 24)
    if opcode in (WRITE_ONLY, SEND_ONLY, READ_RESPONSE):
        data += chance.randbytes(64)
    return bytes(data) + icrc.compute(route, address_of(data), len(data)).to_bytes(4, "little")


def forge(
    source: str,
    target: str,
    victims: list[dict[str, Any]],
    rate: int,
    seconds: float,
    seed: int,
    ports: int = 200,
) -> None:
    """Forged packets from ``ports`` ports of ``source`` to queue pairs of ``target``."""
    chance = random.Random(seed)
    sockets = []
    for _ in range(ports):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((source, 0))
        sockets.append((made, Route(ROCE_V4, gid_of(source), gid_of(target), made.getsockname()[1])))
    begin, sent = time.monotonic(), 0
    while (elapsed := time.monotonic() - begin) < seconds:
        for _ in range(min(int(elapsed * rate) - sent, 200)):
            made, route = sockets[sent % ports]
            with contextlib.suppress(OSError):
                made.sendto(forged(chance, route, chance.choice(victims)), (target, ROCE_PORT))
            sent += 1
        time.sleep(SLICE_S)


def mad_client(path: str, seconds: float, seed: int, worst: bool = True) -> None:
    """Attach to the adapter process at ``path`` and obey nothing: noise in all shared rings, noise on control
    sockets, connections that say nothing; with ``worst`` the
    socket that wakes it full and blocking."""
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if chance.random() < 0.4:
                _noise(path, chance)
            else:
                _scribble(path, chance, min(end, time.monotonic() + 0.5), worst)


def _noise(path: str, chance: random.Random) -> None:
    control = connect_to(path, "mad")
    try:
        control.settimeout(0.2)
        for _ in range(20):
            frames = {
                "control": chance.choice(([(1, 1)], [], [(1, 267)], [(0, 0xFFFFFFFF)] * 9)),
                "doorbells": chance.choice(([(0, 65)], [(268, 65)])),
                "flag": chance.choice((0, 333, 0xFFFFFFFF)),
                "probe": chance.choice((0, 1 << 62, (1 << 64) - 5)),
            }
            message = chance.choice((ATTACH, ATTACH, DESCRIPTOR, DETACH, RESOURCES))
            words = bytearray(encode_request(message, frames if message == ATTACH else {}))
            if chance.random() < 0.3:
                words[chance.randrange(len(words))] ^= 1 << chance.randrange(8)
            pair = os.pipe()
            try:
                if chance.random() < 0.3:
                    control.send(chance.randbytes(chance.randrange(1, 2000)))
                else:
                    messages.send_packet(control, words, (pair[0],) * chance.randrange(4))
                if chance.random() < 0.5:
                    messages.receive_packet(control)
            finally:
                messages.close_all(pair)
    finally:
        control.close()


def _scribble(path: str, chance: random.Random, end: float, worst: bool) -> None:
    process = AdapterProcess(parse_one(f"mad=unix:{path}"))
    channel = ProcessChannel(process)
    try:
        if worst and chance.random() < 0.7:
            _block_wake_socket(channel)
        frames = [*channel.frames.control, *channel.frames.doorbells]
        while time.monotonic() < end:
            frame = chance.choice(frames)
            noise = struct.pack(
                "<Q", chance.choice((chance.getrandbits(64), chance.getrandbits(12), 1 << 32, 0))
            )
            offset = chance.choice((0, 64, 128, chance.randrange(512) * 8))
            address = channel.address_map.address(frame) + offset
            copy(address, address_of(noise, False), 8)
            channel.kick()
            if chance.random() < 0.05:
                time.sleep(0.002)
    except OSError as error:
        if error.errno not in (errno.EIO, errno.ECONNRESET, errno.EPIPE):
            raise
    finally:
        channel.close()


def _block_wake_socket(channel: ProcessChannel) -> None:
    """Let nothing more go through the socket that wakes this client, and make this end of it blocking."""
    assert channel._wake_socket is not None
    end = socket.socket(fileno=os.dup(channel._wake_socket.fileno()))
    end.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            end.send(bytes(4096))
    end.setblocking(True)
    end.close()
