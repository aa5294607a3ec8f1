from collections.abc import Sequence

from softhca.queues.ring import RingConsumer

WORK_OK: int
WORK_TRUNCATED: int
WORK_OPCODE: int
WORK_FLAGS: int
WORK_SGES: int
WORK_INLINE: int
WORK_LENGTH: int

Buffer = bytearray | memoryview
Elements = Sequence[tuple[int, int, int]]

def send_bytes(max_sge: int, max_inline_bytes: int) -> int: ...
def receive_bytes(max_sge: int) -> int: ...

class Work:
    num_sge: int
    status: int
    total_bytes: int
    wr_id: int
    def __init__(self, max_sge: int, capacity: int, first: int) -> None: ...
    @property
    def buffer(self) -> bytearray: ...
    @property
    def address(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def max_sge(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def notes(self) -> int: ...
    def elements(self) -> list[tuple[int, int, int]]: ...
    def load(self, data: Buffer, n: int) -> int: ...
    def fetch(self, consumer: RingConsumer) -> int: ...
    def check(self, n: int) -> int: ...

class SendWork(Work):
    opcode: int
    flags: int
    imm_or_key: int
    rkey: int
    remote_va: int
    inline_bytes: int
    ah: int
    remote_qpn: int
    remote_qkey: int
    compare_add: int
    swap: int
    def __init__(self, max_sge: int = 32, max_inline_bytes: int = 1024) -> None: ...
    @property
    def max_inline_bytes(self) -> int: ...
    @property
    def inline_offset(self) -> int: ...
    def check(self, n: int) -> int: ...

class ReceiveWork(Work):
    def __init__(self, max_sge: int = 32) -> None: ...
    def check(self, n: int) -> int: ...

def encode_send(
    out: Buffer,
    opcode: int,
    flags: int,
    imm: int,
    wr_id: int,
    remote_va: int,
    rkey: int,
    compare: int,
    swap: int,
    ah: int,
    qpn: int,
    qkey: int,
    sges: Elements,
    inline: bytes | None = None,
) -> int: ...
def put_send(
    address: int,
    capacity: int,
    opcode: int,
    flags: int,
    imm: int,
    wr_id: int,
    remote_va: int,
    rkey: int,
    compare: int,
    swap: int,
    ah: int,
    qpn: int,
    qkey: int,
    sges: Elements,
    inline: bytes | None,
) -> int: ...
def encode_receive(out: Buffer, wr_id: int, sges: Elements) -> int: ...
def put_receive(address: int, capacity: int, wr_id: int, sges: Elements) -> int: ...
