cimport cython

from softhca.wire.psn cimport distance

@cython.final
cdef class RetryState:
    cdef public unsigned long long interval_ns
    cdef public unsigned long long deadline_ns
    cdef public unsigned int retry_count
    cdef public unsigned int rnr_retry
    cdef public unsigned int retries_left
    cdef public unsigned int rnr_retries_left
    cdef public bint persisting

    cpdef object configure(self, unsigned int timeout, unsigned int retry_count, unsigned int rnr_retry)
    cpdef object restart(self, unsigned long long now)
    cpdef object persist(self, unsigned long long now)
    cpdef object progress(self)
    cpdef object stop(self)
    cpdef bint spend_retry(self) except? -1
    cpdef bint spend_rnr_retry(self) except? -1
    cpdef object delay(self, unsigned int timer, unsigned long long now)

@cython.final
cdef class InFlightTable:
    cdef unsigned long long entries[64]
    cdef unsigned int head
    cdef public unsigned int count
    cdef unsigned int epoch

    cpdef object push(self, unsigned int last_psn, unsigned long long cost_bytes, unsigned int epoch, bint joined=*)
    cdef unsigned long long pop(self) noexcept
    cpdef unsigned long long settle(self, unsigned int una_psn, unsigned int epoch)
    cpdef unsigned long long clear(self, unsigned int epoch)
    cpdef bint given_up(self, unsigned int epoch)
