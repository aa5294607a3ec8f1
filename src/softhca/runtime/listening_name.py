"""The abstract name at which an adapter process can be found by its addresses: one a user and device.

Whoever has bound the name may start the adapter process of these addresses, and hands the socket to it; so
processes that open a device together start one.  The name is free again when that process has ended, and the
addresses are free before.  Abstract names belong to a network namespace, as the addresses do.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket

from softhca.machine.signals import suppressed
from softhca.runtime import messages
from softhca.runtime.specification import DeviceSpecification, resolve

LONGEST = 107
"""Bytes of a socket's name."""

CONNECTED = ("02", "03")
"""The states ``SS_CONNECTING`` (not yet accepted) and ``SS_CONNECTED`` in the kernel's table of sockets."""


def name_of(specification: DeviceSpecification) -> str:
    """``@softhca-USER-ADDRESS+ADDRESS…``, with a hash where the addresses are too long; empty for a device
    that has not all of its addresses yet, or is no ``udp``.  DeviceSpecificationError as `resolve`.
    """
    if specification.kind != "udp" or not all(specification.places):
        return ""
    addresses = "+".join(map(resolve, specification.places))
    name = f"@softhca-{os.getuid()}-{addresses}"
    if len(name) > LONGEST:
        name = f"@softhca-{os.getuid()}-{hashlib.sha256(addresses.encode()).hexdigest()}"
    return name


def take(name: str) -> socket.socket | None:
    """A socket that has this name and does not listen yet; None where another one has it."""
    taken = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        taken.bind("\0" + name[1:])
    except OSError as error:
        taken.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return taken


def is_taken(name: str) -> bool:
    """Whether somebody has this name."""
    bound = take(name)
    if bound is not None:
        bound.close()
    return bound is None


def check_owner(control: socket.socket, name: str) -> None:
    """OSError EPERM where another user's process (but for root's) listens at ``name``."""
    _, uid = messages.peer_of(control)
    if uid not in (os.getuid(), 0):
        raise OSError(errno.EPERM, f"{name[1:]} is the name of a socket of user {uid}")


def connections(name: str) -> int:
    """How many connections whoever listens at an abstract name has; 0 where the system does not tell."""
    found = 0
    with suppressed(OSError), open("/proc/net/unix") as table:
        for line in table:
            # Num RefCount Protocol Flags Type St Inode Path; the listener itself is unconnected
            words = line.split(maxsplit=7)
            found += len(words) == 8 and words[7].rstrip("\n") == name and words[5] in CONNECTED
    return found
