"""Objects that one part of a program makes and another one takes over by number: imported ones.

`Context.cmd_fd` is a descriptor that stands for an open device; a duplicate of it opens the same device again
(``Context(cmd_fd=…)``), and there `PD`, `MR` and `DM` are found by their ``handle``.  Within a process an
import is another name for the object.  In another process, which was given the descriptor (by inheritance, or
over a Unix socket), it is an attachment of its own to the same adapter, which lets who shows the descriptor
use domains and keys of its owner (``adapter.context_sharing``); device memory stays its own process's.  An
import ends with ``unimport``, or ``close``; what it stands for stays, and ends imports of its own process
when it is closed.
"""

import errno
import os
import weakref
from typing import TYPE_CHECKING, TypeVar

from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.structures import UINT32

if TYPE_CHECKING:
    from softhca.verbs.base import Resource
    from softhca.verbs.device import Context

_Kind = TypeVar("_Kind", bound="Resource")
_devices: "weakref.WeakValueDictionary[tuple[int, int], Context]" = weakref.WeakValueDictionary()


def remember(context: "Context", descriptor: int) -> None:
    """``descriptor`` stands for ``context`` from here on."""
    _devices[_identity(descriptor)] = context


def context_of(descriptor: int) -> "Context | None":
    """The context of this process that a descriptor, or a duplicate, stands for; None: it is another one's,
    or none.  `PyverbsRDMAError`: ``EBADF``."""
    try:
        found = _devices.get(_identity(descriptor))
    except OSError as error:
        raise PyverbsRDMAError("Failed to import device", error.errno or errno.EBADF) from error
    return found if found is not None and found._open and found._driver.alive else None


def element_of(parent: "Resource", kind: type[_Kind], handle: int, what: str) -> _Kind:
    """The ``kind`` of ``parent`` that has this handle; else `PyverbsRDMAError`, ``ENOENT``."""
    handle = UINT32(handle)
    for reference in list((parent._children or {}).values()):
        if isinstance(reference, kind) and reference._open and reference.handle == handle:  # type: ignore[attr-defined]
            return reference
    raise PyverbsRDMAError(f"Failed to import {what}: there is no handle {handle}", errno.ENOENT)


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
