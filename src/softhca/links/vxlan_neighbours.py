"""Who on this host receives Ethernet frames by VXLAN: the kernel's own list of UDP sockets says it.

Only sockets of this user are taken, each bound to one address: other adapters of his, in this network
namespace.  So adapters of one host are one segment without anybody's naming them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from softhca.wire.route import V4_MAPPED_PREFIX
from softhca.wire.vxlan import VXLAN_PORT

_WORD_BYTES = 4
_LOCAL, _USER = 1, 7


def vxlan_neighbours(own: bytes, folder: Path = Path("/proc/net")) -> tuple[bytes, ...]:
    """GIDs of this user's sockets on the port of VXLAN, of the IP version that the GID ``own`` has, but for
    that one.  Empty where the list cannot be read."""
    version4 = own.startswith(V4_MAPPED_PREFIX)
    try:
        lines = (folder / ("udp" if version4 else "udp6")).read_text("ascii", "replace").splitlines()[1:]
    except OSError:
        return ()
    prefix = V4_MAPPED_PREFIX if version4 else b""
    return tuple(
        gid for line in lines if (packed := _listener(line)) and (gid := prefix + packed) != own
    )


def _listener(line: str) -> bytes:
    """The address of a line's socket where it is one of this user's for VXLAN; else empty."""
    words = line.split()
    if len(words) <= _USER:
        return b""
    address, _, port = words[_LOCAL].partition(":")
    try:
        if int(port, 16) != VXLAN_PORT or int(words[_USER]) != os.getuid():
            return b""
        packed = bytes.fromhex(address)
    except ValueError:
        return b""
    # the kernel prints words as numbers of its own byte order
    parts = (packed[i : i + _WORD_BYTES] for i in range(0, len(packed), _WORD_BYTES))
    packed = b"".join(part[::-1] if sys.byteorder == "little" else part for part in parts)
    return packed if any(packed) else b""
