"""Bytes at raw addresses, for regions and ``mem_alloc``; only `machine.primitives` follows an address."""

from softhca.machine import primitives
from softhca.verbs.pyverbs_error import PyverbsUserError

Bytes = bytes | bytearray | memoryview | str
"""What may be written: text is written as UTF-8."""


def read_bytes(address: int, length: int) -> bytes:
    """A copy of ``length`` bytes at ``address``, which the caller knows to be mapped."""
    out = bytearray(length)
    if length:
        primitives.copy(primitives.address_of(out), address, length)
    return bytes(out)


def write_bytes(address: int, data: Bytes, length: int) -> None:
    """Copy the first ``length`` bytes of ``data`` to ``address``; refuses when ``data`` is shorter."""
    source = data.encode() if isinstance(data, str) else data
    if length < 0 or length > memoryview(source).nbytes:
        raise PyverbsUserError(f"{length} bytes asked for, the data has {memoryview(source).nbytes}")
    if length:
        primitives.copy(address, primitives.address_of(source, False), length)
