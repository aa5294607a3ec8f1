/* Completion channels and asynchronous events. */
#include "library.h"

#include <sys/eventfd.h>
#include <unistd.h>

int events_open(struct context *context)
{
    context->context.async_fd = eventfd(0, EFD_CLOEXEC);
    return context->context.async_fd < 0 ? errno : 0;
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
    (void)base;
    return failed(EOPNOTSUPP);
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    (void)channel;
    return said(EOPNOTSUPP);
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
    (void)channel, (void)cq, (void)cq_context;
    errno = EOPNOTSUPP;
    return -1;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += count;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

EXPORT int ibv_get_async_event(struct ibv_context *base, struct ibv_async_event *event)
{
    (void)base, (void)event;
    errno = EOPNOTSUPP;
    return -1;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
}
