/* What programs reach by the extended operations of a context, XRC domains, and tables of objects. */
#include "library.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

static int query_rt_values(struct ibv_context *base, struct ibv_values_ex *values)
{
    struct timespec now;
    (void)base;
    if (values->comp_mask & ~1u)
        return EOPNOTSUPP;
    clock_gettime(CLOCK_MONOTONIC, &now);
    values->seconds = now.tv_sec;
    values->nanoseconds = now.tv_nsec;
    values->comp_mask = 1;
    return 0;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *base, struct ibv_cq_init_attr_ex *attr)
{
    const uint64_t known = 0xff; /* byte_len … completion timestamp */
    struct ibv_cq_ex *cq;
    if (attr->comp_mask & ~3u || attr->wc_flags & ~known || (attr->comp_mask & 1 && attr->flags & ~3u))
        return failed(EOPNOTSUPP);
    if (attr->comp_vector >= (uint32_t)base->num_comp_vectors)
        return failed(EINVAL);
    if (attr->comp_mask & 2 && !attr->parent_domain)
        return failed(EINVAL);
    cq = make_cq(base, attr->cqe, attr->cq_context, attr->channel,
                 attr->comp_mask & 2 ? attr->parent_domain : NULL);
    if (cq)
        cq_set_extended(CQ(cq), attr->wc_flags);
    return cq;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *base, struct ibv_qp_init_attr_ex *attr)
{
    const uint32_t known = 1 | 2 | 4 | 64; /* PD, XRCD, CREATE_FLAGS, SEND_OPS_FLAGS */
    const uint32_t scaling = 16 | 32;      /* IND_TABLE, RX_HASH */
    const uint64_t operations = 0x1bff; /* all but TSO */
    struct ibv_qp *qp;
    if (attr->comp_mask & scaling)
        return make_scaled_qp(base, attr);
    if (attr->comp_mask & ~known || (attr->comp_mask & 4 && attr->create_flags)
        || (attr->comp_mask & 64 && attr->send_ops_flags & ~operations))
        return failed(EOPNOTSUPP);
    qp = make_qp(base, attr);
    if (qp && attr->comp_mask & 64)
        qp_set_extended(QP(qp));
    return qp;
}

static struct ibv_td *alloc_td(struct ibv_context *base, void *attr)
{
    struct ibv_td *td = calloc(1, sizeof *td);
    (void)attr;
    if (td)
        td->context = base;
    return td;
}

static int dealloc_td(struct ibv_td *td)
{
    free(td);
    return 0;
}

static struct ibv_pd *alloc_parent_domain(struct ibv_context *base, struct ibv_parent_domain_init_attr *attr)
{
    const uint32_t known = 7; /* ALLOCATORS, PD_CONTEXT, and what changes nothing inside of a guest */
    struct pd *parent;
    if (attr->comp_mask & ~known)
        return failed(EOPNOTSUPP);
    if (attr->comp_mask & 1 && (!attr->alloc || !attr->free))
        return failed(EINVAL);
    if (!attr->pd || !(parent = calloc(1, sizeof *parent)))
        return failed(attr->pd ? ENOMEM : EINVAL);
    parent->original = (struct pd *)attr->pd;
    parent->pd.context = base;
    parent->pd.handle = attr->pd->handle;
    if (attr->comp_mask & 1) {
        parent->alloc = (__typeof__(parent->alloc))attr->alloc;
        parent->free = (__typeof__(parent->free))attr->free;
    }
    if (attr->comp_mask & 2)
        parent->pd_context = attr->pd_context;
    __atomic_fetch_add(&parent->original->users, 1, __ATOMIC_SEQ_CST);
    return &parent->pd;
}

/* XRC domains */

static struct ibv_xrcd *open_xrcd(struct ibv_context *base, struct ibv_xrcd_init_attr *attr)
{
    struct softhca_open_xrcd fields = {0};
    struct softhca_open_xrcd_reply reply;
    struct xrcd *xrcd;
    struct stat file;
    int error;
    if ((attr->comp_mask & 3) != 3)
        return failed(EINVAL);
    if (attr->fd != -1) {
        if (fstat(attr->fd, &file))
            return NULL;
        fields.device = file.st_dev;
        fields.inode = file.st_ino;
        fields.flags = SOFTHCA_XRCD_FILE;
    }
    fields.flags |= attr->oflags & O_CREAT ? SOFTHCA_XRCD_CREATE : 0;
    fields.flags |= attr->oflags & O_EXCL ? SOFTHCA_XRCD_EXCLUSIVE : 0;
    xrcd = calloc(1, sizeof *xrcd);
    if (!xrcd)
        return failed(ENOMEM);
    CALL(HOST(base), error, open_xrcd, &fields, &reply);
    if (error) {
        free(xrcd);
        return failed(error);
    }
    xrcd->xrcd.context = base;
    xrcd->number = reply.xrcd;
    return &xrcd->xrcd;
}

static int close_xrcd(struct ibv_xrcd *base)
{
    struct softhca_close_xrcd fields = {.xrcd = ((struct xrcd *)base)->number};
    int error;
    TELL(HOST(base->context), error, close_xrcd, &fields);
    error = refused_end(HOST(base->context), error);
    if (!error)
        free(base);
    return said(error);
}

static int get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
    *number = srq->handle;
    return 0;
}

void set_extended_ops(struct verbs_front *front)
{
    front->query_device_ex = query_device_ex;
    front->query_rt_values = query_rt_values;
    front->create_cq_ex = create_cq_ex;
    front->create_qp_ex = create_qp_ex;
    front->create_srq_ex = make_srq;
    front->get_srq_num = get_srq_num;
    front->modify_qp_rate_limit = modify_rate_limit;
    front->open_xrcd = open_xrcd;
    front->close_xrcd = close_xrcd;
    set_flow_ops(front);
    set_scaling_ops(front);
    front->alloc_td = alloc_td;
    front->dealloc_td = dealloc_td;
    front->alloc_parent_domain = alloc_parent_domain;
}

/* Objects by their number */

void table_add(struct context *context, struct table *table, struct numbered *entry, uint32_t number,
               void *object)
{
    entry->number = number;
    entry->object = object;
    pthread_mutex_lock(&context->objects);
    entry->next = table->buckets[number % BUCKETS];
    table->buckets[number % BUCKETS] = entry;
    pthread_mutex_unlock(&context->objects);
}

void table_remove(struct context *context, struct table *table, struct numbered *entry)
{
    struct numbered **each;
    pthread_mutex_lock(&context->objects);
    for (each = &table->buckets[entry->number % BUCKETS]; *each && *each != entry; each = &(*each)->next)
        ;
    if (*each)
        *each = entry->next;
    pthread_mutex_unlock(&context->objects);
}

void *table_find(struct table *table, uint32_t number)
{
    for (struct numbered *each = table->buckets[number % BUCKETS]; each; each = each->next)
        if (each->number == number)
            return each->object;
    return NULL;
}
