/* Memory that a program is given by its allocator and an adapter process maps: see preload/buffers.c.
   The library finds these where the preload object is loaded. */
#ifndef SOFTHCA_BUFFERS_H
#define SOFTHCA_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

#define BUFFERS_BYTES (16ULL << 30) /* sparse */
#define BUFFERS_API __attribute__((visibility("default"), weak))

/* A device has been opened: from now on large blocks come from the pool. */
BUFFERS_API void softhca_buffers_open(void);
/* The descriptor of the pool's memory where all of a range lies in blocks of it, and its offset there; these
   blocks stay until `softhca_buffers_release`, also where the program frees them.  -1: it does not. */
BUFFERS_API int softhca_buffers_hold(const void *address, size_t length, uint64_t *offset);
BUFFERS_API void softhca_buffers_release(uint64_t offset, size_t length);

#endif
