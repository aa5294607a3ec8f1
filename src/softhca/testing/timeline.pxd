cdef class Timeline:
    cdef public object now
    cdef list _heap
    cdef long long _sequence

    cpdef at(self, object time_ns, object action, object argument=*)
    cpdef planned_ns(self)
    cpdef bint do_due(self) except -1
    cpdef bint play(self, object events, object limit_ns, object on_time) except -1
