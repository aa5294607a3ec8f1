"""Work queue and completion entries that the other side of a ring wrote.

Input: limits of the queue, then an entry as it stands in the ring, or the fields of one.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuzz_choices import Choices

from softhca.machine.primitives import address_of, copy
from softhca.queues import wqe
from softhca.queues.cqe import CQE, CQE_BYTES, FIELDS, CompletionEntry

LIMITS = ((0, 0), (1, 0), (2, 32), (4, 256), (16, 1024))
SEND = tuple(wqe.SendWork(sges, inline) for sges, inline in LIMITS)
RECEIVE = tuple(wqe.ReceiveWork(sges) for sges, _ in LIMITS)
OUT = bytearray(4096)
ENTRY = CompletionEntry()
WRITTEN = bytearray(CQE_BYTES)
WIDTHS = (8, 1, 1, 2, 4, 4, 4, 4, 4, 8, 2, 1, 1, 2)


def one_input(data: bytes) -> None:
    choices = Choices(data)
    kind = choices.below(5)
    limit = choices.below(len(LIMITS))
    if kind == 0:
        send(choices.rest(), limit, choices.at & 1)
    elif kind == 1:
        receive(choices.rest(), limit)
    elif kind == 2:
        completion(choices)
    else:
        write(choices, limit, kind == 3)


def send(entry: bytes, limit: int, beyond: int) -> None:
    """Refused, or the same entry when it is written again."""
    work, (max_sge, max_inline) = SEND[limit], LIMITS[limit]
    status = work.load(bytearray(entry), len(entry) + 1000 * (beyond and len(entry) > 4000))
    assert status == work.status
    assert wqe.WORK_OK <= status <= wqe.WORK_LENGTH
    if status != wqe.WORK_OK:
        return
    assert work.num_sge <= max_sge
    assert work.inline_bytes <= max_inline
    assert work.total_bytes <= wqe.MAX_MESSAGE_BYTES
    is_inline = bool(work.flags & wqe.INLINE)
    at = work.inline_offset
    n = wqe.encode_send(
        OUT, work.opcode, work.flags, work.imm_or_key, work.wr_id, work.remote_va, work.rkey,
        work.compare_add, work.swap, work.ah, work.remote_qpn, work.remote_qkey, elements(work),
        bytes(work.buffer[at : at + work.inline_bytes]) if is_inline else None,
    )  # fmt: skip
    assert n == len(entry)
    assert OUT[:60] == entry[:60]
    assert OUT[64:n] == entry[64:]


def receive(entry: bytes, limit: int) -> None:
    """Likewise."""
    work = RECEIVE[limit]
    status = work.load(bytearray(entry), len(entry))
    assert wqe.WORK_OK <= status <= wqe.WORK_LENGTH
    if len(entry) >= 16 and len(entry) <= work.capacity:
        assert work.wr_id == int.from_bytes(entry[8:16], "little")
    if status == wqe.WORK_OK:
        assert work.num_sge <= LIMITS[limit][0]
        n = wqe.encode_receive(OUT, work.wr_id, elements(work))
        assert n == len(entry)
        assert OUT[:2] == entry[:2]
        assert OUT[8:n] == entry[8:]


def elements(work: wqe.Work) -> list[tuple[int, int, int]]:
    """The scatter/gather elements."""
    found = work.elements()
    if not (isinstance(work, wqe.SendWork) and work.flags & wqe.INLINE):
        assert work.total_bytes == sum(length for _, length, _ in found)
    return found


def write(choices: Choices, limit: int, sending: bool) -> None:
    """What the driver writes is read as it was meant."""
    sges = [(choices.number(8), choices.number(4), choices.number(4)) for _ in range(choices.byte() & 7)]
    wr_id = choices.number(8)
    if not sending:
        n = wqe.encode_receive(OUT, wr_id, sges)
        receive(bytes(OUT[:n]), limit)
        if n <= RECEIVE[limit].capacity:
            assert RECEIVE[limit].wr_id == wr_id
        return
    inline = choices.run() if choices.byte() & 1 else None
    fields = [choices.number(width) for width in (1, 1, 4, 8, 4, 8, 8, 4, 4, 4)]
    opcode, flags, imm, va, rkey, compare, swap, ah, qpn, qkey = fields
    n = wqe.encode_send(
        OUT, opcode, flags & 7, imm, wr_id, va, rkey, compare, swap, ah, qpn, qkey, sges, inline
    )
    if n >= 0:
        send(bytes(OUT[:n]), limit, 0)


def completion(choices: Choices) -> None:
    """An entry says what was put in."""
    values = [choices.number(width) for width in WIDTHS]
    named = dict(zip(FIELDS, values, strict=True))
    now = named.pop("timestamp_ns")
    order = ("wr_id", "status", "opcode", "wc_flags", "qp_num", "byte_len", "imm_or_key", "src_qp",
             "vendor_err", "pkey_index", "sl", "slid", "path_bits")  # fmt: skip
    ENTRY.fill(*(named[name] for name in order), now)
    copy(address_of(WRITTEN), ENTRY.address, CQE_BYTES)
    assert list(CQE.unpack(WRITTEN)) == values


def seeds() -> Iterator[bytes]:
    """Entries as the driver writes them."""
    for opcode in range(10):
        for sges in range(3):
            n = wqe.encode_send(OUT, opcode, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, [(1 << 40, 100, 7)] * sges)
            yield bytes([0, 3]) + OUT[:n]
        n = wqe.encode_send(OUT, opcode, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, [], bytes(20))
        yield bytes([0, 3]) + OUT[:n]
        yield bytes([3, 3, 2]) + bytes(range(40)) + bytes([opcode, opcode]) + bytes(60)
    for sges in range(4):
        n = wqe.encode_receive(OUT, 77, [(1 << 40, 100, 7)] * sges)
        yield bytes([1, 4]) + OUT[:n]
    yield bytes([2, 0]) + bytes(range(60))
    yield bytes([4, 4, 3]) + bytes(range(80))
