from softhca.memory.windows cimport WindowTable
from softhca.queues.wqe cimport SendWork
from softhca.transport.context cimport QueuePair


cpdef int carry_out(SendWork work, QueuePair queue_pair)
