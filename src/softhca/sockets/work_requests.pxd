from softhca.driver.posting cimport QueuePairPoster
from softhca.machine.primitives cimport bytes_at


cdef class WorkRequests:
    cdef QueuePairPoster _queue_pair
    cdef object _post, _ring
    cdef unsigned long long _address, _record
    cdef unsigned int _rkey
    cdef dict _chains

    cpdef object write(self, unsigned long long number, list runs, list places, unsigned int immediate,
                       unsigned int flags=*, bint inline=*, bint early=*, unsigned long long whole=*)
    cpdef object write_run(self, unsigned long long number, unsigned long long address, unsigned long long length,
                           unsigned int lkey, list places, unsigned int immediate, unsigned int flags, bint inline)
    cpdef object _write(self, unsigned int opcode, unsigned int flags, unsigned int immediate,
                        unsigned long long number, unsigned long long offset, object run, bint inline)
    cpdef object notify(self, unsigned long long number, unsigned int immediate)
    cpdef object probe(self, unsigned long long number)
    cpdef object credit(self, unsigned long long number, head, count, unsigned int immediate,
                        unsigned int flags=*)
