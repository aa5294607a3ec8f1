"""An adapter process whose answers say what cannot be: ``python lying_adapter.py LIE WORD…``, where the words
are those of `softhca.runtime.process_main`.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Mapping
from typing import Any

from softhca.adapter import commands
from softhca.queues import control_fields as control
from softhca.runtime import process_main
from softhca.runtime.applications import Applications

LIES: dict[str, tuple[int, dict[str, int]]] = {
    "doorbell": (control.CREATE_QP, {"doorbell": 1 << 30}),
    "sends": (control.CREATE_QP, {"max_send_wr": 1 << 20}),
    "receives": (control.CREATE_QP, {"max_recv_wr": 1 << 20}),
    "send elements": (control.CREATE_QP, {"max_send_sge": 4000}),
    "receive elements": (control.CREATE_QP, {"max_recv_sge": 4000}),
    "inline data": (control.CREATE_QP, {"max_inline_data": 1 << 16}),
    "shared receives": (control.CREATE_SRQ, {"max_wr": 1 << 20}),
    "shared elements": (control.CREATE_SRQ, {"max_sge": 4000}),
    "work queue": (control.CREATE_WQ, {"doorbell": 1 << 30}),
    "scaled": (control.CREATE_RSS_QP, {"doorbell": 1 << 30}),
    "table": (control.QUERY_PORT, {"gid_tbl_len": (1 << 32) - 1}),
}
"""By name: the command, and what its reply says instead."""
SHRINK = fcntl.F_SEAL_SHRINK
MEMORIES = {"short": (4096, SHRINK, 8192), "of no bytes": (4096, SHRINK, 0), "not sealed": (8192, 0, 8192),
            "endless": (8192, SHRINK, 1 << 40)}  # fmt: skip
"""By name: bytes and seals of the memfd that is passed as device memory, and its bytes as they are told."""


def lie_in_replies(command: int, wrong: Mapping[str, int]) -> None:
    """Have the command's replies say ``wrong``."""
    handlers: Any = commands.HANDLERS
    handler = handlers[command]
    handlers[command] = lambda *words: {**handler(*words), **wrong}


def lie_of_memory(size: int, seals: int, length: int) -> None:
    """Pass such a memfd to whoever imports device memory."""

    def lend(*_: object) -> object:
        made = os.memfd_create("lie", os.MFD_ALLOW_SEALING)
        os.truncate(made, size)
        fcntl.fcntl(made, fcntl.F_ADD_SEALS, seals)
        return {"length": length}, (os.fdopen(made, "rb", buffering=0),)

    changed: Any = Applications
    changed._lend_memory = lend


if __name__ == "__main__":
    name = sys.argv[1]
    if name in LIES:
        lie_in_replies(*LIES[name])
    else:
        lie_of_memory(*MEMORIES[name])
    sys.exit(process_main.main(sys.argv[2:]))
