"""Sockets whose data go by RDMA: a module with the names of Python's ``socket``.

`socket`, `create_connection` and `create_server` are this package's; every other name is the standard
library's.  A connection goes by RDMA where both sides use this module and reach each other's adapter, and by
TCP everywhere else.  `docs/sockets.md` has the contract.
"""

from __future__ import annotations

import socket as _kernel
from typing import Any

from softhca.sockets.creation import create_connection, create_server
from softhca.sockets.memory_processing import PageBuffer, PoolError
from softhca.sockets.settings import Settings
from softhca.sockets.stream_socket import socket

__all__ = [
    "PageBuffer",
    "PoolError",
    "Settings",
    "create_connection",
    "create_server",
    "socket",
]


def __getattr__(name: str) -> Any:
    return getattr(_kernel, name)
