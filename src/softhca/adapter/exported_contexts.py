"""Which hosts have exported their context by a descriptor, and who has shown it (`context_sharing`)."""

from __future__ import annotations

import errno
import os

FileKey = tuple[int, int]
"""Device and inode: the same for every process that has the file open."""


class _Held:
    """A descriptor that is kept open, until `close` or the end of the adapter."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def close(self) -> None:
        """May be called again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = close


class SharedContexts:
    """Who has exported a context, and who has shown the descriptor of which.

    Bounded by the hosts: one descriptor each, which is kept open, so that no other file gets its inode.
    """

    def __init__(self) -> None:
        self._owners: dict[FileKey, int] = {}
        self._exports: dict[int, tuple[FileKey, _Held]] = {}
        self._imports: dict[int, set[int]] = {}

    def export(self, host: int, descriptor: int) -> None:
        """``descriptor``, which is ours from now on, stands for ``host``.  OSError: EALREADY: another one
        does; EBUSY: it stands for somebody already."""
        held = _Held(descriptor)  # and closed with this call, where it is refused
        key = _identity(descriptor)
        if host in self._exports:
            raise OSError(errno.EALREADY, "descriptor: the context is exported by another one")
        if key in self._owners:
            raise OSError(errno.EBUSY, "descriptor: it stands for a context already")
        self._exports[host] = (key, held)
        self._owners[key] = host

    def show(self, host: int, descriptor: int) -> None:
        """``host`` has the descriptor of a context.  OSError: EINVAL: it stands for none, or for its own."""
        owner = self._owners.get(_identity(descriptor), host)
        if owner == host:
            raise OSError(errno.EINVAL, "descriptor: it stands for no other host's context here")
        self._imports.setdefault(host, set()).add(owner)

    def may_import(self, host: int, owner: int) -> bool:
        """Whether ``host`` has shown the descriptor of ``owner``."""
        return owner in self._imports.get(host, ())

    def forget(self, host: int) -> None:
        """A host has gone."""
        self._imports.pop(host, None)
        for owners in self._imports.values():
            owners.discard(host)
        exported = self._exports.pop(host, None)
        if exported is not None:
            del self._owners[exported[0]]
            exported[1].close()

    def abandon(self) -> None:
        """This is a forked child's copy: close its descriptors."""
        for _, held in self._exports.values():
            held.close()


def _identity(descriptor: int) -> FileKey:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
