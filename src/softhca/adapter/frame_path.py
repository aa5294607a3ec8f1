"""The receive path of Ethernet frames: from VXLAN datagrams of a link to raw packet queue pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from softhca.adapter.admission import receives
from softhca.adapter.scaling import Scaling
from softhca.transport.context import QueuePair
from softhca.transport.states import ERR
from softhca.wire.drops import DROP_FRAME, DROP_NO_RULE, DROP_STATE
from softhca.wire.ethernet import frame_key
from softhca.wire.vxlan import FrameView

if TYPE_CHECKING:
    from softhca.adapter.port import Port
    from softhca.wire.burst import Arrival

_FRAME = cython.declare(cython.int, DROP_FRAME)
_NO_RULE = cython.declare(cython.int, DROP_NO_RULE)
_STATE = cython.declare(cython.int, DROP_STATE)
_ERR = cython.declare(cython.int, ERR)


class FramePath:
    """Finds who receives each frame.  None of its methods raises for what a packet says."""

    def __init__(self) -> None:
        self._view = FrameView()

    def receive(self, port: Port, arrival: Arrival, now: int) -> None:
        """Take a run of VXLAN datagrams from the link of a port."""
        counters = port.counters
        offset: cython.uint = 0
        n: cython.uint
        reason: cython.int
        length: cython.uint = min(arrival.length, arrival.capacity)
        stride: cython.uint = arrival.stride
        if stride == 0 or stride > length:
            stride = length
        counters.bursts_received += 1
        while offset < length:
            n = length - offset if length - offset < stride else stride
            reason = _FRAME if port.segment is None else self._frame(port, arrival, offset, n, now)
            if reason == 0:
                counters.packets_received += 1
                counters.bytes_received += n
            else:
                counters.drop(reason)
            offset += n

    def _frame(self, port: Port, arrival: Arrival, offset: int, n: int, now: int) -> int:
        """One datagram; 0, or why nobody receives its frame.  Its sender is learned even then: frames are to
        find the way back."""
        view: FrameView = self._view
        queue_pair: QueuePair
        scaling: Scaling
        segment = port.segment
        reason: cython.int = view.open(arrival.data, offset, n, segment.vni)
        if reason:
            return reason
        o: cython.Py_ssize_t = view.payload
        source = arrival.source
        if source is not None:  # RoCE links always say it
            segment.learn(bytes(arrival.buffer[o + 6 : o + 12]), source, now)
        reason = _NO_RULE
        key: bytes = frame_key(arrival.data, o, view.payload_bytes)
        for queue_pair in segment.steering.receivers(key):
            if queue_pair.domain is not None and queue_pair.state != _ERR:  # it has a table, and no queue
                scaling = queue_pair.domain
                queue_pair = scaling.queue(key)
            elif queue_pair.flow.port_number != port.number:
                reason = _STATE if reason else 0
                continue
            if not receives(queue_pair):
                reason = _STATE if reason else 0
                continue
            queue_pair.flow.receive_raw(view, arrival, now)
            reason = 0
        return reason
