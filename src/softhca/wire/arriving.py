"""The route of packets that arrive, as far as their ICRC is concerned.

Anybody can send from as many addresses and ports as he likes, so none of them is worth an object of its own
before a packet has proved sound: one object is turned to each flow in its turn, at the price of a few bytes.
"""

import cython

from softhca.wire.framing import ROCE_V4, ROCE_V6
from softhca.wire.route import V4_MAPPED_PREFIX, Route

_ROCE_V4 = cython.declare(cython.int, ROCE_V4)
_PREFIX = cython.declare(bytes, V4_MAPPED_PREFIX)
# where the addresses and the source port stand in the masked headers: behind 8 bytes for the missing LRH
_V4_ADDRESSES = cython.declare(cython.Py_ssize_t, 8 + 12)
_V4_PORT = cython.declare(cython.Py_ssize_t, 8 + 20)
_V6_ADDRESSES = cython.declare(cython.Py_ssize_t, 8 + 8)
_V6_PORT = cython.declare(cython.Py_ssize_t, 8 + 40)


class ArrivingRoute(Route):
    """A RoCE route whose source, destination and source port change; for `icrc.syndrome`, not for sending.

    ValueError for native framing.
    """

    def __init__(self, framing):
        if framing not in (ROCE_V4, ROCE_V6):
            raise ValueError(f"packets of framing {framing} do not carry their route")
        nobody = V4_MAPPED_PREFIX + bytes(4) if framing == ROCE_V4 else bytes(16)
        super().__init__(framing, nobody, nobody, 0)

    def aim(self, source, destination, source_port):
        """Be the route of another flow; False, and nothing has changed, where these are no addresses of this
        framing.
        """
        if source is not self.source or destination is not self.destination:
            if not self._addresses(source, destination):
                return False
        elif source_port == self.source_port:
            return True
        self.source_port = source_port
        self._put16(_V4_PORT if self.framing == _ROCE_V4 else _V6_PORT, source_port)
        self._seed_bytes = self._former_bytes = -1
        return True

    def _addresses(self, source, destination):
        """Put other addresses into the masked headers; False where they are none."""
        o: cython.Py_ssize_t = _V6_ADDRESSES
        first: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        if source is None or destination is None or len(source) != 16 or len(destination) != 16:
            return False
        if self.framing == _ROCE_V4:
            if not source.startswith(_PREFIX) or not destination.startswith(_PREFIX):
                return False
            o = _V4_ADDRESSES
            first = 12
        for i in range(first, 16):
            self._data[o] = source[i]
            self._data[o + 16 - first] = destination[i]
            o += 1
        self.source = source
        self.destination = destination
        return True
