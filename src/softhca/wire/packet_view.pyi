from softhca.wire.layout import Octets

class PacketView:
    opcode: int
    service: int
    operation: int
    position: int
    pad: int
    pkey: int
    dest_qp: int
    reserved7: int
    psn: int
    payload: int
    payload_bytes: int
    ee_context: int
    qkey: int
    source_qp: int
    xrc_srq: int
    reth_va: int
    reth_rkey: int
    reth_length: int
    atomic_va: int
    atomic_rkey: int
    swap_add: int
    compare: int
    syndrome: int
    msn: int
    atomic_original: int
    immediate: int
    invalidate_key: int
    solicited: bool
    migreq: bool
    fecn: bool
    becn: bool
    ack_request: bool
    has_rdeth: bool
    has_deth: bool
    has_xrceth: bool
    has_reth: bool
    has_atomiceth: bool
    has_aeth: bool
    has_atomicacketh: bool
    has_immdt: bool
    has_ieth: bool
    def __init__(self) -> None: ...
    def decode(self, data: Octets, offset: int, length: int) -> int: ...
