"""What packets name by something else than the destination queue pair: end-to-end contexts, by RDETH.

Which header it is stands in the service's row (`transport.services`), and so does the number under which a
queue pair is found.
"""

from __future__ import annotations

from errno import EBUSY
from typing import TYPE_CHECKING

import cython

from softhca.transport.connection import Connection
from softhca.transport.services import BY_EE_CONTEXT, BY_QP, BY_RAW_SERVICE

if TYPE_CHECKING:
    from softhca.wire.packet_view import PacketView

_BY_EE_CONTEXT = cython.declare(cython.int, BY_EE_CONTEXT)
_OTHER_WAYS = (BY_QP, BY_RAW_SERVICE)


class KeyedConnections:
    """Those of one adapter, each by its service and 24 bits of number."""

    _found: dict[int, Connection]

    def __init__(self) -> None:
        self._found = {}

    def add(self, queue_pair: Connection) -> None:
        """Enter a new queue pair, whatever its service.  OSError EBUSY: its number is another one's."""
        row = queue_pair.row
        if row.key not in _OTHER_WAYS and row.key_number is not None:
            number = row.number << 24 | row.key_number(queue_pair) & 0xFFFFFF
            if self._found.setdefault(number, queue_pair) is not queue_pair:
                raise OSError(
                    EBUSY, f"qp_type: another {row.name} queue pair is found by {number & 0xFFFFFF:#x}"
                )

    def forget(self, queue_pair: Connection) -> None:
        """A queue pair goes."""
        row = queue_pair.row
        if row.key not in _OTHER_WAYS and row.key_number is not None:
            self._found.pop(row.number << 24 | row.key_number(queue_pair) & 0xFFFFFF, None)

    def named(self, view: PacketView, key: int, port_number: int) -> Connection:
        """The queue pair that a decoded packet names by the header that ``key`` says, if it lives on the
        port; None where there is none, or no such header.
        """
        queue_pair: Connection
        number: cython.uint
        if key == _BY_EE_CONTEXT and view.has_rdeth:
            number = view.ee_context
        else:
            return None
        queue_pair = self._found.get(view.service << 24 | number)
        if queue_pair is not None and queue_pair.flow.port_number != port_number:
            return None
        return queue_pair
