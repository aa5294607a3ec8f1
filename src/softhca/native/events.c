/* Completion channels and asynchronous events: each is an event channel of the adapter's, whose descriptor
   the program may poll.  Whoever waits blocks in read(), so that signals and cancellation do what they do
   there. */
#include "library.h"

#include <unistd.h>

int events_open(struct context *context)
{
    uint32_t number;
    return host_open_channel(context->host, 1, &number, &context->context.async_fd);
}

/* The next event of a channel; errno, EIO once the adapter has gone. */
static int read_event(int descriptor, struct softhca_event *event)
{
    ssize_t got = read(descriptor, event, sizeof *event);
    if (got == (ssize_t)sizeof *event)
        return 0;
    return got < 0 ? errno : EIO;
}

void await_acknowledged(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *completed, uint32_t got)
{
    pthread_mutex_lock(mutex);
    while (*completed != got)
        pthread_cond_wait(cond, mutex);
    pthread_mutex_unlock(mutex);
}

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *base)
{
    struct channel *channel = calloc(1, sizeof *channel);
    int error;
    if (!channel)
        return failed(ENOMEM);
    channel->channel.context = base;
    error = host_open_channel(HOST(base), 0, &channel->number, &channel->channel.fd);
    if (error) {
        free(channel);
        return failed(error);
    }
    return &channel->channel;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *base)
{
    int busy;
    pthread_mutex_lock(&base->context->mutex);
    busy = base->refcnt;
    pthread_mutex_unlock(&base->context->mutex);
    if (busy)
        return said(EBUSY);
    close(base->fd);
    free(base);
    return 0;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **seen, void **cq_context)
{
    struct context *context = CONTEXT(channel->context);
    struct softhca_event event;
    struct cq *cq = NULL;
    while (!cq) {
        if (said(read_event(channel->fd, &event)))
            return -1;
        pthread_mutex_lock(&context->objects);
        if (event.kind == SOFTHCA_EVENT_COMPLETION)
            cq = table_find(&context->cqs, event.element); /* NULL: it was destroyed meanwhile */
        if (cq)
            cq->comp_events_got++;
        pthread_mutex_unlock(&context->objects);
    }
    *seen = &cq->ex.base;
    *cq_context = cq->ex.base.cq_context;
    return 0;
}

static void acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed, uint32_t count)
{
    pthread_mutex_lock(mutex);
    *completed += count;
    pthread_cond_broadcast(cond);
    pthread_mutex_unlock(mutex);
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    if (count)
        acknowledge(&cq->mutex, &cq->cond, &cq->comp_events_completed, count);
}

/* Whose events they are. */
static int of_cq(int kind)
{
    return kind == SOFTHCA_EVENT_CQ_ERR;
}

static int of_srq(int kind)
{
    return kind == SOFTHCA_EVENT_SRQ_ERR || kind == SOFTHCA_EVENT_SRQ_LIMIT_REACHED;
}

static int of_wq(int kind)
{
    return kind == SOFTHCA_EVENT_WQ_FATAL;
}

static int of_qp(int kind)
{
    return (kind >= (int)SOFTHCA_EVENT_QP_FATAL && kind <= (int)SOFTHCA_EVENT_PATH_MIG_ERR)
        || kind == SOFTHCA_EVENT_QP_LAST_WQE_REACHED;
}

/* Fill an event for the program, and count it; 0: what it is of was destroyed, or it is none of the
   verbs'. */
static int present(struct context *context, const struct softhca_event *from, struct ibv_async_event *to)
{
    int kind = (int)from->kind, known = 1;
    memset(to, 0, sizeof *to);
    to->event_type = kind;
    pthread_mutex_lock(&context->objects);
    if (of_cq(kind)) {
        struct cq *cq = table_find(&context->cqs, from->element);
        known = cq != NULL;
        if (cq) {
            cq->async_events_got++;
            to->element.cq = &cq->ex.base;
        }
    } else if (of_srq(kind)) {
        struct srq *srq = table_find(&context->srqs, from->element);
        known = srq != NULL;
        if (srq) {
            srq->async_events_got++;
            to->element.srq = &srq->srq;
        }
    } else if (of_wq(kind)) {
        struct wq *wq = table_find(&context->wqs, from->element);
        known = wq != NULL;
        if (wq) {
            wq->async_events_got++;
            to->element.wq = &wq->wq;
        }
    } else if (of_qp(kind)) {
        struct qp *qp = table_find(&context->qps, from->element);
        known = qp != NULL;
        if (qp) {
            qp->async_events_got++;
            to->element.qp = &qp->ex.base;
        }
    } else {
        known = from->kind <= SOFTHCA_EVENT_GID_CHANGE;
        to->element.port_num = (int)from->element;
    }
    pthread_mutex_unlock(&context->objects);
    return known;
}

EXPORT int ibv_get_async_event(struct ibv_context *base, struct ibv_async_event *event)
{
    struct context *context = CONTEXT(base);
    struct softhca_event raw;
    int error;
    do {
        error = read_event(base->async_fd, &raw);
        if (error == EIO && !atomic_exchange(&context->fatal_reported, 1)) {
            raw = (struct softhca_event){.kind = SOFTHCA_EVENT_DEVICE_FATAL}; /* the adapter has gone */
            error = 0;
        }
        if (said(error))
            return -1;
    } while (!present(context, &raw, event));
    return 0;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
    struct ibv_cq *cq = event->element.cq;
    struct ibv_srq *srq = event->element.srq;
    struct ibv_qp *qp = event->element.qp;
    struct ibv_wq *wq = event->element.wq;
    if (of_cq(event->event_type))
        acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed, 1);
    else if (of_srq(event->event_type))
        acknowledge(&srq->mutex, &srq->cond, &srq->events_completed, 1);
    else if (of_wq(event->event_type))
        acknowledge(&wq->mutex, &wq->cond, &wq->events_completed, 1);
    else if (of_qp(event->event_type))
        acknowledge(&qp->mutex, &qp->cond, &qp->events_completed, 1);
}
