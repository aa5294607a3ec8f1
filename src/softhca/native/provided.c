/* Buffers that the library allocates, hints for copies, and regions by the extended call (rdma-core 59 … 65). */
#include "library.h"

#include <unistd.h>

#define KNOWN_MASKS (REG_IOVA | REG_ADDR | REG_FD | REG_FD_OFFSET | REG_DMAH | REG_BUF)
#define LAST_MEMORY_TYPE 1 /* ibv_tph_mem_type: volatile, persistent */
#define LAST_HINT 3

struct ibv_buf {
    struct ibv_pd *pd;
    unsigned char *address;
    size_t length;
};

EXPORT void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf)
{
    struct ibv_buf *made = size ? calloc(1, sizeof *made) : NULL;
    void *memory;
    int error;
    if (!made)
        return failed(size ? ENOMEM : EINVAL);
    error = posix_memalign(&memory, PAGE, size);
    if (error) {
        free(made);
        return failed(error);
    }
    memset(memory, 0, size);
    *made = (struct ibv_buf){.pd = pd, .address = memory, .length = size};
    *buf = made;
    return memory;
}

EXPORT void ibv_free_buf(struct ibv_buf *buf)
{
    free(buf->address);
    free(buf);
}

EXPORT int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf)
{
    (void)buf;
    errno = ENODATA; /* ordinary memory has no dma-buf */
    return -1;
}

/* Whether `length` bytes at `address` are the buffer's, and the buffer is of that domain. */
static int is_of_buffer(const struct ibv_buf *buf, const struct ibv_pd *pd, const void *address, size_t length)
{
    size_t first = (size_t)((uintptr_t)address - (uintptr_t)buf->address);
    return buf->pd == pd && (uintptr_t)address >= (uintptr_t)buf->address && first <= buf->length
        && length && length <= buf->length - first;
}

EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
    uint64_t given = attr->comp_mask;
    uint64_t iova = given & REG_IOVA ? attr->iova : (uintptr_t)attr->addr;
    if (given & ~(uint64_t)KNOWN_MASKS || given & (REG_FD | REG_FD_OFFSET))
        return failed(given & REG_BUF ? EINVAL : EOPNOTSUPP); /* no dma-buf; a buffer has no descriptor */
    if (!(given & REG_ADDR))
        return failed(EINVAL);
    if (given & REG_DMAH && attr->access & SOFTHCA_ACCESS_ON_DEMAND)
        return failed(EOPNOTSUPP); /* the hints are for memory that stays where it is */
    if (given & REG_BUF && !is_of_buffer(attr->buf, pd, attr->addr, attr->length))
        return failed(EINVAL);
    return ibv_reg_mr_iova2(pd, attr->addr, attr->length, iova, (unsigned)attr->access);
}

EXPORT struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *address, size_t length,
                                     int access)
{
    struct ibv_mr_init_attr attr = {.length = length, .access = access, .comp_mask = REG_BUF | REG_ADDR,
                                    .addr = address, .buf = buf};
    return ibv_reg_mr_ex(pd, &attr);
}

/* Hints: there is no bus here, and processors share their caches, so that they change nothing. */

EXPORT struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *base, struct ibv_dmah_init_attr *attr)
{
    long processors = sysconf(_SC_NPROCESSORS_CONF);
    struct ibv_dmah *made;
    if (attr->comp_mask & ~(uint32_t)(DMAH_CPU | DMAH_HINT | DMAH_MEMORY))
        return failed(EOPNOTSUPP);
    if ((attr->comp_mask & DMAH_CPU && attr->cpu_id >= (unsigned long)(processors > 0 ? processors : 1))
        || (attr->comp_mask & DMAH_HINT && attr->ph > LAST_HINT)
        || (attr->comp_mask & DMAH_MEMORY && attr->tph_mem_type > LAST_MEMORY_TYPE))
        return failed(EINVAL);
    made = calloc(1, sizeof *made);
    if (!made)
        return failed(ENOMEM);
    made->context = base;
    return made;
}

EXPORT int ibv_dealloc_dmah(struct ibv_dmah *dmah)
{
    free(dmah);
    return 0;
}
