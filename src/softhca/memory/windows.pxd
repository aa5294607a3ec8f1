cimport cython

from softhca.memory.regions cimport Region, RegionTable


cdef class TrackedRegion(Region):
    cdef public unsigned int number
    cdef public dict users
    cpdef object begin_use(self, object user)
    cpdef object end_use(self, object user)
    cpdef int withdraw(self)


@cython.final
cdef class Window(TrackedRegion):
    cdef public int kind
    cdef public Region parent
    cdef public unsigned long long parent_va
    cdef bint refuses_atomic(self, unsigned long long va)
    cdef object bind(self, Region parent, unsigned int key, unsigned long long va, unsigned long long length,
                     unsigned int access, unsigned int queue_pair)
    cdef int unbind(self)


@cython.final
cdef class FastRegion(TrackedRegion):
    cdef public unsigned int max_pages


@cython.final
cdef class WindowTable:
    cdef public RegionTable regions
    cdef public dict members
    cdef public unsigned long long keys_withdrawn
    cdef dict _bound
    cdef object _unbind(self, Window window)
    cpdef int bind(self, unsigned int number, unsigned int queue_pair, unsigned int pd, unsigned int low_byte,
                   unsigned int lkey, unsigned long long va, unsigned long long length, unsigned int access)
    cpdef int invalidate(self, unsigned int key, unsigned int queue_pair, unsigned int pd, bint remote)
