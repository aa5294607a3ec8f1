cimport cython

from softhca.driver.turns cimport Turn
from softhca.driver.work_requests cimport SendRequest


@cython.final
cdef class SendBatch(Turn):
    cdef list _requests

    cpdef SendRequest add(self, int opcode, object wr_id, object flags, object rkey, object remote_addr)
    cpdef SendRequest last(self)
    cpdef SendRequest chain(self)
    cpdef object drop(self)
