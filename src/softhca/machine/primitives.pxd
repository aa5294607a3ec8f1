cimport cython

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport errno
from libc.string cimport memmove, memset

cdef extern from * nogil:
    """
    /* ISA-L's CRC leaves the upper halves of vector registers in use (it has no vzeroupper at its end).  Each
       first SSE instruction after it, and its own first instruction next time, then takes some hundred clocks
       on processors that keep two states apart. */
    #if defined(__x86_64__)
    #include <cpuid.h>

    /* Also whether the system keeps all of these registers.  __builtin_cpu_supports() knows, but with zig's
       compiler it brings in a library whose memcpy() would be this module's. */
    static inline int softhca_has_avx(void)
    {
        unsigned int a, b, c, d;
        if (!__get_cpuid(1, &a, &b, &c, &d) || ~c & (bit_AVX | bit_OSXSAVE))
            return 0;
        __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
        return (a & 6) == 6;
    }
    static inline void softhca_leave_avx(void)
    {
        __asm__ volatile("vzeroupper" ::: "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                         "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    }
    #else
    static inline int softhca_has_avx(void) { return 0; }
    static inline void softhca_leave_avx(void) { }
    #endif
    """
    bint has_avx "softhca_has_avx"()
    void leave_avx "softhca_leave_avx"()

cdef extern from "<endian.h>" nogil:
    unsigned long long be64toh(unsigned long long value)
    unsigned int be32toh(unsigned int value)
    unsigned short be16toh(unsigned short value)

cdef extern from "<sys/mman.h>" nogil:
    int PROT_NONE
    int PROT_READ
    int PROT_WRITE
    int MAP_SHARED
    int MAP_PRIVATE
    int MAP_ANONYMOUS
    int MAP_FIXED
    int MAP_NORESERVE
    int MADV_REMOVE
    int munmap(void* address, size_t n)
    int madvise(void* address, size_t n, int advice)
    void* map_memory "mmap"(void* address, size_t n, int protection, int flags, int fd, long long offset)

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec

cdef extern from "<sys/syscall.h>" nogil:
    long SYS_futex
    long SYS_membarrier

cdef extern from "<unistd.h>" nogil:
    long syscall(long number, ...)

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    Py_ssize_t process_vm_readv(int pid, iovec* local, unsigned long local_n,
                                iovec* remote, unsigned long remote_n, unsigned long flags)
    Py_ssize_t process_vm_writev(int pid, iovec* local, unsigned long local_n,
                                 iovec* remote, unsigned long remote_n, unsigned long flags)

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        void* msg_name
        unsigned int msg_namelen
        iovec* msg_iov
        size_t msg_iovlen
        void* msg_control
        size_t msg_controllen
        int msg_flags
    struct cmsghdr:
        size_t cmsg_len
        int cmsg_level
        int cmsg_type
    cmsghdr* CMSG_FIRSTHDR(msghdr* message)
    cmsghdr* CMSG_NXTHDR(msghdr* message, cmsghdr* element)
    unsigned char* CMSG_DATA(cmsghdr* element)
    size_t CMSG_SPACE(size_t n)
    size_t CMSG_LEN(size_t n)
    Py_ssize_t sendmsg(int fd, msghdr* message, int flags)
    Py_ssize_t recvmsg(int fd, msghdr* message, int flags)
    struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len
    int recvmmsg(int fd, mmsghdr* messages, unsigned int n, int flags, timespec* timeout)

ctypedef unsigned int (*crc_function)(unsigned int, const unsigned char*, unsigned long long) noexcept nogil

ctypedef unsigned long long control_words[12]
ctypedef mmsghdr dropped_messages[16]
ctypedef unsigned long long receive_control_words[16]
ctypedef unsigned long long name_words[4]

cdef crc_function _crc
cdef bint _avx

@cython.final
cdef class ReceiveMeta:
    cdef public unsigned int segment
    cdef public unsigned int traffic_class
    cdef public unsigned int port
    cdef public unsigned int family
    cdef public bint truncated
    cdef public unsigned long long source_high
    cdef public unsigned long long source_low

cpdef unsigned long long address_of(object buffer, bint writable=*) except? 0
cpdef Py_ssize_t length_of(object buffer) except -1

# The bytes of one write are seen before those of the next, as a program that polls memory expects: x86 keeps
# stores in order, and there this is nothing but a word to the compiler.
cdef extern from *:
    """
    static inline void softhca_release(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
    """
    void release "softhca_release"() noexcept

cpdef void copy(unsigned long long dst, unsigned long long src, unsigned long long n) noexcept
cpdef void fill(unsigned long long dst, unsigned int byte, unsigned long long n) noexcept
cpdef bytes bytes_at(unsigned long long a, Py_ssize_t n)

cpdef long long map_file(int fd, unsigned long long n) noexcept
cpdef int unmap_pages(unsigned long long a, unsigned long long n) noexcept
cpdef int remove_pages(unsigned long long a, unsigned long long n) noexcept
cpdef int populate_pages(unsigned long long a, unsigned long long n, bint writing) noexcept
cpdef int map_pages(unsigned long long a, unsigned long long n, int fd, long long offset) noexcept
cpdef int map_private(unsigned long long a, unsigned long long n, int fd, long long offset) noexcept
cpdef int hide_pages(unsigned long long a, unsigned long long n) noexcept

cpdef int wait_word(unsigned long long a, unsigned int expected, long long timeout_ns) noexcept
cpdef void wake_word(unsigned long long a) noexcept

cpdef int join_barriers() noexcept
cpdef int barrier_everywhere() noexcept

# Instructions where they stand, rather than calls into this module's library.
cdef extern from *:
    """
    /* The memory is bytes, or words of other lengths, to whoever else looks at it in the same function. */
    typedef unsigned long long __attribute__((may_alias)) softhca_long;
    typedef unsigned int __attribute__((may_alias)) softhca_word;
    static inline unsigned long long softhca_load64(unsigned long long a)
    {
        return __atomic_load_n((softhca_long *)a, __ATOMIC_ACQUIRE);
    }
    static inline void softhca_store64(unsigned long long a, unsigned long long v)
    {
        __atomic_store_n((softhca_long *)a, v, __ATOMIC_RELEASE);
    }
    static inline unsigned int softhca_load32(unsigned long long a)
    {
        return __atomic_load_n((softhca_word *)a, __ATOMIC_ACQUIRE);
    }
    static inline void softhca_store32(unsigned long long a, unsigned int v)
    {
        __atomic_store_n((softhca_word *)a, v, __ATOMIC_RELEASE);
    }
    /* What goes to and fro between two sides relies on a full barrier at these two, even where nothing is
       exchanged.  A locked instruction of x86 is one.  Elsewhere an atomic may let later loads, and one that
       exchanges nothing earlier stores, go past it. */
    static inline void softhca_full_barrier(void)
    {
    #if !defined(__x86_64__)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    #endif
    }
    static inline unsigned long long softhca_atomic_add64(unsigned long long a, unsigned long long v)
    {
        softhca_full_barrier();
        v = __atomic_fetch_add((softhca_long *)a, v, __ATOMIC_SEQ_CST);
        softhca_full_barrier();
        return v;
    }
    static inline unsigned long long softhca_atomic_cas64(unsigned long long a, unsigned long long expected,
                                                          unsigned long long desired)
    {
        /* On failure the builtin writes what it found; on success `expected` already is the old value. */
        softhca_full_barrier();
        __atomic_compare_exchange_n((softhca_long *)a, &expected, desired, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST);
        softhca_full_barrier();
        return expected;
    }
    """
    cpdef unsigned long long load64 "softhca_load64"(unsigned long long a) noexcept
    cpdef void store64 "softhca_store64"(unsigned long long a, unsigned long long v) noexcept
    cpdef unsigned int load32 "softhca_load32"(unsigned long long a) noexcept
    cpdef void store32 "softhca_store32"(unsigned long long a, unsigned int v) noexcept
    cpdef unsigned long long atomic_add64 "softhca_atomic_add64"(
        unsigned long long a, unsigned long long v) noexcept
    cpdef unsigned long long atomic_cas64 "softhca_atomic_cas64"(
        unsigned long long a, unsigned long long expected, unsigned long long new) noexcept

cpdef unsigned int crc32(unsigned int crc, unsigned long long a, unsigned long long n) noexcept

cpdef Py_ssize_t read_process(
    int pid, unsigned long long dst, unsigned long long src, unsigned long long n) noexcept
cpdef Py_ssize_t write_process(
    int pid, unsigned long long dst, unsigned long long src, unsigned long long n) noexcept

cpdef Py_ssize_t write_process_at(
    int pid, unsigned long long target, unsigned long long src, unsigned long long n) noexcept

cpdef int send_burst(
    int fd, unsigned long long a, unsigned int n, unsigned int segment,
    unsigned long long sockaddr, unsigned int sockaddr_n, unsigned int traffic_class,
    unsigned int hop_limit, bint held) noexcept
cpdef int drop_held(int fd, unsigned int n) noexcept
cpdef int receive_burst(int fd, unsigned long long a, unsigned int capacity, ReceiveMeta meta) noexcept

cdef void _put_source(ReceiveMeta meta, unsigned char* name, unsigned int n) noexcept
