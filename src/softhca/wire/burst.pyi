from softhca.wire.route import Route

CAPACITY: int
HEAD_BYTES: int

class SegmentBuffer:
    data: memoryview
    length: int
    stride: int
    @property
    def buffer(self) -> bytearray: ...
    @property
    def address(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def __init__(self) -> None: ...

class Burst(SegmentBuffer):
    packets: int
    route: Route | None
    counted: bool
    closed: bool
    has_icrc: bool
    def reliable(self) -> bool: ...
    def reset(self) -> None: ...

class Arrival(SegmentBuffer):
    framing: int
    source: bytes | None
    source_port: int
    destination: bytes | None
    traffic_class: int
    has_icrc: bool
    frames: bool
    payload_address: int
    grh: int
    slid: int
    sl: int
    path_bits: int
