"""Packets with two faults: the one that figure 117 of IBTA vol. 1, 9.8.1 looks at first is what they are
dropped for.

Headers, PSN, opcode sequence, operation, resources and length, R_Key; each row breaks two neighbours of
this order, or two that are further apart.
"""

from __future__ import annotations

from typing import Any

from softhca.conformance.refusals import FULL, PSN, Bench, add_row
from softhca.conformance.rig import altered
from softhca.testing.ends import LOCAL_WRITE, UC, UD
from softhca.wire import opcodes as op

LONG = bytes(260)


def _uc(name: str, reason: str, act: Any, **more: Any) -> None:
    add_row(f"order_uc_{name}", "C9-171", UC, reason, act, **more)


def _ud(name: str, reason: str, act: Any, **more: Any) -> None:
    add_row(f"order_ud_{name}", "C9-171", UD, reason, act, **more)


def _give(opcode: int, payload: bytes, **fields: Any) -> Any:
    def act(bench: Bench) -> None:
        bench.give(bench.packet(opcode, PSN, payload, **fields))

    return act


def _foreign(opcode: int, payload: bytes, **fields: Any) -> Any:
    """A WRITE with a key that is none."""

    def act(bench: Bench) -> None:
        bench.give(bench.write(bench.target, opcode, PSN, payload, rkey=bench.target.rkey ^ 0x100, **fields))

    return act


_NONE: dict[str, Any] = {"receive_bytes": 0}
_UNSUPPORTED: dict[str, Any] = {"access": LOCAL_WRITE}

_uc("partition_before_sequence", "pkey", _give(op.UC_SEND_MIDDLE, FULL, pkey=0x8123))
_uc("version_before_sequence", "version", _give(op.UC_SEND_LAST, b"x", tver=1))
_uc("sequence_before_operation", "sequence", _give(op.UC_RDMA_WRITE_MIDDLE, FULL), **_UNSUPPORTED)
_uc("sequence_before_length", "sequence", _give(op.UC_SEND_MIDDLE, b"short"))
_uc("sequence_before_receive", "sequence", _give(op.UC_SEND_LAST, b"x"), **_NONE)
_uc("operation_before_length", "opcode", _give(op.UC_RDMA_WRITE_ONLY, LONG), **_UNSUPPORTED)
_uc("operation_before_receive", "opcode", _give(op.UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, b"x"),
    **_UNSUPPORTED, **_NONE)  # fmt: skip
_uc("operation_before_key", "opcode", _foreign(op.UC_RDMA_WRITE_ONLY, b"x"), **_UNSUPPORTED)
_uc("receive_before_key", "no_receive", _foreign(op.UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, b"x"), **_NONE)
_uc("length_before_key", "length", _foreign(op.UC_RDMA_WRITE_ONLY, LONG))
_ud("partition_before_qkey", "pkey", _give(op.UD_SEND_ONLY, b"x", pkey=0x8123, qkey=5))
_ud("qkey_before_length", "qkey", _give(op.UD_SEND_ONLY, LONG, qkey=5))
_ud("qkey_before_receive", "qkey", _give(op.UD_SEND_ONLY, b"x", qkey=5), **_NONE)
_ud("opcode_before_length", "opcode", lambda b: b.give(altered(b.only(LONG), opcode=0x66)))
_ud("pmtu_before_receive", "length", _give(op.UD_SEND_ONLY, LONG), receive_bytes=100)
