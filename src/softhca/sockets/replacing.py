"""``socket.socket`` under programs that know nothing of softhca, for ``softhca run --sockets``.

The standard library makes its sockets by the name ``socket.socket``, so that name is replaced, and beside it
those functions of `os` that take a socket's descriptor (`descriptor_calls`).  It must be done before modules
are imported that keep the class (`asyncio`, `ssl`, `socketserver` …): ``softhca run --sockets`` does it when
the interpreter starts.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import socket as kernel
import sys

from softhca.machine.kernel_sockets import KernelSocket
from softhca.sockets import descriptor_calls, stream_socket


def install() -> None:
    """Sockets that are made from here on are softhca's; again is once."""
    kernel.socket = stream_socket.socket  # type: ignore[misc]
    descriptor_calls.install()


def uninstall() -> None:
    """As it was."""
    kernel.socket = KernelSocket  # type: ignore[misc]
    descriptor_calls.uninstall()


def start(folder: str) -> None:
    """What the ``sitecustomize`` in ``folder`` does: `install`, and whatever the next one does."""
    install()
    others = [each for each in sys.path if os.path.realpath(each or ".") != os.path.realpath(folder)]
    found = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if found is not None and found.loader is not None:
        module = importlib.util.module_from_spec(found)
        sys.modules["sitecustomize"] = module
        found.loader.exec_module(module)
