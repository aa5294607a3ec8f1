cimport cython

cimport softhca_bits as bits
from softhca.machine.primitives cimport (address_of, atomic_add64, atomic_cas64, copy, load64,
                                          read_process, store64, write_process)
from softhca.memory.arenas cimport AddressMap
from softhca.memory.keys cimport KeyIndex, KeySequence
from softhca.memory.tpt cimport TranslationTable

cdef class Region:
    cdef public unsigned int key, pd, access, slot, generation, bound_windows
    cdef public unsigned long long va, length
    cdef public bint valid, zero_based, paged, tracked, window
    cdef public unsigned int queue_pair
    cdef public unsigned int page_offset, first_entry, entry_count
    cdef public unsigned long long direct_address
    cdef public unsigned int direct_pid
    cdef public int fault
    cdef public AddressMap address_map
    cdef public TranslationTable tpt
    cdef unsigned long long scratch
    cpdef bint covers(self, unsigned long long va, unsigned long long n) noexcept
    cpdef int read(self, unsigned long long va, unsigned long long dst_address, unsigned long long n) noexcept
    cpdef int write(self, unsigned long long va, unsigned long long src_address, unsigned long long n) noexcept
    cpdef int walk(self, unsigned long long offset, unsigned long long local, unsigned long long n,
                   bint writing) noexcept
    cpdef unsigned long long compare_swap(self, unsigned long long va, unsigned long long compare,
                                          unsigned long long swap) noexcept
    cpdef unsigned long long fetch_add(self, unsigned long long va, unsigned long long add) noexcept
    cpdef int put_word(self, unsigned long long va, unsigned long long src_address) noexcept
    cpdef unsigned long long atomic_place(self, unsigned long long va) noexcept
    cpdef void refresh(self) noexcept

cdef int _move(unsigned int pid, unsigned long long address, unsigned long long local, unsigned long long n,
               bint writing) noexcept

@cython.final
cdef class RegionTable:
    cdef public TranslationTable tpt
    cdef readonly KeyIndex keys
    cdef readonly KeySequence sequence
    cdef readonly unsigned int max_regions, live
    cdef public int refusal
    cdef readonly unsigned long long scratch_address
    cdef list _places
    cdef unsigned int _place_mask
    cdef bytearray _scratch
    cdef Region _last
    cdef public object sharing
    cpdef Region find(self, unsigned int key, unsigned int pd, unsigned long long va, unsigned long long length,
                      unsigned int access, unsigned int queue_pair=*)
    cpdef Region live_key(self, unsigned int key)
