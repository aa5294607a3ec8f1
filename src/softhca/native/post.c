/* Posting work: ibv_post_send, ibv_post_recv, ibv_post_srq_recv, and the builders of ibv_wr_start … */
#include "library.h"

#include <arpa/inet.h>

#define OPERATIONS 0x83ffu /* bit n: opcode n is an operation here */
#define KNOWN_FLAGS (SEND_FENCE | SEND_SIGNALED | SEND_SOLICITED | SEND_INLINE)

static int may_send(int state)
{
    return state >= (int)SOFTHCA_STATE_RTS && state <= (int)SOFTHCA_STATE_ERR;
}

static uint8_t entry_flags(unsigned flags)
{
    return (uint8_t)((flags & SEND_SIGNALED ? SOFTHCA_SIGNALED : 0) | (flags & SEND_FENCE ? SOFTHCA_FENCE : 0)
                     | (flags & SEND_SOLICITED ? SOFTHCA_SOLICITED : 0)
                     | (flags & SEND_INLINE ? SOFTHCA_INLINE : 0));
}

static void put_window(struct softhca_send_wqe *wqe, const struct ibv_mw *mw, uint32_t rkey,
                       const struct ibv_mw_bind_info *info)
{
    wqe->imm_or_key = rkey;
    wqe->rkey = mw->handle;
    wqe->remote_va = info->addr;
    wqe->compare_add = info->length;
    wqe->swap = (info->mr ? info->mr->lkey : 0) | (uint64_t)info->mw_access_flags << 32;
}

/* What the operation says of the other side; errno. */
static int put_operation(const struct qp *qp, const struct ibv_send_wr *wr, struct softhca_send_wqe *wqe)
{
    switch (wr->opcode) {
    case SOFTHCA_RDMA_WRITE_WITH_IMM:
    case SOFTHCA_SEND_WITH_IMM:
        wqe->imm_or_key = ntohl(wr->imm_or_key);
        break;
    case SOFTHCA_SEND_WITH_INV:
    case SOFTHCA_LOCAL_INV:
        wqe->imm_or_key = wr->imm_or_key;
        break;
    case SOFTHCA_BIND_MW:
        if (!wr->bind_mw.mw)
            return EINVAL;
        put_window(wqe, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
        return 0;
    default:
        break;
    }
    /* of another operation the adapter says that datagrams have none: what it names is no address handle */
    if (qp->ex.base.qp_type == QPT_UD
        && (wr->opcode == SOFTHCA_SEND || wr->opcode == SOFTHCA_SEND_WITH_IMM)) {
        if (!wr->wr.ud.ah)
            return EINVAL;
        wqe->ah = wr->wr.ud.ah->handle;
        wqe->remote_qpn = wr->wr.ud.remote_qpn;
        wqe->remote_qkey = wr->wr.ud.remote_qkey;
    } else if (wr->opcode == SOFTHCA_ATOMIC_CMP_AND_SWP || wr->opcode == SOFTHCA_ATOMIC_FETCH_AND_ADD) {
        wqe->remote_va = wr->wr.atomic.remote_addr;
        wqe->rkey = wr->wr.atomic.rkey;
        wqe->compare_add = wr->wr.atomic.compare_add;
        wqe->swap = wr->wr.atomic.swap;
    } else if (wr->opcode != SOFTHCA_SEND && wr->opcode != SOFTHCA_SEND_WITH_IMM
               && wr->opcode != SOFTHCA_SEND_WITH_INV && wr->opcode != SOFTHCA_LOCAL_INV) {
        wqe->remote_va = wr->wr.rdma.remote_addr;
        wqe->rkey = wr->wr.rdma.rkey;
    }
    if (qp->ex.base.qp_type == QPT_XRC_SEND)
        wqe->remote_qpn = wr->remote_srqn;
    return 0;
}

/* Write the entry of a request to `place`; its bytes, or a negative errno. */
static int put_send(const struct qp *qp, const struct ibv_send_wr *wr, unsigned char *place)
{
    struct softhca_send_wqe wqe = {.wr_id = wr->wr_id, .opcode = (uint8_t)wr->opcode,
                                   .flags = entry_flags(wr->send_flags)};
    uint32_t bytes = sizeof wqe;
    int error;
    if ((unsigned)wr->opcode > 15 || !(OPERATIONS >> wr->opcode & 1) || wr->send_flags & ~KNOWN_FLAGS
        || wr->num_sge < 0)
        return -EINVAL;
    error = put_operation(qp, wr, &wqe);
    if (error)
        return -error;
    if (wr->opcode == SOFTHCA_LOCAL_INV || wr->opcode == SOFTHCA_BIND_MW) {
        /* no elements */
    } else if (wr->send_flags & SEND_INLINE) {
        for (int i = 0; i < wr->num_sge; i++) {
            if (wr->sg_list[i].length > qp->cap.max_inline_data - wqe.inline_bytes)
                return -EINVAL;
            if (!wr->sg_list[i].length)
                continue;
            memcpy(place + bytes, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
            bytes += wr->sg_list[i].length;
            wqe.inline_bytes += wr->sg_list[i].length;
        }
    } else {
        if ((uint32_t)wr->num_sge > qp->cap.max_send_sge)
            return -EINVAL;
        wqe.num_sge = (uint16_t)wr->num_sge;
        if (wqe.num_sge)
            memcpy(place + bytes, wr->sg_list, wqe.num_sge * sizeof(struct softhca_sge));
        bytes += wqe.num_sge * (uint32_t)sizeof(struct softhca_sge);
    }
    memcpy(place, &wqe, sizeof wqe);
    return (int)bytes;
}

void qp_retire_until(struct qp *qp, uint64_t retired)
{
    qp->retired_index = (uint32_t)(retired % qp->send.entries);
    __atomic_store_n(&qp->retired, retired, __ATOMIC_RELEASE);
}

/* The completion of a send was polled: it, and what stands before it, have their places no longer.  What was
   not signaled completes only in error, and is known by its wr_id then. */
void qp_retire(struct qp *qp, const struct softhca_cqe *cqe)
{
    uint64_t retired = qp->retired;
    uint32_t index = qp->retired_index;
    qp->failed |= !!cqe->status;
    if (cqe->status && qp->errors_left) {
        qp_retire_until(qp, qp->errors_end - --qp->errors_left);
        return;
    }
    for (uint32_t i = 0; i < qp->send.entries; i++) {
        const struct order *order = &qp->orders[index];
        if (++index == qp->send.entries)
            index = 0;
        retired++;
        if (cqe->status ? order->wr_id == cqe->wr_id : order->signaled) {
            qp->retired_index = index;
            __atomic_store_n(&qp->retired, retired, __ATOMIC_RELEASE);
            return;
        }
    }
}

static int send_has_room(struct qp *qp)
{
    return qp->send.tail - __atomic_load_n(&qp->retired, __ATOMIC_ACQUIRE) < qp->cap.max_send_wr
        && ring_has_room(&qp->send);
}

static void note_order(struct qp *qp, uint64_t wr_id, int signaled)
{
    qp->orders[qp->send.index] = (struct order){wr_id, signaled || qp->sq_sig_all};
}

static int post_one_send(struct qp *qp, const struct ibv_send_wr *wr)
{
    unsigned char *place;
    int bytes;
    if (!send_has_room(qp))
        return qp->send.broken ? EIO : ENOMEM;
    place = ring_place(&qp->send, qp->send_entry_bytes);
    bytes = put_send(qp, wr, place ? place : qp->scratch);
    if (bytes < 0)
        return -bytes;
    if (!place)
        ring_copy_in(&qp->send, qp->send.body_tail, qp->scratch, (uint32_t)bytes);
    note_order(qp, wr->wr_id, !!(wr->send_flags & SEND_SIGNALED));
    ring_add(&qp->send, (uint32_t)bytes);
    return 0;
}

int post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct qp *qp = QP(base);
    struct host *host = HOST(base->context);
    uint64_t before;
    int error = host->dead, written;
    lock_spin(&qp->send_lock);
    if (!error && (!may_send(base->state) || !qp->send.control))
        error = EINVAL;
    before = qp->send.tail;
    for (; wr && !error; wr = wr->next) {
        error = post_one_send(qp, wr);
        if (error)
            break;
    }
    written = before != qp->send.tail;
    if (written)
        ring_publish(&qp->send);
    unlock_spin(&qp->send_lock);
    if (written)
        host_ring(host, qp->doorbell);
    if (error && bad)
        *bad = wr;
    return error;
}

/* Write a receive into a ring; errno. */
static int post_one_receive(struct ring *ring, const struct ibv_recv_wr *wr, uint32_t max_sge)
{
    struct softhca_recv_wqe wqe = {.num_sge = (uint16_t)wr->num_sge, .wr_id = wr->wr_id};
    uint32_t bytes = sizeof wqe + (uint32_t)wr->num_sge * (uint32_t)sizeof(struct softhca_sge);
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > max_sge)
        return EINVAL;
    if (!ring_has_room(ring))
        return ring->broken ? EIO : ENOMEM;
    ring_copy_in(ring, ring->body_tail, &wqe, sizeof wqe);
    if (wr->num_sge)
        ring_copy_in(ring, (uint32_t)((ring->body_tail + sizeof wqe) % ring->body_bytes), wr->sg_list,
                     bytes - (uint32_t)sizeof wqe);
    ring_add(ring, bytes);
    return 0;
}

int post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct qp *qp = QP(base);
    struct host *host = HOST(base->context);
    uint64_t before;
    int error = host->dead, written;
    lock_spin(&qp->recv_lock);
    if (!error && (base->state == SOFTHCA_STATE_RESET || !qp->recv.control))
        error = EINVAL;
    if (!error && !qp->cap.max_recv_wr)
        error = ENOMEM;
    before = qp->recv.tail;
    for (; wr && !error; wr = wr->next) {
        error = post_one_receive(&qp->recv, wr, qp->cap.max_recv_sge);
        if (error)
            break;
    }
    written = before != qp->recv.tail;
    if (written)
        ring_publish(&qp->recv);
    unlock_spin(&qp->recv_lock);
    if (written)
        host_ring(host, qp->doorbell); /* also in the error state, where the adapter flushes it */
    if (error && bad)
        *bad = wr;
    return error;
}

int post_srq_recv(struct ibv_srq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct srq *srq = SRQ(base);
    uint64_t before;
    int error = HOST(base->context)->dead;
    lock_spin(&srq->lock);
    before = srq->ring.tail;
    for (; wr && !error; wr = wr->next) {
        error = post_one_receive(&srq->ring, wr, srq->max_sge);
        if (error)
            break;
    }
    if (before != srq->ring.tail)
        ring_publish(&srq->ring);
    unlock_spin(&srq->lock);
    if (error && bad)
        *bad = wr;
    return error;
}

int post_wq_recv(struct ibv_wq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct wq *wq = WQ(base);
    struct host *host = HOST(base->context);
    uint64_t before;
    int error = host->dead, written;
    lock_spin(&wq->lock);
    if (!error && base->state == SOFTHCA_WQS_RESET)
        error = EINVAL;
    before = wq->ring.tail;
    for (; wr && !error; wr = wr->next) {
        error = post_one_receive(&wq->ring, wr, wq->max_sge);
        if (error)
            break;
    }
    written = before != wq->ring.tail;
    if (written)
        ring_publish(&wq->ring);
    unlock_spin(&wq->lock);
    if (written)
        host_ring(host, wq->doorbell); /* in the error state the adapter flushes it */
    if (error && bad)
        *bad = wr;
    return error;
}

/* The builders: between ibv_wr_start and ibv_wr_complete or ibv_wr_abort the send queue is locked.  An
   operation is written when the next one begins, or at the end; nothing is published before. */

static struct softhca_send_wqe *header_of(struct qp *qp)
{
    return (struct softhca_send_wqe *)qp->batch_entry;
}

/* Write the operation that was being built into the ring. */
static void settle(struct qp *qp)
{
    if (!qp->built || qp->batch_error)
        return;
    ring_copy_in(&qp->send, qp->send.body_tail, qp->batch_entry, qp->batch_bytes);
    note_order(qp, header_of(qp)->wr_id, header_of(qp)->flags & SOFTHCA_SIGNALED);
    ring_add(&qp->send, qp->batch_bytes);
    qp->built = 0;
}

static struct softhca_send_wqe *begin(struct ibv_qp_ex *base, int opcode)
{
    struct qp *qp = QP(base);
    struct softhca_send_wqe *wqe = header_of(qp);
    settle(qp);
    if (!qp->batch_error && !send_has_room(qp))
        qp->batch_error = ENOMEM;
    if (!qp->batch_error && base->wr_flags & ~KNOWN_FLAGS)
        qp->batch_error = EINVAL;
    memset(wqe, 0, sizeof *wqe);
    wqe->opcode = (uint8_t)opcode;
    wqe->flags = entry_flags(base->wr_flags & ~SEND_INLINE);
    wqe->wr_id = base->wr_id;
    qp->batch_bytes = sizeof *wqe;
    qp->built = 1;
    return wqe;
}

static void start(struct ibv_qp_ex *base)
{
    struct qp *qp = QP(base);
    lock_spin(&qp->send_lock);
    qp->begun = qp->send;
    qp->built = 0;
    qp->batch_error = HOST(base->base.context)->dead ? EIO : may_send(base->base.state) ? 0 : EINVAL;
}

static void abort_batch(struct ibv_qp_ex *base)
{
    struct qp *qp = QP(base);
    qp->send = qp->begun;
    qp->built = 0;
    unlock_spin(&qp->send_lock);
}

static int complete(struct ibv_qp_ex *base)
{
    struct qp *qp = QP(base);
    int error, written;
    settle(qp);
    error = (int)qp->batch_error;
    if (error) {
        abort_batch(base);
        return error;
    }
    written = qp->send.tail != qp->begun.tail;
    if (written)
        ring_publish(&qp->send);
    unlock_spin(&qp->send_lock);
    if (written)
        host_ring(HOST(base->base.context), qp->doorbell);
    return 0;
}

static void wr_rdma(struct ibv_qp_ex *base, int opcode, uint32_t rkey, uint64_t address)
{
    struct softhca_send_wqe *wqe = begin(base, opcode);
    wqe->rkey = rkey;
    wqe->remote_va = address;
}

static void wr_rdma_read(struct ibv_qp_ex *base, uint32_t rkey, uint64_t address)
{
    wr_rdma(base, SOFTHCA_RDMA_READ, rkey, address);
}

static void wr_rdma_write(struct ibv_qp_ex *base, uint32_t rkey, uint64_t address)
{
    wr_rdma(base, SOFTHCA_RDMA_WRITE, rkey, address);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *base, uint32_t rkey, uint64_t address, uint32_t imm)
{
    wr_rdma(base, SOFTHCA_RDMA_WRITE_WITH_IMM, rkey, address);
    header_of(QP(base))->imm_or_key = ntohl(imm);
}

static void wr_send(struct ibv_qp_ex *base)
{
    begin(base, SOFTHCA_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *base, uint32_t imm)
{
    begin(base, SOFTHCA_SEND_WITH_IMM)->imm_or_key = ntohl(imm);
}

static void wr_send_inv(struct ibv_qp_ex *base, uint32_t rkey)
{
    begin(base, SOFTHCA_SEND_WITH_INV)->imm_or_key = rkey;
}

static void wr_local_inv(struct ibv_qp_ex *base, uint32_t rkey)
{
    begin(base, SOFTHCA_LOCAL_INV)->imm_or_key = rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *base, struct ibv_mw *mw, uint32_t rkey,
                       const struct ibv_mw_bind_info *info)
{
    put_window(begin(base, SOFTHCA_BIND_MW), mw, rkey, info);
}

static void wr_cmp_swp(struct ibv_qp_ex *base, uint32_t rkey, uint64_t address, uint64_t compare,
                       uint64_t swap)
{
    wr_rdma(base, SOFTHCA_ATOMIC_CMP_AND_SWP, rkey, address);
    header_of(QP(base))->compare_add = compare;
    header_of(QP(base))->swap = swap;
}

static void wr_fetch_add(struct ibv_qp_ex *base, uint32_t rkey, uint64_t address, uint64_t add)
{
    wr_rdma(base, SOFTHCA_ATOMIC_FETCH_AND_ADD, rkey, address);
    header_of(QP(base))->compare_add = add;
}

static void refuse(struct ibv_qp_ex *base, int error)
{
    if (!QP(base)->batch_error)
        QP(base)->batch_error = (uint32_t)error;
}

static void wr_send_tso(struct ibv_qp_ex *base, void *header, uint16_t bytes, uint16_t mss)
{
    (void)header, (void)bytes, (void)mss;
    refuse(base, EOPNOTSUPP);
}

static void wr_flush(struct ibv_qp_ex *base, uint32_t rkey, uint64_t address, size_t length, uint8_t type,
                     uint8_t level)
{
    wr_rdma(base, SOFTHCA_FLUSH, rkey, address);
    header_of(QP(base))->compare_add = length;
    /* a type that does not fit is none, which is refused */
    header_of(QP(base))->swap = type < 16 ? type | (uint64_t)level << 4 : 0;
}

static void set_ud_addr(struct ibv_qp_ex *base, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
    struct softhca_send_wqe *wqe = header_of(QP(base));
    wqe->ah = ah->handle;
    wqe->remote_qpn = qpn;
    wqe->remote_qkey = qkey;
}

static void set_xrc_srqn(struct ibv_qp_ex *base, uint32_t number)
{
    header_of(QP(base))->remote_qpn = number;
}

static void add_inline(struct qp *qp, const void *data, size_t bytes)
{
    struct softhca_send_wqe *wqe = header_of(qp);
    if (bytes > qp->cap.max_inline_data - wqe->inline_bytes) {
        refuse(&qp->ex, EINVAL);
        return;
    }
    memcpy(qp->batch_entry + qp->batch_bytes, data, bytes);
    wqe->flags |= SOFTHCA_INLINE;
    wqe->inline_bytes += (uint32_t)bytes;
    qp->batch_bytes += (uint32_t)bytes;
}

static void set_inline_data(struct ibv_qp_ex *base, void *data, size_t bytes)
{
    add_inline(QP(base), data, bytes);
}

static void set_inline_data_list(struct ibv_qp_ex *base, size_t count, const struct ibv_data_buf *list)
{
    for (size_t i = 0; i < count; i++)
        add_inline(QP(base), list[i].addr, list[i].length);
}

static void set_sge_list(struct ibv_qp_ex *base, size_t count, const struct ibv_sge *list)
{
    struct qp *qp = QP(base);
    struct softhca_send_wqe *wqe = header_of(qp);
    if (count > qp->cap.max_send_sge) {
        refuse(base, EINVAL);
        return;
    }
    wqe->num_sge = (uint16_t)count;
    memcpy(qp->batch_entry + sizeof *wqe, list, count * sizeof *list);
    qp->batch_bytes = (uint32_t)(sizeof *wqe + count * sizeof *list);
}

static void set_sge(struct ibv_qp_ex *base, uint32_t lkey, uint64_t address, uint32_t length)
{
    struct ibv_sge one = {address, length, lkey};
    set_sge_list(base, 1, &one);
}

static void wr_atomic_write(struct ibv_qp_ex *base, uint32_t rkey, uint64_t address, const void *value)
{
    wr_rdma(base, SOFTHCA_ATOMIC_WRITE, rkey, address);
    memcpy(&header_of(QP(base))->compare_add, value, 8);
}

void qp_set_extended(struct qp *qp)
{
    struct ibv_qp_ex *ex = &qp->ex;
    qp->extended = 1;
    ex->atomic_cmp_swp = wr_cmp_swp;
    ex->atomic_fetch_add = wr_fetch_add;
    ex->bind_mw = wr_bind_mw;
    ex->local_inv = wr_local_inv;
    ex->rdma_read = wr_rdma_read;
    ex->rdma_write = wr_rdma_write;
    ex->rdma_write_imm = wr_rdma_write_imm;
    ex->send = wr_send;
    ex->send_imm = wr_send_imm;
    ex->send_inv = wr_send_inv;
    ex->send_tso = wr_send_tso;
    ex->set_ud_addr = set_ud_addr;
    ex->set_xrc_srqn = set_xrc_srqn;
    ex->set_inline_data = set_inline_data;
    ex->set_inline_data_list = set_inline_data_list;
    ex->set_sge = set_sge;
    ex->set_sge_list = set_sge_list;
    ex->start = start;
    ex->complete = complete;
    ex->abort = abort_batch;
    ex->atomic_write = wr_atomic_write;
    ex->flush = wr_flush;
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *base)
{
    return QP(base)->extended ? &QP(base)->ex : NULL;
}
