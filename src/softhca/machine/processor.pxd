cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN
    int poll(pollfd* asked, unsigned long count, int timeout_ms)


cdef inline bint is_readable(int descriptor) noexcept:
    cdef pollfd asked
    asked.fd = descriptor
    asked.events = POLLIN
    asked.revents = 0
    return poll(&asked, 1, 0) > 0


cpdef object yield_processor()


cdef class Readable:
    cdef int descriptor
    cdef object asked

    cpdef bint now(self) except -1
