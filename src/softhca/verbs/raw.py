"""Raw datagrams beyond pyverbs: the numbers of raw services, for `QP.attach_raw` and `SendWR.set_wr_raw`.

A raw service is an EtherType, or `RAW_IPV6`: IPv6 packets without any header between LRH and IPv6.
"""

from softhca.wire.ip import ETHERTYPE_IPV6
from softhca.wire.raw import ALL_RAW, RAW_IPV6

__all__ = ["ALL_RAW", "ETHERTYPE_IPV6", "RAW_IPV6"]
