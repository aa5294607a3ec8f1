from softhca.driver.posting cimport QueuePairPoster
from softhca.machine.primitives cimport address_of, bytes_at, store64


cdef class WorkRequests:
    cdef QueuePairPoster _queue_pair
    cdef object _post, _ring
    cdef unsigned long long _address, _record, _words_address, _packet_bytes
    cdef public bint in_place
    cdef public unsigned int told
    cdef object _words
    cdef unsigned int _rkey
    cdef unsigned long long _wakes

    cpdef object write(self, unsigned long long number, list runs, list places, unsigned int immediate,
                       unsigned int flags=*, bint inline=*, bint early=*, unsigned long long whole=*)
    cpdef object write_run(self, unsigned long long number, unsigned long long address, unsigned long long length,
                           unsigned int lkey, list places, unsigned int immediate, unsigned int flags, bint inline)
    cdef unsigned long long _told_with(self, unsigned long long length) except? 0
    cdef unsigned int _count(self) except? 0
    cpdef object write_in_memory(self, unsigned long long number, unsigned long long address,
                                 unsigned long long length, unsigned int lkey, list places,
                                 unsigned int immediate, bint inline)
    cpdef object credit_in_memory(self, unsigned long long number, unsigned long long head,
                                  unsigned long long count)
    cpdef object request_event(self, unsigned long long number, unsigned int wanted)
    cpdef object wake(self, unsigned long long number)
    cdef object _write_record(self, unsigned int opcode, unsigned int flags, unsigned int immediate,
                              unsigned long long number, unsigned long long head, unsigned long long count)
    cdef object _write_words(self, unsigned int opcode, unsigned int flags, unsigned int immediate,
                             unsigned long long number, unsigned long long remote, unsigned long long length)
    cpdef object _write(self, unsigned int opcode, unsigned int flags, unsigned int immediate,
                        unsigned long long number, unsigned long long offset, object run, bint inline)
    cpdef object notify(self, unsigned long long number, unsigned int immediate, unsigned int flags=*)
    cpdef object probe(self, unsigned long long number)
    cpdef object credit(self, unsigned long long number, unsigned long long head, unsigned long long count,
                        unsigned int immediate, unsigned int flags=*)
