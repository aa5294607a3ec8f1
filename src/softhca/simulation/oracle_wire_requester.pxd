cimport cython

from softhca.simulation.oracle_wire_packets cimport (
    be,
    follows,
    inside,
    near_to,
    packets_of,
    payload_bytes,
    position_of,
    wrong_length,
)


cdef class Requester:
    cdef public object terms
    cdef public object report
    cdef public object links
    cdef public long long sharers
    cdef public long long high
    cdef public long long una
    cdef public long long cursor
    cdef public long long timeout_ns
    cdef public bint over
    cdef public bint strict
    cdef double _slow
    cdef long long _first_psn
    cdef long long _mtu_bytes
    cdef dict _packets
    cdef dict _reads
    cdef dict _sent_ns
    cdef list _awaited
    cdef list _open
    cdef int _before
    cdef long long _first
    cdef long long _left_bytes
    cdef long long _messages
    cdef long long _limit
    cdef bint _cause
    cdef bint _owed
    cdef bint _back
    cdef long long _tries
    cdef long long _progress_ns
    cdef long long _last_ns
    cdef tuple _rnr
    cdef bint _rnr_vague
    cdef long long _refusals
    cdef long long _unseen
    cdef tuple _holds
    cdef bint _unplaced
    cdef long long _unplaced_ns
    cdef tuple _missing

    cpdef fail(self, str rule, str text)
    @cython.locals(
        at=cython.longlong, end=cython.longlong, refused=tuple, since_ns=cython.longlong,
        delay_ns=cython.longlong)
    cpdef sent(self, long long now, int code, bytes data)
    @cython.locals(wrong=str)
    cdef _check_new(self, long long at, long long end, int code, bytes data)
    @cython.locals(ends=cython.bint)
    cdef str _wrong_total(self, int code, bytes data)
    cdef _check_credits(self, long long at, int code)
    cdef _check_part(self, long long at, long long end, bytes data)
    @cython.locals(before=bytes)
    cdef _check_copy(self, long long at, bytes data)
    @cython.locals(waited_ns=cython.longlong, late_ns=cython.longlong)
    cdef _check_delay(self, long long now, bint again, long long since_ns, long long delay_ns)
    cdef long long _latest_ns(self)
    cdef _go_back(self, long long now, long long at, bint refused)
    @cython.locals(waited_ns=cython.longlong)
    cdef _time_out(self, long long now, long long at, str place)
    @cython.locals(at=cython.longlong, kind=cython.int, first=cython.longlong, last=cython.longlong)
    cpdef received(self, long long now, int code, bytes data)
    @cython.locals(since_ns=cython.longlong, delay_ns=cython.longlong)
    cdef _refused(self, long long now, long long at, int timer)
    @cython.locals(first=cython.longlong, last=cython.longlong)
    cdef _advance(self, long long now, long long end)
    @cython.locals(waited_ns=cython.longlong, late_ns=cython.longlong)
    cdef _ask_again(self, long long now, long long at)
    cdef _ask(self)
    @cython.locals(at=cython.longlong)
    cdef _move(self, long long now, long long end)
    @cython.locals(code=cython.int, known=cython.longlong, msn=cython.longlong)
    cdef _take_credits(self, bytes data)
    cpdef failed(self, int status)
