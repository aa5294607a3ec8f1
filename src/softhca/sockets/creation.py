"""`create_connection` and `create_server`: Python's, over this package's `socket`."""

from __future__ import annotations

import socket as kernel
from typing import Any

from softhca.sockets.stream_socket import socket


def create_connection(
    address: tuple[str | None, int],
    timeout: Any = kernel._GLOBAL_DEFAULT_TIMEOUT,  # type: ignore[attr-defined]
    source_address: tuple[str, int] | None = None,
) -> socket:
    """A socket that is connected to ``address``; ``timeout`` is in seconds."""
    refused: OSError | None = None
    for family, kind, proto, _, place in kernel.getaddrinfo(*address, 0, kernel.SOCK_STREAM):
        made = socket(family, kind, proto)
        try:
            if timeout is not kernel._GLOBAL_DEFAULT_TIMEOUT:  # type: ignore[attr-defined]
                made.settimeout(timeout)
            if source_address is not None:
                made.bind(source_address)
            made.connect(place)
            return made
        except OSError as error:
            refused = error
            made.close()
    raise refused or OSError("getaddrinfo returns an empty list")


def create_server(
    address: tuple[str, int],
    *,
    family: int = kernel.AF_INET,
    backlog: int | None = None,
    reuse_port: bool = False,
    dualstack_ipv6: bool = False,
) -> socket:
    """A socket that listens at ``address``."""
    if dualstack_ipv6 and (family != kernel.AF_INET6 or not kernel.has_dualstack_ipv6()):
        raise ValueError("dualstack_ipv6 needs AF_INET6 on a host that has both")
    made = socket(family, kernel.SOCK_STREAM)
    try:
        made.setsockopt(kernel.SOL_SOCKET, kernel.SO_REUSEADDR, 1)
        if reuse_port:
            made.setsockopt(kernel.SOL_SOCKET, kernel.SO_REUSEPORT, 1)
        if family == kernel.AF_INET6:
            made.setsockopt(kernel.IPPROTO_IPV6, kernel.IPV6_V6ONLY, 0 if dualstack_ipv6 else 1)
        made.bind(address)
        made.listen(128 if backlog is None else backlog)
    except BaseException:
        made.close()
        raise
    return made
