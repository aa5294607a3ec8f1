from softhca.sockets.memory_management cimport RecordA
