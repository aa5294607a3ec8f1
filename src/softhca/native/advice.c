/* Advice on regions on demand: their pages are brought before the adapter asks for them. */
#include "library.h"

enum { PREFETCH, PREFETCH_WRITE, PREFETCH_NO_FAULT, FLUSH = 1 };

/* Where the bytes of an element are; errno. */
static int find(struct ibv_pd *pd, int advice, const struct ibv_sge *sge, unsigned char **address)
{
    struct context *context = CONTEXT(pd->context);
    struct mr *mr;
    uint64_t offset;
    int error = 0;
    pthread_mutex_lock(&context->objects);
    mr = table_find(&context->mrs, sge->lkey);
    offset = mr ? sge->addr - mr->iova : 0;
    if (!mr || mr->domain != pd->handle || offset > mr->mr.length
        || sge->length > mr->mr.length - offset
        || (advice == PREFETCH_WRITE && !(mr->access & SOFTHCA_ACCESS_LOCAL_WRITE)))
        error = EFAULT;
    else if (!(mr->access & SOFTHCA_ACCESS_ON_DEMAND))
        error = EINVAL;
    else
        *address = (unsigned char *)mr->mr.addr + offset;
    pthread_mutex_unlock(&context->objects);
    return error;
}

/* Whether the pages of a range are there now; a system that knows no such request is not asked. */
static int bring(unsigned char *address, uint32_t length, int advice)
{
    uintptr_t first = (uintptr_t)address / PAGE * PAGE, end = (uintptr_t)address + length;
    int request = advice == PREFETCH_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    if (!length || madvise((void *)first, 0, request))
        return 1;
    return !madvise((void *)first, (end - first + PAGE - 1) / PAGE * PAGE, request);
}

int advise_mr(struct ibv_pd *pd, int advice, uint32_t flags, struct ibv_sge *list, uint32_t count)
{
    unsigned char *address;
    int error;
    if (advice < PREFETCH || advice > PREFETCH_NO_FAULT)
        return said(EOPNOTSUPP);
    if (flags & ~(uint32_t)FLUSH || !count)
        return said(EINVAL);
    for (uint32_t i = 0; i < count; i++)
        if ((error = find(pd, advice, &list[i], &address)))
            return said(error);
    for (uint32_t i = 0; i < count && advice != PREFETCH_NO_FAULT; i++)
        if (!find(pd, advice, &list[i], &address) && !bring(address, list[i].length, advice) && flags & FLUSH)
            return said(EFAULT);
    return 0;
}
