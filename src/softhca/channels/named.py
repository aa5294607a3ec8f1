"""Named buffers: what this side shares, and what it knows of the peer's."""

from __future__ import annotations

import contextlib
import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from softhca.channels import messages as m
from softhca.channels.errors import ChannelAccessError, ChannelError, ProtocolError
from softhca.channels.messages import Control
from softhca.channels.registration import bytes_of
from softhca.verbs import enums as e
from softhca.verbs.mr import MR
from softhca.verbs.pyverbs_error import PyverbsError

if TYPE_CHECKING:
    from softhca.channels.channel import Channel
    from softhca.channels.link import Link

MOST_NAMES = 1024
"""Buffers that each side may share at a time."""


class Rights(enum.IntFlag):
    """What a peer may do with a shared buffer."""

    READ = m.READ
    WRITE = m.WRITE
    ATOMIC = m.ATOMIC

    @classmethod
    def of(cls, value: Rights | str) -> Rights:
        """``value``, or what its letters say: ``r`` read, ``w`` write, ``a`` atomics.  ValueError."""
        if not isinstance(value, str):
            if not value or int(value) & ~7:
                raise ValueError(f"there are no rights {int(value)}")
            return cls(value)
        if not value or set(value) - set(_LETTERS):
            raise ValueError(f"rights are some of the letters r, w and a, not {value!r}")
        return cls(sum(_LETTERS[each] for each in set(value)))


_LETTERS = {"r": m.READ, "w": m.WRITE, "a": m.ATOMIC}
_ACCESS = {
    Rights.READ: int(e.IBV_ACCESS_REMOTE_READ),
    Rights.WRITE: int(e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_LOCAL_WRITE),
    Rights.ATOMIC: int(e.IBV_ACCESS_REMOTE_ATOMIC | e.IBV_ACCESS_LOCAL_WRITE),
}


class SharedBuffer:
    """A buffer of this program that the peer may use by its name, until `close`."""

    def __init__(self, channel: Channel | None, name: str, rights: Rights, mr: MR) -> None:
        self._channel = channel
        self.name = name
        self.rights = rights
        self.mr = mr
        self.identity = 0
        self.released = False
        """The peer uses it no more."""

    def close(self, timeout: float | None = None) -> None:
        """Share it no more: told the peer, waited until no operation of his is under way, or for ``timeout``
        seconds (default: the channel's ``linger_s``), and its memory is this program's alone again.
        """
        if self._channel is not None:
            self._channel.unshare(self, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(eq=False)
class Grant:
    """A buffer that the peer shares."""

    identity: int
    name: str
    address: int
    length: int
    key: int
    rights: Rights
    users: int = 0
    revoked: bool = False

    def place(self, offset: int, length: int, right: Rights, aligned: bool = False) -> int:
        """The address of ``length`` bytes at ``offset``.  ChannelAccessError."""
        if self.revoked:
            raise ChannelAccessError(f"{self.name!r} is not shared any more")
        if not self.rights & right:
            raise ChannelAccessError(f"{self.name!r} is not shared for {str(right.name).lower()}")
        if offset < 0 or length < 0 or offset + length > self.length:
            raise ChannelAccessError(
                f"{length} bytes at {offset} are not within the {self.length} bytes of {self.name!r}"
            )
        if aligned and (self.address + offset) % 8:
            raise ChannelAccessError(f"byte {offset} of {self.name!r} is not at a multiple of 8")
        return self.address + offset


class NamedBuffers:
    """Both tables of a connection.  Methods that say so need its lock."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._own: dict[str, SharedBuffer] = {}
        self._waiting: dict[int, SharedBuffer] = {}
        self._next = 0
        self.peers: dict[str, Grant] = {}
        self._by_identity: dict[int, Grant] = {}

    # this side's

    def register(self, channel: Channel | None, name: str, buffer: Any, rights: Rights) -> SharedBuffer:
        """``buffer`` under a name; nobody is told yet.  ValueError, TypeError, ChannelError."""
        try:
            m.check_name(name)
        except ProtocolError as error:
            raise ValueError(str(error)) from None
        view = bytes_of(buffer, bool(rights & ~Rights.READ))
        if not view.nbytes:
            raise ValueError("a buffer of no bytes cannot be shared")
        if channel is not None:
            with self._link.guard:
                channel._endpoint.require_open()
        access = 0
        for right, bits in _ACCESS.items():
            if rights & right:
                access |= bits
        try:
            mr = MR(self._link.pd, access=access, buffer=view)
        except PyverbsError as error:
            raise ChannelError(f"{name!r} cannot be registered: {error}") from error
        return SharedBuffer(channel, name, rights, mr)

    def announce(self, shared: SharedBuffer) -> None:
        """With the lock held: tell the peer.  ChannelError: the name is in use, or there are too many."""
        if shared.name in self._own or any(each.name == shared.name for each in self._waiting.values()):
            raise ChannelError(f"{shared.name!r} is shared already")
        if len(self._own) + len(self._waiting) >= MOST_NAMES:
            raise ChannelError(f"at most {MOST_NAMES} buffers are shared at a time")
        self._next += 1
        shared.identity = self._next
        self._own[shared.name] = shared
        mr = shared.mr
        self._link.send_control(
            Control(
                m.SHARE, number=shared.identity, address=mr.buf, length=mr.length, key=mr.rkey,
                flags=int(shared.rights), name=shared.name,
            )
        )  # fmt: skip

    def made(self, shared: SharedBuffer) -> bool:
        """Whether it is one of this connection's, shared or not any more."""
        return shared._channel is None or shared._channel._link is self._link

    def revoke(self, shared: SharedBuffer) -> bool:
        """With the lock held: tell the peer; False: it is revoked already."""
        if self._own.get(shared.name) is not shared:
            return False
        del self._own[shared.name]
        self._waiting[shared.identity] = shared
        self._link.send_control(Control(m.UNSHARE, number=shared.identity))
        return True

    def end(self, shared: SharedBuffer) -> None:
        """Its memory is this program's alone, whatever the peer has said."""
        with contextlib.suppress(PyverbsError):
            shared.mr.close()
        with self._link.guard:
            self._waiting.pop(shared.identity, None)

    # the peer's

    def on_control(self, message: Control) -> None:
        """With the lock held: the peer shares, revokes, or has let go.  ProtocolError."""
        number = message.number
        if message.kind == m.SHARE:
            self._shared(message)
        elif message.kind == m.UNSHARED:
            shared = self._waiting.get(number)
            if shared is not None:
                shared.released = True
            elif not 0 < number <= self._next or any(each.identity == number for each in self._own.values()):
                raise ProtocolError(f"buffer {number} was not revoked")
        else:
            grant = self._by_identity.pop(number, None)
            if grant is None:
                raise ProtocolError(f"there is no buffer {number}")
            grant.revoked = True
            del self.peers[grant.name]
            if not grant.users:
                self._link.send_control(Control(m.UNSHARED, number=number))

    def _shared(self, message: Control) -> None:
        rights = message.flags
        if not rights or rights & ~7 or not message.length or message.address + message.length > 1 << 64:
            raise ProtocolError(f"{message.length} bytes at {message.address:#x} with rights {rights:#x}")
        if message.name in self.peers or message.number in self._by_identity:
            raise ProtocolError(f"{message.name!r} is shared twice")
        if len(self.peers) >= MOST_NAMES:
            raise ProtocolError("too many shared buffers")
        grant = Grant(
            message.number, message.name, message.address, message.length, message.key, Rights(rights)
        )
        self.peers[message.name] = self._by_identity[message.number] = grant

    def leave(self, grant: Grant) -> None:
        """With the lock held: an operation on it has ended."""
        grant.users -= 1
        if grant.revoked and not grant.users:
            self._link.send_control(Control(m.UNSHARED, number=grant.identity))

    def close(self) -> None:
        """Deregister what is shared."""
        for shared in (*self._own.values(), *self._waiting.values()):
            with contextlib.suppress(PyverbsError):
                shared.mr.close()


class RemoteBuffer:
    """A buffer that the peer shares: ``name``, ``length``, ``rights``.  `Channel.remote` gives it."""

    def __init__(self, channel: Channel, grant: Grant) -> None:
        self._channel = channel
        self.grant = grant
        self.name = grant.name
        self.length = grant.length
        self.rights = grant.rights

    def __len__(self) -> int:
        return self.length

    def write(self, data: Any, offset: int = 0, timeout: float | None = None) -> None:
        """As `Channel.write`."""
        self._channel.write(self, data, offset, timeout)

    def read(self, length: int | None = None, offset: int = 0, timeout: float | None = None) -> bytes:
        """As `Channel.read`."""
        return self._channel.read(self, length, offset, timeout)

    def read_into(self, buffer: Any, offset: int = 0, timeout: float | None = None) -> None:
        """As `Channel.read_into`."""
        self._channel.read_into(self, buffer, offset, timeout)

    def fetch_add(self, offset: int, value: int, timeout: float | None = None) -> int:
        """As `Channel.fetch_add`."""
        return self._channel.fetch_add(self, offset, value, timeout)

    def compare_swap(self, offset: int, expected: int, new: int, timeout: float | None = None) -> int:
        """As `Channel.compare_swap`."""
        return self._channel.compare_swap(self, offset, expected, new, timeout)
