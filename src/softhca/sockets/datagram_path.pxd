from softhca.machine cimport deferred_signals
from softhca.machine.processor cimport Readable
from softhca.sockets.datagram_credits cimport SendCredit
from softhca.sockets.datagram_port_path cimport DatagramPortPath
from softhca.sockets.waiting cimport Waiting


cdef class DatagramPath(Waiting):
    cdef public list ports
    cdef public bint closed, polled
    cdef public object readiness
    cdef public long long _most_bytes
    cdef public object _room
    cdef public Readable _kernel_has
    cdef public bint _several, _kernel_ready, _kernel_first

    cdef bint _is_due(self) except -1
    cdef bint _is_over(self) except -1
    cpdef object _on_event(self)
    cpdef object _changed(self)
    cpdef list _taken(self, object take, bint peek)
    cpdef list _by_kernel(self, object by_kernel)
    cpdef object send(self, object way, object view, object deadline_s, bint blocking)
    cpdef long long _send(self, object way, object view, bint blocking, long long messages) except? -3
    cpdef bint _has_room_at(self, DatagramPortPath port) except -1
    cpdef bint _is_retired(self, DatagramPortPath port, long long number) except -1
