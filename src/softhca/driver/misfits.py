"""Which field of a work request does not fit: looked for once the request is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softhca.driver.work_requests import Element, ReceiveRequest, WorkRequest

_FIELDS = {
    "wr_id": ("wr_id", 64),
    "opcode": ("opcode", 32),
    "send_flags": ("send_flags", 63),
    "imm_data": ("imm_data", 32),
    "remote_addr": ("remote_addr", 64),
    "remote_rkey": ("rkey", 32),
    "compare_add": ("compare_add", 64),
    "swap": ("swap", 64),
    "remote_qpn": ("remote_qpn", 32),
    "remote_qkey": ("remote_qkey", 32),
}
"""Attributes of requests: their names in ``ibv_send_wr``, and their bits."""
_ELEMENT = (("addr", 64), ("length", 32), ("lkey", 32))


def described(request: WorkRequest | None, error: Exception) -> str:
    """Why a request is refused whose values raised ``error`` when they were written: with the name of the
    first that is no number, or does not fit.
    """
    for attribute, (name, bits) in _FIELDS.items():
        value = getattr(request, attribute, 0)
        if not _fits(value, bits):
            return f"{name} = {value!r}: expected a number of {bits} bits"
    elements = getattr(request, "sges", None) or ()
    for element in () if isinstance(elements, bytes) else elements:
        for (name, bits), value in zip(_ELEMENT, element, strict=False):
            if not _fits(value, bits):
                return f"sg_list, {name} = {value!r}: expected a number of {bits} bits"
    return f"the work request is malformed: {error}"


def described_receive(wr_id: int, sges: Sequence[Element], error: Exception) -> str:
    """The same of a receive that is no object yet."""
    request = ReceiveRequest()
    request.wr_id, request.sges = wr_id, tuple(sges)
    return described(request, error)


def _fits(value: Any, bits: int) -> bool:
    try:
        return 0 <= int(value) < 1 << bits
    except (TypeError, ValueError):
        return False
