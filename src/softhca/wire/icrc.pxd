from softhca.machine.primitives cimport crc32
from softhca.wire.build cimport put_icrc
from softhca.wire.burst cimport Burst
from softhca.wire.route cimport Route

cpdef unsigned int compute(Route route, unsigned long long data_address, unsigned int n) except? 0xFFFFFFFF
cpdef unsigned int syndrome(Route route, unsigned long long data_address, unsigned int n) except? 0xFFFFFFFF
cpdef object seal(Burst burst)
