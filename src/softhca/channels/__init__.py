"""Connected channels for people: messages, named buffers and atomics between two programs, with and without
asyncio.  docs/channels.md is the contract.
"""

from softhca.channels.aio import AsyncChannel, AsyncListener, AsyncRemoteBuffer
from softhca.channels.channel import Channel
from softhca.channels.errors import (
    ChannelAccessError,
    ChannelClosed,
    ChannelEnded,
    ChannelError,
    ChannelLost,
    ChannelRefused,
    ChannelTimeout,
    ChannelViolation,
    MessageTooLong,
)
from softhca.channels.listener import Listener
from softhca.channels.named import RemoteBuffer, Rights, SharedBuffer
from softhca.channels.options import ChannelOptions

__all__ = [
    "AsyncChannel",
    "AsyncListener",
    "AsyncRemoteBuffer",
    "Channel",
    "ChannelAccessError",
    "ChannelClosed",
    "ChannelEnded",
    "ChannelError",
    "ChannelLost",
    "ChannelOptions",
    "ChannelRefused",
    "ChannelTimeout",
    "ChannelViolation",
    "Listener",
    "MessageTooLong",
    "RemoteBuffer",
    "Rights",
    "SharedBuffer",
]
