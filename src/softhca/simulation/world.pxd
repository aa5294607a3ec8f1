cimport cython

from softhca.links.impairment cimport Impairment
from softhca.simulation.trace cimport Trace
from softhca.testing.timeline cimport Timeline
from softhca.wire.burst cimport Arrival


cdef class Flight:
    cdef public object from_node
    cdef public object node
    cdef public list packets
    cdef public list numbers
    cdef public str what
    cdef public object source
    cdef public object source_port
    cdef public object traffic_class
    cdef public object destination
    cdef public int port_number


cdef class World(Timeline):
    cdef public str seed
    cdef public object faults
    cdef public Trace trace
    cdef public object report
    cdef public object frames
    cdef public int framing
    cdef public dict nodes
    cdef list _places
    cdef set _cut
    cdef public dict losses
    cdef public dict late
    cdef public object wire
    cdef object _tap
    cdef object _script
    cdef bint _whole
    cdef dict _links
    cdef Arrival _arrival
    cdef public object window_bytes
    cdef public object patience
    cdef public object uniform
    cdef bint _holds
    cdef object _forger
    cdef object _tamperer
    cdef object _echo
    cdef object _paths
    cdef public object ethernet
    cdef public object congestion
    cdef public object dcqcn
    cdef long long _bursts

    cpdef carry(self, object source, object burst)
    @cython.locals(
        length=cython.Py_ssize_t, stride=cython.Py_ssize_t, offset=cython.Py_ssize_t, linked=cython.bint, raw=cython.bint,
        data=bytes, transport=bytes, run=Flight, flight=Flight, link=Impairment, trace=Trace)
    cdef _send(self, object source, object own, object place, object burst)
    cdef Flight _flight(self, object source, object node, object route, str what, bytes frame, bytes data)
    cdef _forge(self, object source, object node, object route, bytes data)
    cdef _add(
        self, object source, object node, object route, object gid, bytes packet, str what, object time_ns)
    cdef _lost(self, object node, bytes data)
    cdef Impairment _link(self, object source, object destination)
    @cython.locals(arrival=Arrival, together=bytes, transport=bytes, transports=list)
    cpdef arrive(self, Flight flight)
    @cython.locals(transport=bytes)
    cdef _note_arrival(self, Flight flight)
    cdef _judge_marks(self, object oracle, Flight flight)
    @cython.locals(data=bytes, transport=bytes)
    cdef _judge_arrival(self, Flight flight)
    cdef bint _mend(self, Flight flight) except -1
    cdef _tap_arrival(self, Flight flight, bytes data)
