/* Memory of the device, which stands in the attachment's shared memory, and regions over it. */
#include "library.h"

#define UNIT 4 /* bytes of a copy's step */

static struct dm *dm_of(struct ibv_dm *base)
{
    return (struct dm *)base;
}

static int is_outside(const struct dm *dm, uint64_t offset, size_t length)
{
    return offset > dm->length || length > dm->length - offset;
}

static int copy_to(struct ibv_dm *base, uint64_t offset, const void *from, size_t length)
{
    if (is_outside(dm_of(base), offset, length) || offset % UNIT || length % UNIT)
        return said(EINVAL);
    memcpy(dm_of(base)->memory + offset, from, length);
    return 0;
}

static int copy_from(void *to, struct ibv_dm *base, uint64_t offset, size_t length)
{
    if (is_outside(dm_of(base), offset, length) || offset % UNIT || length % UNIT)
        return said(EINVAL);
    memcpy(to, dm_of(base)->memory + offset, length);
    return 0;
}

/* Change what the context's device memories take together; ENOMEM where that is too much. */
static int take_bytes(struct context *context, size_t more, size_t less)
{
    int error = 0;
    pthread_mutex_lock(&context->objects);
    if (more > MAX_DM_BYTES - (context->dm_bytes - less))
        error = ENOMEM;
    else
        context->dm_bytes += more - less;
    pthread_mutex_unlock(&context->objects);
    return error;
}

static void end_memory(struct dm *dm)
{
    if (dm->run.first)
        host_free_pages(HOST(dm->dm.context), &dm->run);
    else
        free(dm->memory);
}

static struct ibv_dm *alloc_dm(struct ibv_context *base, struct ibv_alloc_dm_attr *attr)
{
    struct context *context = CONTEXT(base);
    struct dm *dm;
    int error;
    if (attr->comp_mask || !attr->length || attr->log_align_req > 12)
        return failed(EINVAL);
    error = take_bytes(context, attr->length, 0);
    if (error)
        return failed(error);
    dm = calloc(1, sizeof *dm);
    if (dm) {
        dm->length = attr->length;
        /* a forked child, which has lost its parent's attachment, may still copy */
        dm->memory = context->host->dead ? aligned_alloc(PAGE, (attr->length + PAGE - 1) / PAGE * PAGE)
                                         : host_make_pages(context->host, &dm->run, attr->length);
    }
    if (!dm || !dm->memory) {
        free(dm);
        take_bytes(context, 0, attr->length);
        return failed(ENOMEM);
    }
    if (!dm->run.first)
        memset(dm->memory, 0, attr->length);
    dm->dm = (struct ibv_dm){.context = base, .memcpy_to_dm = copy_to, .memcpy_from_dm = copy_from,
                             .handle = dm->run.first};
    return &dm->dm;
}

static int free_dm(struct ibv_dm *base)
{
    struct dm *dm = dm_of(base);
    if (__atomic_load_n(&dm->users, __ATOMIC_SEQ_CST))
        return said(EBUSY);
    end_memory(dm);
    take_bytes(CONTEXT(base->context), 0, dm->length);
    free(dm);
    return 0;
}

/* Requests name the bytes of such a region from 0 on. */
static struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *base, uint64_t offset, size_t length,
                                unsigned access)
{
    struct dm *dm = dm_of(base);
    struct softhca_run run;
    struct softhca_reg_mr fields = {.pd = pd->handle, .length = length, .zero_based = 1, .frames = &run,
                                    .frames_count = 1};
    struct softhca_reg_mr_reply reply = {0, 0}; /* no bytes: no key that requests could name */
    struct mr *mr;
    int error = 0;
    access &= ~OPTIONAL_ACCESS;
    if (access & ~DM_ACCESS || !(access & SOFTHCA_ACCESS_ZERO_BASED))
        return failed(EOPNOTSUPP);
    if (is_outside(dm, offset, length) || pd->context != base->context)
        return failed(EINVAL);
    if (!dm->run.first)
        return failed(EIO);
    mr = calloc(1, sizeof *mr);
    if (!mr)
        return failed(ENOMEM);
    run.first = dm->run.first + (uint32_t)(offset / PAGE);
    run.count = (uint32_t)((offset % PAGE + length + PAGE - 1) / PAGE);
    fields.access = access;
    fields.page_offset = (uint32_t)(offset % PAGE);
    if (length)
        CALL(HOST(pd->context), error, reg_mr, &fields, &reply);
    if (error) {
        free(mr);
        return failed(error);
    }
    __atomic_fetch_add(&dm->users, 1, __ATOMIC_SEQ_CST);
    mr->dm = dm;
    mr->access = access;
    mr->mr = (struct ibv_mr){.context = pd->context, .pd = pd, .length = length, .handle = reply.lkey,
                             .lkey = reply.lkey, .rkey = reply.rkey};
    return &mr->mr;
}

void set_memory_ops(struct verbs_front *front)
{
    front->alloc_dm = alloc_dm;
    front->free_dm = free_dm;
    front->reg_dm_mr = reg_dm_mr;
    front->advise_mr = advise_mr;
}
