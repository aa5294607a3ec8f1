"""The devices that sockets of this process use stay open while the process lives: opening one takes longer
than a connection should, and lent memory is theirs.
"""

from __future__ import annotations

import atexit
import os
import threading

from softhca.driver.device import DeviceDriver
from softhca.driver.rdmacm.identifier import DEVICES
from softhca.driver.rdmacm.local_devices import LocalPort
from softhca.sockets.completion_thread import drop_closed
from softhca.sockets.hub import HUB
from softhca.verbs import cm_contexts
from softhca.verbs.cmid import CMID

_lock = threading.Lock()
_kept: set[DeviceDriver] = set()


def keep(cmid: CMID) -> LocalPort:
    """Keep the device of ``cmid`` open; its port there."""
    return keep_place(cmid._identifier.place)


def keep_place(local: LocalPort) -> LocalPort:
    """Keep an open device open."""
    with _lock:
        if local.device not in _kept:
            if not _kept:  # behind the runtime's own, so that this comes first
                atexit.register(_at_exit)
            _kept.add(local.device)
            DEVICES.share(local, local.gid)
            cm_contexts.join(local.device)
    return local


def let_go() -> None:
    """Close the devices that nobody uses any more, for a program that lives on without sockets."""
    with _lock:
        kept = list(_kept)
        _kept.clear()
    atexit.unregister(_at_exit)
    for device in kept:
        cm_contexts.leave(device)
        DEVICES.release(device)
    drop_closed()


def _at_exit() -> None:
    HUB.end()
    let_go()


def _forget() -> None:
    """In a forked child: they are the parent's."""
    global _lock
    _lock = threading.Lock()
    _kept.clear()


os.register_at_fork(after_in_child=_forget)
