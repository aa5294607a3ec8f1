cimport cython

cimport softhca_bits as bits
from softhca.machine.primitives cimport atomic_add64, atomic_cas64, load64, store64


@cython.final
cdef class SharedPath:
    cdef public bytes gid
    cdef public unsigned long long gid_high
    cdef public unsigned long long gid_low
    cdef public bint alive
    cdef public bint foreign
    cdef public int pid
    cdef public dict arenas
    cdef public object is_there
    cdef public object thread
    cdef public object wake
    cdef public bint fenced
    cdef public unsigned long long directory
    cdef public unsigned long long reader
    cdef public unsigned long long epoch
    cdef public unsigned long long changes
    cdef unsigned long long last_arena
    cdef unsigned long long last_base
    cdef unsigned long long last_size
    cdef unsigned long long known_epoch
    cdef unsigned int known_key
    cdef unsigned long long known_va
    cdef unsigned long long known_length
    cdef unsigned long long known_rights
    cdef unsigned long long known_arena
    cdef unsigned long long known_place

    cpdef object open(self, unsigned long long directory, unsigned long long reader, int pid, object is_there,
                      bint fenced=*, object thread=*, object wake=*)
    cpdef object close(self)
    cpdef bint enter(self) noexcept
    cpdef void leave(self) noexcept
    cpdef object wake_peer(self)
    cpdef unsigned long long queue_pair(self, unsigned int number, unsigned int own) noexcept
    cpdef unsigned long long place(self, unsigned int key, unsigned int pd, unsigned long long va,
                                   unsigned long long n, unsigned int access) noexcept
    cpdef bint claim(self, unsigned long long address, unsigned long long n) noexcept
    cpdef unsigned long long aim(self, unsigned long long address, unsigned long long n) except? 0
    cpdef bint unchanged(self) noexcept
    cpdef bint unchanged_for(self, unsigned int access) noexcept
    cdef bint look_up(self, unsigned int key) noexcept
    cdef unsigned long long locate(self, unsigned long long arena, unsigned long long begin,
                                   unsigned long long offset, unsigned long long n) noexcept
    cpdef object set_arena(self, unsigned int number, unsigned long long base, unsigned long long size)
