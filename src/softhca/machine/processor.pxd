cimport cython

from posix.time cimport timespec

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN
    int poll(pollfd* asked, unsigned long count, int timeout_ms)
    int ppoll(pollfd* asked, unsigned long count, const timespec* limit, const void* signals)


cdef inline bint is_readable(int descriptor) noexcept:
    cdef pollfd asked
    asked.fd = descriptor
    asked.events = POLLIN
    asked.revents = 0
    return poll(&asked, 1, 0) > 0


cdef inline void await_readable(int descriptor, unsigned long long limit_ns) noexcept nogil:
    cdef pollfd asked
    cdef timespec limit
    asked.fd = descriptor
    asked.events = POLLIN
    asked.revents = 0
    limit.tv_sec = limit_ns // 1_000_000_000
    limit.tv_nsec = limit_ns % 1_000_000_000
    ppoll(&asked, 1, &limit, NULL)


cpdef object yield_processor()
cpdef object wait_readable(int descriptor, unsigned long long limit_ns)


@cython.final
cdef class Readable:
    cdef int descriptor
    cdef object asked

    cpdef bint now(self) except -1
