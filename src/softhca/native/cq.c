/* Completion queues: polling both ways, arming, resizing. */
#include "library.h"

#include <arpa/inet.h>
#include <errno.h>
#include <time.h>

#define YIELD_AFTER 32 /* empty polls in a row: then who polls leaves the processor to those that work */

static int fill_command(struct ring *ring, uint32_t entries, struct host *host, struct ibv_pd *parent)
{
    int error = host_make_ring(host, ring, entries, (uint64_t)entries * sizeof(struct softhca_cqe));
    if (!error)
        error = lend_ring(parent, ring, RING_OF_CQ);
    if (error)
        host_free_ring(host, ring);
    return error;
}

struct ibv_cq_ex *make_cq(struct ibv_context *base, uint32_t entries, void *cq_context,
                          struct ibv_comp_channel *channel, struct ibv_pd *parent)
{
    struct context *context = CONTEXT(base);
    struct softhca_create_cq fields = {.entries = entries, .frames_count = 1};
    struct softhca_create_cq_reply reply;
    struct cq *cq = calloc(1, sizeof *cq);
    struct ibv_cq *seen;
    int error;
    if (!cq)
        return failed(ENOMEM);
    error = fill_command(&cq->ring, entries, context->host, parent);
    if (!error) {
        fields.body_bytes = cq->ring.body_bytes;
        fields.frames = &cq->ring.run;
        fields.channel = channel ? ((struct channel *)channel)->number : 0;
        CALL(context->host, error, create_cq, &fields, &reply);
    }
    if (error) {
        host_free_ring(context->host, &cq->ring);
        free(cq);
        return failed(error);
    }
    cq->parent = parent;
    seen = &cq->ex.base;
    seen->context = base;
    seen->channel = channel;
    seen->cq_context = cq_context;
    seen->handle = reply.cq;
    seen->cqe = (int)reply.cqe;
    pthread_mutex_init(&seen->mutex, NULL);
    pthread_cond_init(&seen->cond, NULL);
    if (channel) {
        pthread_mutex_lock(&base->mutex);
        channel->refcnt++;
        pthread_mutex_unlock(&base->mutex);
    }
    table_add(context, &context->cqs, &cq->entry, reply.cq, cq);
    return &cq->ex;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *base, int entries, void *cq_context,
                                    struct ibv_comp_channel *channel, int vector)
{
    if (entries < 1 || vector < 0 || vector >= base->num_comp_vectors)
        return failed(EINVAL);
    return (struct ibv_cq *)make_cq(base, (uint32_t)entries, cq_context, channel, NULL);
}

EXPORT int ibv_resize_cq(struct ibv_cq *base, int entries)
{
    struct cq *cq = CQ(base);
    struct host *host = HOST(base->context);
    struct softhca_resize_cq fields = {.cq = base->handle, .entries = (uint32_t)entries, .frames_count = 1};
    struct softhca_resize_cq_reply reply;
    struct ring ring;
    int error;
    if (entries < 1)
        return said(EINVAL);
    error = fill_command(&ring, (uint32_t)entries, host, cq->parent);
    if (error)
        return said(error);
    fields.body_bytes = ring.body_bytes;
    fields.frames = &ring.run;
    lock_spin(&cq->lock);
    CALL(host, error, resize_cq, &fields, &reply);
    if (!error) {
        struct ring old = cq->ring;
        /* the new ring begins with what was unread in the old one */
        for (uint32_t i = 0; i < cq->drop_count; i++)
            cq->drops[i].until = cq->drops[i].until > old.head ? cq->drops[i].until - old.head : 0;
        cq->ring = ring;
        ring = old;
        base->cqe = (int)reply.cqe;
    }
    unlock_spin(&cq->lock);
    host_free_ring(host, &ring);
    return said(error);
}

void cq_use(struct ibv_cq *cq, uint32_t more)
{
    if (cq)
        __atomic_fetch_add(&CQ(cq)->users, more, __ATOMIC_SEQ_CST);
}

EXPORT int ibv_destroy_cq(struct ibv_cq *base)
{
    struct cq *cq = CQ(base);
    struct context *context = CONTEXT(base->context);
    struct softhca_destroy_cq fields = {.cq = base->handle};
    int error;
    if (__atomic_load_n(&cq->users, __ATOMIC_SEQ_CST))
        return said(EBUSY); /* also where no adapter is left to say so */
    TELL(context->host, error, destroy_cq, &fields);
    if (error && !context->host->dead)
        return said(error);
    table_remove(context, &context->cqs, &cq->entry);
    await_acknowledged(&base->mutex, &base->cond, &base->comp_events_completed, cq->comp_events_got);
    await_acknowledged(&base->mutex, &base->cond, &base->async_events_completed, cq->async_events_got);
    if (base->channel) {
        pthread_mutex_lock(&base->context->mutex);
        base->channel->refcnt--;
        pthread_mutex_unlock(&base->context->mutex);
    }
    host_free_ring(context->host, &cq->ring);
    pthread_mutex_destroy(&base->mutex);
    pthread_cond_destroy(&base->cond);
    free(cq->drops);
    free(cq);
    return 0;
}

/* Whether the entry that was taken last is dropped; forgets what lies behind. */
static int is_dropped(struct cq *cq, uint32_t qp_num)
{
    uint64_t taken = cq->ring.head;
    uint32_t kept = 0;
    int found = 0;
    for (uint32_t i = 0; i < cq->drop_count; i++) {
        if (cq->drops[i].until < taken)
            continue;
        found |= cq->drops[i].qp_num == qp_num;
        cq->drops[kept++] = cq->drops[i];
    }
    cq->drop_count = kept;
    return found;
}

/* Give the room of dropped entries back, up to the first one that is not: a program that polls for others alone,
   or not at all, loses no place by queue pairs that are gone. */
static void release_dropped(struct cq *cq)
{
    struct softhca_cqe cqe;
    uint32_t kept = 0;
    for (;;) {
        struct ring before = cq->ring;
        if (ring_take(&cq->ring, &cqe, sizeof cqe) == (int)sizeof cqe && is_dropped(cq, cqe.qp_num))
            continue;
        cq->ring = before; /* what is broken is found by the next poll */
        break;
    }
    ring_release(&cq->ring);
    for (uint32_t i = 0; i < cq->drop_count; i++)
        if (cq->drops[i].until > cq->ring.head)
            cq->drops[kept++] = cq->drops[i];
    cq->drop_count = kept;
}

/* What a queue pair has completed so far is not polled any more: it was reset or destroyed. */
void cq_drop(struct cq *cq, uint32_t qp_num)
{
    uint64_t tail;
    struct drop *grown;
    lock_spin(&cq->lock);
    cq->last = NULL;
    tail = __atomic_load_n(&cq->ring.control->tail, __ATOMIC_ACQUIRE);
    if (tail != cq->ring.head) {
        grown = realloc(cq->drops, (cq->drop_count + 1) * sizeof *grown);
        if (grown) {
            cq->drops = grown;
            cq->drops[cq->drop_count++] = (struct drop){qp_num, tail};
            release_dropped(cq);
        }
    }
    unlock_spin(&cq->lock);
}

/* How many completions in error of a queue pair's sends are polled yet. */
static uint32_t errors_of(const struct cq *cq, uint32_t qp_num)
{
    struct ring ring = cq->ring;
    struct softhca_cqe cqe;
    uint32_t count = 0;
    while (ring_take(&ring, &cqe, sizeof cqe) == (int)sizeof cqe) {
        int counts = cqe.qp_num == qp_num && cqe.status && cqe.opcode < SOFTHCA_WC_RECV;
        for (uint32_t i = 0; i < cq->drop_count; i++)
            counts &= cq->drops[i].qp_num != qp_num || cq->drops[i].until < ring.head;
        count += (uint32_t)counts;
    }
    return count;
}

/* All that was posted before has completed, from the first error on each with a completion.  What had no
   completion and the same wr_id as the first that failed has not been told from it: now its place is free. */
void cq_goes_on(struct cq *cq, struct qp *qp)
{
    uint64_t end;
    uint32_t left;
    lock_spin(&cq->lock);
    left = errors_of(cq, qp->ex.base.qp_num);
    end = __atomic_load_n(&qp->send.control->head, __ATOMIC_ACQUIRE);
    if ((qp->failed || left) && !qp->errors_left && end - qp->retired <= qp->send.entries
        && end - qp->retired >= left) {
        qp->failed = 0;
        qp->errors_end = end;
        qp->errors_left = left;
        if (!left)
            qp_retire_until(qp, end);
    }
    unlock_spin(&cq->lock);
}

/* A completion of a send queue gives places in it back. */
static void retire(struct cq *cq, const struct softhca_cqe *cqe)
{
    struct context *context = CONTEXT(cq->ex.base.context);
    if (cqe->opcode >= SOFTHCA_WC_RECV)
        return;
    if (!cq->last || cq->last->ex.base.qp_num != cqe->qp_num) {
        pthread_mutex_lock(&context->objects);
        cq->last = table_find(&context->qps, cqe->qp_num);
        if (cq->last && cq->last->ex.base.send_cq != &cq->ex.base)
            cq->last = NULL; /* it does not complete here: nobody would forget it with the queue pair */
        pthread_mutex_unlock(&context->objects);
    }
    if (cq->last)
        qp_retire(cq->last, cqe);
}

/* The next completion; 1, 0: there is none, -1: the ring is broken.  With the lock held. */
static int take(struct cq *cq, struct softhca_cqe *cqe)
{
    int bytes;
    do {
        bytes = ring_take(&cq->ring, cqe, sizeof *cqe);
        if (bytes != (int)sizeof *cqe) {
            if (bytes)
                cq->ring.broken = 1;
            return bytes ? -1 : 0;
        }
    } while (cq->drop_count && is_dropped(cq, cqe->qp_num));
    retire(cq, cqe);
    return 1;
}

static uint8_t service_level(const struct cq *cq, const struct softhca_cqe *cqe)
{
    uint8_t kind = CONTEXT(cq->ex.base.context)->roce_sl;
    return cqe->wc_flags & SOFTHCA_WC_GRH && kind ? kind : cqe->sl;
}

static void fill(const struct cq *cq, const struct softhca_cqe *cqe, struct ibv_wc *wc)
{
    wc->wr_id = cqe->wr_id;
    wc->status = cqe->status;
    wc->opcode = cqe->opcode;
    wc->vendor_err = cqe->vendor_err;
    wc->byte_len = cqe->byte_len;
    wc->imm_or_key = cqe->wc_flags & SOFTHCA_WC_WITH_IMM ? htonl(cqe->imm_or_key) : cqe->imm_or_key;
    wc->qp_num = cqe->qp_num;
    wc->src_qp = cqe->src_qp;
    wc->wc_flags = cqe->wc_flags;
    wc->pkey_index = cqe->pkey_index;
    wc->slid = cqe->slid;
    wc->sl = service_level(cq, cqe);
    wc->dlid_path_bits = cqe->path_bits;
}

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Sleep for less than a second.  No poll is a cancellation point or sets errno, so neither does this one. */
static void nap(uint64_t length_ns)
{
    int former = errno, cancel_state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    nanosleep(&(struct timespec){.tv_nsec = (long)length_ns}, NULL);
    pthread_setcancelstate(cancel_state, NULL);
    errno = former;
}

/* Let others run, by a yield or, where that would take long, a moment of sleep. */
static void give_way(struct poll_pace *pace)
{
    uint64_t now_ns = monotonic_ns(), nap_ns = pace_nap_ns(pace, now_ns);
    if (nap_ns) {
        nap(nap_ns);
        return;
    }
    sched_yield();
    pace_yielded(pace, now_ns, monotonic_ns());
}

/* Nothing was there: leave the processor to who works, and see whether the adapter has died. */
static int missed(struct cq *cq)
{
    struct host *host = HOST(cq->ex.base.context);
    uint32_t misses = ++cq->misses;
    if (misses < YIELD_AFTER)
        return 0;
    if (misses == YIELD_AFTER)
        cq->pace.since_ns = monotonic_ns();
    if (misses % 4096 == 0)
        host_check(host);
    give_way(&cq->pace);
    return host->dead ? -1 : 0;
}

int poll_cq(struct ibv_cq *base, int count, struct ibv_wc *wc)
{
    struct cq *cq = CQ(base);
    struct softhca_cqe cqe;
    int found = 0, more = 1;
    lock_spin(&cq->lock);
    while (found < count && (more = take(cq, &cqe)) > 0)
        fill(cq, &cqe, &wc[found++]);
    ring_release(&cq->ring);
    unlock_spin(&cq->lock);
    if (found) {
        cq->misses = 0;
        return found;
    }
    return more < 0 ? -1 : missed(cq);
}

int req_notify_cq(struct ibv_cq *base, int solicited_only)
{
    struct cq *cq = CQ(base);
    uint64_t none = SOFTHCA_ARM_NONE;
    lock_spin(&cq->lock);
    if (solicited_only)
        __atomic_compare_exchange_n(&cq->ring.control->arm, &none, SOFTHCA_ARM_SOLICITED, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST);
    else
        __atomic_exchange_n(&cq->ring.control->arm, SOFTHCA_ARM_NEXT, __ATOMIC_SEQ_CST);
    full_barrier(); /* the program polls once more: it sees the completion that did not see this */
    unlock_spin(&cq->lock);
    return HOST(base->context)->dead;
}

/* ibv_start_poll … ibv_end_poll: the lock is held between them. */

static int next_entry(struct cq *cq)
{
    int found = take(cq, &cq->current);
    if (found <= 0)
        return found ? EIO : ENOENT;
    cq->ex.wr_id = cq->current.wr_id;
    cq->ex.status = cq->current.status;
    return 0;
}

static int start_poll(struct ibv_cq_ex *base, struct ibv_poll_cq_attr *attr)
{
    struct cq *cq = CQ(base);
    int error;
    if (attr->comp_mask)
        return EINVAL;
    lock_spin(&cq->lock);
    error = next_entry(cq);
    if (error) {
        ring_release(&cq->ring); /* nobody ends this poll, which may have gone by entries that are dropped */
        unlock_spin(&cq->lock);
        if (error == ENOENT && missed(cq))
            error = EIO;
    } else {
        cq->misses = 0;
    }
    return error;
}

static int next_poll(struct ibv_cq_ex *base)
{
    return next_entry(CQ(base));
}

static void end_poll(struct ibv_cq_ex *base)
{
    ring_release(&CQ(base)->ring);
    unlock_spin(&CQ(base)->lock);
}

static int read_opcode(struct ibv_cq_ex *base) { return CQ(base)->current.opcode; }
static uint32_t read_vendor_err(struct ibv_cq_ex *base) { return CQ(base)->current.vendor_err; }
static uint32_t read_byte_len(struct ibv_cq_ex *base) { return CQ(base)->current.byte_len; }
static uint32_t read_qp_num(struct ibv_cq_ex *base) { return CQ(base)->current.qp_num; }
static uint32_t read_src_qp(struct ibv_cq_ex *base) { return CQ(base)->current.src_qp; }
static unsigned read_wc_flags(struct ibv_cq_ex *base) { return CQ(base)->current.wc_flags; }
static uint32_t read_slid(struct ibv_cq_ex *base) { return CQ(base)->current.slid; }
static uint8_t read_sl(struct ibv_cq_ex *base) { return service_level(CQ(base), &CQ(base)->current); }
static uint8_t read_path_bits(struct ibv_cq_ex *base) { return CQ(base)->current.path_bits; }
static uint64_t read_timestamp(struct ibv_cq_ex *base) { return CQ(base)->current.timestamp_ns; }

static uint32_t read_imm_data(struct ibv_cq_ex *base)
{
    const struct softhca_cqe *cqe = &CQ(base)->current;
    return cqe->wc_flags & SOFTHCA_WC_WITH_IMM ? htonl(cqe->imm_or_key) : cqe->imm_or_key;
}

void cq_set_extended(struct cq *cq, uint64_t wc_flags)
{
    struct ibv_cq_ex *ex = &cq->ex;
    cq->wc_flags = wc_flags;
    ex->start_poll = start_poll;
    ex->next_poll = next_poll;
    ex->end_poll = end_poll;
    ex->read_opcode = read_opcode;
    ex->read_vendor_err = read_vendor_err;
    ex->read_byte_len = read_byte_len;
    ex->read_imm_data = read_imm_data;
    ex->read_qp_num = read_qp_num;
    ex->read_src_qp = read_src_qp;
    ex->read_wc_flags = read_wc_flags;
    ex->read_slid = read_slid;
    ex->read_sl = read_sl;
    ex->read_dlid_path_bits = read_path_bits;
    ex->read_completion_ts = read_timestamp;
}
