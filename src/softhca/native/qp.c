/* Queue pairs and shared receive queues: making, modifying, asking, destroying. */
#include "library.h"

#define MOST_GIVEN 16 /* elements whose room is given for inline data */
#define DEAD_BITS (15u << 21) /* attribute bits that were Ethernet's once */

static uint32_t most(uint32_t one, uint32_t other)
{
    return one > other ? one : other;
}

static uint32_t least(uint32_t one, uint32_t other)
{
    return one < other ? one : other;
}

static int make_rings(struct host *host, struct ibv_pd *pd, struct qp *qp,
                      const struct softhca_create_qp *fields, int sends, int receives)
{
    uint32_t entries = most(fields->max_send_wr, 1);
    int error = 0;
    qp->send_entry_bytes = (uint32_t)(sizeof(struct softhca_send_wqe)
        + most(fields->max_send_sge * (uint32_t)sizeof(struct softhca_sge), fields->max_inline_data));
    qp->recv_entry_bytes = (uint32_t)(sizeof(struct softhca_recv_wqe)
        + fields->max_recv_sge * sizeof(struct softhca_sge));
    if (fields->max_send_sge > 4096 || fields->max_recv_sge > 4096 || fields->max_inline_data > 1 << 16)
        return EINVAL;
    if (sends) {
        error = host_make_ring(host, &qp->send, entries, (uint64_t)entries * qp->send_entry_bytes);
        error = error ? error : lend_ring(pd, &qp->send, RING_OF_QP);
        qp->scratch = error ? NULL : calloc(1, qp->send_entry_bytes);
        qp->batch_entry = error ? NULL : calloc(1, qp->send_entry_bytes);
        qp->orders = error ? NULL : calloc(entries, sizeof *qp->orders);
        if (!error && (!qp->scratch || !qp->batch_entry || !qp->orders))
            error = ENOMEM;
    }
    entries = most(fields->max_recv_wr, 1);
    if (!error && receives)
        error = host_make_ring(host, &qp->recv, entries, (uint64_t)entries * qp->recv_entry_bytes);
    if (!error && receives)
        error = lend_ring(pd, &qp->recv, RING_OF_QP);
    return error;
}

static void free_qp(struct host *host, struct qp *qp)
{
    host_free_ring(host, &qp->send);
    host_free_ring(host, &qp->recv);
    free(qp->scratch);
    free(qp->batch_entry);
    free(qp->orders);
    free(qp);
}

void enter_qp(struct ibv_context *base, struct qp *qp, const struct ibv_qp_init_attr_ex *attr, uint32_t number)
{
    struct context *context = CONTEXT(base);
    struct ibv_qp *seen = &qp->ex.base;
    seen->context = base;
    seen->qp_context = attr->qp_context;
    seen->pd = attr->comp_mask & 1 ? attr->pd : NULL;
    seen->send_cq = attr->send_cq;
    seen->recv_cq = attr->recv_cq;
    seen->srq = attr->srq;
    seen->qp_type = attr->qp_type;
    pthread_mutex_init(&seen->mutex, NULL);
    pthread_cond_init(&seen->cond, NULL);
    seen->qp_num = seen->handle = number;
    table_add(context, &context->qps, &qp->entry, number, qp);
}

static void fill_fields(const struct ibv_qp_init_attr_ex *attr, struct softhca_create_qp *fields)
{
    int target = attr->qp_type == QPT_XRC_RECV, initiator = attr->qp_type == QPT_XRC_SEND;
    *fields = (struct softhca_create_qp){.qp_type = (uint8_t)attr->qp_type, .sq_sig_all = !!attr->sq_sig_all};
    if (target) {
        fields->xrcd = attr->comp_mask & 2 && attr->xrcd ? ((struct xrcd *)attr->xrcd)->number : 0;
        return;
    }
    fields->pd = attr->comp_mask & 1 && attr->pd ? attr->pd->handle : 0;
    fields->send_cq = attr->send_cq ? attr->send_cq->handle : 0;
    fields->max_send_wr = attr->cap.max_send_wr;
    fields->max_send_sge = attr->cap.max_send_sge;
    /* An entry has the room of its elements for inline data too; programs count on some that asked for none. */
    fields->max_inline_data = most(attr->cap.max_inline_data, least(attr->cap.max_send_sge, MOST_GIVEN)
                                   * (uint32_t)sizeof(struct softhca_sge));
    if (initiator)
        return;
    fields->recv_cq = attr->recv_cq ? attr->recv_cq->handle : 0;
    fields->srq = attr->srq ? attr->srq->handle : 0;
    fields->max_recv_wr = attr->cap.max_recv_wr;
    fields->max_recv_sge = attr->cap.max_recv_sge;
}

/* Whether entries with all that a queue pair is said to have fit into its rings, and its doorbell exists. */
static int is_believable(const struct qp *qp, const struct softhca_create_qp_reply *reply)
{
    uint64_t sends = sizeof(struct softhca_send_wqe), elements = sizeof(struct softhca_sge);
    if (reply->doorbell >= SOFTHCA_DOORBELL_SLOTS)
        return 0;
    if (qp->send.control && (reply->max_send_wr > qp->send.entries
                             || sends + reply->max_inline_data > qp->send_entry_bytes
                             || sends + reply->max_send_sge * elements > qp->send_entry_bytes))
        return 0;
    return !qp->recv.control || (reply->max_recv_wr <= qp->recv.entries
        && sizeof(struct softhca_recv_wqe) + reply->max_recv_sge * elements <= qp->recv_entry_bytes);
}

struct ibv_qp *make_qp(struct ibv_context *base, struct ibv_qp_init_attr_ex *attr)
{
    struct context *context = CONTEXT(base);
    int sends = attr->qp_type != QPT_XRC_RECV,
        receives = sends && attr->qp_type != QPT_XRC_SEND && !attr->srq;
    struct softhca_create_qp fields;
    struct softhca_create_qp_reply reply;
    struct qp *qp = calloc(1, sizeof *qp);
    int error;
    if (!qp)
        return failed(ENOMEM);
    fill_fields(attr, &fields);
    error = make_rings(context->host, attr->comp_mask & 1 ? attr->pd : NULL, qp, &fields, sends, receives);
    if (!error) {
        fields.send_entries = qp->send.entries;
        fields.send_body_bytes = qp->send.body_bytes;
        fields.send_frames = &qp->send.run;
        fields.send_frames_count = !!sends;
        fields.recv_entries = qp->recv.entries;
        fields.recv_body_bytes = qp->recv.body_bytes;
        fields.recv_frames = &qp->recv.run;
        fields.recv_frames_count = !!receives;
        CALL(context->host, error, create_qp, &fields, &reply);
        error = error ? error : host_believe(context->host, is_believable(qp, &reply));
    }
    if (error) {
        free_qp(context->host, qp);
        return failed(error);
    }
    qp->cap = (struct ibv_qp_cap){reply.max_send_wr, reply.max_recv_wr, reply.max_send_sge,
        reply.max_recv_sge,
                                  reply.max_inline_data};
    attr->cap = qp->cap;
    qp->sq_sig_all = attr->sq_sig_all;
    qp->doorbell = reply.doorbell;
    enter_qp(base, qp, attr, reply.qp_num);
    cq_use(attr->send_cq, 1);
    cq_use(attr->recv_cq, 1);
    return &qp->ex.base;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct ibv_qp_init_attr_ex extended = {0};
    struct ibv_qp *qp;
    memcpy(&extended, attr, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
    extended.comp_mask = 1;
    extended.pd = pd;
    qp = make_qp(pd->context, &extended);
    if (qp)
        attr->cap = extended.cap;
    return qp;
}

/* The completions of a queue pair that are there now are never polled. */
static void drop_completions(struct ibv_qp *base)
{
    if (base->send_cq)
        cq_drop(CQ(base->send_cq), base->qp_num);
    if (base->recv_cq && base->recv_cq != base->send_cq)
        cq_drop(CQ(base->recv_cq), base->qp_num);
}

EXPORT int ibv_destroy_qp(struct ibv_qp *base)
{
    struct qp *qp = QP(base);
    struct context *context = CONTEXT(base->context);
    struct softhca_destroy_qp fields = {.qp_num = base->qp_num};
    int error;
    TELL(context->host, error, destroy_qp, &fields);
    if (error && !context->host->dead)
        return said(error);
    table_remove(context, &context->qps, &qp->entry);
    drop_completions(base);
    cq_use(base->send_cq, -1u);
    cq_use(base->recv_cq, -1u);
    await_acknowledged(&base->mutex, &base->cond, &base->events_completed, qp->async_events_got);
    pthread_mutex_destroy(&base->mutex);
    pthread_cond_destroy(&base->cond);
    free_qp(context->host, qp);
    return 0;
}

#define VECTOR_TO(fields, prefix, vector)                                                                  \
    do {                                                                                                   \
        memcpy((fields).prefix##dgid, &(vector).grh.dgid, 16);                                             \
        (fields).prefix##flow_label = (vector).grh.flow_label & 0xfffff;                                   \
        (fields).prefix##dlid = (vector).dlid;                                                            \
        (fields).prefix##sgid_index = (vector).grh.sgid_index;                                             \
        (fields).prefix##hop_limit = (vector).grh.hop_limit;                                               \
        (fields).prefix##traffic_class = (vector).grh.traffic_class;                                       \
        (fields).prefix##sl = (vector).sl;                                                                 \
        (fields).prefix##src_path_bits = (vector).src_path_bits;                                           \
        (fields).prefix##static_rate = (vector).static_rate;                                               \
        (fields).prefix##is_global = (vector).is_global;                                                   \
        (fields).prefix##port_num = (vector).port_num;                                                     \
    } while (0)
#define VECTOR_FROM(fields, prefix, vector)                                                                \
    do {                                                                                                   \
        memcpy(&(vector).grh.dgid, (fields).prefix##dgid, 16);                                             \
        (vector).grh.flow_label = (fields).prefix##flow_label;                                             \
        (vector).dlid = (fields).prefix##dlid;                                                             \
        (vector).grh.sgid_index = (fields).prefix##sgid_index;                                             \
        (vector).grh.hop_limit = (fields).prefix##hop_limit;                                               \
        (vector).grh.traffic_class = (fields).prefix##traffic_class;                                       \
        (vector).sl = (fields).prefix##sl;                                                                 \
        (vector).src_path_bits = (fields).prefix##src_path_bits;                                           \
        (vector).static_rate = (fields).prefix##static_rate;                                               \
        (vector).is_global = (fields).prefix##is_global;                                                   \
        (vector).port_num = (fields).prefix##port_num;                                                     \
    } while (0)
#define EACH_ATTRIBUTE(each)                                                                               \
    each(qp_state) each(cur_qp_state) each(path_mtu) each(path_mig_state) each(qkey) each(rq_psn)          \
    each(sq_psn) each(dest_qp_num) each(qp_access_flags) each(pkey_index) each(alt_pkey_index)             \
    each(en_sqd_async_notify) each(max_rd_atomic) each(max_dest_rd_atomic) each(min_rnr_timer)             \
    each(port_num) each(timeout) each(retry_cnt) each(rnr_retry) each(alt_port_num) each(alt_timeout)       \
    each(rate_limit)

#define RNR_TIMER_BITS 31 /* those of the timer in an RNR NAK */

/* An XRC initiator responds to nothing and a target requests nothing: programs set attributes of both on
   both, and those that a side has no use for are left out, as the kernel does. */
static uint32_t meant(int qp_type, uint32_t mask)
{
    mask &= ~DEAD_BITS;
    if (qp_type == QPT_XRC_SEND)
        mask &= ~(SOFTHCA_ATTR_MAX_DEST_RD_ATOMIC | SOFTHCA_ATTR_MIN_RNR_TIMER);
    if (qp_type == QPT_XRC_RECV)
        mask &= ~(SOFTHCA_ATTR_MAX_RD_ATOMIC | SOFTHCA_ATTR_RETRY_CNT | SOFTHCA_ATTR_RNR_RETRY);
    return mask;
}

int modify_rate_limit(struct ibv_qp *base, struct ibv_qp_rate_limit_attr *attr)
{
    struct softhca_modify_qp fields = {.qp_num = base->qp_num, .attr_mask = SOFTHCA_ATTR_RATE_LIMIT,
                                       .rate_limit = attr->rate_limit, .max_burst_sz = attr->max_burst_sz,
                                       .typical_pkt_sz = attr->typical_pkt_sz};
    int error;
    if (attr->comp_mask) /* nothing is defined that it could name */
        return said(EINVAL);
    TELL(HOST(base->context), error, modify_qp, &fields);
    return said(error);
}

EXPORT int ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
    struct host *host = HOST(base->context);
    struct softhca_modify_qp fields = {.qp_num = base->qp_num,
                                       .attr_mask = meant(base->qp_type, (uint32_t)mask)};
    int state = mask & QP_STATE_BIT ? attr->qp_state : base->state, former = base->state, error;
    if (state < 0 || state > (int)SOFTHCA_STATE_ERR)
        return said(EINVAL);
    if ((uint32_t)mask & ~0x3ffffffu)
        return said(EOPNOTSUPP);
#define PUT(name) fields.name = (__typeof__(fields.name))attr->name;
    EACH_ATTRIBUTE(PUT)
#undef PUT
    fields.min_rnr_timer &= RNR_TIMER_BITS; /* whatever stands above them: as devices take it */
    VECTOR_TO(fields, ah_, attr->ah_attr);
    VECTOR_TO(fields, alt_ah_, attr->alt_ah_attr);
    fields.qp_access_flags &= 0x37f;
    if (state == SOFTHCA_STATE_RESET)
        base->state = state; /* the adapter drops what is posted: nothing may be posted behind that */
    TELL(host, error, modify_qp, &fields);
    if (error) {
        base->state = former;
        return said(error);
    }
    base->state = state;
    if (mask & QP_STATE_BIT && state == SOFTHCA_STATE_RTS && QP(base)->send.control)
        cq_goes_on(CQ(base->send_cq), QP(base));
    if (mask & QP_STATE_BIT && state == SOFTHCA_STATE_RESET) {
        drop_completions(base);
        QP(base)->failed = 0, QP(base)->errors_left = 0;
        lock_spin(&QP(base)->send_lock);
        __atomic_store_n(&QP(base)->retired, QP(base)->send.tail, __ATOMIC_RELEASE);
        QP(base)->retired_index = QP(base)->send.index;
        unlock_spin(&QP(base)->send_lock);
    }
    return 0;
}

EXPORT int ibv_query_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask,
                        struct ibv_qp_init_attr *init)
{
    struct qp *qp = QP(base);
    struct softhca_query_qp query = {.qp_num = base->qp_num};
    struct softhca_query_qp_reply fields;
    int error;
    CALL(HOST(base->context), error, query_qp, &query, &fields);
    if (error)
        return said(error);
    memset(attr, 0, sizeof *attr);
#define PUT(name) attr->name = (__typeof__(attr->name))fields.name;
    EACH_ATTRIBUTE(PUT)
#undef PUT
    attr->sq_draining = fields.sq_draining;
    VECTOR_FROM(fields, ah_, attr->ah_attr);
    VECTOR_FROM(fields, alt_ah_, attr->alt_ah_attr);
    attr->cap = qp->cap;
    if (mask & QP_STATE_BIT) /* who asks for something else does not want to know, as in libibverbs */
        base->state = attr->qp_state;
    if (init) {
        memset(init, 0, sizeof *init);
        *init = (struct ibv_qp_init_attr){.qp_context = base->qp_context, .send_cq = base->send_cq,
            .recv_cq = base->recv_cq, .srq = base->srq, .cap = qp->cap, .qp_type = base->qp_type,
            .sq_sig_all = qp->sq_sig_all};
    }
    return 0;
}

EXPORT int ibv_attach_mcast(struct ibv_qp *base, const union ibv_gid *gid, uint16_t lid)
{
    struct softhca_attach_mcast fields = {.qp_num = base->qp_num, .lid = lid};
    int error;
    memcpy(fields.gid, gid, sizeof fields.gid);
    TELL(HOST(base->context), error, attach_mcast, &fields);
    return said(error);
}

EXPORT int ibv_detach_mcast(struct ibv_qp *base, const union ibv_gid *gid, uint16_t lid)
{
    struct softhca_detach_mcast fields = {.qp_num = base->qp_num, .lid = lid};
    int error;
    memcpy(fields.gid, gid, sizeof fields.gid);
    TELL(HOST(base->context), error, detach_mcast, &fields);
    return said(refused_end(HOST(base->context), error));
}

/* Shared receive queues */

struct ibv_srq *make_srq(struct ibv_context *base, struct ibv_srq_init_attr_ex *attr)
{
    struct context *context = CONTEXT(base);
    struct softhca_create_srq fields = {.max_wr = attr->attr.max_wr, .max_sge = attr->attr.max_sge,
        .frames_count = 1};
    struct softhca_create_srq_reply reply;
    uint32_t type = attr->comp_mask & 1 ? (uint32_t)attr->srq_type : 0;
    struct srq *srq;
    int error;
    if (type > SOFTHCA_SRQT_XRC || attr->comp_mask & ~15u)
        return failed(EOPNOTSUPP);
    if (!(attr->comp_mask & 2) || (type == SOFTHCA_SRQT_XRC && (attr->comp_mask & 12) != 12))
        return failed(EINVAL);
    if (fields.max_sge > 4096 || !(srq = calloc(1, sizeof *srq)))
        return failed(fields.max_sge > 4096 ? EINVAL : ENOMEM);
    fields.max_sge = fields.max_sge ? fields.max_sge : 1;
    fields.pd = attr->pd->handle;
    fields.srq_type = (uint8_t)type;
    if (type == SOFTHCA_SRQT_XRC) {
        fields.cq = attr->cq->handle;
        fields.xrcd = ((struct xrcd *)attr->xrcd)->number;
    }
    error = host_make_ring(context->host, &srq->ring, fields.max_wr, (uint64_t)fields.max_wr
        * (sizeof(struct softhca_recv_wqe) + fields.max_sge * sizeof(struct softhca_sge)));
    error = error ? error : lend_ring(attr->pd, &srq->ring, RING_OF_SRQ);
    if (!error) {
        fields.entries = srq->ring.entries;
        fields.body_bytes = srq->ring.body_bytes;
        fields.frames = &srq->ring.run;
        CALL(context->host, error, create_srq, &fields, &reply);
        error = error ? error : host_believe(context->host, reply.max_wr <= srq->ring.entries
                                             && reply.max_sge <= fields.max_sge);
    }
    if (error) {
        host_free_ring(context->host, &srq->ring);
        free(srq);
        return failed(error);
    }
    srq->max_wr = attr->attr.max_wr = reply.max_wr;
    srq->max_sge = attr->attr.max_sge = reply.max_sge;
    srq->srq.context = base;
    srq->srq.srq_context = attr->srq_context;
    srq->srq.pd = attr->pd;
    srq->srq.handle = reply.srq;
    srq->cq = type == SOFTHCA_SRQT_XRC ? attr->cq : NULL;
    cq_use(srq->cq, 1);
    pthread_mutex_init(&srq->srq.mutex, NULL);
    pthread_cond_init(&srq->srq.cond, NULL);
    table_add(context, &context->srqs, &srq->entry, reply.srq, srq);
    return &srq->srq;
}

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    struct ibv_srq_init_attr_ex extended = {.srq_context = attr->srq_context, .attr = attr->attr,
        .comp_mask = 2,
                                            .pd = pd};
    struct ibv_srq *srq = make_srq(pd->context, &extended);
    if (srq)
        attr->attr = extended.attr;
    return srq;
}

EXPORT int ibv_modify_srq(struct ibv_srq *base, struct ibv_srq_attr *attr, int mask)
{
    struct softhca_modify_srq fields = {.srq = base->handle, .attr_mask = (uint32_t)mask,
        .max_wr = attr->max_wr,
                                        .srq_limit = attr->srq_limit};
    int error;
    TELL(HOST(base->context), error, modify_srq, &fields);
    return said(error);
}

EXPORT int ibv_query_srq(struct ibv_srq *base, struct ibv_srq_attr *attr)
{
    struct softhca_query_srq fields = {.srq = base->handle};
    struct softhca_query_srq_reply reply;
    int error;
    CALL(HOST(base->context), error, query_srq, &fields, &reply);
    if (!error)
        *attr = (struct ibv_srq_attr){reply.max_wr, reply.max_sge, reply.srq_limit};
    return said(error);
}

EXPORT int ibv_destroy_srq(struct ibv_srq *base)
{
    struct srq *srq = SRQ(base);
    struct context *context = CONTEXT(base->context);
    struct softhca_destroy_srq fields = {.srq = base->handle};
    int error;
    TELL(context->host, error, destroy_srq, &fields);
    if (error && !context->host->dead)
        return said(error);
    table_remove(context, &context->srqs, &srq->entry);
    cq_use(srq->cq, -1u);
    await_acknowledged(&base->mutex, &base->cond, &base->events_completed, srq->async_events_got);
    host_free_ring(context->host, &srq->ring);
    pthread_mutex_destroy(&base->mutex);
    pthread_cond_destroy(&base->cond);
    free(srq);
    return 0;
}
