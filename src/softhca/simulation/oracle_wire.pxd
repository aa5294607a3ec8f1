cimport cython

from softhca.simulation.oracle_wire_packets cimport Checksums, be, follows, payload_bytes, wrong_length
from softhca.simulation.oracle_wire_requester cimport Requester
from softhca.simulation.oracle_wire_responder cimport Responder


cdef class Unreliable:
    cdef public object terms
    cdef public object report
    cdef int _service
    cdef long long _psn
    cdef int _before
    cdef long long _left_bytes
    cdef long long _mtu_bytes

    cpdef fail(self, str rule, str text)
    @cython.locals(psn=cython.longlong, packet=bytes, wrong=str)
    cpdef sent(self, int code, bytes data)


cdef class End:
    cdef public int service
    cdef public int adapter
    cdef public bytes allowed
    cdef public tuple peer
    cdef public End other
    cdef public str name
    cdef public object qkey
    cdef public Requester requester
    cdef public Responder responder
    cdef public Unreliable unreliable


cdef class WireOracle:
    cdef public object report
    cdef object _links
    cdef dict _ends
    cdef dict _holds
    cdef Checksums _checksums
    cdef int _last_destination
    cdef bytes _last_data
    cdef object _datagrams

    @cython.locals(end=End)
    cpdef posted(self, tuple one, long long count)
    @cython.locals(end=End, peer=End)
    cpdef failed(self, tuple one, int status)
    @cython.locals(here=End, there=End, code=cython.int)
    cpdef sent(self, long long now, int source, int destination, bytes data, object route, bytes whole)
    cdef End _end_of(self, int adapter, bytes data)
    cdef _unknown(self, int source, bytes data)
    @cython.locals(end=End, code=cython.int)
    cpdef received(self, long long now, int destination, bytes data)
    cpdef damaged(self, long long now, int destination, bytes data, object route)
    cdef _check_fields(self, End here, End there, int code, bytes data)
    cdef _fail(self, End end, str rule, str text)
