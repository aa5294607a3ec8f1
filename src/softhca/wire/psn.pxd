cpdef unsigned int add(unsigned int psn, int n) noexcept
cpdef int distance(unsigned int a, unsigned int b) noexcept
