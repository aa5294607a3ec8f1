from softhca.memory.windows cimport WindowTable
from softhca.queues.wqe cimport SendWork
from softhca.transport.connection cimport Connection


cpdef int execute_local(SendWork work, Connection connection)
