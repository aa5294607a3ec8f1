cdef unsigned long long _to_page(unsigned long long position) noexcept
cpdef list pieces(unsigned long long position, unsigned long long length, unsigned long long pool_bytes)


cdef class RecordA:
    cdef readonly unsigned long long length, tail, notifications, available
    cdef object _segments
    cdef dict _held
    cdef unsigned long long _told_head, _told_notifications

    cpdef unsigned long long head(self) except? 0
    cpdef object arrived(self, unsigned long long length, bint aligned=*)
    cpdef list look(self, unsigned long long length)
    cpdef object take(self, unsigned long long length)
    cpdef object whole_pages(self, unsigned long long length)
    cpdef object run(self, unsigned long long length)
    cpdef object hold(self, unsigned long long length)
    cpdef object release(self, position)
    cpdef object holds_up(self)
    cpdef object credit(self, bint anyhow=*)


cdef class RecordB:
    cdef readonly unsigned long long address, length, tail, head, notifications, done
    cdef readonly unsigned int rkey

    cpdef unsigned long long room(self, bint aligned=*) except? 0
    cpdef unsigned long long unanswered(self) except? 0
    cpdef list reserve(self, unsigned long long length, bint aligned=*)
    cpdef object credited(self, head, notifications)
