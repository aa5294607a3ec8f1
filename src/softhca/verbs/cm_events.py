"""Events of connections: `CMEventChannel`, `CMEvent`, and what an event says of datagrams (`UDParam`)."""

import errno
import sys
from collections.abc import Callable

from softhca.driver.rdmacm.events import CONNECT_REQUEST, DatagramParameters, EventChannel, IdentifierEvent
from softhca.machine import deferred_signals
from softhca.verbs.addr import AHAttr
from softhca.verbs.base import PyverbsObject, close_dropped, require, sole_owner, translated
from softhca.verbs.librdmacm_enums import rdma_cm_event_type
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError


class CMEventChannel(PyverbsObject):
    """Where events of identifiers are waited for, with `CMEvent`."""

    __slots__ = ("_channel",)

    def __init__(self) -> None:
        self._channel = EventChannel()

    @property
    def channel(self) -> EventChannel:
        """The driver's half."""
        return self._channel

    @property
    def fd(self) -> int:
        """A descriptor that is readable while events wait, for select, epoll or asyncio; the channel's, and
        closed with it.  While it is non-blocking (``os.set_blocking``) `CMEvent` ends with ``EAGAIN`` where
        it would wait.
        """
        with translated("Failed to make a descriptor"):
            return self._channel.fileno()

    def close(self) -> None:
        """End all waits (``EBADF``)."""
        self._channel.close()


class CMEvent(PyverbsObject):
    """The next event of ``channel``, which is waited for.  It is acknowledged once: by `ack_cm_event`, by
    `close` or when it is dropped.  A request that no `CMID` was made of before is rejected then.
    """

    __slots__ = ("_event",)
    _goes_first, _order = False, 0

    def __init__(self, channel: CMEventChannel) -> None:
        require(channel, CMEventChannel, "channel")
        with translated("Failed to create CMEvent"):
            event = channel.channel.next_event()
        if event is None:
            raise PyverbsRDMAError("Failed to create CMEvent: there is none", errno.EAGAIN)
        self._event: IdentifierEvent | None = event

    @classmethod
    def of(cls, event: IdentifierEvent) -> "CMEvent":
        """One that has been taken from the driver's channel already."""
        made = cls.__new__(cls)
        made._event = event
        return made

    @property
    def event(self) -> IdentifierEvent:
        """The driver's event; `PyverbsUserError` when it has been acknowledged."""
        event = self._event  # once: another thread may acknowledge it
        if event is None:
            raise PyverbsUserError("The event was acknowledged before")
        return event

    @property
    def event_type(self) -> int:
        """What has happened: an ``rdma_cm_event_type``."""
        return self.event.kind

    @property
    def status(self) -> int:
        """0, a negative errno, or the reason that the peer gave."""
        return self.event.status

    @property
    def private_data(self) -> bytes:
        """The peer's, with the zeros behind it."""
        return self.event.private_data

    def event_str(self) -> str:
        """The name of its type; empty when it has been acknowledged."""
        event = self._event
        return "" if event is None else rdma_cm_event_type(event.kind).name

    def ack_cm_event(self) -> None:
        """The event is not needed any more."""
        event, self._event = self._event, None
        if event is not None and _is_left(event):
            with translated("Failed to acknowledge CMEvent"):
                event.identifier.close()

    def close(self) -> None:
        """As `ack_cm_event`."""
        self.ack_cm_event()

    __reduce_ex__ = sole_owner

    def _drop(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        event = None if is_ending() else getattr(self, "_event", None)  # modules are cleared then
        if event is not None and _is_left(event):
            close_dropped(self)

    __del__ = deferred_signals.finalizer(_drop)


def _is_left(event: IdentifierEvent) -> bool:
    """Whether it is a request that nobody has taken."""
    return event.kind == CONNECT_REQUEST and not event.identifier.taken


class UDParam(PyverbsObject):
    """How a peer or a group is reached by datagrams, as an event says it."""

    __slots__ = ("_datagram",)

    def __init__(self, cm_event: CMEvent) -> None:
        require(cm_event, CMEvent, "cm_event")
        self._datagram = cm_event.event.datagram or DatagramParameters({}, 0, 0)

    @property
    def qp_num(self) -> int:
        """The peer's queue pair."""
        return self._datagram.qp_num

    @property
    def qkey(self) -> int:
        """The Q_Key that it takes."""
        return self._datagram.qkey

    @property
    def ah_attr(self) -> AHAttr:
        """The way there."""
        return AHAttr.from_dict(self._datagram.vector)
