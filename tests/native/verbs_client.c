/* A client of the library, linked with it, for what the distribution's programs do not try: threads, forks,
   unacknowledged events, RESET, resizing, memory that goes away, large blocks of the allocator.  verbs_client CASE: status 0 where all is
   right.  "storm" goes on for ever, and writes a byte to its output after each step. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verbs.h"

extern struct ibv_device **ibv_get_device_list(int *);
extern struct ibv_context *ibv_open_device(struct ibv_device *);
extern int ibv_close_device(struct ibv_context *);
extern int ibv_query_qp(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
extern struct ibv_pd *ibv_alloc_pd(struct ibv_context *);
extern int ibv_dealloc_pd(struct ibv_pd *);
extern struct ibv_mr *ibv_reg_mr(struct ibv_pd *, void *, size_t, int);
extern int ibv_dereg_mr(struct ibv_mr *);
extern struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *);
extern int ibv_destroy_comp_channel(struct ibv_comp_channel *);
extern struct ibv_srq *ibv_create_srq(struct ibv_pd *, struct ibv_srq_init_attr *);
extern int ibv_destroy_srq(struct ibv_srq *);
extern struct ibv_cq *ibv_create_cq(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
extern int ibv_resize_cq(struct ibv_cq *, int);
extern int ibv_destroy_cq(struct ibv_cq *);
extern int ibv_get_cq_event(struct ibv_comp_channel *, struct ibv_cq **, void **);
extern void ibv_ack_cq_events(struct ibv_cq *, unsigned);
extern int ibv_get_async_event(struct ibv_context *, struct ibv_async_event *);
extern void ibv_ack_async_event(struct ibv_async_event *);
extern struct ibv_qp *ibv_create_qp(struct ibv_pd *, struct ibv_qp_init_attr *);
extern int ibv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int);
extern int ibv_query_qp(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
extern int ibv_destroy_qp(struct ibv_qp *);
extern int ibv_attach_mcast(struct ibv_qp *, const union ibv_gid *, uint16_t);
extern int ibv_detach_mcast(struct ibv_qp *, const union ibv_gid *, uint16_t);
extern int ibv_query_gid(struct ibv_context *, uint8_t, int, union ibv_gid *);
extern int ibv_rereg_mr(struct ibv_mr *, int, struct ibv_pd *, void *, size_t, int);
extern int ibv_query_device(struct ibv_context *, struct ibv_device_attr *);
extern int ibv_query_port(struct ibv_context *, uint8_t, struct ibv_port_attr *);
extern struct ibv_dm *ibv_import_dm(struct ibv_context *, uint32_t);
extern struct ibv_ah *ibv_create_ah(struct ibv_pd *, struct ibv_ah_attr *);
extern int ibv_destroy_ah(struct ibv_ah *);
extern int ibv_query_ece(struct ibv_qp *, struct ibv_ece *);
extern int ibv_query_port_speed(struct ibv_context *, uint32_t, uint64_t *);
extern void *ibv_alloc_buf(struct ibv_pd *, size_t, struct ibv_buf **);
extern void ibv_free_buf(struct ibv_buf *);
extern int ibv_export_buf_dmabuf_fd(struct ibv_buf *);
extern struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *, struct ibv_buf *, void *, size_t, int);
extern struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *, struct ibv_mr_init_attr *);
extern struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *, struct ibv_dmah_init_attr *);
extern int ibv_dealloc_dmah(struct ibv_dmah *);
extern void *ibv_create_comp_cntr(struct ibv_context *, void *);
extern int ibv_read_comp_cntr(void *, uint64_t *);

#define CHECK(what) ((what) ? (void)0 : fail(__LINE__, #what))
#define BYTES (1u << 16)
#define DEPTH 64

static void fail(int line, const char *what)
{
    fprintf(stderr, "line %d: %s (errno %d)\n", line, what, errno);
    _exit(1);
}

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static unsigned char *data;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *pair[2];
static int storming, opened;

static void step(void)
{
    if (storming)
        CHECK(write(1, ".", 1) == 1);
}

static void connect_qp(struct ibv_qp *qp, uint32_t peer)
{
    struct ibv_qp_attr attr = {.qp_state = 1, .port_num = 1, .qp_access_flags = 15};
    CHECK(!ibv_modify_qp(qp, &attr, 0x39));
    step();
    attr = (struct ibv_qp_attr){.qp_state = 2, .path_mtu = 3, .dest_qp_num = peer, .max_dest_rd_atomic = 4,
                                .min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1}};
    attr.ah_attr.grh.hop_limit = 64;
    CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
    CHECK(!ibv_modify_qp(qp, &attr, 0x129181));
    attr = (struct ibv_qp_attr){.qp_state = 3, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
                                .max_rd_atomic = 4};
    CHECK(!ibv_modify_qp(qp, &attr, 0x12e01));
    CHECK(qp->state == 3);
    step();
}

static void connect_qp_again(struct ibv_qp *qp, uint32_t peer)
{
    struct ibv_qp_attr attr = {.qp_state = 0};
    CHECK(!ibv_modify_qp(qp, &attr, 1));
    connect_qp(qp, peer);
}

static void open_all(void)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_qp_init_attr init = {.cap = {DEPTH, DEPTH, 2, 2, 64}, .qp_type = 2};
    CHECK(list && count == 1);
    CHECK((context = ibv_open_device(list[0])));
    free(list);
    step();
    CHECK((pd = ibv_alloc_pd(context)));
    if (storming && opened++ % 2) {
        CHECK((data = memalign(4096, BYTES)));
    } else {
        data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(data != MAP_FAILED);
    }
    CHECK((mr = ibv_reg_mr(pd, data, BYTES, 15)));
    step();
    CHECK((channel = ibv_create_comp_channel(context)));
    CHECK((cq = ibv_create_cq(context, 4 * DEPTH, data, channel, 0)));
    CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
    step();
    init.send_cq = init.recv_cq = cq;
    for (int i = 0; i < 2; i++)
        CHECK((pair[i] = ibv_create_qp(pd, &init)));
    for (int i = 0; i < 2; i++)
        connect_qp(pair[i], pair[!i]->qp_num);
}

static void close_all(void)
{
    for (int i = 0; i < 2; i++)
        CHECK(!ibv_destroy_qp(pair[i]));
    step();
    CHECK(!ibv_destroy_cq(cq));
    CHECK(!ibv_destroy_comp_channel(channel));
    CHECK(!ibv_dereg_mr(mr));
    CHECK(!ibv_dealloc_pd(pd));
    step();
    CHECK(!ibv_close_device(context));
    if (storming && !(opened % 2))
        free(data);
    else
        munmap(data, BYTES);
}

static int post_write(uint64_t wr_id, uint64_t from, uint64_t to, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)data + from, length, mr->lkey};
    struct ibv_send_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .send_flags = 2}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)data + to;
    wr.wr.rdma.rkey = mr->rkey;
    return context->ops.post_send(pair[0], &wr, &bad);
}

static struct ibv_wc completion(void)
{
    struct ibv_wc wc;
    int count;
    while (!(count = context->ops.poll_cq(cq, 1, &wc)))
        ;
    CHECK(count == 1);
    return wc;
}

/* Many threads post to one queue pair and poll one queue: every request completes once. */
#define THREADS 4
#define EACH 300
static int seen[THREADS * EACH], done;

static void *poster(void *number)
{
    for (int i = 0; i < EACH; i++) {
        uint64_t wr_id = (uint64_t)(uintptr_t)number * EACH + (uint64_t)i;
        while (post_write(wr_id, 0, BYTES / 2, 64) == ENOMEM)
            sched_yield();
    }
    return NULL;
}

static void *poller(void *unused)
{
    struct ibv_wc wc[8];
    (void)unused;
    while (__atomic_load_n(&done, __ATOMIC_SEQ_CST) < THREADS * EACH) {
        int count = context->ops.poll_cq(cq, 8, wc);
        CHECK(count >= 0);
        for (int i = 0; i < count; i++) {
            CHECK(wc[i].status == 0 && wc[i].wr_id < THREADS * EACH);
            CHECK(__atomic_fetch_add(&seen[wc[i].wr_id], 1, __ATOMIC_SEQ_CST) == 0);
            __atomic_fetch_add(&done, 1, __ATOMIC_SEQ_CST);
        }
    }
    return NULL;
}

static void threads(void)
{
    pthread_t all[THREADS + 2];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&all[i], NULL, poster, (void *)i));
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&all[THREADS + i], NULL, poller, NULL));
    for (int i = 0; i < THREADS + 2; i++)
        CHECK(!pthread_join(all[i], NULL));
    CHECK(done == THREADS * EACH);
}

/* In a child nothing of the parent's works, and the parent goes on. */
static void forks(void)
{
    int status;
    pid_t child = fork();
    if (!child) {
        CHECK(post_write(1, 0, BYTES / 2, 64) == EIO);
        CHECK(!ibv_alloc_pd(context) && errno == EIO);
        CHECK(!ibv_reg_mr(pd, data, BYTES, 1) && errno == EIO);
        CHECK(ibv_destroy_cq(cq) == EBUSY); /* it has queue pairs here, too */
        CHECK(!ibv_destroy_qp(pair[0]) && ibv_destroy_cq(cq) == EBUSY);
        CHECK(!ibv_destroy_qp(pair[1]) && !ibv_destroy_cq(cq));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && !status);
    CHECK(!post_write(2, 0, BYTES / 2, 64));
    CHECK(completion().wr_id == 2);
}

static void *acknowledge(void *unused)
{
    (void)unused;
    CHECK(!__atomic_load_n(&done, __ATOMIC_SEQ_CST));
    ibv_ack_cq_events(cq, 1);
    return NULL;
}

/* One request, one event; O_NONBLOCK; a queue ends when what was got of it is acknowledged. */
static void events(void)
{
    struct ibv_cq *got;
    void *given;
    pthread_t thread;
    CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
    CHECK(ibv_get_cq_event(channel, &got, &given) == -1 && errno == EAGAIN);
    CHECK(!post_write(1, 0, BYTES / 2, 64) && completion().wr_id == 1);
    CHECK(ibv_get_cq_event(channel, &got, &given) == -1 && errno == EAGAIN); /* nobody asked */
    CHECK(!context->ops.req_notify_cq(cq, 0));
    CHECK(!fcntl(channel->fd, F_SETFL, 0));
    CHECK(!post_write(2, 0, BYTES / 2, 64) && !post_write(3, 0, BYTES / 2, 64));
    CHECK(!ibv_get_cq_event(channel, &got, &given) && got == cq && given == data);
    CHECK(completion().wr_id == 2 && completion().wr_id == 3);
    CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
    CHECK(ibv_get_cq_event(channel, &got, &given) == -1 && errno == EAGAIN);
    for (int i = 0; i < 2; i++)
        CHECK(!ibv_destroy_qp(pair[i]));
    CHECK(!pthread_create(&thread, NULL, acknowledge, NULL));
    CHECK(!ibv_destroy_cq(cq));
    __atomic_store_n(&done, 1, __ATOMIC_SEQ_CST);
    CHECK(!pthread_join(thread, NULL));
    _exit(0);
}

/* RESET takes completions along; a queue is resized with what is in it. */
static void resets(void)
{
    struct ibv_qp_attr attr = {.qp_state = 0};
    struct ibv_wc wc;
    for (uint64_t i = 0; i < 10; i++)
        CHECK(!post_write(i, 0, BYTES / 2, 64));
    while (data[BYTES / 2 + 63] != 7) {
        data[63] = 7;
        CHECK(!post_write(99, 0, BYTES / 2, 64));
        while (completion().wr_id != 99)
            ;
    }
    for (uint64_t i = 0; i < 10; i++)
        CHECK(!post_write(100 + i, 0, BYTES / 2, 64));
    CHECK(completion().wr_id == 100);
    CHECK(!ibv_resize_cq(cq, 300) && cq->cqe == 300);
    CHECK(completion().wr_id == 101);
    CHECK(ibv_resize_cq(cq, 0) == EINVAL);
    for (int i = 0; i < 2; i++)
        CHECK(!ibv_modify_qp(pair[i], &attr, 1) && pair[i]->state == 0);
    CHECK(context->ops.poll_cq(cq, 1, &wc) == 0);
    CHECK(post_write(1, 0, BYTES / 2, 64) == EINVAL);
    for (int i = 0; i < 2; i++)
        connect_qp(pair[i], pair[!i]->qp_num);
    CHECK(!post_write(200, 0, BYTES / 2, 64) && completion().wr_id == 200);
}

/* A queue pair's state is what the program has set, or asked for: an error in between shows no sooner. */
static void states(void)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr made;
    CHECK(post_write(1, 0, BYTES / 2, 64) == 0 && completion().status == 0);
    mr->rkey ^= 0xff00;
    CHECK(post_write(2, 0, BYTES / 2, 64) == 0 && completion().status != 0);
    mr->rkey ^= 0xff00;
    CHECK(pair[0]->state == 3);
    CHECK(!ibv_query_qp(pair[0], &attr, 1 << 7, &made) && attr.qp_state == 6 && pair[0]->state == 3);
    CHECK(!ibv_query_qp(pair[0], &attr, 1, &made) && attr.qp_state == 6 && pair[0]->state == 6);
}

/* Programs name RNR timers of more bits than an answer has for them; devices take the five that count. */
static void rnr_timers(void)
{
    struct ibv_qp_attr attr = {.min_rnr_timer = 0x20};
    struct ibv_qp_init_attr made;
    CHECK(!ibv_modify_qp(pair[0], &attr, 1 << 15));
    CHECK(!ibv_query_qp(pair[0], &attr, 1 << 15, &made) && attr.min_rnr_timer == 0);
    attr.min_rnr_timer = 0xe0 | 12;
    CHECK(!ibv_modify_qp(pair[0], &attr, 1 << 15));
    CHECK(!ibv_query_qp(pair[0], &attr, 1 << 15, &made) && attr.min_rnr_timer == 12);
}

/* Memory that is unmapped before its region ends fails the operation, which is told of the queue pair too. */
static void unmapped(void)
{
    struct ibv_async_event event;
    CHECK(!munmap(data + BYTES / 2, BYTES / 2));
    CHECK(!post_write(1, 0, BYTES / 2, 64));
    CHECK(completion().status != 0);
    CHECK(post_write(2, 0, 0, 64) == 0); /* accepted, and flushed */
    CHECK(completion().status == 5);
    CHECK(!ibv_get_async_event(context, &event));
    CHECK(event.event_type >= 1 && event.event_type <= 3 && event.element.qp == pair[1]);
    ibv_ack_async_event(&event);
}

/* What is not mapped, or not for the access that is asked for, is no region, nor becomes one. */
static void unmappable(void)
{
    const size_t page = 4096;
    int pages = MAP_PRIVATE | MAP_ANONYMOUS;
    char *hole = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, pages, -1, 0);
    char *only = mmap(NULL, 2 * page, PROT_READ, pages, -1, 0), *none = mmap(NULL, page, PROT_NONE, pages, -1, 0);
    struct ibv_mr *read_only;
    uint32_t key = mr->lkey;
    CHECK(hole != MAP_FAILED && only != MAP_FAILED && none != MAP_FAILED && !munmap(hole + page, page));
    CHECK(!ibv_reg_mr(pd, hole, 3 * page, 1) && errno == EFAULT);
    CHECK(!ibv_reg_mr(pd, hole + 2 * page - 1, 2, 1) && errno == EFAULT);
    CHECK(!ibv_reg_mr(pd, NULL, page, 1) && errno == EFAULT);
    CHECK(!ibv_reg_mr(pd, none, page, 0) && errno == EFAULT);
    CHECK(!ibv_reg_mr(pd, only, 2 * page, 1) && errno == EFAULT);
    CHECK((read_only = ibv_reg_mr(pd, only, 2 * page, 4)) && !ibv_dereg_mr(read_only));
    CHECK(!ibv_reg_mr(pd, data, 0, 1) && errno == EINVAL);
    CHECK(ibv_rereg_mr(mr, 1, NULL, hole + page, page, 0) == -1 && errno == EFAULT);
    CHECK(mr->lkey == key && !post_write(1, 0, BYTES / 2, 64) && completion().status == 0);
}

/* Requests that cannot be, a full queue, chains that are posted up to the first bad one. */
static void refusals(void)
{
    struct ibv_send_wr wr[3] = {{.wr_id = 1}, {.wr_id = 2}, {.wr_id = 3}}, *bad = NULL;
    struct ibv_sge sge = {(uintptr_t)data, 65, 0};
    int error = 0;
    for (int i = 0; i < 3; i++) {
        wr[i].send_flags = 2 | 8;
        wr[i].num_sge = 1;
        wr[i].sg_list = &sge;
        wr[i].wr.rdma.remote_addr = (uintptr_t)data;
        wr[i].wr.rdma.rkey = mr->rkey;
        wr[i].next = i < 2 ? &wr[i + 1] : NULL;
    }
    CHECK(context->ops.post_send(pair[0], wr, &bad) == EINVAL && bad == &wr[0]); /* more than 64 inline */
    sge.length = 64;
    wr[1].opcode = 13;
    CHECK(context->ops.post_send(pair[0], wr, &bad) == EINVAL && bad == &wr[1]);
    CHECK(completion().wr_id == 1);
    wr[1].opcode = 0;
    wr[1].num_sge = 3;
    wr[1].send_flags = 2;
    CHECK(context->ops.post_send(pair[0], wr, &bad) == EINVAL && bad == &wr[1] && completion().wr_id == 1);
    for (int i = 0; i < 100000 && !error; i++)
        error = post_write((uint64_t)i, 0, BYTES / 2, 1000);
    CHECK(error == ENOMEM);
    CHECK(!ibv_reg_mr(pd, data, BYTES, 1 << 12) && errno == EOPNOTSUPP);
    CHECK(!ibv_create_cq(context, 0, NULL, NULL, 0) && errno == EINVAL);
    CHECK(!ibv_create_cq(context, 1 << 30, NULL, NULL, 0));
    CHECK(ibv_dealloc_pd(pd) == EBUSY && ibv_destroy_cq(cq) == EBUSY);
}

/* Extended queues: a batch is posted whole or not at all; every builder; polling by entry. */
static void extended(void)
{
    struct verbs_front *front = (struct verbs_front *)((char *)context - sizeof *front);
    struct ibv_cq_init_attr_ex wanted = {.cqe = DEPTH, .wc_flags = 1 | 4 | 128};
    struct ibv_cq_ex *queue = front->create_cq_ex(context, &wanted);
    struct ibv_qp_init_attr_ex init = {.cap = {DEPTH, 1, 1, 1, 64}, .qp_type = 2, .comp_mask = 1 | 64,
                                       .pd = pd, .send_ops_flags = 1 | 16 | 32 | 64 | 2048 | 4096};
    struct ibv_poll_cq_attr none = {0};
    struct ibv_qp_ex *qp;
    uint64_t value = 0x1122334455667788, *words = (uint64_t *)(data + BYTES / 2), last = 0;
    CHECK(queue);
    init.send_cq = init.recv_cq = &queue->base;
    CHECK((qp = (struct ibv_qp_ex *)front->create_qp_ex(context, &init)));
    connect_qp(&qp->base, pair[1]->qp_num);
    connect_qp_again(pair[1], qp->base.qp_num);
    CHECK(queue->start_poll(queue, &none) == ENOENT);
    qp->start(qp);
    qp->wr_id = 1, qp->wr_flags = 2;
    qp->rdma_write(qp, mr->rkey, (uintptr_t)words);
    qp->set_inline_data(qp, &value, 8);
    qp->abort(qp); /* nothing of it is posted */
    qp->start(qp);
    qp->rdma_write(qp, mr->rkey, (uintptr_t)words);
    qp->set_inline_data(qp, data, 65);
    CHECK(qp->complete(qp) == EINVAL);
    qp->start(qp);
    for (qp->wr_id = 1; qp->wr_id < 7; qp->wr_id++) {
        if (qp->wr_id == 1)
            qp->rdma_write(qp, mr->rkey, (uintptr_t)words), qp->set_inline_data(qp, &value, 8);
        else if (qp->wr_id == 2)
            qp->atomic_write(qp, mr->rkey, (uintptr_t)(words + 1), &value);
        else if (qp->wr_id == 3)
            qp->atomic_cmp_swp(qp, mr->rkey, (uintptr_t)words, value, 5),
                qp->set_sge(qp, mr->lkey, (uintptr_t)data, 8);
        else if (qp->wr_id == 4)
            qp->atomic_fetch_add(qp, mr->rkey, (uintptr_t)words, 2),
                qp->set_sge(qp, mr->lkey, (uintptr_t)(data + 8), 8);
        else if (qp->wr_id == 5)
            qp->rdma_read(qp, mr->rkey, (uintptr_t)words),
                qp->set_sge(qp, mr->lkey, (uintptr_t)(data + 16), 16);
        else
            qp->rdma_read(qp, mr->rkey, (uintptr_t)words),
                qp->set_sge(qp, mr->lkey, (uintptr_t)(data + 32), 8);
    }
    CHECK(!qp->complete(qp));
    while (last < 6) {
        if (queue->start_poll(queue, &none))
            continue;
        do {
            CHECK(queue->status == 0 && queue->wr_id == last + 1);
            CHECK(queue->read_qp_num(queue) == qp->base.qp_num);
            CHECK(queue->read_completion_ts(queue));
            last = queue->wr_id;
        } while (!queue->next_poll(queue));
        queue->end_poll(queue);
    }
    CHECK(words[0] == 7 && words[1] == value);
    CHECK(((uint64_t *)data)[0] == value && ((uint64_t *)data)[1] == 5);
    CHECK(((uint64_t *)data)[2] == 7 && ((uint64_t *)data)[3] == value && ((uint64_t *)data)[4] == 7);
    CHECK(!ibv_destroy_qp(&qp->base));
    CHECK(!ibv_destroy_cq(&queue->base));
}

/* Memory of the device: bytes that requests name from 0 on, at most a MiB together, also in a child. */
static struct {
    void *memory[8];
    size_t bytes[8];
    uint64_t kinds[8];
    int made, freed, answer; /* answer: 0 memory, 1 none, 2 the library's own, 3 between pages */
} given;

static void *give(struct ibv_pd *pd, void *pd_context, size_t bytes, size_t alignment, uint64_t kind)
{
    CHECK(pd_context == &given && pd->context == context && alignment == 4096 && bytes % 4096 == 0);
    if (given.answer == 1 || given.answer == 2)
        return given.answer == 1 ? NULL : (void *)-1;
    char *found = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(found != MAP_FAILED && given.made < 8);
    memset(found, 0x55, bytes + 4096);
    given.memory[given.made] = found + (given.answer == 3 ? 8 : 0);
    given.bytes[given.made] = bytes;
    given.kinds[given.made++] = kind;
    return given.memory[given.made - 1];
}

static void take(struct ibv_pd *pd, void *pd_context, void *memory, uint64_t kind)
{
    int i = 0;
    CHECK(pd && pd_context == &given);
    while (i < given.made && given.memory[i] != memory)
        i++;
    CHECK(i < given.made && given.kinds[i] == kind);
    memset(memory, 0xaa, given.bytes[i]); /* the program's own again: nobody else looks at it */
    given.memory[i] = NULL;
    given.freed++;
}

static int is_used(int i) /* the ring's pages are seen there */
{
    const unsigned char *bytes = given.memory[i];
    for (size_t at = 0; at < given.bytes[i]; at++)
        if (bytes[at] == 0x55)
            return 0;
    return 1;
}

/* Queues of a parent domain stand in what its allocators give, and give it back. */
static void allocators(void)
{
    struct verbs_front *front = (struct verbs_front *)((char *)context - sizeof *front);
    struct ibv_parent_domain_init_attr parts = {.pd = pd, .comp_mask = 3, .alloc = (void *)give, .free = (void *)take,
                                                .pd_context = &given};
    struct ibv_pd *parent = front->alloc_parent_domain(context, &parts);
    struct ibv_cq_init_attr_ex wanted = {.cqe = 100, .comp_mask = 2, .parent_domain = parent};
    struct ibv_cq_ex *queue = front->create_cq_ex(context, &wanted);
    struct ibv_cq *own = (struct ibv_cq *)queue;
    struct ibv_qp_init_attr init = {.send_cq = own, .recv_cq = own, .qp_type = 2, .cap = {8, 8, 1, 1, 0}};
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_qp *queues;
    struct ibv_srq *srq;
    CHECK(parent && queue && given.made == 1 && given.kinds[0] == 5 && is_used(0));
    CHECK((queues = ibv_create_qp(parent, &init)) && given.made == 3 && given.kinds[1] == 1);
    CHECK((srq = ibv_create_srq(parent, &shared)) && given.made == 4 && given.kinds[3] == 4);
    CHECK(is_used(1) && is_used(2) && is_used(3));
    CHECK(!ibv_resize_cq(own, 1000) && given.made == 5 && given.freed == 1 && is_used(4));
    CHECK(ibv_dealloc_pd(parent) == EBUSY);
    CHECK(!ibv_destroy_qp(queues) && !ibv_destroy_srq(srq) && given.freed == 4 && !ibv_destroy_cq(own));
    CHECK(given.freed == 5);
    for (given.answer = 1; given.answer < 4; given.answer++) {
        queue = front->create_cq_ex(context, &wanted);
        CHECK(given.answer == 2 ? queue && !ibv_destroy_cq((struct ibv_cq *)queue)
                                : !queue && errno == (given.answer == 1 ? ENOMEM : EINVAL));
    }
    CHECK(given.made == 6 && given.freed == 6 && !ibv_dealloc_pd(parent));
}

/* In RTS alone, as fast as the device says, and told again; without a limit in the end. */
static void rate_limit(void)
{
    struct verbs_front *front = (struct verbs_front *)((char *)context - sizeof *front);
    struct ibv_device_attr_ex device;
    struct ibv_qp_attr attr = {.qp_state = 3, .rate_limit = 1000}, told;
    struct ibv_qp_rate_limit_attr wanted = {.rate_limit = 8, .max_burst_sz = 3000, .typical_pkt_sz = 1000};
    CHECK(!front->query_device_ex(context, NULL, &device, sizeof device));
    CHECK(device.packet_pacing_caps.qp_rate_limit_min == 8);
    CHECK(device.packet_pacing_caps.qp_rate_limit_max == 100000000);
    CHECK((device.packet_pacing_caps.supported_qpts & 0x11c) == 0x11c); /* RC, UC, UD, RAW_PACKET */
    CHECK(!ibv_modify_qp(pair[0], &attr, 1 << 25));
    CHECK(!ibv_query_qp(pair[0], &told, 1 << 25, NULL) && told.rate_limit == 1000);
    CHECK(!front->modify_qp_rate_limit(pair[0], &wanted));
    CHECK(!ibv_query_qp(pair[0], &told, 1 << 25, NULL) && told.rate_limit == 8);
    wanted.comp_mask = 1;
    CHECK(front->modify_qp_rate_limit(pair[0], &wanted) == EINVAL);
    wanted = (struct ibv_qp_rate_limit_attr){.rate_limit = 7};
    CHECK(front->modify_qp_rate_limit(pair[0], &wanted) == EINVAL);
    wanted = (struct ibv_qp_rate_limit_attr){.rate_limit = 100000001};
    CHECK(front->modify_qp_rate_limit(pair[0], &wanted) == EINVAL);
    wanted = (struct ibv_qp_rate_limit_attr){.max_burst_sz = 1};
    CHECK(front->modify_qp_rate_limit(pair[0], &wanted) == EINVAL);
    CHECK(!ibv_query_qp(pair[0], &told, 1 << 25, NULL) && told.rate_limit == 8);
    wanted.max_burst_sz = 0;
    CHECK(!front->modify_qp_rate_limit(pair[0], &wanted));
    CHECK(!ibv_query_qp(pair[0], &told, 1 << 25, NULL) && told.rate_limit == 0);
    attr.qp_state = 6;
    CHECK(ibv_modify_qp(pair[0], &attr, 1 << 25 | 1) == EINVAL && pair[0]->state == 3);
}

static void device_memory(void)
{
    struct verbs_front *front = (struct verbs_front *)((char *)context - sizeof *front);
    struct ibv_alloc_dm_attr wanted = {.length = 6000}, all = {.length = 1 << 20}, bad = {.length = 8,
        .log_align_req = 13};
    struct ibv_dm *dm = front->alloc_dm(context, &wanted);
    struct ibv_device_attr_ex attr;
    struct ibv_mr *region, *own = mr;
    uint64_t word = 0x0123456789abcdef, found = 0;
    int status;
    CHECK(dm && !front->query_device_ex(context, NULL, &attr, sizeof attr) && attr.max_dm_size == all.length);
    CHECK(!front->alloc_dm(context, &all) && errno == ENOMEM);
    CHECK(!front->alloc_dm(context, &bad) && errno == EINVAL);
    bad = (struct ibv_alloc_dm_attr){.length = 8, .comp_mask = 1};
    CHECK(!front->alloc_dm(context, &bad) && errno == EINVAL);
    CHECK(!dm->memcpy_from_dm(&found, dm, 5992, 8) && !found);
    CHECK(!dm->memcpy_to_dm(dm, 5000, &word, 8));
    CHECK(dm->memcpy_to_dm(dm, 5996, &word, 8) == EINVAL && dm->memcpy_to_dm(dm, 2, &word, 4) == EINVAL);
    CHECK(dm->memcpy_from_dm(&found, dm, 0, 2) == EINVAL && dm->memcpy_from_dm(&found, dm, ~3ULL, 4) == EINVAL);
    CHECK(!front->reg_dm_mr(pd, dm, 0, 6000, 1) && errno == EOPNOTSUPP); /* not from 0 on */
    CHECK(!front->reg_dm_mr(pd, dm, 0, 6000, 1 | 32 | 64) && errno == EOPNOTSUPP);
    CHECK(!front->reg_dm_mr(pd, dm, 4, 6000, 1 | 32) && errno == EINVAL);
    CHECK((region = front->reg_dm_mr(pd, dm, 0, 0, 1 | 32)) && !ibv_dereg_mr(region));
    CHECK((region = front->reg_dm_mr(pd, dm, 4992, 1000, 1 | 2 | 32)));
    CHECK(front->free_dm(dm) == EBUSY && ibv_rereg_mr(region, 4, NULL, NULL, 0, 1) == -1);
    memcpy(data, "written from afar", 17);
    mr = region; /* the peer's key, and the place in its region */
    struct ibv_sge sge = {(uintptr_t)data, 17, own->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .send_flags = 2}, *unsent;
    wr.wr.rdma.remote_addr = 16;
    wr.wr.rdma.rkey = region->rkey;
    CHECK(!context->ops.post_send(pair[0], &wr, &unsent) && completion().status == 0);
    mr = own;
    CHECK(!dm->memcpy_from_dm(data + 64, dm, 5000, 28));
    CHECK(!memcmp(data + 64, &word, 8) && !memcmp(data + 72, "written from afar", 17));
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) { /* has no adapter any more, but copies, and asks what is known already */
        struct ibv_device_attr plain;
        struct ibv_dm *more = front->alloc_dm(context, &wanted);
        CHECK(more && !more->memcpy_to_dm(more, 0, &word, 8) && !more->memcpy_from_dm(&found, more, 0, 8));
        CHECK(found == word && !front->reg_dm_mr(pd, more, 0, 8, 1 | 32) && errno == EIO);
        CHECK(!ibv_query_device(context, &plain) && plain.max_qp == attr.orig_attr.max_qp);
        CHECK(!front->free_dm(more));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(!ibv_dereg_mr(region) && !front->free_dm(dm));
    for (int i = 0; i < 3; i++) /* all of it is free again, and zero */
        CHECK((dm = front->alloc_dm(context, &all)) && !dm->memcpy_from_dm(&found, dm, 5000, 8) && !found
              && !front->free_dm(dm));
}

/* Elements without memory: zeros are sent, and of what is received nothing is kept. */
static void null_regions(void)
{
    struct verbs_front *front = (struct verbs_front *)((char *)context - sizeof *front);
    struct ibv_mr *null = front->alloc_null_mr(pd);
    struct ibv_sge list[2] = {{1ULL << 40, 5000, 0}, {(uintptr_t)data, 100, mr->lkey}};
    struct ibv_send_wr wr = {.sg_list = list, .num_sge = 2, .send_flags = 2}, *unsent;
    CHECK(null && null->lkey && !null->rkey && !null->addr && null->length == SIZE_MAX);
    CHECK(null->context == context && null->pd == pd);
    list[0].lkey = null->lkey;
    memset(data, 7, BYTES);
    wr.wr.rdma.remote_addr = (uintptr_t)data + BYTES / 2;
    wr.wr.rdma.rkey = mr->rkey;
    CHECK(!context->ops.post_send(pair[0], &wr, &unsent) && completion().status == 0);
    for (unsigned at = 0; at < 5200; at++)
        CHECK(data[BYTES / 2 + at] == (at < 5000 ? 0 : 7));
    data[BYTES / 2 + 5000] = 9;
    wr.opcode = 4; /* an RDMA READ */
    CHECK(!context->ops.post_send(pair[0], &wr, &unsent) && completion().status == 0);
    CHECK(data[0] == 9 && data[1] == 7 && data[100] == 7);
    CHECK(ibv_rereg_mr(null, 4, NULL, NULL, 0, 15) == -1 && errno == EINVAL);
    CHECK(ibv_rereg_mr(null, 1, NULL, data, BYTES, 1) == -1 && errno == EINVAL);
    CHECK(ibv_dealloc_pd(pd) == EBUSY);
    CHECK(!ibv_dereg_mr(null));
    CHECK(!context->ops.post_send(pair[0], &wr, &unsent) && completion().status == 4); /* LOC_PROT_ERR */
    connect_qp_again(pair[0], pair[1]->qp_num);
    connect_qp_again(pair[1], pair[0]->qp_num);
    CHECK((null = front->alloc_null_mr(pd)));
    wr.opcode = 0;
    list[0] = list[1];
    wr.wr.rdma.rkey = null->lkey; /* which is no key for peers */
    CHECK(!context->ops.post_send(pair[0], &wr, &unsent) && completion().status == 10);
    CHECK(!ibv_dereg_mr(null));
}

/* Rules of a raw packet queue pair: what their specifications say is looked for, and what they cannot say is
   refused before the adapter is asked. */
struct rules {
    struct ibv_flow_attr attr;
    unsigned char specs[256];
};

/* One specification more: `value_at` and `value_bytes` say where value and mask stand in its `size` bytes. */
static unsigned char *add_spec(struct rules *rules, unsigned *end, uint32_t type, unsigned size)
{
    struct flow_spec head = {type, (uint16_t)size};
    unsigned char *spec = rules->specs + *end;
    CHECK(*end + size <= sizeof rules->specs && size >= sizeof head);
    memset(spec, 0, size);
    memcpy(spec, &head, sizeof head);
    *end += size;
    rules->attr.num_of_specs++;
    return spec;
}

static struct ibv_qp *raw_qp(void)
{
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = 8};
    struct ibv_qp_attr attr = {.qp_state = 1, .port_num = 1};
    struct ibv_qp *made = ibv_create_qp(pd, &init);
    CHECK(made && !ibv_modify_qp(made, &attr, 0x21));
    attr.qp_state = 2;
    CHECK(!ibv_modify_qp(made, &attr, 1));
    attr.qp_state = 3;
    CHECK(!ibv_modify_qp(made, &attr, 1));
    return made;
}

static const unsigned char frame_head[14] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5};

/* A rule for the frame's destination. */
static void ask_for_frame(struct rules *rules)
{
    unsigned end = 0;
    unsigned char *spec;
    memset(rules, 0, sizeof *rules);
    rules->attr.port = 1;
    spec = add_spec(rules, &end, 0x20, 40);
    memcpy(spec + 6, frame_head, 6);
    memset(spec + 22, 0xff, 6);
}

static void refused_flow(struct ibv_qp *qp, struct rules *rules, int error)
{
    struct verbs_front *front = (struct verbs_front *)((char *)context - sizeof *front);
    errno = 0;
    CHECK(!front->create_flow(qp, &rules->attr) && errno == error);
}

static void refused_flows(struct ibv_qp *receiver)
{
    static const struct { uint32_t type; unsigned size; } least[] =
        {{0x20, 38}, {0x30, 24}, {0x31, 88}, {0x32, 32}, {0x40, 14}, {0x41, 14}};
    struct rules rules;
    unsigned end = 0;
    unsigned char *spec;
    ask_for_frame(&rules);
    rules.attr.comp_mask = 1;
    refused_flow(receiver, &rules, EINVAL);
    rules.attr = (struct ibv_flow_attr){.type = 0x100, .port = 1};
    refused_flow(receiver, &rules, EINVAL);
    rules.attr = (struct ibv_flow_attr){.flags = 2, .port = 1};
    refused_flow(receiver, &rules, EOPNOTSUPP);
    rules.attr = (struct ibv_flow_attr){.type = 1, .port = 1, .num_of_specs = 1};
    refused_flow(receiver, &rules, EINVAL); /* all that nobody takes has no specifications */
    ask_for_frame(&rules);
    rules.attr.port = 9;
    refused_flow(receiver, &rules, EINVAL);
    for (unsigned i = 0; i < sizeof least / sizeof *least; i++) {
        memset(&rules, 0, sizeof rules), end = 0;
        rules.attr.port = 1;
        add_spec(&rules, &end, least[i].type, least[i].size - 1);
        refused_flow(receiver, &rules, EINVAL);
    }
    memset(&rules, 0, sizeof rules), end = 0;
    rules.attr.port = 1;
    add_spec(&rules, &end, 0x120, 40); /* of a header in a tunnel */
    refused_flow(receiver, &rules, EOPNOTSUPP);
    memset(rules.specs, 0, sizeof rules.specs); /* a specification that never ends */
    refused_flow(receiver, &rules, EINVAL);
    ask_for_frame(&rules), end = 40;
    spec = add_spec(&rules, &end, 0x20, 40); /* and for another one at once */
    spec[6] = 4, spec[22] = 0xff;
    refused_flow(receiver, &rules, EINVAL);
    memset(&rules, 0, sizeof rules), end = 0;
    rules.attr.port = 1;
    add_spec(&rules, &end, 0x31, 88);
    add_spec(&rules, &end, 0x30, 24); /* no frame is both */
    refused_flow(receiver, &rules, EINVAL);
}

static void flows(void)
{
    struct verbs_front *front = (struct verbs_front *)((char *)context - sizeof *front);
    struct ibv_qp *sender = raw_qp(), *receiver = raw_qp();
    struct ibv_sge sge = {(uintptr_t)data, 64, mr->lkey}, room = {(uintptr_t)data + BYTES / 2, 2048, mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1, .opcode = 2, .sg_list = &sge, .num_sge = 1, .send_flags = 2}, *unsent;
    struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &room, .num_sge = 1}, *bad;
    struct ibv_flow *flow, *other;
    struct rules rules;
    struct ibv_wc both[2];
    unsigned end = 0;
    int status;
    refused_flows(receiver);
    ask_for_frame(&rules);
    CHECK((flow = front->create_flow(receiver, &rules.attr)) && flow->context == context);
    CHECK(ibv_destroy_qp(receiver) == EBUSY);
    memset(&rules, 0, sizeof rules);
    rules.attr.port = 1;
    memset(add_spec(&rules, &end, 0x20, 40) + 6, 0, 32);
    add_spec(&rules, &end, 0x32, 32);
    add_spec(&rules, &end, 0x41, 16);
    CHECK((other = front->create_flow(receiver, &rules.attr)) && !front->destroy_flow(other));
    memcpy(data, frame_head, sizeof frame_head);
    memset(data + 14, 'f', 50);
    CHECK(!context->ops.post_recv(receiver, &receive, &bad) && !context->ops.post_send(sender, &wr, &unsent));
    both[0] = completion(), both[1] = completion();
    CHECK(both[0].status == 0 && both[1].status == 0 && both[0].wr_id + both[1].wr_id == 3);
    CHECK(both[both[0].wr_id == 1].byte_len == 64 && !memcmp(data, data + BYTES / 2, 64));
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) { /* the rule is its parent's: what the child has of it ends here alone */
        refused_flow(receiver, &rules, EIO);
        CHECK(!front->destroy_flow(flow));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(!front->destroy_flow(flow) && !ibv_destroy_qp(receiver) && !ibv_destroy_qp(sender));
}

/* Receive-side scaling: work queues, a table of them, and a queue pair that receives by it. */
static const unsigned char hash_key[40] = {
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
    0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

/* Published hashes of these addresses and ports by that key: 0x323e8fc2 and, with the ports, 0x51ccc178; 0xd718262a
   and 0xc626b0ea. */
static const unsigned char hashed[2][12] = {
    {66, 9, 149, 187, 161, 142, 100, 80, 2794 >> 8, 2794 & 255, 1766 >> 8, 1766 & 255},
    {199, 92, 111, 2, 65, 69, 140, 83, 14230 >> 8, 14230 & 255, 4739 >> 8, 4739 & 255}};

static struct ibv_wq *work_queue(struct ibv_cq *completes)
{
    struct verbs_front *front = (struct verbs_front *)((char *)context - sizeof *front);
    struct ibv_wq_init_attr init = {.max_wr = 4, .max_sge = 2, .pd = pd, .cq = completes, .wq_context = &init};
    struct ibv_wq *made = front->create_wq(context, &init);
    CHECK(made && made->context == context && made->pd == pd && made->cq == completes && made->state == 0);
    CHECK(made->wq_context == &init && made->wq_num);
    return made;
}

static int move(struct ibv_wq *wq, uint32_t mask, int state, int current)
{
    struct verbs_front *front = (struct verbs_front *)((char *)context - sizeof *front);
    struct ibv_wq_attr attr = {.attr_mask = mask, .wq_state = state, .curr_wq_state = current};
    return front->modify_wq(wq, &attr);
}

static void states_of_work_queues(void)
{
    struct verbs_front *front = (struct verbs_front *)((char *)context - sizeof *front);
    struct ibv_wq *wq = work_queue(cq);
    struct ibv_sge rooms[3] = {{(uintptr_t)data, 64, mr->lkey}};
    struct ibv_recv_wr receive = {.wr_id = 7, .sg_list = rooms, .num_sge = 1}, *bad = NULL;
    struct ibv_wc wc;
    CHECK(wq->post_recv(wq, &receive, &bad) == EINVAL && bad == &receive);
    CHECK(move(wq, 1, 2, 0) == EINVAL && move(wq, 1, 9, 0) == EINVAL && move(wq, 0, 1, 0) == EINVAL);
    CHECK(move(wq, 4, 0, 0) == EOPNOTSUPP && move(wq, 8, 0, 0) == EINVAL && wq->state == 0);
    CHECK(!move(wq, 1, 1, 0) && wq->state == 1);
    CHECK(!wq->post_recv(wq, &receive, &bad) && !move(wq, 3, 2, 1) && wq->state == 2);
    wc = completion();
    CHECK(wc.wr_id == 7 && wc.status == 5 && wc.qp_num == wq->wq_num);
    CHECK(!wq->post_recv(wq, &receive, &bad) && completion().status == 5);
    CHECK(move(wq, 1, 1, 0) == EINVAL && move(wq, 3, 0, 1) == EINVAL && wq->state == 2);
    CHECK(!wq->post_recv(wq, &receive, &bad) && !move(wq, 1, 0, 0) && !move(wq, 1, 1, 0));
    CHECK(!context->ops.poll_cq(cq, 1, &wc)); /* what was flushed went with the reset */
    receive.num_sge = 3;
    CHECK(wq->post_recv(wq, &receive, &bad) == EINVAL);
    receive.num_sge = 0;
    for (int i = 0; i < 4; i++)
        CHECK(!wq->post_recv(wq, &receive, &bad));
    CHECK(wq->post_recv(wq, &receive, &bad) == ENOMEM);
    CHECK(ibv_destroy_cq(cq) == EBUSY && !front->destroy_wq(wq));
}

static void refused_scaling(struct ibv_wq *wq, struct ibv_rwq_ind_table *table)
{
    struct verbs_front *front = (struct verbs_front *)((char *)context - sizeof *front);
    const struct ibv_wq_init_attr right = {.max_wr = 4, .max_sge = 2, .pd = pd, .cq = cq};
    struct ibv_wq_init_attr wrong[] = {right, right, right, right, right, right, right};
    struct ibv_wq *many[4] = {wq, wq, wq, wq}, *none[2] = {wq, NULL};
    struct ibv_rwq_ind_table_init_attr tables[] = {{.log_ind_tbl_size = 1, .ind_tbl = many, .comp_mask = 1},
                                                   {.log_ind_tbl_size = 12, .ind_tbl = many},
                                                   {.log_ind_tbl_size = 40, .ind_tbl = many},
                                                   {.log_ind_tbl_size = 1}, {.log_ind_tbl_size = 1, .ind_tbl = none}};
    struct ibv_qp_init_attr_ex init = {.qp_type = 8, .comp_mask = 1 | 4 | 16 | 32, .pd = pd, .rwq_ind_tbl = table,
        .rx_hash_conf = {1, 40, (uint8_t *)hash_key, 3}}, bad;
    wrong[0].pd = NULL, wrong[1].cq = NULL, wrong[2].wq_type = 1, wrong[3].comp_mask = 2, wrong[4].max_wr = 0;
    wrong[5].max_sge = 1 << 20, wrong[6].comp_mask = 1, wrong[6].create_flags = 2;
    for (int i = 0; i < 7; i++)
        CHECK(!front->create_wq(context, wrong + i) && errno == (i == 6 ? EOPNOTSUPP : EINVAL));
    for (int i = 0; i < 5; i++)
        CHECK(!front->create_rwq_ind_table(context, tables + i) && errno == EINVAL);
#define REFUSED(error, change) \
    (bad = init, change, errno = 0, CHECK(!front->create_qp_ex(context, &bad) && errno == error))
    REFUSED(EOPNOTSUPP, bad.qp_type = 4);
    REFUSED(EOPNOTSUPP, bad.create_flags = 1);
    REFUSED(EOPNOTSUPP, bad.comp_mask |= 64);
    REFUSED(EOPNOTSUPP, bad.rx_hash_conf.rx_hash_function = 2);
    REFUSED(EOPNOTSUPP, bad.rx_hash_conf.rx_hash_fields_mask = 1ull << 31);
    REFUSED(EINVAL, bad.comp_mask &= ~16u);
    REFUSED(EINVAL, bad.comp_mask &= ~32u);
    REFUSED(EINVAL, bad.rwq_ind_tbl = NULL);
    REFUSED(EINVAL, bad.cap.max_recv_wr = 1);
    REFUSED(EINVAL, bad.cap.max_send_wr = 1);
    REFUSED(EINVAL, bad.rx_hash_conf.rx_hash_key_len = 39);
    REFUSED(EINVAL, bad.rx_hash_conf.rx_hash_key = NULL);
    REFUSED(EINVAL, bad.rx_hash_conf.rx_hash_fields_mask = 0);
#undef REFUSED
}

/* A frame of TCP between those addresses and ports. */
static void put_segment(unsigned char *frame, const unsigned char *fields)
{
    memset(frame, 0, 64);
    memcpy(frame, frame_head, 12);
    frame[12] = 8, frame[14] = 0x45, frame[17] = 40, frame[22] = 64, frame[23] = 6;
    memcpy(frame + 26, fields, 12);
}

static void scaled_frames(struct ibv_wq **queues, struct ibv_cq **cqs)
{
    struct ibv_qp *sender = raw_qp();
    struct ibv_sge sge = {(uintptr_t)data, 64, mr->lkey}, room = {(uintptr_t)data + BYTES / 2, 2048, mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1, .opcode = 2, .sg_list = &sge, .num_sge = 1, .send_flags = 2}, *unsent;
    struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &room, .num_sge = 1}, *bad;
    static const unsigned entries[2] = {0x51ccc178 & 3, 0xc626b0ea & 3};
    struct ibv_wc wc;
    for (int i = 0; i < 2; i++) {
        struct ibv_wq *wq = queues[entries[i]];
        put_segment(data, hashed[i]);
        CHECK(!wq->post_recv(wq, &receive, &bad) && !context->ops.post_send(sender, &wr, &unsent));
        CHECK(completion().wr_id == 1);
        while (!context->ops.poll_cq(cqs[entries[i]], 1, &wc))
            ;
        CHECK(wc.status == 0 && wc.qp_num == wq->wq_num && wc.byte_len == 64 && wc.wr_id == 2);
        CHECK(!memcmp(data, data + BYTES / 2, 64));
    }
    put_segment(data, hashed[0]); /* more completions than their queue has room for */
    for (int i = 0; i < 2; i++)
        CHECK(!queues[entries[0]]->post_recv(queues[entries[0]], &receive, &bad));
    for (int i = 0; i < 2; i++)
        CHECK(!context->ops.post_send(sender, &wr, &unsent) && completion().wr_id == 1);
    CHECK(!ibv_destroy_qp(sender));
}

static void scaling(void)
{
    struct verbs_front *front = (struct verbs_front *)((char *)context - sizeof *front);
    struct ibv_device_attr_ex attr;
    struct ibv_cq *cqs[4];
    struct ibv_wq *queues[4];
    struct ibv_rwq_ind_table *table;
    struct ibv_rwq_ind_table_init_attr making = {.log_ind_tbl_size = 2, .ind_tbl = queues};
    struct ibv_qp_init_attr_ex init = {.qp_type = 8, .comp_mask = 1 | 16 | 32, .pd = pd, .send_cq = cq, .recv_cq = cq,
        .rx_hash_conf = {1, 40, (uint8_t *)hash_key, 3 | 16 | 32}};
    struct ibv_recv_wr receive = {.wr_id = 2}, *bad;
    struct ibv_async_event event;
    struct ibv_qp *qp;
    struct ibv_flow *flow;
    struct rules rules;
    int status;
    CHECK(!front->query_device_ex(context, NULL, &attr, sizeof attr));
    CHECK(attr.rss_caps.supported_qpts == 1 << 8 && attr.rss_caps.rx_hash_fields_mask == 255);
    CHECK(attr.rss_caps.rx_hash_function == 1 && attr.rss_caps.max_rwq_indirection_table_size == 2048);
    CHECK(attr.rss_caps.max_rwq_indirection_tables == 4096 && attr.max_wq_type_rq == 16384 && !attr.raw_packet_caps);
    states_of_work_queues();
    for (int i = 0; i < 4; i++) {
        CHECK((cqs[i] = ibv_create_cq(context, 1, NULL, NULL, 0)));
        queues[i] = work_queue(cqs[i]);
        CHECK(!move(queues[i], 1, 1, 0));
    }
    CHECK((table = front->create_rwq_ind_table(context, &making)) && table->context == context && table->ind_tbl_num);
    refused_scaling(queues[0], table);
    init.rwq_ind_tbl = table;
    CHECK((qp = front->create_qp_ex(context, &init)) && qp->qp_num && qp->pd == pd && !qp->recv_cq && !qp->send_cq);
    CHECK(front->destroy_wq(queues[1]) == EBUSY && front->destroy_rwq_ind_table(table) == EBUSY);
    CHECK(context->ops.post_recv(qp, &receive, &bad) == EINVAL);
    ask_for_frame(&rules);
    CHECK((flow = front->create_flow(qp, &rules.attr)));
    scaled_frames(queues, cqs);
    CHECK(!ibv_get_async_event(context, &event));
    while (event.event_type != 19) {
        ibv_ack_async_event(&event);
        CHECK(!ibv_get_async_event(context, &event));
    }
    CHECK(event.element.wq == queues[0x51ccc178 & 3]);
    ibv_ack_async_event(&event);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) { /* all of it is its parent's: what the child has ends here alone */
        CHECK(queues[0]->post_recv(queues[0], &receive, &bad) == EIO && move(queues[0], 1, 0, 0) == EIO);
        CHECK(!front->create_rwq_ind_table(context, &making) && errno == EIO);
        CHECK(!front->destroy_wq(queues[0]) && !front->destroy_rwq_ind_table(table));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(!front->destroy_flow(flow) && !ibv_destroy_qp(qp) && !front->destroy_rwq_ind_table(table));
    for (int i = 0; i < 4; i++)
        CHECK(!front->destroy_wq(queues[i]) && !ibv_destroy_cq(cqs[i]));
}

/* Advice on regions on demand; domains and queues as programs of a processor's number and of allocators make
   them. */
static void advice(void)
{
    struct verbs_front *front = (struct verbs_front *)((char *)context - sizeof *front);
    struct ibv_mr *demand = ibv_reg_mr(pd, data, BYTES, 1 | 64), *fixed = mr, *read_only;
    struct ibv_sge list[2] = {{(uintptr_t)data, BYTES, 0}, {(uintptr_t)data + BYTES - 8, 8, 0}};
    struct ibv_cq_init_attr_ex queue = {.cqe = 8, .comp_vector = (uint32_t)context->num_comp_vectors};
    struct ibv_parent_domain_init_attr parts = {.pd = pd, .comp_mask = 2};
    struct ibv_pd *other = ibv_alloc_pd(context), *parent;
    struct ibv_ece ece;
    struct ibv_cq *made;
    CHECK(demand && other && (read_only = ibv_reg_mr(pd, data, BYTES, 64)));
    list[0].lkey = list[1].lkey = demand->lkey;
    for (int kind = 0; kind < 3; kind++)
        CHECK(!front->advise_mr(pd, kind, kind & 1, list, 2));
    CHECK(front->advise_mr(pd, 3, 0, list, 2) == EOPNOTSUPP && front->advise_mr(pd, -1, 0, list, 2) == EOPNOTSUPP);
    CHECK(front->advise_mr(pd, 0, 2, list, 2) == EINVAL && front->advise_mr(pd, 0, 0, list, 0) == EINVAL);
    CHECK(front->advise_mr(other, 0, 0, list, 2) == EFAULT);
    list[1].length = 9;
    CHECK(front->advise_mr(pd, 0, 0, list, 2) == EFAULT);
    list[1] = (struct ibv_sge){(uintptr_t)data - 1, 1, demand->lkey};
    CHECK(front->advise_mr(pd, 2, 0, list, 2) == EFAULT);
    list[1] = (struct ibv_sge){(uintptr_t)data, 8, fixed->lkey};
    CHECK(front->advise_mr(pd, 0, 0, list, 2) == EFAULT); /* only regions on demand are kept for it */
    list[0].lkey = read_only->lkey;
    CHECK(front->advise_mr(pd, 1, 0, list, 1) == EFAULT && !front->advise_mr(pd, 0, 1, list, 1));
    CHECK(!ibv_rereg_mr(demand, 1, NULL, data + BYTES / 2, 4096, 0));
    list[0].lkey = demand->lkey;
    CHECK(front->advise_mr(pd, 0, 0, list, 1) == EFAULT);
    list[0] = (struct ibv_sge){(uintptr_t)data + BYTES / 2, 4096, demand->lkey};
    CHECK(!front->advise_mr(pd, 1, 1, list, 1));
    CHECK(!munmap(data + BYTES / 2, 4096));
    CHECK(!front->advise_mr(pd, 0, 0, list, 1) && front->advise_mr(pd, 0, 1, list, 1) == EFAULT);
    CHECK(!ibv_dereg_mr(demand) && !ibv_dereg_mr(read_only));
    CHECK(front->advise_mr(pd, 2, 0, list, 1) == EFAULT);

    CHECK(context->num_comp_vectors == sysconf(_SC_NPROCESSORS_CONF));
    CHECK(!front->create_cq_ex(context, &queue) && errno == EINVAL);
    queue = (struct ibv_cq_init_attr_ex){.cqe = 8, .comp_mask = 1, .flags = 4};
    CHECK(!front->create_cq_ex(context, &queue) && errno == EOPNOTSUPP);
    queue.flags = 3; /* single-threaded, and ignore overruns */
    CHECK((made = (struct ibv_cq *)front->create_cq_ex(context, &queue)) && !ibv_destroy_cq(made));
    CHECK(!ibv_create_cq(context, 8, NULL, NULL, context->num_comp_vectors) && errno == EINVAL);
    CHECK(!ibv_create_cq(context, 8, NULL, NULL, -1) && errno == EINVAL);
    CHECK((made = ibv_create_cq(context, 8, NULL, NULL, context->num_comp_vectors - 1)));
    struct ibv_qp_init_attr plain = {.send_cq = cq, .recv_cq = cq, .cap = {1, 1, 2, 1, 0}, .qp_type = 2};
    struct ibv_qp *silent = ibv_create_qp(pd, &plain); /* asked for no inline data, has its elements' room */
    CHECK(silent && plain.cap.max_inline_data == 32 && !ibv_destroy_qp(silent));
    CHECK(!ibv_destroy_cq(made) && ibv_query_ece(pair[0], &ece) == EOPNOTSUPP && !ece.vendor_id);

    CHECK((parent = front->alloc_parent_domain(context, &parts)) && parent->handle == pd->handle);
    CHECK((demand = ibv_reg_mr(parent, data, 4096, 1 | 64)));
    CHECK(ibv_dealloc_pd(pd) == EBUSY && !ibv_dealloc_pd(parent));
    list[0] = (struct ibv_sge){(uintptr_t)data, 8, demand->lkey}; /* its region is the domain's whose name it was */
    CHECK(!front->advise_mr(pd, 1, 0, list, 1) && front->advise_mr(other, 1, 0, list, 1) == EFAULT);
    CHECK(!ibv_rereg_mr(demand, 4, NULL, NULL, 0, 64) && front->advise_mr(pd, 1, 0, list, 1) == EFAULT);
    CHECK(!ibv_rereg_mr(demand, 2, other, NULL, 0, 0) && !front->advise_mr(other, 0, 0, list, 1));
    CHECK(!ibv_dereg_mr(demand));
    parts.comp_mask = 1;
    CHECK(!front->alloc_parent_domain(context, &parts) && errno == EINVAL); /* no allocators */
    parts.alloc = parts.free = (void *)malloc;
    CHECK((parent = front->alloc_parent_domain(context, &parts)) && !ibv_dealloc_pd(parent));
    parts.comp_mask = 4; /* memory outside of a confidential guest: this device is inside */
    CHECK((parent = front->alloc_parent_domain(context, &parts)) && !ibv_dealloc_pd(parent));
    parts.comp_mask = 8;
    CHECK(!front->alloc_parent_domain(context, &parts) && errno == EOPNOTSUPP);
    CHECK(!ibv_dealloc_pd(other));
}

/* Whether an address lies in memory that the adapter maps too; with another allocator none does. */
static int is_pooled(const void *address)
{
    char line[512];
    unsigned long begin, end;
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (!found && fgets(line, sizeof line, maps))
        found = sscanf(line, "%lx-%lx", &begin, &end) == 2 && (uintptr_t)address >= begin
                && (uintptr_t)address < end && strstr(line, "memfd:softhca-buffers");
    fclose(maps);
    return found;
}

/* `length` bytes of `from`, which `region` has, are written to `to`; the status. */
static int written(struct ibv_mr *region, const void *from, void *to, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)from, length, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .send_flags = 2}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)to;
    wr.wr.rdma.rkey = region->rkey;
    CHECK(!context->ops.post_send(pair[0], &wr, &bad));
    return (int)completion().status;
}

static void fill(unsigned char *block, size_t length, unsigned char first)
{
    for (size_t i = 0; i < length; i++)
        block[i] = (unsigned char)(first + i * 7);
}

static int is_filled(const unsigned char *block, size_t length, unsigned char first)
{
    for (size_t i = 0; i < length; i++)
        if (block[i] != (unsigned char)(first + i * 7))
            return 0;
    return 1;
}

/* What allocators promise, of blocks that come from the pool and of those that do not. */
static void allocations(int pooled)
{
    unsigned char *block, *small = calloc(1, 100), *aligned;
    void *place = &block;
    volatile size_t huge = (size_t)1 << 62;
    CHECK(small && !is_pooled(small));
    CHECK((block = malloc(200000)) && is_pooled(block) == pooled && malloc_usable_size(block) >= 200000);
    fill(block, 200000, 1);
    CHECK((block = realloc(block, 900001)) && is_pooled(block) == pooled && is_filled(block, 200000, 1));
    CHECK((block = realloc(block, 60)) && !is_pooled(block) && is_filled(block, 60, 1));
    CHECK((block = realloc(block, 1 << 20)) && is_pooled(block) == pooled && is_filled(block, 60, 1));
    memset(block, 255, 1 << 20);
    free(block);
    CHECK((block = calloc(1024, 1024)));
    for (size_t i = 0; i < 1 << 20; i++)
        CHECK(!block[i]);
    free(block);
    CHECK((block = realloc(NULL, 150000)) && !realloc(block, 0));
    CHECK((aligned = aligned_alloc(65536, 65536)) && (uintptr_t)aligned % 65536 == 0);
    CHECK(is_pooled(aligned) == pooled);
    free(aligned);
    CHECK(!posix_memalign(place, 2 << 20, 5 << 20) && (uintptr_t)block % (2 << 20) == 0);
    free(block);
    CHECK(posix_memalign(place, 3, 10) == EINVAL && !posix_memalign(place, 64, 10) && !is_pooled(block));
    free(block);
    CHECK((block = valloc(5)) && (uintptr_t)block % 4096 == 0);
    free(block);
    errno = 0;
    CHECK(!malloc(huge) && errno == ENOMEM && !calloc(huge, huge));
    huge = SIZE_MAX - 100;
    errno = 0;
    CHECK(!pvalloc(huge) && errno == ENOMEM);
    free(small);
    free(NULL);
}

/* A child has copies of its own of what was there when it was made, also of what is registered. */
static void child_of(unsigned char *block, size_t length)
{
    int status, told[2], go[2];
    char word;
    pid_t child;
    fill(block, length, 3);
    CHECK(!pipe(told) && !pipe(go));
    child = fork();
    if (!child) {
        CHECK(read(go[0], &word, 1) == 1);
        CHECK(!is_pooled(block) && is_filled(block, length, 3));
        fill(block, length, 77);
        free(block);
        CHECK((block = malloc(300000)) && !is_pooled(block));
        free(block);
        CHECK(write(told[1], "", 1) == 1);
        _exit(0);
    }
    fill(block, length, 5);
    CHECK(write(go[1], "", 1) == 1 && read(told[0], &word, 1) == 1 && is_filled(block, length, 5));
    CHECK(waitpid(child, &status, 0) == child && !status);
    close(told[0]), close(told[1]), close(go[0]), close(go[1]);
}

/* Large blocks: registered by their place in the pool, as long as they are. */
static void buffers(void)
{
    int pooled = !getenv("ASAN_OPTIONS") && !getenv("SOFTHCA_BUFFERS");
    size_t length = 300007;
    unsigned char *block, *again, *two[2];
    struct ibv_mr *region, *wide;
    uintptr_t place;
    allocations(pooled);
    fill(data, BYTES, 9);
    CHECK((block = malloc(length)) && (region = ibv_reg_mr(pd, block + 5, length - 5, 15)));
    CHECK(!written(region, data + 1, block + 5, BYTES - 1) && is_filled(block + 5, BYTES - 1, 9 + 7));
    CHECK(!written(region, data, block + length - 10, 10) && is_filled(block + length - 10, 10, 9));
    child_of(block, length);
    CHECK(!written(region, data, block + 5, 100) && is_filled(block + 5, 100, 9));
    for (int i = 0; i < 2; i++)
        CHECK((two[i] = memalign(4096, 1 << 18)));
    if (two[1] == two[0] + (1 << 18)) { /* one region may lie in two blocks */
        CHECK((wide = ibv_reg_mr(pd, two[0] + 9, 1 << 18, 15)));
        CHECK(!written(wide, data, two[1] - 50, 59) && is_filled(two[1] - 50, 59, 9));
        CHECK(!ibv_rereg_mr(wide, 1, NULL, two[1], 4096, 0));
        CHECK(!written(wide, data, two[1] + 96, 4000) && is_filled(two[1] + 96, 4000, 9));
        CHECK(!ibv_dereg_mr(wide));
    }
    /* a block that is freed stays as long as its region: nobody else has it meanwhile */
    if (pooled) {
        place = (uintptr_t)block;
        free(block);
        CHECK((again = calloc(1, length)) && (uintptr_t)again != place);
        CHECK(!written(region, data, (void *)(place + 5), 1000));
        for (size_t i = 0; i < length; i++)
            CHECK(!again[i]);
        free(again);
        CHECK(!ibv_dereg_mr(region));
        CHECK((again = calloc(1, length)) && (uintptr_t)again == place);
        for (size_t i = 0; i < length; i++)
            CHECK(!again[i]);
        block = again;
    } else {
        CHECK(!ibv_dereg_mr(region));
    }
    free(block), free(two[0]), free(two[1]);
}

/* Buffers that the library allocates, and regions over them by the extended call. */
static void handed_out(void)
{
    const size_t length = 3 * 4096 + 1;
    struct ibv_buf *buf = NULL;
    struct ibv_pd *other = ibv_alloc_pd(context);
    unsigned char *memory = ibv_alloc_buf(pd, length, &buf);
    struct ibv_mr_init_attr attr = {.length = 64, .access = 7, .comp_mask = 32 | 2, .buf = buf};
    struct ibv_sge sge = {.length = 64};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .send_flags = 2}, *bad;
    struct ibv_mr *whole, *part;
    CHECK(other && memory && !((uintptr_t)memory % 4096) && !memory[0] && !memory[length - 1]);
    CHECK(!ibv_alloc_buf(pd, 0, &buf) && errno == EINVAL && attr.buf == buf);
    CHECK(ibv_export_buf_dmabuf_fd(buf) == -1 && errno == ENODATA);
    CHECK((whole = ibv_reg_buf_mr(pd, buf, memory, length, 7)) && whole->addr == memory && whole->length == length);
    attr.addr = memory + length - 64;
    CHECK((part = ibv_reg_mr_ex(pd, &attr)) && part->addr == attr.addr);
    memset(data, 0x5a, 64);
    sge.addr = (uintptr_t)data;
    sge.lkey = mr->lkey;
    wr.wr.rdma.remote_addr = (uintptr_t)attr.addr;
    wr.wr.rdma.rkey = part->rkey;
    CHECK(!context->ops.post_send(pair[0], &wr, &bad) && !completion().status);
    CHECK(!memory[length - 65] && memory[length - 64] == 0x5a && memory[length - 1] == 0x5a);

    CHECK(!ibv_reg_buf_mr(other, buf, memory, length, 7) && errno == EINVAL);
    CHECK(!ibv_reg_buf_mr(pd, buf, memory, length + 1, 7) && errno == EINVAL);
    CHECK(!ibv_reg_buf_mr(pd, buf, memory - 1, 2, 7) && errno == EINVAL);
    CHECK(!ibv_reg_buf_mr(pd, buf, memory + length, 1, 7) && errno == EINVAL);
    CHECK(!ibv_reg_buf_mr(pd, buf, memory + 1, SIZE_MAX, 7) && errno == EINVAL);
    CHECK(!ibv_reg_buf_mr(pd, buf, memory, 0, 7) && errno == EINVAL);
    attr.comp_mask = 32; /* no address */
    CHECK(!ibv_reg_mr_ex(pd, &attr) && errno == EINVAL);
    attr.comp_mask = 32 | 2 | 4; /* and a descriptor */
    CHECK(!ibv_reg_mr_ex(pd, &attr) && errno == EINVAL);
    attr.comp_mask = 4 | 8;
    CHECK(!ibv_reg_mr_ex(pd, &attr) && errno == EOPNOTSUPP);
    attr.comp_mask = 2 | 64;
    CHECK(!ibv_reg_mr_ex(pd, &attr) && errno == EOPNOTSUPP);
    CHECK(!ibv_dereg_mr(part));
    attr = (struct ibv_mr_init_attr){.length = 64, .access = 7, .comp_mask = 2 | 1, .addr = memory, .iova = 4096};
    CHECK((part = ibv_reg_mr_ex(pd, &attr)) && part->addr == memory);
    wr.wr.rdma.remote_addr = 4096;
    wr.wr.rdma.rkey = part->rkey;
    CHECK(!context->ops.post_send(pair[0], &wr, &bad) && !completion().status && memory[63] == 0x5a);
    CHECK(!ibv_dereg_mr(part) && !ibv_dereg_mr(whole) && !ibv_dealloc_pd(other));
    ibv_free_buf(buf);
}

/* Hints for copies, the speed of a port, and what is not there. */
static void hints(void)
{
    struct ibv_dmah_init_attr attr = {.comp_mask = 7, .ph = 3, .tph_mem_type = 1};
    struct ibv_mr_init_attr region = {.length = BYTES, .access = 1, .comp_mask = 16 | 2, .addr = data};
    struct ibv_dmah *hint = ibv_alloc_dmah(context, &attr);
    struct ibv_mr *made;
    uint64_t speed = 0;
    CHECK(hint && hint->context == context);
    region.dmah = hint;
    CHECK((made = ibv_reg_mr_ex(pd, &region)) && !ibv_dereg_mr(made));
    region.access = 1 | 64;
    CHECK(!ibv_reg_mr_ex(pd, &region) && errno == EOPNOTSUPP); /* memory that comes and goes */
    CHECK(!ibv_dealloc_dmah(hint));
    attr.cpu_id = (uint32_t)sysconf(_SC_NPROCESSORS_CONF);
    CHECK(!ibv_alloc_dmah(context, &attr) && errno == EINVAL);
    attr = (struct ibv_dmah_init_attr){.comp_mask = 2, .ph = 4};
    CHECK(!ibv_alloc_dmah(context, &attr) && errno == EINVAL);
    attr = (struct ibv_dmah_init_attr){.comp_mask = 4, .tph_mem_type = 2};
    CHECK(!ibv_alloc_dmah(context, &attr) && errno == EINVAL);
    attr.comp_mask = 8;
    CHECK(!ibv_alloc_dmah(context, &attr) && errno == EOPNOTSUPP);

    struct ibv_port_attr port;
    CHECK(!ibv_query_port(context, 1, &port) && port.active_width == 2 && port.active_speed == 32);
    CHECK(!ibv_query_port_speed(context, 1, &speed) && speed == 1000); /* four lanes of 25 Gb/s */
    CHECK(ibv_query_port_speed(context, 2, &speed) && ibv_query_port_speed(context, 257, &speed) == EINVAL);
    CHECK(!ibv_create_comp_cntr(context, &attr) && errno == EOPNOTSUPP);
    CHECK(ibv_read_comp_cntr(context, &speed) == EOPNOTSUPP);
}

#define ROOM 200

static int fillers[ROOM], filler_count;

/* Leave `room` free descriptors. */
static void occupy(int room)
{
    struct rlimit few;
    CHECK(!getrlimit(RLIMIT_NOFILE, &few) && few.rlim_max >= ROOM);
    few.rlim_cur = ROOM;
    CHECK(!setrlimit(RLIMIT_NOFILE, &few));
    for (filler_count = 0; filler_count < ROOM; filler_count++)
        if ((fillers[filler_count] = dup(0)) < 0)
            break;
    CHECK(errno == EMFILE && filler_count > room);
    while (room--)
        close(fillers[--filler_count]);
}

/* Free them all; how many there were. */
static int vacate(void)
{
    int found = 0;
    while (filler_count)
        close(fillers[--filler_count]);
    for (int i = 0; i < ROOM; i++)
        found += fcntl(i, F_GETFD) >= 0;
    return found;
}

/* Without descriptors nothing is opened, which says so and leaves nothing behind; what takes none goes on. */
static void scarce(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_qp_init_attr init = {.cap = {1, 1, 1, 1, 0}, .qp_type = 2};
    struct ibv_comp_channel *more;
    struct ibv_context *another = NULL;
    int room, before = vacate();
    char word;
    storming = 1;
    step();
    CHECK(read(0, &word, 1) == 1); /* the adapter has been looked at */
    for (room = 0; !another && room < 20; room++) {
        occupy(room);
        another = ibv_open_device(list[0]);
        CHECK(another || errno == EMFILE);
        CHECK(vacate() == before + 5 * !!another);
    }
    CHECK(room == 6 && !ibv_close_device(another));
    occupy(0);
    CHECK(!ibv_create_comp_channel(context) && errno == EMFILE);
    CHECK((init.send_cq = init.recv_cq = ibv_create_cq(context, 1, NULL, channel, 0)));
    CHECK((init.qp_context = ibv_create_qp(pd, &init)) && !ibv_destroy_qp(init.qp_context));
    CHECK(!ibv_destroy_cq(init.send_cq) && vacate() == before);
    step();
    CHECK(read(0, &word, 1) == 0); /* again */
    storming = 0;
    CHECK((more = ibv_create_comp_channel(context)) && !ibv_destroy_comp_channel(more) && vacate() == before);
}

/* An adapter that serves as many as it can says so, and is not taken for one that has gone. */
static void crowded(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    char end;
    CHECK(list && list[0]);
    storming = 1;
    step();
    CHECK(read(0, &end, 1) == 0); /* the others are there */
    CHECK(!ibv_open_device(list[0]) && errno == EUSERS);
    _exit(0);
}

static struct ibv_qp *scaled_of_a_liar(void)
{
    struct verbs_front *front = (struct verbs_front *)((char *)context - sizeof *front);
    struct ibv_wq_init_attr init = {.max_wr = 4, .max_sge = 2, .pd = pd, .cq = cq};
    struct ibv_wq *wq = front->create_wq(context, &init);
    struct ibv_rwq_ind_table_init_attr making = {.ind_tbl = &wq};
    struct ibv_qp_init_attr_ex scaled = {.qp_type = 8, .comp_mask = 1 | 16 | 32, .pd = pd,
        .rx_hash_conf = {1, 40, (uint8_t *)hash_key, 3}};
    struct ibv_qp *made;
    int error;
    if (!wq)
        return NULL;
    scaled.rwq_ind_tbl = front->create_rwq_ind_table(context, &making);
    made = front->create_qp_ex(context, &scaled);
    error = errno;
    CHECK(made || (!front->destroy_rwq_ind_table(scaled.rwq_ind_tbl) && !front->destroy_wq(wq)));
    errno = error;
    return made;
}

/* An adapter that is not to be trusted: what cannot be is not used, and nothing that it says afterwards. */
static void lied_to(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_srq_init_attr shared = {.attr = {DEPTH, 2, 0}};
    struct ibv_qp_init_attr init = {.cap = {DEPTH, DEPTH, 2, 2, 64}, .qp_type = 2};
    struct ibv_qp *made = NULL;
    CHECK(list && (context = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(context)));
    CHECK((cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0)));
    init.send_cq = init.recv_cq = cq;
    CHECK(!ibv_create_srq(pd, &shared) || !(made = ibv_create_qp(pd, &init)) || !scaled_of_a_liar());
    CHECK(errno == EIO);
    CHECK(!ibv_alloc_pd(context) && errno == EIO);
    CHECK(!made || !ibv_destroy_qp(made));
    CHECK(!ibv_destroy_cq(cq) && !ibv_close_device(context));
    _exit(0);
}

static void lied_to_of_tables(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_port_attr port;
    CHECK(list && (context = ibv_open_device(list[0])));
    CHECK(!ibv_query_port(context, 1, &port) && port.gid_tbl_len >= 1 && port.gid_tbl_len <= 256);
    CHECK(!ibv_close_device(context));
    _exit(0);
}

static void lied_to_of_memory(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && (context = ibv_open_device(list[0])));
    CHECK(!ibv_import_dm(context, 1) && errno == EPROTO);
    CHECK((pd = ibv_alloc_pd(context)) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    _exit(0);
}

static short seen_by_poll(int descriptor)
{
    struct pollfd one = {descriptor, POLLIN, 0};
    CHECK(poll(&one, 1, 0) >= 0);
    return one.revents;
}

static void *wait_for_completion(void *unused)
{
    struct ibv_cq *of;
    void *its;
    (void)unused;
    CHECK(ibv_get_cq_event(channel, &of, &its) == -1 && errno == EIO);
    return NULL;
}

/* The adapter goes, while a thread waits for an event: one fatal event, and then EIO from whatever is asked, with
   descriptors that say POLLHUP; never EAGAIN, which would be a promise of more.  All of it can be ended. */
static void orphaned(void)
{
    struct verbs_front *front = (struct verbs_front *)((char *)context - sizeof *front);
    struct ibv_ah_attr itself = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};
    struct ibv_qp_init_attr init = {.cap = {1, 1, 1, 1, 0}, .qp_type = 4, .send_cq = cq, .recv_cq = cq};
    union ibv_gid group = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 239, [15] = 7}};
    struct ibv_qp *member = ibv_create_qp(pd, &init);
    struct ibv_xrcd_init_attr of_none = {.comp_mask = 3, .fd = -1, .oflags = O_CREAT};
    struct ibv_mw *window = context->ops.alloc_mw(pd, 1);
    struct ibv_xrcd *xrcd = front->open_xrcd(context, &of_none);
    struct ibv_ah *ah;
    struct pollfd end = {context->async_fd, POLLIN, 0};
    struct ibv_async_event event;
    struct ibv_cq *of;
    struct ibv_wc wc;
    pthread_t waiting;
    void *its;
    int found;
    CHECK(!ibv_query_gid(context, 1, 0, &itself.grh.dgid) && (ah = ibv_create_ah(pd, &itself)) && window && xrcd);
    CHECK(member && !ibv_attach_mcast(member, &group, 0));
    CHECK(!seen_by_poll(context->async_fd) && !seen_by_poll(channel->fd));
    CHECK(!pthread_create(&waiting, NULL, wait_for_completion, NULL));
    storming = 1;
    step(); /* now it is killed */
    CHECK(poll(&end, 1, -1) == 1 && !pthread_join(waiting, NULL));
    for (int i = 0; i < 2; i++) { /* also where nobody wants to wait */
        CHECK(seen_by_poll(context->async_fd) & POLLHUP && seen_by_poll(channel->fd) & POLLHUP);
        if (!i)
            CHECK(!ibv_get_async_event(context, &event) && event.event_type == 8); /* IBV_EVENT_DEVICE_FATAL */
        ibv_ack_async_event(&event);
        CHECK(ibv_get_async_event(context, &event) == -1 && errno == EIO);
        CHECK(ibv_get_cq_event(channel, &of, &its) == -1 && errno == EIO);
        CHECK(fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0 && fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    }
    while (!(found = context->ops.poll_cq(cq, 1, &wc)))
        ;
    CHECK(found < 0 && !ibv_reg_mr(pd, data, BYTES, 1) && errno == EIO);
    CHECK(!ibv_destroy_ah(ah) && !context->ops.dealloc_mw(window) && !front->close_xrcd(xrcd));
    CHECK(!ibv_detach_mcast(member, &group, 0) && !ibv_destroy_qp(member));
    storming = 0;
}

static void storm(void)
{
    storming = 1;
    for (;;) {
        open_all();
        for (int round = 0; round < 20; round++) {
            for (uint64_t i = 0; i < 8; i++)
                CHECK(!post_write(i, 0, BYTES / 2, BYTES / 2));
            step();
            for (int i = 0; i < 8; i++)
                CHECK(completion().status == 0);
        }
        close_all();
    }
}

int main(int count, char **words)
{
    struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"extended", extended}, {"threads", threads}, {"forks", forks}, {"events", events},
                 {"resets", resets}, {"rnr_timers", rnr_timers}, {"states", states},
                 {"device_memory", device_memory}, {"advice", advice}, {"rate_limit", rate_limit},
                 {"buffers", buffers}, {"allocators", allocators}, {"null_regions", null_regions}, {"flows", flows}, {"scaling", scaling},
                 {"handed_out", handed_out}, {"hints", hints},
                 {"lied_to", lied_to}, {"lied_to_of_memory", lied_to_of_memory},
                 {"lied_to_of_tables", lied_to_of_tables},
                 {"unmapped", unmapped}, {"unmappable", unmappable}, {"refusals", refusals}, {"storm", storm}, {"crowded", crowded}, {"orphaned", orphaned},
                 {"scarce", scarce}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (count != 2 || strcmp(words[1], cases[i].name))
            continue;
        if (cases[i].run != storm && cases[i].run != crowded && strncmp(words[1], "lied", 4))
            open_all();
        cases[i].run();
        close_all();
        return 0;
    }
    return 2;
}
