/* The library's own objects: each begins with, or contains, what the program sees of it. */
#ifndef SOFTHCA_LIBRARY_H
#define SOFTHCA_LIBRARY_H

#include "host.h"
#include "poll_pace.h"
#include "verbs.h"

#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))
/* What vendors' libraries bind stands, under one name, in a version node of each release whose private functions
   are others than before. */
#define IN_NODE(name, own, at, release)                                                                \
    extern __typeof__(own) name##_in_##release __attribute__((alias(#own), visibility("default")));    \
    __asm__(".symver " #name "_in_" #release ", " #name at "IBVERBS_PRIVATE_" #release);
#define IN_LATER_NODES(name, own) \
    IN_NODE(name, own, "@", 57) IN_NODE(name, own, "@", 59) IN_NODE(name, own, "@", 64)
#define IN_ALL_NODES(name, own) \
    IN_NODE(name, own, "@", 33) IN_NODE(name, own, "@@", 34) IN_LATER_NODES(name, own) IN_NODE(name, own, "@", 65)
#define OF(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))
#define BUCKETS 256
#define OPTIONAL_ACCESS 0x3ff00080u /* rights that mean nothing here: huge pages are hints, too */
#define DM_ACCESS 0x2fu             /* of regions over device memory: local, remote, from 0 on */
#define MAX_DM_BYTES SOFTHCA_MAX_DM_BYTES
#define MOST_GIDS 256 /* an address names an entry by one byte, whatever an adapter says of its table */

#ifndef MADV_POPULATE_READ /* of madvise, Linux 5.14 */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

struct device {
    struct ibv_device device;
    const void *driver;       /* vendor libraries look here whether a device is theirs */
    unsigned char zero[88];
    char socket[108];
    uint64_t guid;            /* in network order; 0: not asked yet */
};

/* Objects by their number, for events. */
struct numbered {
    struct numbered *next;
    uint32_t number;
    void *object;
};

struct table {
    struct numbered *buckets[BUCKETS];
};

struct context {
    struct verbs_front front;
    struct ibv_context context;
    struct host *host;
    struct device *device;
    pthread_mutex_t objects; /* guards the tables */
    struct table cqs, qps, srqs, wqs;
    struct table mrs;          /* regions on demand by their L_Key, for advice */
    struct ibv_device_attr_ex attributes; /* asked once: a forked child has them too */
    size_t dm_bytes;           /* of all device memories; guarded by objects too */
    struct context *next;
    uint8_t roce_sl;           /* sl of datagrams: the kind of their packets, as other adapters say it */
    atomic_int fatal_reported; /* the device's end is reported once */
};

struct channel {
    struct ibv_comp_channel channel;
    uint32_t number;
};

struct pd {
    struct ibv_pd pd;
    struct pd *original;       /* of a parent domain: the domain that it stands for */
    uint32_t users;
    void *(*alloc)(struct ibv_pd *, void *, size_t, size_t, uint64_t); /* a parent domain's own, or none */
    void (*free)(struct ibv_pd *, void *, void *, uint64_t);
    void *pd_context;
};

struct dm {
    struct ibv_dm dm;
    unsigned char *memory;     /* of `descriptor`, a memfd; handle 0: the adapter does not know it */
    size_t length;
    uint32_t users;            /* regions over it */
    int descriptor, imported;
};

struct mr {
    struct ibv_mr mr;
    struct numbered entry;
    struct dm *dm;
    uint64_t iova;             /* of a region on demand */
    uint32_t domain;           /* its number: the name that it was registered by may be gone (a parent domain) */
    uint32_t slot, pages;
    uint32_t access;
};

enum { RING_OF_QP = 1, RING_OF_WQ = 2, RING_OF_SRQ = 4, RING_OF_CQ = 5 }; /* what allocators are told */

struct drop {
    uint32_t qp_num;
    uint64_t until;
};

struct cq {
    struct ibv_cq_ex ex;
    struct numbered entry;
    struct ring ring;
    spinlock lock;
    struct drop *drops;
    struct ibv_pd *parent;     /* whose allocators it stands in */
    uint32_t users;            /* queue pairs and shared receive queues that complete here */
    uint32_t drop_count, misses;
    struct poll_pace pace;
    uint32_t comp_events_got, async_events_got;
    uint64_t wc_flags;
    struct softhca_cqe current;
    struct qp *last;           /* whose completion was polled last */
};

struct srq {
    struct ibv_srq srq;
    struct numbered entry;
    struct ring ring;
    spinlock lock;
    uint32_t max_wr, max_sge, async_events_got;
    struct ibv_cq *cq;         /* of receives for XRC */
};

struct wq {
    struct ibv_wq wq;
    struct numbered entry;
    struct ring ring;
    spinlock lock;
    uint32_t doorbell, max_sge, async_events_got;
};

struct xrcd {
    struct ibv_xrcd xrcd;
    uint32_t number;
};

struct order {
    uint64_t wr_id;
    int signaled;
};

struct qp {
    struct ibv_qp_ex ex;
    struct numbered entry;
    struct ring send, recv;
    spinlock send_lock, recv_lock;
    uint32_t doorbell, async_events_got;
    uint32_t send_entry_bytes, recv_entry_bytes;
    struct ibv_qp_cap cap;
    int sq_sig_all;
    unsigned char *scratch;
    /* A send has its place in the queue until its completion, or one behind it, is polled, as on other
       adapters: so a program that posts until the queue is full never overruns its completion queue. */
    struct order *orders;
    uint64_t retired;
    uint32_t retired_index;
    int failed;                /* a completion in error was polled since the queue began, or went on */
    uint64_t errors_end;       /* before it the queue went on behind an error: the last places up to there */
    uint32_t errors_left;      /* are of completions in error that are polled yet */
    /* the batch of ibv_wr_start … ibv_wr_complete */
    struct ring begun;
    struct softhca_send_wqe *building;
    unsigned char *batch_entry;
    uint32_t built, batch_error, batch_bytes;
    int extended;
};

#define CONTEXT(base) OF(base, struct context, context)
#define HOST(base) (CONTEXT(base)->host)
#define CQ(base) ((struct cq *)(base))
#define QP(base) ((struct qp *)(base))
#define SRQ(base) ((struct srq *)(base))
#define WQ(base) ((struct wq *)(base))

static inline void *failed(int error)
{
    errno = error;
    return NULL;
}

static inline int said(int error)
{
    if (error)
        errno = error;
    return error;
}

/* Why an object cannot end: an adapter that has gone holds nothing any more, as with kernels whose device has. */
static inline int refused_end(const struct host *host, int error)
{
    return host->dead ? 0 : error;
}

void table_add(struct context *context, struct table *table, struct numbered *entry, uint32_t number,
               void *object);
void table_remove(struct context *context, struct table *table, struct numbered *entry);
/* With context->objects held. */
void *table_find(struct table *table, uint32_t number);

struct ibv_cq_ex *make_cq(struct ibv_context *base, uint32_t entries, void *cq_context,
                          struct ibv_comp_channel *channel, struct ibv_pd *parent);
/* Have a parent domain's allocator, where there is one, hold a ring that was made; errno. */
int lend_ring(struct ibv_pd *base, struct ring *ring, uint64_t kind);
/* One user of a completion queue, if there is one, more or less. */
void cq_use(struct ibv_cq *cq, uint32_t more);
void cq_set_extended(struct cq *cq, uint64_t wc_flags);
void qp_retire(struct qp *qp, const struct softhca_cqe *cqe);
/* The places of all sends before the count `retired` are free. */
void qp_retire_until(struct qp *qp, uint64_t retired);
/* A send queue goes on behind an error. */
void cq_goes_on(struct cq *cq, struct qp *qp);
void cq_drop(struct cq *cq, uint32_t qp_num);
int modify_rate_limit(struct ibv_qp *base, struct ibv_qp_rate_limit_attr *attr);
int poll_cq(struct ibv_cq *base, int count, struct ibv_wc *wc);
int req_notify_cq(struct ibv_cq *base, int solicited_only);

struct ibv_qp *make_qp(struct ibv_context *base, struct ibv_qp_init_attr_ex *attr);
/* What programs see of a queue pair of this number, and the events that name it. */
void enter_qp(struct ibv_context *base, struct qp *qp, const struct ibv_qp_init_attr_ex *attr, uint32_t number);
/* A queue pair that receives by a table of work queues. */
struct ibv_qp *make_scaled_qp(struct ibv_context *base, struct ibv_qp_init_attr_ex *attr);
void qp_set_extended(struct qp *qp);
int post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_srq_recv(struct ibv_srq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_wq_recv(struct ibv_wq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_srq *make_srq(struct ibv_context *base, struct ibv_srq_init_attr_ex *attr);

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                                unsigned access);
struct ibv_mw *alloc_mw(struct ibv_pd *base, int type);
int bind_mw(struct ibv_qp *base, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int dealloc_mw(struct ibv_mw *mw);

/* The device of an adapter's socket, of whatever program; NULL and errno. */
struct device *device_at(const char *name, const char *place);
/* A context that no descriptor stands for yet. */
struct ibv_context *open_context(struct device *device);
int ibv_close_device(struct ibv_context *base);
/* Have a new descriptor, cmd_fd, stand for the context: other programs import it by a duplicate; errno. */
int export_context(struct context *context);

int events_open(struct context *context);
/* Wait until every event that was got for an object is acknowledged. */
void await_acknowledged(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *completed,
                        uint32_t got);

void set_extended_ops(struct verbs_front *front);
void set_flow_ops(struct verbs_front *front);
void set_scaling_ops(struct verbs_front *front);
void detach_pages(struct host *host, uint32_t first, uint32_t pages);
void set_memory_ops(struct verbs_front *front);
struct ibv_mr *alloc_null_mr(struct ibv_pd *pd);
int advise_mr(struct ibv_pd *pd, int advice, uint32_t flags, struct ibv_sge *list, uint32_t count);
int query_device_ex(struct ibv_context *base, const void *input, struct ibv_device_attr_ex *attr,
                    size_t bytes);
int query_port_attr(struct ibv_context *base, uint8_t port, struct ibv_port_attr *attr, size_t bytes);

#endif
