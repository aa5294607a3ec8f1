cimport cython

from softhca.simulation.oracle_wire_packets cimport be, near_to, packets_of, payload_bytes, position_of


cdef class Responder:
    cdef public object terms
    cdef public object report
    cdef public long long front
    cdef public bint strict
    cdef public bint over
    cdef public long long posted
    cdef long long _mtu_bytes
    cdef list _ends
    cdef list _taken
    cdef dict _reads
    cdef dict _values
    cdef dict _interrupted
    cdef long long _next
    cdef long long _next_end
    cdef long long _left_bytes
    cdef long long _beyond
    cdef long long _gap_ns
    cdef long long _last_nak
    cdef long long _due
    cdef long long _due_ns
    cdef long long _refusal
    cdef long long _unready
    cdef long long _held
    cdef bint _waits
    cdef long long _patient_ns
    cdef long long _paced_ns
    cdef long long _malformed
    cdef bint _doomed

    cpdef fail(self, str rule, str text)
    @cython.locals(at=cython.longlong)
    cpdef received(self, long long now, int code, bytes data)
    @cython.locals(length=cython.longlong)
    cdef _again(self, long long now, long long at, int code, bytes data)
    @cython.locals(end=cython.longlong, length=cython.longlong)
    cdef _execute(self, long long now, long long at, int code, bytes data)
    @cython.locals(kept=dict)
    cdef _forget_oldest(self)
    cdef _expect_answer(self, long long now, long long at)
    cpdef ended(self, long long now)
    cpdef advance(self, long long now)
    cpdef malformed(self, int code, bytes data)
    cpdef forged(self, bytes data)
    @cython.locals(at=cython.longlong, kind=cython.int)
    cpdef sent(self, long long now, int code, bytes data)
    cdef _check_acknowledgement(self, long long at, bytes data)
    @cython.locals(msn=cython.longlong)
    cdef _check_count(self, bytes data, long long least, long long most)
    @cython.locals(code=cython.int, most=cython.longlong)
    cdef _check_refusal(self, long long at, int kind, bytes data)
    @cython.locals(before=cython.longlong)
    cdef _check_rnr(self, long long at, int code, str place)
    cdef _take_back(self, long long at)
    @cython.locals(code=cython.int, left=cython.longlong, taken=cython.longlong)
    cdef _check_credits(self, bytes data)
    @cython.locals(
        asked=tuple, end=cython.longlong, left=cython.longlong, last=cython.bint, count=cython.longlong,
        expected=cython.longlong)
    cdef _check_read(self, long long at, int code, bytes data)
    @cython.locals(value=bytes)
    cdef _check_atomic(self, long long at, bytes data)
