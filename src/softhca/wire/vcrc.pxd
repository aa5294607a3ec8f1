cpdef unsigned int compute(const unsigned char[::1] data, Py_ssize_t offset=*, Py_ssize_t length=*) except? 0xFFFFFFFF
