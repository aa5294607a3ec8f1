from softhca.wire.layout import Octets, WritableOctets
from softhca.wire.raw import RawView

VXLAN_PORT: int
HEADER_BYTES: int
MOST_VNI: int

def put_vxlan(data: WritableOctets, offset: int, vni: int) -> None: ...

class FrameView(RawView):
    def open(self, data: Octets, offset: int, n: int, vni: int) -> int: ...
