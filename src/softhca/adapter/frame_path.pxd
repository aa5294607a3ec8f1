cimport cython

from softhca.adapter.admission cimport receives
from softhca.adapter.port cimport Port
from softhca.adapter.scaling cimport Scaling
from softhca.transport.context cimport QueuePair
from softhca.wire.burst cimport Arrival
from softhca.wire.ethernet cimport frame_key
from softhca.wire.vxlan cimport FrameView


@cython.final
cdef class FramePath:
    cdef FrameView _view

    cdef object receive(self, Port port, Arrival arrival, unsigned long long now)
    cdef int _frame(self, Port port, Arrival arrival, unsigned int offset, unsigned int n,
                    unsigned long long now) except -1
