from typing import Any

Element = tuple[int, int, int]

class WorkRequest:
    __slots__: tuple[str, ...]
    wr_id: int
    sges: tuple[Element, ...]
    _all: tuple[Element, ...]
    following: Any

class SendRequest(WorkRequest):
    sges: Any  # elements, or bytes
    opcode: int
    send_flags: int
    imm_data: int
    ah: Any
    remote_addr: int
    remote_rkey: int
    compare_add: int
    swap: int
    remote_qpn: int
    remote_qkey: int

class ReceiveRequest(WorkRequest): ...

class Completion:
    wr_id: int
    status: int
    opcode: int
    wc_flags: int
    qp_num: int
    byte_len: int
    imm_data: int
    src_qp: int
    vendor_err: int
    timestamp_ns: int
    pkey_index: int
    sl: int
    dlid_path_bits: int
    slid: int
