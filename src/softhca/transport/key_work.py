"""Work requests on keys, which send nothing: BIND_MW, REG_MR and LOCAL_INV (IBTA vol. 1, 10.6.7, 10.8.3.3).

Each acts at once and whole, or changes nothing; what it withdraws is dead before its completion shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from softhca.memory.windows import WindowTable
from softhca.queues.layout import BIND_MW, LOCAL_INV

if TYPE_CHECKING:
    from softhca.queues.wqe import SendWork
    from softhca.transport.connection import Connection

_BIND = cython.declare(cython.uint, BIND_MW)
_INVALIDATE = cython.declare(cython.uint, LOCAL_INV)


def execute_local(work: SendWork, connection: Connection) -> int:
    """Do what ``work`` of ``connection`` says; 0, or −errno and nothing has changed."""
    windows: WindowTable = connection.environment.memory_windows
    if work.opcode == _INVALIDATE:
        return windows.invalidate(work.imm_or_key, connection.number, connection.pd, False)
    if work.opcode == _BIND:
        return windows.bind(
            work.rkey,
            connection.number,
            connection.pd,
            work.imm_or_key & 0xFF,
            work.swap & 0xFFFFFFFF,
            work.remote_va,
            work.compare_add,
            work.swap >> 32,
        )
    return windows.register(
        work.rkey,
        connection.pd,
        work.imm_or_key & 0xFF,
        work.remote_va,
        work.compare_add,
        work.swap >> 32,
        work.swap & 0xFFFFFFFF,
        [(frame, count) for frame, count, _ in work.elements()],
    )
