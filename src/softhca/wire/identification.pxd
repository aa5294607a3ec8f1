from softhca.wire.route cimport Route

cpdef unsigned int multiply(unsigned int a, unsigned int b) noexcept
cpdef unsigned int power_of_x(unsigned long long exponent) noexcept
cpdef int recover(Route route, unsigned int difference, unsigned int transport_bytes,
                  int hint=*, unsigned int window=*) except? -1
