from softhca.wire.layout import Octets

HEADER_BYTES: int
VLAN_BYTES: int
KEY_BYTES: int
DST_MAC: int
SRC_MAC: int
ETHER_TYPE: int
VLAN_TAG: int
L3: int
PROTOCOL: int
TRAFFIC_CLASS: int
HOP_LIMIT: int
FLAGS: int
FLOW_LABEL: int
SRC_IP: int
DST_IP: int
SRC_PORT: int
DST_PORT: int
L4: int
IPV4: int
IPV6: int
TCP: int
UDP: int

def frame_key(data: Octets, offset: int, n: int) -> bytes: ...
