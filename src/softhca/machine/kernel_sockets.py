"""The standard library's socket class, also in a program whose ``socket.socket`` was replaced.

What the package itself speaks to the kernel by must not go by what it carries.
"""

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from socket import socket as KernelSocket
else:
    KernelSocket = next(each for each in socket.socket.__mro__ if each.__module__ == "socket")

__all__ = ["KernelSocket"]
