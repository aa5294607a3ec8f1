cimport cython


@cython.locals(power=cython.uint)
cpdef unsigned int encode(unsigned int count) noexcept
