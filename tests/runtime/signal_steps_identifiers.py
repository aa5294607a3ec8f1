"""Identifiers of RDMA CM that signals interrupt: from the listener to the end of a connection."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from softhca.verbs import cm_enums as ce
from softhca.verbs import enums as e
from softhca.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from softhca.verbs.qp import QPCap, QPInitAttr

PORT = "7471"


class Identifiers:
    """Both ends are made, used and closed by each operation.  ``host`` is a device's address."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._made: list[Any] = []
        self._kept = self._make(CMID, creator=self._make(CMEventChannel))  # the device stays open
        self._kept.bind_addr(AddrInfo(src=host, src_service="7470", flags=ce.RAI_PASSIVE))
        self._first = len(self._made)

    def opens(self) -> None:
        """A channel and a bound identifier."""
        channel = CMEventChannel()
        one = CMID(creator=channel)
        one.bind_addr(self._here)
        one.close()
        channel.close()

    def connects(self) -> None:
        """Ask, accept, and end it."""
        passive_channel, active_channel = self._make(CMEventChannel), self._make(CMEventChannel)
        listener = self._make(CMID, creator=passive_channel)
        listener.bind_addr(self._here)
        listener.listen()
        active = self._make(CMID, creator=active_channel)
        active.resolve_addr(AddrInfo(dst=self._host, dst_service=PORT))
        _expect(active_channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        active.resolve_route()
        _expect(active_channel, ce.RDMA_CM_EVENT_ROUTE_RESOLVED)
        active.create_qp(_queues())
        active.connect(ConnParam())
        asked = _expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
        passive = self._make(CMID, creator=asked, listen_id=listener)
        passive.create_qp(_queues())
        passive.accept(ConnParam())
        _expect(active_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
        _expect(passive_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
        active.disconnect()
        for each in (active, passive, listener):
            each.close()

    def check(self) -> None:
        """Another one comes about, when what is left of the last one is closed."""
        self.clear()
        self.connects()
        self.clear()

    def clear(self) -> None:
        """Close what is there."""
        gc.collect()
        while len(self._made) > self._first:
            self._made[-1].close()
            self._made.pop()

    @property
    def _here(self) -> AddrInfo:
        return AddrInfo(src=self._host, src_service=PORT, flags=ce.RAI_PASSIVE)

    def _make(self, kind: Callable[..., Any], **arguments: Any) -> Any:
        self._made.append(kind(**arguments))
        return self._made[-1]


def _expect(channel: CMEventChannel, kind: int) -> CMEvent:
    event = CMEvent(channel)
    assert event.event_type == kind, event.event_str()
    return event


def _queues() -> QPInitAttr:
    return QPInitAttr(e.IBV_QPT_RC, cap=QPCap(max_recv_wr=4))
