"""Rings that a host and an adapter share: neither trusts what the other wrote.

``ring`` is the mechanism; ``wqe`` and ``cqe`` are what its entries say; ``completion``, ``shared_receive``
and ``doorbells`` are the queues of an adapter, ``control`` its commands, replies and events.

Words in shared memory are in host byte order: both sides are processes of one machine.  Encodings are
little-endian.
"""

import sys

if sys.byteorder != "little":
    raise ImportError("softhca's queues need a little-endian machine")
