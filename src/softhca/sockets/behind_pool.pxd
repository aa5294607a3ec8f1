from softhca.machine.primitives cimport atomic_add64, load64, store64


cdef class BehindPool:
    cdef unsigned long long _record, _request, _wakes, _ring

    cpdef tuple record(self)
    cpdef unsigned long long wakes(self) except? 0
    cpdef bint shows(self, unsigned int number, unsigned long long head, unsigned long long done,
                     unsigned long long wakes) except -1
    cpdef unsigned int take(self, unsigned int number) except? 0
    cpdef unsigned int take_event_request(self) except? 0
