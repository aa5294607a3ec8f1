/* Protection domains, memory regions, windows, address handles. */
#include "buffers.h"
#include "library.h"

#include <arpa/inet.h>

#define KNOWN_ACCESS 0x37fu /* the rights of the verbs; optional bits mean nothing here */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *base)
{
    struct softhca_alloc_pd_reply reply;
    struct pd *pd = calloc(1, sizeof *pd);
    int error;
    if (!pd)
        return failed(ENOMEM);
    GET(HOST(base), error, alloc_pd, &reply);
    if (error) {
        free(pd);
        return failed(error);
    }
    pd->pd.context = base;
    pd->pd.handle = reply.pd;
    return &pd->pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *base)
{
    struct pd *pd = (struct pd *)base;
    struct softhca_dealloc_pd fields = {.pd = base->handle};
    int error = 0;
    if (pd->original && __atomic_load_n(&pd->users, __ATOMIC_SEQ_CST)) {
        error = EBUSY; /* queues stand in what its allocators gave */
    } else if (pd->original) {
        __atomic_fetch_sub(&pd->original->users, 1, __ATOMIC_SEQ_CST);
    } else if (__atomic_load_n(&pd->users, __ATOMIC_SEQ_CST)) {
        error = EBUSY;
    } else {
        TELL(HOST(base->context), error, dealloc_pd, &fields);
        error = refused_end(HOST(base->context), error);
    }
    if (!error)
        free(pd);
    return said(error);
}

/* Whether pages are mapped, and the first and the last may be read, or written.  As kernels do, who registers
   other memory is told so at once; but no pages are brought that nobody has touched yet. */
static int is_mapped(uint64_t begin, uint64_t pages, int writing)
{
    int request = writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    uint64_t last = begin + (pages - 1) * PAGE;
    if (msync((void *)begin, pages * PAGE, MS_ASYNC) && errno == ENOMEM) /* MS_ASYNC looks, and does nothing */
        return 0;
    return madvise((void *)begin, 0, request) /* a system that knows no such request is not asked */
        || (!madvise((void *)begin, PAGE, request) && !madvise((void *)last, PAGE, request));
}

/* Make the pages of a range an arena of the adapter's; errno.  The run of frames is the arena's. */
static int attach_pages(struct host *host, uint64_t address, size_t length, int writing,
                        struct softhca_run *run)
{
    struct softhca_attach_arena fields = {.memory = SOFTHCA_MEMORY_FOREIGN};
    uint64_t begin = address & ~(uint64_t)(PAGE - 1), end = address + length;
    uint64_t pages = (end - begin + PAGE - 1) / PAGE;
    int error;
    if (host->foreign)
        return host->foreign;
    if (end < address || pages > (uint64_t)(ALL_SLOTS - MEMORY_SLOTS) * SOFTHCA_SLOT_PAGES / 2)
        return EINVAL;
    if (length && !is_mapped(begin, pages, writing))
        return EFAULT;
    pages = pages ? pages : 1;
    fields.pages = (uint32_t)pages;
    fields.address = begin;
    fields.slot = host_take_slots(host, (uint32_t)((pages + SOFTHCA_SLOT_PAGES - 1) / SOFTHCA_SLOT_PAGES));
    if (!fields.slot)
        return ENOMEM;
    TELL(host, error, attach_arena, &fields);
    if (error) {
        host_give_slots(host, fields.slot, (uint32_t)((pages + SOFTHCA_SLOT_PAGES - 1) / SOFTHCA_SLOT_PAGES));
        return error;
    }
    run->first = fields.slot * SOFTHCA_SLOT_PAGES;
    run->count = (uint32_t)pages;
    return 0;
}

void detach_pages(struct host *host, uint32_t first, uint32_t pages)
{
    struct softhca_detach_arena fields = {.slot = first / SOFTHCA_SLOT_PAGES, .pages = pages};
    int error;
    TELL(host, error, detach_arena, &fields);
    if (!error)
        host_give_slots(host, fields.slot, (pages + SOFTHCA_SLOT_PAGES - 1) / SOFTHCA_SLOT_PAGES);
}

/* Have the adapter map the pool of the program's large blocks, once; the first of its frames, 0: it does not. */
static uint32_t attach_pool(struct host *host, int descriptor)
{
    struct softhca_attach_arena fields = {.memory = SOFTHCA_MEMORY_PASSED,
                                          .pages = (uint32_t)(BUFFERS_BYTES / PAGE)};
    uint32_t slots = fields.pages / SOFTHCA_SLOT_PAGES, number;
    int error;
    pthread_mutex_lock(&host->pooling);
    if (!host->pool_tried) {
        host->pool_tried = 1;
        fields.slot = host_take_slots(host, slots);
        error = fields.slot ? host_pass_descriptor(host, descriptor, &number) : ENOMEM;
        if (!error) {
            fields.address = number;
            TELL(host, error, attach_arena, &fields);
        }
        if (!error)
            host->pool = fields.slot * SOFTHCA_SLOT_PAGES;
        else if (fields.slot)
            host_give_slots(host, fields.slot, slots);
    }
    pthread_mutex_unlock(&host->pooling);
    return host->pool;
}

/* The frames of a range of the pool, whose blocks are held until `release_pages`; whether it is one. */
static int in_pool(struct host *host, uint64_t address, size_t length, struct softhca_run *run)
{
    uint64_t offset = 0;
    int descriptor = softhca_buffers_hold ? softhca_buffers_hold((void *)address, length, &offset) : -1;
    uint32_t pool = descriptor < 0 ? 0 : attach_pool(host, descriptor);
    if (descriptor >= 0 && !pool)
        softhca_buffers_release(offset, length);
    if (!pool)
        return 0; /* `run` is nothing that anybody would give back */
    run->first = pool + (uint32_t)(offset / PAGE);
    run->count = (uint32_t)((offset % PAGE + length + PAGE - 1) / PAGE);
    return 1;
}

/* Frames for a range of the program's memory; errno. */
static int take_frames(struct host *host, uint64_t address, size_t length, unsigned access,
                       struct softhca_run *run)
{
    int writing = !!(access & SOFTHCA_ACCESS_LOCAL_WRITE);
    return in_pool(host, address, length, run) ? 0 : attach_pages(host, address, length, writing, run);
}

static void release_frames(struct host *host, uint32_t first, uint32_t pages)
{
    if (host->pool && first >= host->pool && first - host->pool < BUFFERS_BYTES / PAGE)
        softhca_buffers_release((uint64_t)(first - host->pool) * PAGE, (size_t)pages * PAGE);
    else
        detach_pages(host, first, pages);
}

static struct ibv_mr *register_memory(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                                      unsigned access)
{
    struct host *host = HOST(pd->context);
    struct softhca_run run = {0, 0};
    struct softhca_reg_mr fields = {.pd = pd->handle, .va = iova, .length = length, .frames = &run};
    struct softhca_reg_mr_reply reply;
    struct mr *mr;
    int error = 0;
    access &= ~OPTIONAL_ACCESS;
    if (access & ~KNOWN_ACCESS)
        return failed(EOPNOTSUPP);
    mr = calloc(1, sizeof *mr);
    if (!mr)
        return failed(ENOMEM);
    fields.access = access;
    if (access & SOFTHCA_ACCESS_ON_DEMAND) {
        fields.address = (uintptr_t)address;
    } else {
        fields.frames_count = 1;
        fields.page_offset = (uint32_t)((uintptr_t)address % PAGE);
        fields.zero_based = !!(access & SOFTHCA_ACCESS_ZERO_BASED);
        error = take_frames(host, (uintptr_t)address, length, access, &run);
    }
    if (!error)
        CALL(host, error, reg_mr, &fields, &reply);
    if (error) {
        if (run.first)
            release_frames(host, run.first, run.count);
        free(mr);
        return failed(error);
    }
    mr->mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = address, .length = length,
                             .handle = reply.lkey, .lkey = reply.lkey, .rkey = reply.rkey};
    mr->slot = run.first;
    mr->pages = run.count;
    mr->access = access;
    mr->iova = iova;
    mr->domain = pd->handle;
    if (access & SOFTHCA_ACCESS_ON_DEMAND)
        table_add(CONTEXT(pd->context), &CONTEXT(pd->context)->mrs, &mr->entry, reply.lkey, mr);
    return &mr->mr;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
    return register_memory(pd, address, length, (uintptr_t)address, (unsigned)access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                                      int access)
{
    return register_memory(pd, address, length, iova, (unsigned)access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                                       unsigned access)
{
    return register_memory(pd, address, length, iova, access);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *base)
{
    struct mr *mr = (struct mr *)base;
    struct host *host = HOST(base->context);
    struct softhca_dereg_mr fields = {.lkey = base->lkey};
    int error = 0;
    if (base->lkey)
        TELL(host, error, dereg_mr, &fields);
    if (error && !host->dead)
        return said(error);
    if (mr->slot)
        release_frames(host, mr->slot, mr->pages);
    if (mr->dm)
        __atomic_fetch_sub(&mr->dm->users, 1, __ATOMIC_SEQ_CST);
    if (mr->access & SOFTHCA_ACCESS_ON_DEMAND)
        table_remove(CONTEXT(base->context), &CONTEXT(base->context)->mrs, &mr->entry);
    free(mr);
    return 0;
}

EXPORT int ibv_rereg_mr(struct ibv_mr *base, int flags, struct ibv_pd *pd, void *address, size_t length,
                        int access)
{
    struct mr *mr = (struct mr *)base;
    struct host *host = HOST(base->context);
    struct softhca_run run = {0, 0};
    struct softhca_rereg_mr fields = {.lkey = base->lkey, .flags = (uint32_t)flags, .frames = &run};
    struct softhca_rereg_mr_reply reply;
    unsigned rights = flags & REREG_ACCESS ? (unsigned)access & ~OPTIONAL_ACCESS : mr->access;
    int error = 0;
    if (flags & ~7 || !flags || (flags & REREG_TRANSLATION && (!length || !address))
        || mr->dm || (flags & REREG_PD && !pd) || (rights ^ mr->access) & SOFTHCA_ACCESS_ON_DEMAND) {
        errno = EINVAL;
        return -1;
    }
    fields.access = rights;
    fields.pd = flags & REREG_PD ? pd->handle : mr->domain;
    if (flags & REREG_TRANSLATION) {
        fields.va = fields.address = (uintptr_t)address;
        fields.length = length;
        if (!(rights & SOFTHCA_ACCESS_ON_DEMAND)) {
            fields.address = 0;
            fields.frames_count = 1;
            fields.page_offset = (uint32_t)((uintptr_t)address % PAGE);
            fields.zero_based = !!(rights & SOFTHCA_ACCESS_ZERO_BASED);
            error = take_frames(host, (uintptr_t)address, length, rights, &run);
        }
    }
    if (!error)
        CALL(host, error, rereg_mr, &fields, &reply);
    if (error) {
        if (run.first)
            release_frames(host, run.first, run.count);
        errno = error;
        return -1;
    }
    if (rights & SOFTHCA_ACCESS_ON_DEMAND)
        table_remove(CONTEXT(base->context), &CONTEXT(base->context)->mrs, &mr->entry);
    if (flags & REREG_TRANSLATION) {
        mr->iova = (uintptr_t)address;
        if (mr->slot)
            release_frames(host, mr->slot, mr->pages);
        mr->slot = run.first;
        mr->pages = run.count;
        base->addr = address;
        base->length = length;
    }
    if (flags & REREG_PD) {
        base->pd = pd;
        mr->domain = pd->handle;
    }
    mr->access = rights;
    base->lkey = reply.lkey; /* the handle stays: others import the region by it */
    base->rkey = reply.rkey;
    if (rights & SOFTHCA_ACCESS_ON_DEMAND)
        table_add(CONTEXT(base->context), &CONTEXT(base->context)->mrs, &mr->entry, reply.lkey, mr);
    return 0;
}

/* A region of which the adapter reads zeros, and into which it writes nothing. */
struct ibv_mr *alloc_null_mr(struct ibv_pd *pd)
{
    struct softhca_alloc_null_mr fields = {.pd = pd->handle};
    struct softhca_alloc_null_mr_reply reply;
    struct mr *mr = calloc(1, sizeof *mr);
    int error;
    if (!mr)
        return failed(ENOMEM);
    CALL(HOST(pd->context), error, alloc_null_mr, &fields, &reply);
    if (error) {
        free(mr);
        return failed(error);
    }
    mr->mr = (struct ibv_mr){.context = pd->context, .pd = pd, .length = SIZE_MAX, .handle = reply.lkey,
                             .lkey = reply.lkey};
    return &mr->mr;
}

/* Windows */

struct ibv_mw *alloc_mw(struct ibv_pd *base, int type)
{
    struct softhca_alloc_mw fields = {.pd = base->handle, .type = (uint32_t)type};
    struct softhca_alloc_mw_reply reply;
    struct ibv_mw *mw = calloc(1, sizeof *mw);
    int error;
    if (!mw)
        return failed(ENOMEM);
    CALL(HOST(base->context), error, alloc_mw, &fields, &reply);
    if (error) {
        free(mw);
        return failed(error);
    }
    *mw = (struct ibv_mw){.context = base->context, .pd = base, .rkey = reply.rkey, .handle = reply.mw,
        .type = type};
    return mw;
}

int dealloc_mw(struct ibv_mw *mw)
{
    struct softhca_dealloc_mw fields = {.mw = mw->handle};
    int error;
    TELL(HOST(mw->context), error, dealloc_mw, &fields);
    error = refused_end(HOST(mw->context), error);
    if (!error)
        free(mw);
    return said(error);
}

int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
    struct ibv_send_wr wr, *bad;
    int error;
    if (bind->send_flags & SEND_INLINE || mw->type != 1)
        return said(EINVAL);
    memset(&wr, 0, sizeof wr);
    wr.wr_id = bind->wr_id;
    wr.opcode = SOFTHCA_BIND_MW;
    wr.send_flags = bind->send_flags;
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = (mw->rkey & ~0xffu) | ((mw->rkey + 1) & 0xff);
    wr.bind_mw.bind_info = bind->bind_info;
    error = post_send(qp, &wr, &bad);
    if (!error)
        mw->rkey = wr.bind_mw.rkey;
    return said(error);
}

/* Address handles */

EXPORT int ibv_query_gid(struct ibv_context *base, uint8_t port, int index, union ibv_gid *gid);

/* Without a route, to the port's own LID, which on RoCE is 0: the port itself.  So datagram sockets of librdmacm
   name it. */
static void name_itself(struct ibv_pd *base, const struct ibv_ah_attr *attr, struct softhca_create_ah *fields)
{
    union ibv_gid own;
    if (attr->is_global || attr->dlid || !CONTEXT(base->context)->roce_sl
        || ibv_query_gid(base->context, attr->port_num, 0, &own))
        return;
    memcpy(fields->dgid, &own, sizeof fields->dgid);
    fields->is_global = 1;
    fields->hop_limit = 64;
}

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *base, struct ibv_ah_attr *attr)
{
    struct softhca_create_ah fields = {.pd = base->handle, .flow_label = attr->grh.flow_label & 0xfffff,
        .dlid = attr->dlid, .sgid_index = attr->grh.sgid_index,
        .hop_limit = attr->grh.hop_limit, .traffic_class = attr->grh.traffic_class, .sl = attr->sl,
        .src_path_bits = attr->src_path_bits, .static_rate = attr->static_rate, .is_global = attr->is_global,
        .port_num = attr->port_num};
    struct softhca_create_ah_reply reply;
    struct ibv_ah *ah = calloc(1, sizeof *ah);
    int error;
    if (!ah)
        return failed(ENOMEM);
    memcpy(fields.dgid, &attr->grh.dgid, sizeof fields.dgid);
    name_itself(base, attr, &fields);
    CALL(HOST(base->context), error, create_ah, &fields, &reply);
    if (error) {
        free(ah);
        return failed(error);
    }
    *ah = (struct ibv_ah){.context = base->context, .pd = base, .handle = reply.ah};
    return ah;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
    struct softhca_destroy_ah fields = {.ah = ah->handle};
    int error;
    TELL(HOST(ah->context), error, destroy_ah, &fields);
    error = refused_end(HOST(ah->context), error);
    if (!error)
        free(ah);
    return said(error);
}

/* The GIDs of a datagram's first 40 bytes: an IPv6 header or GRH, or an IPv4 header in the last 20. */
static void gids_of(const struct ibv_grh *grh, union ibv_gid *source, union ibv_gid *own)
{
    const unsigned char *ipv4 = (const unsigned char *)grh + 20;
    uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2)
        sum += (uint32_t)ipv4[i] << 8 | ipv4[i + 1];
    sum = (sum & 0xffff) + (sum >> 16);
    if (ipv4[0] == 0x45 && (sum & 0xffff) + (sum >> 16) == 0xffff) {
        memset(source, 0, sizeof *source);
        source->raw[10] = source->raw[11] = 0xff;
        *own = *source;
        memcpy(source->raw + 12, ipv4 + 12, 4);
        memcpy(own->raw + 12, ipv4 + 16, 4);
    } else {
        *source = grh->sgid;
        *own = grh->dgid;
    }
}

EXPORT int ibv_init_ah_from_wc(struct ibv_context *base, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
                               struct ibv_ah_attr *attr)
{
    struct softhca_query_gid_reply reply;
    union ibv_gid own;
    uint32_t word;
    int error = 0;
    memset(attr, 0, sizeof *attr);
    attr->dlid = wc->slid;
    attr->sl = wc->sl;
    attr->src_path_bits = wc->dlid_path_bits;
    attr->port_num = port;
    if (!(wc->wc_flags & SOFTHCA_WC_GRH))
        return 0;
    attr->is_global = 1;
    gids_of(grh, &attr->grh.dgid, &own);
    for (uint32_t index = 0; !error; index++) {
        struct softhca_query_gid query = {.port_num = port, .index = index};
        if (index == MOST_GIDS)
            error = ENOENT;
        else
            CALL(HOST(base), error, query_gid, &query, &reply);
        if (!error && !memcmp(reply.gid, &own, sizeof own)) {
            attr->grh.sgid_index = (uint8_t)index;
            break;
        }
    }
    if (said(error))
        return -1;
    word = ntohl(grh->version_tclass_flow);
    attr->grh.hop_limit = 64;
    if (CONTEXT(base)->roce_sl != 2) {
        attr->grh.flow_label = word & 0xfffff;
        attr->grh.traffic_class = (uint8_t)(word >> 20);
    }
    if (CONTEXT(base)->roce_sl)
        attr->sl = 0; /* it told the kind of the packet */
    return 0;
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
                                            uint8_t port)
{
    struct ibv_ah_attr attr;
    return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) ? NULL : ibv_create_ah(pd, &attr);
}
