cimport cython

from softhca.machine.primitives cimport copy, length_of, load64, store64
from softhca.mailbox.blocks cimport Opener, Sealer

@cython.final
cdef class Outbox:
    cdef readonly unsigned long long slots
    cdef readonly unsigned long long slot_bytes
    cdef readonly unsigned long long address
    cdef readonly unsigned long long cell
    cdef readonly unsigned long long next_sequence
    cdef readonly unsigned long long credit
    cdef readonly unsigned long long refused
    cdef readonly Sealer sealer
    cdef readonly Opener credits
    cdef list _ranges
    cdef Py_ssize_t _start
    cdef Py_ssize_t _end
    cpdef unsigned long long put(self, unsigned int kind, tuple parts) except? 0
    cpdef Py_ssize_t put_all(self, unsigned int kind, object messages, Py_ssize_t start) except? -1
    cdef int _seal(self, unsigned long long index, unsigned int kind, tuple parts) except -1
    cpdef list ranges(self)
    cpdef unsigned long long free(self) noexcept
    cpdef bint take_credit(self) except *

@cython.final
cdef class Inbox:
    cdef readonly unsigned long long slots
    cdef readonly unsigned long long slot_bytes
    cdef readonly unsigned long long address
    cdef readonly unsigned long long next_sequence
    cdef readonly unsigned long long taken_sequence
    cdef readonly unsigned long long credited
    cdef readonly Opener opener
    cdef readonly Sealer credits
    cpdef int poll(self) except? -1
    cdef int _advance(self, unsigned long long address) except -1
    cpdef int take_all(self, list messages, Py_ssize_t limit, unsigned long long most_owed) except? -1
    cpdef unsigned long long owed(self) noexcept
    cpdef Py_ssize_t seal_credit(self) except? -1
