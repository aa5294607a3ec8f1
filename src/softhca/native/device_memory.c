/* Memory of the device: sealed memfds that the adapter holds, and other processes import; regions over it. */
#include "library.h"
#include "kernel.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNIT 4 /* bytes of a copy's step */

static size_t pages_of(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE;
}

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
    if (dm->descriptor >= 0)
        close(dm->descriptor);
    if (dm->memory)
        munmap(dm->memory, pages_of(dm->length) * PAGE);
}

/* A sealed memfd of its own, which other processes may be given; errno. */
static int make_memory(struct dm *dm)
{
    size_t bytes = pages_of(dm->length) * PAGE;
    dm->descriptor = memory_file("softhca-dm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (dm->descriptor < 0 || ftruncate(dm->descriptor, (off_t)bytes)
        || fcntl(dm->descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return ENOMEM;
    dm->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, dm->descriptor, 0);
    if (dm->memory != MAP_FAILED)
        return 0;
    dm->memory = NULL;
    return ENOMEM;
}

/* Have the adapter hold it, under a number; errno. */
static int pass_memory(struct host *host, struct dm *dm)
{
    struct softhca_alloc_dm fields = {.length = dm->length};
    struct softhca_alloc_dm_reply reply;
    int error = host_pass_descriptor(host, dm->descriptor, &fields.descriptor);
    if (!error)
        CALL(host, error, alloc_dm, &fields, &reply);
    if (!error)
        dm->dm.handle = reply.dm;
    return error;
}

static void set_up(struct dm *dm, struct ibv_context *base)
{
    dm->dm.context = base;
    dm->dm.memcpy_to_dm = copy_to;
    dm->dm.memcpy_from_dm = copy_from;
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
    if (!dm) {
        take_bytes(context, 0, attr->length);
        return failed(ENOMEM);
    }
    dm->length = attr->length;
    error = make_memory(dm);
    /* a forked child, which has lost its parent's attachment, may still copy */
    if (!error && !context->host->dead)
        error = pass_memory(context->host, dm);
    if (error) {
        end_memory(dm);
        free(dm);
        take_bytes(context, 0, attr->length);
        return failed(error);
    }
    set_up(dm, base);
    return &dm->dm;
}

static int free_dm(struct ibv_dm *base)
{
    struct dm *dm = dm_of(base);
    struct softhca_free_dm fields = {.dm = base->handle};
    int error = 0;
    if (dm->imported)
        return said(EINVAL);
    if (__atomic_load_n(&dm->users, __ATOMIC_SEQ_CST))
        return said(EBUSY);
    if (base->handle && !HOST(base->context)->dead)
        TELL(HOST(base->context), error, free_dm, &fields);
    if (error && !HOST(base->context)->dead)
        return said(error);
    end_memory(dm);
    take_bytes(CONTEXT(base->context), 0, dm->length);
    free(dm);
    return 0;
}

/* Map what the adapter has passed as so many bytes, if it has them and keeps them: touching a page behind its
   end would end this program.  The descriptor is closed where it is not mapped; errno. */
static int map_imported(struct dm *dm, size_t length)
{
    int seals = fcntl(dm->descriptor, F_GET_SEALS), error = EPROTO;
    struct stat status;
    if (seals >= 0 && seals & F_SEAL_SHRINK && length && length <= MAX_DM_BYTES && !fstat(dm->descriptor, &status)
        && status.st_size >= (off_t)(pages_of(length) * PAGE)) {
        dm->memory = mmap(NULL, pages_of(length) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, dm->descriptor, 0);
        error = dm->memory == MAP_FAILED ? ENOMEM : 0;
    }
    if (error)
        close(dm->descriptor);
    else
        dm->length = length;
    return error;
}

EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *base, uint32_t handle)
{
    struct dm *dm = calloc(1, sizeof *dm);
    size_t length = 0;
    int error;
    if (!dm)
        return failed(ENOMEM);
    error = host_take_memory(HOST(base), handle, &dm->descriptor, &length);
    if (!error)
        error = map_imported(dm, length);
    if (error) {
        free(dm);
        return failed(error);
    }
    set_up(dm, base);
    dm->dm.handle = handle;
    dm->imported = 1;
    return &dm->dm;
}

EXPORT void ibv_unimport_dm(struct ibv_dm *base)
{
    struct dm *dm = dm_of(base);
    if (!dm->imported)
        return;
    end_memory(dm);
    free(dm);
}

/* Make the memory an arena of the adapter's, which has not to reach this process for it; errno. */
static int attach_memory(struct host *host, const struct dm *dm, struct softhca_run *run)
{
    struct softhca_attach_arena fields = {.memory = SOFTHCA_MEMORY_PASSED,
                                          .pages = (uint32_t)pages_of(dm->length)};
    uint32_t number = 0;
    int error = host_pass_descriptor(host, dm->descriptor, &number);
    if (error)
        return error;
    fields.address = number;
    fields.slot = host_take_slots(host, 1); /* all device memory fits into one */
    if (!fields.slot)
        return ENOMEM;
    TELL(host, error, attach_arena, &fields);
    if (error) {
        host_give_slots(host, fields.slot, 1);
        return error;
    }
    run->first = fields.slot * SOFTHCA_SLOT_PAGES;
    run->count = fields.pages;
    return 0;
}

/* Requests name the bytes of such a region from 0 on. */
static struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *base, uint64_t offset, size_t length,
                                unsigned access)
{
    struct dm *dm = dm_of(base);
    struct softhca_run run = {0, 0};
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
    if (!dm->dm.handle)
        return failed(EIO);
    mr = calloc(1, sizeof *mr);
    if (!mr)
        return failed(ENOMEM);
    fields.access = access;
    fields.page_offset = (uint32_t)(offset % PAGE);
    if (length) {
        error = attach_memory(HOST(pd->context), dm, &run);
        mr->slot = run.first;
        mr->pages = run.count;
        run.first += (uint32_t)(offset / PAGE);
        run.count = (uint32_t)pages_of(offset % PAGE + length);
        if (!error)
            CALL(HOST(pd->context), error, reg_mr, &fields, &reply);
        if (error && mr->slot)
            detach_pages(HOST(pd->context), mr->slot, mr->pages);
    }
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
    front->alloc_null_mr = alloc_null_mr;
}
