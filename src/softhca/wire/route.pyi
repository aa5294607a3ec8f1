from typing import Any

from softhca.wire.framing import NATIVE, ROCE_V4, ROCE_V6
from softhca.wire.ip import ROCE_PORT

__all__ = ["NATIVE", "ROCE_PORT", "ROCE_V4", "ROCE_V6", "V4_MAPPED_PREFIX", "Route", "gid_of", "is_multicast"]

V4_MAPPED_PREFIX: bytes

def gid_of(packed: bytes) -> bytes: ...
def is_multicast(gid: bytes) -> bool: ...

class Route:
    traffic_class: int
    flow_label: int
    hop_limit: int
    identification: int
    counted: bool
    link: Any
    link_epoch: int
    needs_icrc: bool
    vl: int
    def __init__(
        self,
        framing: int,
        source: bytes,
        destination: bytes,
        source_port: int = 0xC000,
        traffic_class: int = 0,
        flow_label: int = 0,
        hop_limit: int = 64,
        identification: int = 0,
        slid: int = 0,
        dlid: int = 0,
        sl: int = 0,
        has_grh: bool = False,
        destination_port: int = ...,
        scope: int = 0,
        port_number: int = 1,
    ) -> None: ...
    @property
    def port_number(self) -> int: ...
    @property
    def framing(self) -> int: ...
    @property
    def source(self) -> bytes: ...
    @property
    def destination(self) -> bytes: ...
    @property
    def source_port(self) -> int: ...
    @property
    def destination_port(self) -> int: ...
    @property
    def slid(self) -> int: ...
    @property
    def dlid(self) -> int: ...
    @property
    def sl(self) -> int: ...
    @property
    def has_grh(self) -> bool: ...
    @property
    def scope(self) -> int: ...
    @property
    def prefix_bytes(self) -> int: ...
    @property
    def suffix_bytes(self) -> int: ...
    @property
    def peer(self) -> bytes: ...
    @property
    def socket_address(self) -> bytes: ...
    def headers(self, transport_bytes: int, vl: int = 0) -> bytes: ...
    def put_front(self, address: int, transport_bytes: int) -> None: ...
    def seed(self, transport_bytes: int) -> int: ...
