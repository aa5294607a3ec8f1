/* Receive-side scaling: work queues, tables of them, and queue pairs that receive by a table. */
#include "library.h"

enum {
    WQ_FLAGS = 1, /* of comp_mask, when one is made */
    WQT_RQ = 0,
    QPT_RAW_PACKET = 8,
    INIT_PD = 1, /* of a queue pair's comp_mask */
    INIT_CREATE_FLAGS = 4,
    INIT_IND_TABLE = 16,
    INIT_RX_HASH = 32
};

static int check_wq(const struct ibv_wq_init_attr *attr)
{
    if (attr->comp_mask & ~(uint32_t)WQ_FLAGS || attr->wq_type != WQT_RQ || !attr->pd || !attr->cq)
        return EINVAL;
    if (attr->comp_mask & WQ_FLAGS && attr->create_flags)
        return EOPNOTSUPP;
    return !attr->max_wr || !attr->max_sge || attr->max_sge > 4096 ? EINVAL : 0;
}

/* Its ring, and the command; errno. */
static int make_wq(struct host *host, struct wq *wq, const struct ibv_wq_init_attr *attr,
                   struct softhca_create_wq_reply *reply)
{
    struct softhca_create_wq fields = {.pd = attr->pd->handle, .cq = attr->cq->handle, .max_wr = attr->max_wr,
                                       .max_sge = attr->max_sge, .frames_count = 1};
    int error = host_make_ring(host, &wq->ring, attr->max_wr, (uint64_t)attr->max_wr
        * (sizeof(struct softhca_recv_wqe) + attr->max_sge * sizeof(struct softhca_sge)));
    error = error ? error : lend_ring(attr->pd, &wq->ring, RING_OF_WQ);
    if (error)
        return error;
    fields.entries = wq->ring.entries;
    fields.body_bytes = wq->ring.body_bytes;
    fields.frames = &wq->ring.run;
    CALL(host, error, create_wq, &fields, reply);
    return error ? error : host_believe(host, reply->doorbell < SOFTHCA_DOORBELL_SLOTS);
}

static struct ibv_wq *create_wq(struct ibv_context *base, struct ibv_wq_init_attr *attr)
{
    struct context *context = CONTEXT(base);
    struct softhca_create_wq_reply reply;
    int error = check_wq(attr);
    struct wq *wq = error ? NULL : calloc(1, sizeof *wq);
    if (!wq)
        return failed(error ? error : ENOMEM);
    error = make_wq(context->host, wq, attr, &reply);
    if (error) {
        host_free_ring(context->host, &wq->ring);
        free(wq);
        return failed(error);
    }
    wq->doorbell = reply.doorbell;
    wq->max_sge = attr->max_sge;
    wq->wq.context = base;
    wq->wq.wq_context = attr->wq_context;
    wq->wq.pd = attr->pd;
    wq->wq.cq = attr->cq;
    wq->wq.wq_num = wq->wq.handle = reply.wq_num;
    wq->wq.wq_type = attr->wq_type;
    wq->wq.post_recv = post_wq_recv;
    pthread_mutex_init(&wq->wq.mutex, NULL);
    pthread_cond_init(&wq->wq.cond, NULL);
    cq_use(attr->cq, 1);
    table_add(context, &context->wqs, &wq->entry, reply.wq_num, wq);
    return &wq->wq;
}

static int modify_wq(struct ibv_wq *base, struct ibv_wq_attr *attr)
{
    struct softhca_modify_wq fields = {.wq_num = base->wq_num, .attr_mask = attr->attr_mask,
                                       .wq_state = (uint32_t)attr->wq_state,
                                       .curr_wq_state = (uint32_t)attr->curr_wq_state};
    int former = base->state, moves = attr->attr_mask & SOFTHCA_WQ_STATE, error;
    int resets = moves && attr->wq_state == (int)SOFTHCA_WQS_RESET;
    if (resets)
        base->state = attr->wq_state; /* the adapter drops what is posted: nothing may be posted behind that */
    TELL(HOST(base->context), error, modify_wq, &fields);
    if (error) {
        base->state = former;
        return said(error);
    }
    if (moves)
        base->state = attr->wq_state;
    if (resets)
        cq_drop(CQ(base->cq), base->wq_num);
    return 0;
}

static int destroy_wq(struct ibv_wq *base)
{
    struct wq *wq = WQ(base);
    struct context *context = CONTEXT(base->context);
    struct softhca_destroy_wq fields = {.wq_num = base->wq_num};
    int error;
    TELL(context->host, error, destroy_wq, &fields);
    if (error && !context->host->dead)
        return said(error);
    table_remove(context, &context->wqs, &wq->entry);
    cq_drop(CQ(base->cq), base->wq_num);
    cq_use(base->cq, -1u);
    await_acknowledged(&base->mutex, &base->cond, &base->events_completed, wq->async_events_got);
    host_free_ring(context->host, &wq->ring);
    pthread_mutex_destroy(&base->mutex);
    pthread_cond_destroy(&base->cond);
    free(wq);
    return 0;
}

static struct ibv_rwq_ind_table *create_rwq_ind_table(struct ibv_context *base,
                                                      struct ibv_rwq_ind_table_init_attr *attr)
{
    struct softhca_create_rwq_ind_table fields = {.log_ind_tbl_size = attr->log_ind_tbl_size};
    struct softhca_create_rwq_ind_table_reply reply;
    struct ibv_rwq_ind_table *table;
    struct softhca_run *runs;
    uint32_t entries, count = 0;
    int error;
    if (attr->comp_mask || attr->log_ind_tbl_size > 31
        || 1u << attr->log_ind_tbl_size > SOFTHCA_MAX_RWQ_IND_TABLE_ENTRIES || !attr->ind_tbl)
        return failed(EINVAL);
    entries = 1u << attr->log_ind_tbl_size;
    table = calloc(1, sizeof *table);
    runs = calloc(entries, sizeof *runs);
    error = table && runs ? 0 : ENOMEM;
    for (uint32_t i = 0; !error && i < entries; i++) {
        if (!attr->ind_tbl[i])
            error = EINVAL;
        else if (count && runs[count - 1].first == attr->ind_tbl[i]->wq_num)
            runs[count - 1].count++;
        else
            runs[count++] = (struct softhca_run){attr->ind_tbl[i]->wq_num, 1};
    }
    if (!error) {
        fields.wqs = runs;
        fields.wqs_count = count;
        CALL(HOST(base), error, create_rwq_ind_table, &fields, &reply);
    }
    free(runs);
    if (error) {
        free(table);
        return failed(error);
    }
    table->context = base;
    table->ind_tbl_handle = table->ind_tbl_num = (int)reply.rwq_ind_tbl;
    return table;
}

static int destroy_rwq_ind_table(struct ibv_rwq_ind_table *table)
{
    struct softhca_destroy_rwq_ind_table fields = {.rwq_ind_tbl = (uint32_t)table->ind_tbl_num};
    struct host *host = HOST(table->context);
    int error;
    TELL(host, error, destroy_rwq_ind_table, &fields);
    if (error && !host->dead)
        return said(error);
    free(table);
    return 0;
}

static int check_scaled(const struct ibv_qp_init_attr_ex *attr)
{
    const uint32_t needed = INIT_PD | INIT_IND_TABLE | INIT_RX_HASH;
    if (attr->comp_mask & ~(needed | INIT_CREATE_FLAGS) || attr->qp_type != QPT_RAW_PACKET
        || (attr->comp_mask & INIT_CREATE_FLAGS && attr->create_flags))
        return EOPNOTSUPP;
    if ((attr->comp_mask & needed) != needed || !attr->pd || !attr->rwq_ind_tbl || attr->srq)
        return EINVAL;
    if (attr->cap.max_send_wr || attr->cap.max_recv_wr || attr->cap.max_recv_sge)
        return EINVAL;
    return attr->rx_hash_conf.rx_hash_key_len && !attr->rx_hash_conf.rx_hash_key ? EINVAL : 0;
}

struct ibv_qp *make_scaled_qp(struct ibv_context *base, struct ibv_qp_init_attr_ex *attr)
{
    const struct ibv_rx_hash_conf *hash = &attr->rx_hash_conf;
    struct ibv_qp_init_attr_ex seen = *attr;
    struct softhca_create_rss_qp_reply reply;
    int error = check_scaled(attr);
    struct qp *qp = error ? NULL : calloc(1, sizeof *qp);
    if (!qp)
        return failed(error ? error : ENOMEM);
    struct softhca_create_rss_qp fields = {.pd = attr->pd->handle,
        .rwq_ind_tbl = (uint32_t)attr->rwq_ind_tbl->ind_tbl_num, .rx_hash_function = hash->rx_hash_function,
        .rx_hash_fields_mask = hash->rx_hash_fields_mask, .rx_hash_key = hash->rx_hash_key,
        .rx_hash_key_bytes = hash->rx_hash_key_len};
    CALL(HOST(base), error, create_rss_qp, &fields, &reply);
    error = error ? error : host_believe(HOST(base), reply.doorbell < SOFTHCA_DOORBELL_SLOTS);
    if (error) {
        free(qp);
        return failed(error);
    }
    qp->doorbell = reply.doorbell;
    memset(&attr->cap, 0, sizeof attr->cap);
    seen.send_cq = seen.recv_cq = NULL; /* nothing completes there */
    enter_qp(base, qp, &seen, reply.qp_num);
    return &qp->ex.base;
}

void set_scaling_ops(struct verbs_front *front)
{
    front->create_wq = create_wq;
    front->modify_wq = modify_wq;
    front->destroy_wq = destroy_wq;
    front->create_rwq_ind_table = create_rwq_ind_table;
    front->destroy_rwq_ind_table = destroy_rwq_ind_table;
}
