from struct import Struct

CQE_BYTES: int
CQE: Struct
FIELDS: tuple[str, ...]

class CompletionEntry:
    def __init__(self) -> None: ...
    @property
    def address(self) -> int: ...
    def fill(
        self,
        wr_id: int,
        status: int,
        opcode: int,
        wc_flags: int,
        qp_num: int,
        byte_len: int,
        imm_or_key: int,
        src_qp: int,
        vendor_err: int,
        pkey_index: int,
        sl: int,
        slid: int,
        path_bits: int,
        now: int,
    ) -> None: ...
