/* Queue pairs, completion queues and shared receive queues of the library with an adapter that is a script: what
   stands in their rings, and what is told of it; argv[1] names what is tried. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "library.h"

#undef CALL
#undef TELL
#define CALL(host, error, name, fields, reply) ((void)(host), (error) = script_##name(fields, reply))
#define TELL(host, error, name, fields) ((void)(host), told.name = *(fields), (error) = refuses)

static int refuses;
static uint32_t numbers = 100, lent, waits;
static struct {
    struct softhca_destroy_cq destroy_cq;
    struct softhca_create_qp create_qp;
    struct softhca_destroy_qp destroy_qp;
    struct softhca_modify_qp modify_qp;
    struct softhca_attach_mcast attach_mcast;
    struct softhca_detach_mcast detach_mcast;
    struct softhca_create_srq create_srq;
    struct softhca_modify_srq modify_srq;
    struct softhca_destroy_srq destroy_srq;
} told;
static struct softhca_create_qp_reply granted;
static struct softhca_query_qp_reply asked_of_qp;

static int script_create_cq(const struct softhca_create_cq *fields, struct softhca_create_cq_reply *reply)
{
    *reply = (struct softhca_create_cq_reply){.cq = ++numbers, .cqe = fields->entries};
    return refuses;
}

static int script_create_qp(const struct softhca_create_qp *fields, struct softhca_create_qp_reply *reply)
{
    told.create_qp = *fields;
    *reply = granted;
    reply->qp_num = ++numbers;
    return refuses;
}

static int script_query_qp(const struct softhca_query_qp *fields, struct softhca_query_qp_reply *reply)
{
    (void)fields;
    *reply = asked_of_qp;
    return 0;
}

static int script_create_srq(const struct softhca_create_srq *fields, struct softhca_create_srq_reply *reply)
{
    told.create_srq = *fields;
    *reply = (struct softhca_create_srq_reply){.srq = ++numbers, .max_wr = fields->max_wr, .max_sge = fields->max_sge};
    return refuses;
}

static int script_query_srq(const struct softhca_query_srq *fields, struct softhca_query_srq_reply *reply)
{
    (void)fields;
    *reply = (struct softhca_query_srq_reply){.max_wr = 8, .max_sge = 2, .srq_limit = 5};
    return 0;
}

static struct ring *resized; /* the ring that is made now, into which the adapter puts what was unread */
static void put_unread(void);

static int script_resize_cq(const struct softhca_resize_cq *fields, struct softhca_resize_cq_reply *reply)
{
    reply->cqe = fields->entries + 1;
    if (!refuses)
        put_unread();
    return refuses;
}

/* Time as a case makes it, where it is `scripted`. */
static struct {
    int scripted;
    uint64_t now_ns, yield_takes_ns, nap_ns;
    uint32_t yields, naps, checks;
} clocked;

static int script_yield(void)
{
    clocked.yields++;
    clocked.now_ns += clocked.yield_takes_ns;
    return clocked.scripted ? 0 : sched_yield();
}

static int script_nap(const struct timespec *length)
{
    clocked.naps++;
    clocked.now_ns += clocked.nap_ns = (uint64_t)length->tv_nsec;
    return clocked.scripted ? 0 : nanosleep(length, NULL);
}

static int script_time(struct timespec *now)
{
    *now = (struct timespec){(time_t)(clocked.now_ns / 1000000000u), (long)(clocked.now_ns % 1000000000u)};
    return clocked.scripted ? 0 : clock_gettime(CLOCK_MONOTONIC, now);
}

#define sched_yield() script_yield()
#define nanosleep(length, rest) script_nap(length)
#define clock_gettime(clock, now) script_time(now)
#include "cq.c"
#include "post.c"
#include "qp.c"

#define CHECK(condition)                                              \
    do {                                                              \
        if (!(condition)) {                                           \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);   \
            exit(1);                                                  \
        }                                                             \
    } while (0)

/* The parts of the library that are not here. */

int host_make_ring(struct host *host, struct ring *ring, uint32_t entries, uint64_t body_bytes)
{
    (void)host;
    memset(ring, 0, sizeof *ring);
    ring->control = calloc(1, sizeof *ring->control);
    ring->references = calloc(entries, sizeof *ring->references);
    ring->bodies = calloc(1, body_bytes);
    ring->entries = entries, ring->body_bytes = (uint32_t)body_bytes;
    resized = ring;
    return 0;
}

void host_free_ring(struct host *host, struct ring *ring)
{
    (void)host;
    free(ring->control), free(ring->references), free(ring->bodies);
    memset(ring, 0, sizeof *ring);
}

int lend_ring(struct ibv_pd *base, struct ring *ring, uint64_t kind)
{
    (void)ring, (void)kind;
    lent += base != NULL;
    return 0;
}

int host_believe(struct host *host, int believable)
{
    (void)host;
    return believable ? 0 : EIO;
}

int host_check(struct host *host)
{
    clocked.checks++;
    return host->dead;
}

static uint32_t woken;
void host_wake(struct host *host)
{
    (void)host;
    woken++;
}

void table_add(struct context *context, struct table *table, struct numbered *entry, uint32_t number, void *object)
{
    (void)context;
    *entry = (struct numbered){table->buckets[number % BUCKETS], number, object};
    table->buckets[number % BUCKETS] = entry;
}

void table_remove(struct context *context, struct table *table, struct numbered *entry)
{
    (void)context;
    CHECK(table->buckets[entry->number % BUCKETS] == entry);
    table->buckets[entry->number % BUCKETS] = entry->next;
}

void *table_find(struct table *table, uint32_t number)
{
    struct numbered *found = table->buckets[number % BUCKETS];
    return found && found->number == number ? found->object : NULL;
}

void await_acknowledged(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *completed, uint32_t got)
{
    (void)mutex, (void)cond;
    waits += got - *completed;
}

/* What the cases are made of. */

static struct host host;
static struct context context = {.host = &host, .context = {.num_comp_vectors = 1}};
static struct pd pd = {.pd = {.context = &context.context, .handle = 9}};
static struct xrcd xrcd = {.number = 8};
static uint64_t asleep, doorbells[512 + 1 + 2 * SOFTHCA_DOORBELL_SLOTS];

static struct ibv_cq *new_cq(int entries)
{
    struct ibv_cq *cq = ibv_create_cq(&context.context, entries, NULL, NULL, 0);
    CHECK(cq);
    return cq;
}

/* A queue pair whose rings have more room than it is granted. */
static struct ibv_qp *new_qp(int type, struct ibv_cq *send, struct ibv_cq *recv)
{
    struct ibv_qp_init_attr init = {.send_cq = send, .recv_cq = recv, .cap = {8, 8, 2, 2, 40}, .qp_type = type};
    struct ibv_qp *qp;
    granted = (struct softhca_create_qp_reply){0, 3, 4, 4, 2, 2, 40};
    qp = ibv_create_qp(&pd.pd, &init);
    CHECK(qp && init.cap.max_send_wr == 4);
    qp->state = SOFTHCA_STATE_RTS;
    return qp;
}

/* The adapter's side: write an entry, and read the `n`th one that was posted. */
static void put(struct ring *ring, const struct softhca_cqe *cqe, uint32_t bytes)
{
    uint64_t at = ring->control->tail % ring->entries;
    ring->references[at] = (struct softhca_reference){(uint32_t)(at * sizeof *cqe), bytes};
    memcpy(ring->bodies + at * sizeof *cqe, cqe, bytes);
    ring->control->tail++;
}

static void completes(struct ibv_cq *cq, struct softhca_cqe cqe)
{
    put(&CQ(cq)->ring, &cqe, sizeof cqe);
}

static struct softhca_send_wqe posted(const struct ring *ring, uint32_t n, unsigned char *behind)
{
    struct softhca_send_wqe wqe;
    struct softhca_reference at = ring->references[n % ring->entries];
    unsigned char bytes[512];
    for (uint32_t i = 0; i < at.body_bytes; i++)
        bytes[i] = ring->bodies[(at.body_offset + i) % ring->body_bytes];
    memcpy(&wqe, bytes, sizeof wqe);
    if (behind)
        memcpy(behind, bytes + sizeof wqe, at.body_bytes - sizeof wqe);
    return wqe;
}

static uint32_t unread_qp, unread_before_it;
static void put_unread(void)
{
    put(resized, &(struct softhca_cqe){.qp_num = unread_before_it, .wr_id = 3, .opcode = SOFTHCA_WC_RECV}, 48);
    put(resized, &(struct softhca_cqe){.qp_num = unread_qp, .wr_id = 1, .opcode = SOFTHCA_WC_RECV}, 48);
}

/* Cases */

static void completions(void)
{
    struct ibv_cq *cq = new_cq(4);
    struct ibv_cq_ex *ex = &CQ(cq)->ex;
    struct ibv_poll_cq_attr none = {0}, some = {1};
    struct ibv_wc wc;
    struct softhca_cqe cqe = {.wr_id = 5, .status = 10, .opcode = SOFTHCA_WC_RECV, .vendor_err = 7, .byte_len = 99,
                              .imm_or_key = 0x11223344, .src_qp = 3, .pkey_index = 2, .sl = 1, .path_bits = 6,
                              .slid = 70, .timestamp_ns = 12345};
    CHECK(!ibv_create_cq(&context.context, 0, NULL, NULL, 0) && errno == EINVAL);
    CHECK(!ibv_create_cq(&context.context, 1, NULL, NULL, 1) && !ibv_create_cq(&context.context, 1, NULL, NULL, -1));
    cq_set_extended(CQ(cq), 0);
    for (int with = 0; with < 2; with++) {
        cqe.wc_flags = (uint16_t)(with ? SOFTHCA_WC_WITH_IMM : 0);
        completes(cq, cqe), completes(cq, cqe);
        CHECK(poll_cq(cq, 1, &wc) == 1 && wc.wr_id == 5 && wc.status == 10 && wc.vendor_err == 7 && wc.slid == 70);
        CHECK(wc.imm_or_key == (with ? htonl(0x11223344) : 0x11223344) && wc.dlid_path_bits == 6 && wc.sl == 1);
        CHECK(wc.byte_len == 99 && wc.src_qp == 3 && wc.pkey_index == 2 && wc.wc_flags == cqe.wc_flags);
        CHECK(ex->start_poll(ex, &some) == EINVAL);
        CHECK(!ex->start_poll(ex, &none) && ex->wr_id == 5 && ex->status == 10);
        CHECK(ex->read_imm_data(ex) == (with ? htonl(0x11223344) : 0x11223344) && ex->read_dlid_path_bits(ex) == 6);
        CHECK(ex->read_slid(ex) == 70 && ex->read_sl(ex) == 1 && ex->read_completion_ts(ex) == 12345);
        CHECK(ex->next_poll(ex) == ENOENT);
        ex->end_poll(ex);
        CHECK(CQ(cq)->ring.control->head == 2U + 2U * (unsigned)with);
    }
    context.roce_sl = 3; /* a datagram's service level is its kind on Ethernet */
    cqe.wc_flags = SOFTHCA_WC_GRH;
    completes(cq, cqe), cqe.wc_flags = 0, completes(cq, cqe);
    CHECK(poll_cq(cq, 1, &wc) == 1 && wc.sl == 3 && poll_cq(cq, 1, &wc) == 1 && wc.sl == 1);
    context.roce_sl = 0, cqe.wc_flags = SOFTHCA_WC_GRH;
    completes(cq, cqe);
    CHECK(poll_cq(cq, 1, &wc) == 1 && wc.sl == 1);
    /* who polls an empty queue sees at some time that the adapter has gone */
    CHECK(ex->start_poll(ex, &none) == ENOENT && poll_cq(cq, 1, &wc) == 0);
    host.dead = EIO;
    for (int at = 0; at < YIELD_AFTER; at++)
        ex->start_poll(ex, &none);
    CHECK(ex->start_poll(ex, &none) == EIO && poll_cq(cq, 1, &wc) == -1);
    host.dead = 0;
    put(&CQ(cq)->ring, &cqe, 40); /* no completion is so short */
    CHECK(poll_cq(cq, 1, &wc) == -1 && ex->start_poll(ex, &none) == EIO);
}

static void *polls_although_cancelled(void *one)
{
    struct ibv_wc wc;
    pthread_cancel(pthread_self());
    errno = ENOTTY;
    return poll_cq(one, 1, &wc) == 0 && errno == ENOTTY ? one : NULL;
}

static void ignores(int number)
{
    (void)number;
}

/* A thread that polls beside programs that compute sleeps, and neither a cancellation nor a signal shows it. */
static void napping(void)
{
    struct itimerval each = {{0, 100}, {0, 100}}, none = {{0, 0}, {0, 0}};
    struct ibv_cq *cq = new_cq(4);
    struct ibv_wc wc;
    pthread_t thread;
    void *returned;
    CQ(cq)->misses = YIELD_AFTER;
    CQ(cq)->pace.contended_until_ns = UINT64_MAX;
    CHECK(!pthread_create(&thread, NULL, polls_although_cancelled, cq) && !pthread_join(thread, &returned));
    CHECK(returned == cq);
    CHECK(!sigaction(SIGALRM, &(struct sigaction){.sa_handler = ignores}, NULL));
    CHECK(!setitimer(ITIMER_REAL, &each, NULL));
    errno = ENOTTY;
    for (int turn = 0; turn < 50; turn++)
        CHECK(poll_cq(cq, 1, &wc) == 0 && errno == ENOTTY);
    CHECK(!setitimer(ITIMER_REAL, &none, NULL));
}

/* So many polls of a queue in which there is nothing; how many of them gave way. */
static uint32_t in_vain(struct ibv_cq *cq, uint32_t polls)
{
    uint32_t before = clocked.yields + clocked.naps;
    struct ibv_wc wc;
    while (polls--)
        CHECK(poll_cq(cq, 1, &wc) == 0);
    return clocked.yields + clocked.naps - before;
}

/* After many polls in vain a thread yields, and sleeps where a yield was long: for a part of the time since. */
static void giving_way(void)
{
    struct ibv_cq *cq = new_cq(4);
    struct softhca_cqe cqe = {.opcode = SOFTHCA_WC_RECV};
    struct ibv_poll_cq_attr none = {0};
    struct ibv_wc wc;
    int state;
    cq_set_extended(CQ(cq), 0);
    clocked.scripted = 1, clocked.now_ns = 5000000000u, clocked.yield_takes_ns = 1000;
    CHECK(in_vain(cq, YIELD_AFTER - 1) == 0 && in_vain(cq, 2) == 2 && clocked.yields == 2);
    clocked.yield_takes_ns = 600000; /* an unrelated program has computed */
    CHECK(in_vain(cq, 1) == 1 && clocked.yields == 3);
    CHECK(in_vain(cq, 1) == 1 && clocked.yields == 3 && clocked.naps == 1);
    CHECK(clocked.nap_ns == (2 * 1000 + 600000) / PACE_NAP_FRACTION);
    CHECK(!pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) && state == PTHREAD_CANCEL_ENABLE);
    completes(cq, cqe);
    CHECK(poll_cq(cq, 1, &wc) == 1 && in_vain(cq, YIELD_AFTER - 1) == 0 && in_vain(cq, 1) == 1);
    completes(cq, cqe);
    CHECK(!start_poll(&CQ(cq)->ex, &none));
    end_poll(&CQ(cq)->ex);
    CHECK(in_vain(cq, YIELD_AFTER - 1) == 0 && in_vain(cq, 1) == 1);
    clocked.checks = 0, CQ(cq)->misses = 4094;
    CHECK(in_vain(cq, 1) == 1 && !clocked.checks && in_vain(cq, 1) == 1 && clocked.checks == 1);
    clocked.scripted = 0;
}

/* What is written before a request that is refused is posted. */
static void parts(void)
{
    struct ibv_cq *cq = new_cq(4);
    struct ibv_qp *qp = new_qp(2, cq, cq);
    struct ibv_sge list[3] = {{1, 2, 3}};
    struct ibv_send_wr last = {.opcode = 14}, send = {.next = &last, .opcode = SOFTHCA_SEND}, *bad_send = NULL;
    struct ibv_recv_wr more = {.num_sge = 3, .sg_list = list}, recv = {.next = &more}, *bad = NULL;
    struct srq srq = {.srq = {.context = &context.context}, .max_sge = 1};
    struct wq wq = {.wq = {.context = &context.context, .state = 1}, .max_sge = 1, .doorbell = 5};
    uint64_t *bell = doorbells + 512;
    CHECK(!host_make_ring(&host, &srq.ring, 2, 128) && !host_make_ring(&host, &wq.ring, 2, 128));
    CHECK(post_send(qp, &send, &bad_send) == EINVAL && bad_send == &last);
    CHECK(QP(qp)->send.control->tail == 1 && bell[3] == 1);
    CHECK(post_recv(qp, &recv, &bad) == EINVAL && bad == &more && QP(qp)->recv.control->tail == 1);
    bad = NULL;
    CHECK(post_srq_recv(&srq.srq, &recv, &bad) == EINVAL && bad == &more && srq.ring.control->tail == 1);
    bad = NULL;
    CHECK(post_wq_recv(&wq.wq, &recv, &bad) == EINVAL && bad == &more && wq.ring.control->tail == 1 && bell[5] == 1);
    recv.next = NULL, bell[5] = 0;
    CHECK(!post_wq_recv(&wq.wq, &recv, &bad) && wq.ring.control->tail == 2 && bell[5] == 1);
    bell[5] = 0, bad = NULL;
    CHECK(post_wq_recv(&wq.wq, &recv, &bad) == ENOMEM && bad == &recv && wq.ring.control->tail == 2 && !bell[5]);
    wq.ring.control->head = 2, wq.wq.state = SOFTHCA_WQS_RESET, bad = NULL;
    CHECK(post_wq_recv(&wq.wq, &recv, &bad) == EINVAL && bad == &recv && wq.ring.control->tail == 2 && !bell[5]);
    host_free_ring(&host, &srq.ring), host_free_ring(&host, &wq.ring);
}

static void arming(void)
{
    struct ibv_cq *cq = new_cq(4);
    uint64_t *arm = &CQ(cq)->ring.control->arm;
    CHECK(!req_notify_cq(cq, 1) && *arm == SOFTHCA_ARM_SOLICITED);
    CHECK(!req_notify_cq(cq, 0) && *arm == SOFTHCA_ARM_NEXT);
    CHECK(!req_notify_cq(cq, 1) && *arm == SOFTHCA_ARM_NEXT); /* it asks for less */
    *arm = SOFTHCA_ARM_NONE;
    host.dead = EIO;
    CHECK(req_notify_cq(cq, 1) == EIO);
}

/* Completions of a queue pair that has ended are never polled, those of a later one with its number are. */
static void dropping(void)
{
    struct ibv_cq *send = new_cq(4), *recv = new_cq(4), *other = new_cq(4);
    struct ibv_qp *qp = new_qp(2, send, recv), *another = new_qp(2, send, send);
    struct softhca_cqe sent = {.wr_id = 1, .qp_num = qp->qp_num}, came = {.wr_id = 2, .qp_num = qp->qp_num,
                               .opcode = SOFTHCA_WC_RECV}, stays = {.wr_id = 3, .qp_num = another->qp_num};
    struct ibv_qp_attr reset = {.qp_state = SOFTHCA_STATE_RESET};
    struct ibv_wc wc;
    completes(send, sent);
    CHECK(poll_cq(send, 1, &wc) == 1 && CQ(send)->last == QP(qp));
    completes(recv, sent); /* of a queue pair that completes elsewhere: it would not be forgotten with it */
    CHECK(poll_cq(recv, 1, &wc) == 1 && !CQ(recv)->last);
    completes(send, sent), completes(send, stays), completes(recv, came);
    CHECK(!ibv_modify_qp(qp, &reset, 1));
    CHECK(!CQ(send)->last && poll_cq(send, 4, &wc) == 1 && wc.wr_id == 3 && poll_cq(recv, 4, &wc) == 0);
    CHECK(CQ(recv)->ring.control->head == CQ(recv)->ring.control->tail); /* their room is given back, too */
    completes(send, sent), completes(recv, came); /* those of later work are */
    CHECK(poll_cq(send, 1, &wc) == 1 && wc.wr_id == 1 && poll_cq(recv, 4, &wc) == 1);
    stays.opcode = SOFTHCA_WC_RECV;
    completes(recv, came), completes(recv, stays), completes(recv, came);
    CHECK(poll_cq(recv, 1, &wc) == 1);
    unread_qp = qp->qp_num, unread_before_it = another->qp_num, QP(qp)->async_events_got = 4, waits = 0;
    CHECK(ibv_destroy_cq(recv) == EBUSY);
    CHECK(!ibv_destroy_qp(qp) && waits == 4);
    /* a queue that is resized begins anew with what was unread, which is two */
    lent = 0, CQ(recv)->parent = &pd.pd;
    CHECK(ibv_resize_cq(recv, 0) == EINVAL && !ibv_resize_cq(recv, 6) && recv->cqe == 7 && lent == 1);
    completes(recv, came);
    CHECK(poll_cq(recv, 1, &wc) == 1 && wc.wr_id == 3);
    CHECK(poll_cq(recv, 4, &wc) == 1 && wc.wr_id == 2);
    refuses = ENOMEM;
    CHECK(ibv_resize_cq(recv, 9) == ENOMEM && recv->cqe == 7 && CQ(recv)->ring.entries == 6);
    refuses = 0, waits = 0, CQ(recv)->comp_events_got = 2, recv->async_events_completed = -8u;
    CHECK(!ibv_destroy_cq(recv) && waits == 10);
    host.dead = EIO; /* nobody else says that it is in use */
    CHECK(ibv_destroy_cq(send) == EBUSY && !ibv_destroy_cq(other));
    CHECK(!ibv_destroy_qp(another) && !ibv_destroy_cq(send));
}

/* They keep no place either, though nobody polls. */
static void churning(void)
{
    struct ibv_cq *cq = new_cq(4);
    struct ibv_qp *stays = new_qp(2, cq, cq);
    struct ibv_poll_cq_attr parts = {0};
    struct ibv_wc wc;
    for (int round = 0; round < 9; round++) {
        struct ibv_qp *qp = new_qp(2, cq, cq);
        struct softhca_cqe ends = {.wr_id = 1, .qp_num = qp->qp_num};
        completes(cq, ends), completes(cq, ends), completes(cq, ends);
        CHECK(!ibv_destroy_qp(qp));
        CHECK(CQ(cq)->ring.control->head == CQ(cq)->ring.control->tail && !CQ(cq)->drop_count);
    }
    struct ibv_qp *first = new_qp(2, cq, cq), *last = new_qp(2, cq, cq);
    uint64_t head = CQ(cq)->ring.control->head;
    completes(cq, ((struct softhca_cqe){.wr_id = 2, .qp_num = first->qp_num}));
    completes(cq, ((struct softhca_cqe){.wr_id = 3, .qp_num = stays->qp_num}));
    completes(cq, ((struct softhca_cqe){.wr_id = 4, .qp_num = last->qp_num}));
    CHECK(!ibv_destroy_qp(last) && CQ(cq)->ring.control->head == head && CQ(cq)->drop_count == 1);
    CHECK(!ibv_destroy_qp(first) && CQ(cq)->ring.control->head == head + 1 && CQ(cq)->drop_count == 2);
    CHECK(poll_cq(cq, 4, &wc) == 1 && wc.wr_id == 3);
    last = new_qp(2, cq, cq);
    completes(cq, ((struct softhca_cqe){.wr_id = 5, .qp_num = stays->qp_num}));
    completes(cq, ((struct softhca_cqe){.wr_id = 6, .qp_num = last->qp_num}));
    CHECK(!ibv_destroy_qp(last) && CQ(cq)->drop_count == 1);
    CHECK(!start_poll(&CQ(cq)->ex, &parts) && CQ(cq)->ex.wr_id == 5);
    end_poll(&CQ(cq)->ex);
    CHECK(start_poll(&CQ(cq)->ex, &parts) == ENOENT && CQ(cq)->ring.control->head == CQ(cq)->ring.control->tail);
    last = new_qp(2, cq, cq);
    completes(cq, ((struct softhca_cqe){.wr_id = 5, .qp_num = stays->qp_num}));
    completes(cq, ((struct softhca_cqe){.wr_id = 6, .qp_num = last->qp_num}));
    CHECK(!ibv_destroy_qp(last) && poll_cq(cq, 1, &wc) == 1 && poll_cq(cq, 1, &wc) == 0);
    CHECK(CQ(cq)->ring.control->head == CQ(cq)->ring.control->tail);
    put(&CQ(cq)->ring, &(struct softhca_cqe){.qp_num = stays->qp_num}, 40); /* the next poll says so */
    CHECK(!ibv_destroy_qp(stays) && !CQ(cq)->ring.broken && poll_cq(cq, 1, &wc) == -1);
    CHECK(!ibv_destroy_cq(cq));
}

static void channels(void)
{
    struct channel channel = {.channel = {.context = &context.context}};
    struct ibv_cq *cq = ibv_create_cq(&context.context, 3, &channel, &channel.channel, 0);
    CHECK(cq && channel.channel.refcnt == 1 && cq->cq_context == &channel && cq->channel == &channel.channel);
    refuses = EBUSY;
    CHECK(ibv_destroy_cq(cq) == EBUSY && channel.channel.refcnt == 1);
    refuses = 0;
    CHECK(!ibv_destroy_cq(cq) && channel.channel.refcnt == 0);
}

static void making(void)
{
    struct ibv_cq *send = new_cq(4), *recv = new_cq(4);
    struct ibv_qp_init_attr init = {.send_cq = send, .recv_cq = recv, .cap = {8, 8, 2, 2, 0}, .qp_type = 2,
                                    .sq_sig_all = 5};
    struct ibv_qp_init_attr_ex target = {.qp_type = QPT_XRC_RECV, .comp_mask = 2, .xrcd = &xrcd.xrcd, .send_cq = send};
    struct ibv_qp *qp;
    granted = (struct softhca_create_qp_reply){0, SOFTHCA_DOORBELL_SLOTS - 1, 8, 8, 2, 2, 32};
    init.cap.max_send_sge = 17; /* not of any number of them */
    qp = ibv_create_qp(&pd.pd, &init);
    CHECK(qp && told.create_qp.max_inline_data == 256 && !ibv_destroy_qp(qp));
    init.cap = (struct ibv_qp_cap){8, 8, 2, 2, 0};
    qp = ibv_create_qp(&pd.pd, &init);
    CHECK(qp && told.create_qp.max_inline_data == 32); /* an entry's elements' room, which was not asked for */
    CHECK(told.create_qp.send_cq == send->handle && told.create_qp.recv_cq == recv->handle);
    CHECK(told.create_qp.sq_sig_all == 1 && CQ(send)->users == 1 && CQ(recv)->users == 1);
    for (int at = 0; at < 7; at++) { /* answers that cannot be */
        struct softhca_create_qp_reply lie = granted;
        uint32_t *words[] = {&lie.doorbell, &lie.max_send_wr, &lie.max_recv_wr, &lie.max_send_sge, &lie.max_recv_sge,
                             &lie.max_inline_data};
        if (at)
            ++*words[at - 1];
        granted = lie;
        qp = ibv_create_qp(&pd.pd, &init);
        CHECK(at ? !qp && errno == EIO : qp != NULL);
        if (at)
            --*words[at - 1];
        granted = lie;
    }
    CHECK(CQ(send)->users == 2);
    init.cap.max_send_sge = 4097;
    CHECK(!ibv_create_qp(&pd.pd, &init) && errno == EINVAL);
    CHECK(make_qp(&context.context, &target) && told.create_qp.xrcd == 8 && !told.create_qp.send_cq);
    CHECK(!told.create_qp.send_frames_count && !told.create_qp.recv_frames_count && !told.create_qp.pd);
}

static void modifying(void)
{
    struct ibv_cq *cq = new_cq(4);
    struct ibv_qp *qp = new_qp(2, cq, cq), *initiator = new_qp(QPT_XRC_SEND, cq, cq), *target;
    struct ibv_qp_init_attr_ex init = {.qp_type = QPT_XRC_RECV, .comp_mask = 2, .xrcd = &xrcd.xrcd};
    struct ibv_qp_attr attr = {.qp_state = -1, .min_rnr_timer = 0xE5, .qp_access_flags = 0xFFFF,
                               .ah_attr = {.grh = {.flow_label = 0xFFF12345}}};
    struct ibv_send_wr wr = {.opcode = SOFTHCA_SEND}, *bad;
    target = make_qp(&context.context, &init);
    CHECK(ibv_modify_qp(qp, &attr, 1) == EINVAL);
    attr.qp_state = SOFTHCA_STATE_ERR + 1;
    CHECK(ibv_modify_qp(qp, &attr, 1) == EINVAL && ibv_modify_qp(qp, &attr, 1 << 26) == EOPNOTSUPP);
    CHECK(!ibv_modify_qp(qp, &attr, 0x3ffffff & ~1) && told.modify_qp.attr_mask == (0x3ffffff & ~1 & ~DEAD_BITS));
    CHECK(told.modify_qp.min_rnr_timer == 5 && told.modify_qp.qp_access_flags == 0x37f);
    CHECK(told.modify_qp.ah_flow_label == 0x12345 && qp->state == SOFTHCA_STATE_RTS);
    CHECK(!ibv_modify_qp(initiator, &attr, 1 << 15 | 1 << 17 | 1 << 13) && told.modify_qp.attr_mask == 1 << 13);
    CHECK(!ibv_modify_qp(target, &attr, 1 << 10 | 1 << 11 | 1 << 13 | 1 << 15) && told.modify_qp.attr_mask == 1 << 15);
    attr.qp_state = SOFTHCA_STATE_RESET, refuses = EINVAL;
    CHECK(ibv_modify_qp(qp, &attr, 1) == EINVAL && qp->state == SOFTHCA_STATE_RTS);
    refuses = 0;
    for (int at = 0; at < 4; at++)
        CHECK(!post_send(qp, &wr, &bad));
    CHECK(post_send(qp, &wr, &bad) == ENOMEM && !ibv_modify_qp(qp, &attr, 1) && qp->state == SOFTHCA_STATE_RESET);
    qp->state = SOFTHCA_STATE_RTS; /* the queue is empty, and what stands in it is found behind that */
    wr.send_flags = SEND_SIGNALED, wr.wr_id = 77;
    CHECK(!post_send(qp, &wr, &bad) && QP(qp)->retired == 4);
    qp_retire(QP(qp), &(struct softhca_cqe){.wr_id = 77});
    CHECK(QP(qp)->retired == 5);
    asked_of_qp = (struct softhca_query_qp_reply){.qp_state = SOFTHCA_STATE_SQD, .sq_draining = 1, .ah_hop_limit = 8,
                                                   .alt_ah_hop_limit = 9};
    QP(qp)->sq_sig_all = 1;
    {
        struct ibv_qp_init_attr made;
        CHECK(!ibv_query_qp(qp, &attr, 1 << 7, &made) && attr.sq_draining && made.sq_sig_all && made.send_cq == cq);
        CHECK(attr.ah_attr.grh.hop_limit == 8 && attr.alt_ah_attr.grh.hop_limit == 9);
        CHECK(qp->state == SOFTHCA_STATE_RTS && !ibv_query_qp(qp, &attr, 1, NULL) && qp->state == SOFTHCA_STATE_SQD);
    }
}

static void sending(void)
{
    struct ibv_cq *cq = new_cq(4);
    struct ibv_qp *qp = new_qp(2, cq, cq), *datagrams = new_qp(QPT_UD, cq, cq), *xrc = new_qp(QPT_XRC_SEND, cq, cq);
    char text[64] = "forty bytes and some more of them, to be cut";
    struct ibv_sge list[3] = {{(uintptr_t)text, 20, 1}, {(uintptr_t)text + 20, 20, 2}, {0, 1, 3}};
    struct ibv_send_wr wr = {.wr_id = 6, .opcode = SOFTHCA_SEND, .send_flags = SEND_FENCE | SEND_SOLICITED | SEND_SIGNALED,
                             .sg_list = list, .num_sge = 2}, *bad = NULL;
    struct ibv_mw window = {.handle = 31};
    struct softhca_send_wqe wqe;
    unsigned char behind[256];
    uint64_t *bell = doorbells + 512;
    CHECK(!post_send(qp, &wr, &bad) && bell[3] == 1);
    wqe = posted(&QP(qp)->send, 0, behind);
    CHECK(wqe.flags == (SOFTHCA_FENCE | SOFTHCA_SOLICITED | SOFTHCA_SIGNALED) && wqe.num_sge == 2 && wqe.wr_id == 6);
    CHECK(!memcmp(behind, list, 32));
    wr.send_flags = SEND_INLINE;
    CHECK(!post_send(qp, &wr, &bad));
    wqe = posted(&QP(qp)->send, 1, behind);
    CHECK(wqe.inline_bytes == 40 && !memcmp(behind, text, 40) && wqe.flags == SOFTHCA_INLINE && !wqe.num_sge);
    wr.num_sge = 3; /* one byte more than there is room for, in all */
    CHECK(post_send(qp, &wr, &bad) == EINVAL && bad == &wr && QP(qp)->send.tail == 2);
    wr.send_flags = 0;
    CHECK(post_send(qp, &wr, &bad) == EINVAL);
    wr.num_sge = -1;
    CHECK(post_send(qp, &wr, &bad) == EINVAL);
    wr.num_sge = 0, wr.send_flags = 16;
    CHECK(post_send(qp, &wr, &bad) == EINVAL);
    wr.send_flags = 0, wr.opcode = 10;
    CHECK(post_send(qp, &wr, &bad) == EINVAL);
    for (int state = SOFTHCA_STATE_RESET; state <= (int)SOFTHCA_STATE_RTR; state++) {
        wr.opcode = SOFTHCA_SEND, qp->state = state;
        CHECK(post_send(qp, &wr, &bad) == EINVAL && QP(qp)->send.tail == 2);
    }
    qp->state = SOFTHCA_STATE_ERR;
    host.dead = EIO;
    CHECK(post_send(qp, &wr, &bad) == EIO);
    host.dead = 0;
    /* a window: all of its rights, or none of a region's bytes */
    wr.opcode = SOFTHCA_BIND_MW, wr.bind_mw.mw = NULL;
    CHECK(post_send(qp, &wr, &bad) == EINVAL);
    wr.bind_mw.mw = &window, wr.bind_mw.rkey = 5, wr.bind_mw.bind_info.mw_access_flags = 0x2e;
    CHECK(!post_send(qp, &wr, &bad));
    wqe = posted(&QP(qp)->send, 2, NULL);
    CHECK(wqe.swap == 0x2eull << 32 && wqe.rkey == 31 && wqe.imm_or_key == 5);
    /* datagrams have an address, XRC a queue */
    wr.opcode = SOFTHCA_SEND, wr.wr.ud.ah = NULL;
    CHECK(post_send(datagrams, &wr, &bad) == EINVAL);
    wr.opcode = SOFTHCA_RDMA_READ, wr.wr.rdma.remote_addr = 8; /* where an address handle would be */
    CHECK(!post_send(datagrams, &wr, &bad));
    wqe = posted(&QP(datagrams)->send, 0, NULL);
    CHECK(wqe.opcode == SOFTHCA_RDMA_READ && wqe.remote_va == 8 && !wqe.ah);
    wr.opcode = SOFTHCA_RDMA_WRITE_WITH_IMM, wr.imm_or_key = htonl(0x1020304), wr.remote_srqn = 17;
    wr.wr.rdma.rkey = 4, wr.wr.rdma.remote_addr = 8;
    CHECK(!post_send(xrc, &wr, &bad));
    wqe = posted(&QP(xrc)->send, 0, NULL);
    CHECK(wqe.remote_qpn == 17 && wqe.rkey == 4 && wqe.remote_va == 8 && wqe.imm_or_key == 0x1020304);
    wr.opcode = SOFTHCA_SEND_WITH_INV;
    CHECK(!post_send(xrc, &wr, &bad));
    wqe = posted(&QP(xrc)->send, 1, NULL);
    CHECK(wqe.imm_or_key == htonl(0x1020304) && !wqe.rkey && !wqe.remote_va);
}

/* A send has its place until a completion of it, or of one behind it, is polled. */
static void retiring(void)
{
    struct ibv_cq *cq = new_cq(8);
    struct ibv_qp *qp = new_qp(2, cq, cq);
    struct ibv_send_wr wr = {.opcode = SOFTHCA_SEND}, *bad;
    struct ibv_wc wc;
    for (wr.wr_id = 0; wr.wr_id < 4; wr.wr_id++) {
        wr.send_flags = wr.wr_id == 2 ? SEND_SIGNALED : 0;
        CHECK(!post_send(qp, &wr, &bad));
    }
    CHECK(post_send(qp, &wr, &bad) == ENOMEM && QP(qp)->send.tail == 4);
    QP(qp)->send.control->head = 4; /* the adapter has taken them: which does not count */
    CHECK(post_send(qp, &wr, &bad) == ENOMEM);
    completes(cq, (struct softhca_cqe){.qp_num = qp->qp_num, .wr_id = 2, .opcode = SOFTHCA_WC_RECV});
    CHECK(poll_cq(cq, 1, &wc) == 1 && QP(qp)->retired == 0); /* a receive */
    completes(cq, (struct softhca_cqe){.qp_num = qp->qp_num, .wr_id = 1, .status = 5});
    CHECK(poll_cq(cq, 1, &wc) == 1 && QP(qp)->retired == 2); /* in error, of one that was not signaled */
    completes(cq, (struct softhca_cqe){.qp_num = qp->qp_num, .wr_id = 2});
    CHECK(poll_cq(cq, 1, &wc) == 1 && QP(qp)->retired == 3 && !post_send(qp, &wr, &bad));
    QP(qp)->sq_sig_all = 1, wr.send_flags = 0, wr.wr_id = 9;
    CHECK(!post_send(qp, &wr, &bad) && !post_send(qp, &wr, &bad) && QP(qp)->send.tail == 7);
    completes(cq, (struct softhca_cqe){.qp_num = qp->qp_num, .wr_id = 9});
    CHECK(poll_cq(cq, 1, &wc) == 1 && QP(qp)->retired == 6); /* all are signaled */
}

/* A send queue that goes on behind an error has all its places again, whatever the work requests are called. */
static void going_on(void)
{
    for (int polled = 0; polled < 2; polled++) {
        struct ibv_cq *cq = new_cq(32);
        struct ibv_qp *qp = new_qp(2, cq, cq);
        struct ibv_qp_attr attr = {.qp_state = SOFTHCA_STATE_RTS};
        struct ibv_send_wr wr = {.opcode = SOFTHCA_SEND}, *bad;
        struct ibv_wc wc;
        for (int round = 0; round < 3; round++) {
            for (int at = 0; at < 4; at++) { /* one is sent, one fails, two are flushed */
                wr.send_flags = at < 2 ? 0 : SEND_SIGNALED;
                CHECK(!post_send(qp, &wr, &bad));
            }
            CHECK(post_send(qp, &wr, &bad) == ENOMEM);
            QP(qp)->send.control->head = 4 + 5 * (uint64_t)round;
            for (int at = 1; at < 4; at++)
                completes(cq, (struct softhca_cqe){.qp_num = qp->qp_num, .status = 5});
            for (int at = 1; polled && at < 4; at++)
                CHECK(poll_cq(cq, 1, &wc) == 1);
            CHECK(!ibv_modify_qp(qp, &attr, 1));
            for (int at = 1; !polled && at < 4; at++) {
                CHECK(QP(qp)->retired == (uint64_t)(5 * round + (at == 1 ? 0 : at)));
                CHECK(poll_cq(cq, 1, &wc) == 1);
            }
            CHECK(QP(qp)->retired == 4 + 5 * (uint64_t)round);
            wr.send_flags = SEND_SIGNALED;
            CHECK(!post_send(qp, &wr, &bad));
            QP(qp)->send.control->head = 5 + 5 * (uint64_t)round;
            completes(cq, (struct softhca_cqe){.qp_num = qp->qp_num});
            CHECK(poll_cq(cq, 1, &wc) == 1 && QP(qp)->retired == 5 + 5 * (uint64_t)round);
        }
    }
}

/* What it then holds of errors that are polled yet is its own sends', and is taken anew when it goes on again. */
static void going_on_again(void)
{
    struct ibv_cq *cq = new_cq(32);
    struct ibv_qp *qp = new_qp(2, cq, cq), *other = new_qp(2, cq, cq);
    struct ibv_qp_attr go = {.qp_state = SOFTHCA_STATE_RTS}, reset = {.qp_state = SOFTHCA_STATE_RESET};
    struct ibv_send_wr wr = {.opcode = SOFTHCA_SEND, .send_flags = SEND_SIGNALED}, *bad;
    struct softhca_cqe failed = {.qp_num = qp->qp_num, .status = 5}, came = failed;
    struct ibv_wc wc;
    uint64_t *head = &QP(qp)->send.control->head;
    came.opcode = SOFTHCA_WC_RECV;
    completes(cq, (struct softhca_cqe){.qp_num = other->qp_num, .opcode = SOFTHCA_WC_RECV});
    CHECK(!post_send(qp, &wr, &bad));
    completes(cq, failed); /* is dropped, and stands behind another one */
    CHECK(!ibv_modify_qp(qp, &reset, 1) && CQ(cq)->drop_count == 1);
    qp->state = SOFTHCA_STATE_RTS;
    CHECK(!post_send(qp, &wr, &bad));
    *head = 2, completes(cq, failed), completes(cq, came);
    CHECK(!ibv_modify_qp(qp, &go, 1) && QP(qp)->errors_left == 1 && QP(qp)->errors_end == 2);
    CHECK(!post_send(qp, &wr, &bad));
    *head = 3;
    CHECK(!ibv_modify_qp(qp, &go, 1) && QP(qp)->errors_end == 2); /* the one before is not polled yet */
    CHECK(poll_cq(cq, 3, &(struct ibv_wc[3]){{0}}[0]) == 3 && QP(qp)->retired == 2);
    completes(cq, failed);
    CHECK(poll_cq(cq, 1, &wc) == 1 && !ibv_modify_qp(qp, &go, 1) && QP(qp)->retired == 3 && !QP(qp)->failed);
    CHECK(!post_send(qp, &wr, &bad));
    *head = 4;
    CHECK(!ibv_modify_qp(qp, &go, 1) && QP(qp)->retired == 3); /* nothing has failed since */
    QP(qp)->failed = 1, *head = 3 + (uint64_t)QP(qp)->send.entries + 1;
    CHECK(!ibv_modify_qp(qp, &go, 1) && QP(qp)->retired == 3); /* no adapter takes more than there is room for */
    *head = 3 + (uint64_t)QP(qp)->send.entries;
    CHECK(!ibv_modify_qp(qp, &go, 1) && QP(qp)->retired == *head);
    QP(qp)->failed = 1, QP(qp)->errors_left = 1;
    CHECK(!ibv_modify_qp(qp, &reset, 1) && !QP(qp)->failed && !QP(qp)->errors_left);
}

static void receiving(void)
{
    struct ibv_cq *cq = new_cq(4);
    struct ibv_qp *qp = new_qp(2, cq, cq);
    struct ibv_sge list[3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
    struct ibv_recv_wr wr = {.wr_id = 5, .sg_list = list, .num_sge = 2}, *bad = NULL;
    struct ring *ring = &QP(qp)->recv;
    struct softhca_recv_wqe wqe;
    uint64_t *bell = doorbells + 512;
    qp->state = SOFTHCA_STATE_RESET;
    CHECK(post_recv(qp, &wr, &bad) == EINVAL && bad == &wr);
    qp->state = SOFTHCA_STATE_INIT;
    wr.num_sge = 3, bad = NULL;
    CHECK(post_recv(qp, &wr, &bad) == EINVAL && bad == &wr);
    wr.num_sge = 65537;
    CHECK(post_recv(qp, &wr, &bad) == EINVAL);
    wr.num_sge = -65535;
    CHECK(post_recv(qp, &wr, &bad) == EINVAL && ring->tail == 0);
    wr.num_sge = 2, qp->state = SOFTHCA_STATE_ERR, bell[3] = 0;
    ring->body_tail = ring->body_bytes - (uint32_t)sizeof wqe; /* the elements begin at the beginning again */
    CHECK(!post_recv(qp, &wr, &bad) && bell[3] == 1);
    memcpy(&wqe, ring->bodies + ring->body_bytes - sizeof wqe, sizeof wqe);
    CHECK(wqe.wr_id == 5 && wqe.num_sge == 2 && !memcmp(ring->bodies, list, 32));
}

static void shared(void)
{
    struct ibv_cq *cq = new_cq(4);
    struct ibv_srq_init_attr_ex init = {.attr = {2, 0, 0}, .comp_mask = 2, .srq_type = SOFTHCA_SRQT_XRC, .pd = &pd.pd,
                                        .cq = cq, .xrcd = &xrcd.xrcd};
    struct ibv_recv_wr wr = {.wr_id = 5}, *bad = NULL;
    struct ibv_srq *srq = make_srq(&context.context, &init);
    CHECK(srq && told.create_srq.srq_type == 0 && told.create_srq.max_sge == 1 && !told.create_srq.cq);
    CHECK(!CQ(cq)->users); /* the type does not count, nor its parts */
    init.comp_mask = 1 | 2 | 4;
    CHECK(!make_srq(&context.context, &init) && errno == EINVAL);
    init.comp_mask = 1 | 2 | 8;
    CHECK(!make_srq(&context.context, &init) && errno == EINVAL);
    init.comp_mask = 16 | 2;
    CHECK(!make_srq(&context.context, &init) && errno == EOPNOTSUPP);
    init.comp_mask = 1 | 2 | 4 | 8;
    CHECK(!ibv_destroy_srq(srq));
    srq = make_srq(&context.context, &init);
    CHECK(srq && told.create_srq.cq == cq->handle && told.create_srq.xrcd == 8 && CQ(cq)->users == 1);
    CHECK(!post_srq_recv(srq, &wr, &bad) && !post_srq_recv(srq, &wr, &bad) && !bad);
    CHECK(post_srq_recv(srq, &wr, &bad) == ENOMEM && bad == &wr);
    host.dead = EIO;
    bad = NULL, SRQ(srq)->ring.control->head = 2;
    CHECK(post_srq_recv(srq, &wr, &bad) == EIO && bad == &wr);
    host.dead = 0;
    SRQ(srq)->async_events_got = 3, waits = 0;
    CHECK(!ibv_destroy_srq(srq) && waits == 3 && !CQ(cq)->users);
}

/* What is posted between ibv_wr_start and ibv_wr_complete is posted whole, or not at all. */
static void batches(void)
{
    struct ibv_cq *cq = new_cq(4);
    struct ibv_qp *qp = new_qp(2, cq, cq);
    struct ibv_qp_ex *ex = &QP(qp)->ex;
    struct ibv_sge list[3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
    char text[] = "forty bytes and some more of them, to be cut";
    struct ibv_data_buf pieces[2] = {{text, 20}, {text + 20, 21}};
    struct ibv_mw window = {.handle = 31};
    struct ibv_mw_bind_info info = {.mw_access_flags = 0x2e, .addr = 3, .length = 4};
    struct softhca_send_wqe wqe;
    unsigned char behind[256];
    CHECK(!ibv_qp_to_qp_ex(qp));
    qp_set_extended(QP(qp));
    CHECK(ibv_qp_to_qp_ex(qp) == ex);
    ex->start(ex), ex->send(ex), ex->abort(ex);
    CHECK(!QP(qp)->send.tail);
    ex->start(ex), ex->wr_id = 1, ex->wr_flags = 16, ex->send(ex);
    CHECK(ex->complete(ex) == EINVAL && !QP(qp)->send.tail);
    ex->start(ex), ex->wr_flags = 32, ex->send(ex);
    CHECK(ex->complete(ex) == EINVAL && !QP(qp)->send.tail);
    ex->wr_flags = 0;
    ex->start(ex), ex->send(ex), ex->set_sge_list(ex, 3, list), ex->send_tso(ex, NULL, 0, 0);
    CHECK(ex->complete(ex) == EINVAL && !QP(qp)->send.tail); /* the first of two reasons */
    ex->start(ex), ex->send(ex), pieces[1].length = 21, ex->set_inline_data_list(ex, 2, pieces);
    CHECK(ex->complete(ex) == EINVAL);
    ex->start(ex);
    for (int at = 0; at < 5; at++)
        ex->send(ex);
    CHECK(ex->complete(ex) == ENOMEM && !QP(qp)->send.tail);
    /* all that an operation can say */
    ex->start(ex), ex->wr_id = 8, ex->wr_flags = SEND_INLINE;
    ex->send(ex), pieces[1].length = 20, ex->set_inline_data_list(ex, 2, pieces);
    ex->atomic_cmp_swp(ex, 5, 16, 100, 200), ex->set_sge(ex, 3, 1, 2);
    ex->wr_id = 9, ex->wr_flags = SEND_SIGNALED | SEND_FENCE;
    ex->flush(ex, 5, 16, 64, 16, 1);
    ex->flush(ex, 5, 16, 64, 2, 1);
    CHECK(!ex->complete(ex) && QP(qp)->send.control->tail == 4);
    wqe = posted(&QP(qp)->send, 0, behind);
    CHECK(wqe.inline_bytes == 40 && !memcmp(behind, text, 40) && wqe.flags == SOFTHCA_INLINE && wqe.wr_id == 8);
    wqe = posted(&QP(qp)->send, 1, behind);
    CHECK(wqe.compare_add == 100 && wqe.swap == 200 && wqe.num_sge == 1 && !memcmp(behind, list, 16) && !wqe.flags);
    CHECK(posted(&QP(qp)->send, 2, NULL).swap == 0); /* a type that there is not */
    wqe = posted(&QP(qp)->send, 3, NULL);
    CHECK(wqe.swap == (2 | 1 << 4) && wqe.compare_add == 64 && wqe.flags == (SOFTHCA_SIGNALED | SOFTHCA_FENCE));
    qp_retire(QP(qp), &(struct softhca_cqe){.wr_id = 9}); /* the first that is signaled, the third */
    CHECK(QP(qp)->retired == 3);
    ex->start(ex), ex->bind_mw(ex, &window, 5, &info);
    CHECK(!ex->complete(ex));
    wqe = posted(&QP(qp)->send, 4, NULL);
    CHECK(wqe.swap == 0x2eull << 32 && wqe.rkey == 31 && wqe.remote_va == 3 && wqe.compare_add == 4);
    ex->start(ex), ex->send_imm(ex, htonl(7));
    CHECK(!ex->complete(ex) && posted(&QP(qp)->send, 5, NULL).imm_or_key == 7);
    qp->state = SOFTHCA_STATE_RTR;
    ex->start(ex), ex->send(ex);
    CHECK(ex->complete(ex) == EINVAL);
    host.dead = EIO;
    qp->state = SOFTHCA_STATE_RTS;
    ex->start(ex), ex->send(ex);
    CHECK(ex->complete(ex) == EIO);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"completions", completions}, {"napping", napping}, {"giving-way", giving_way},
        {"parts", parts}, {"arming", arming}, {"dropping", dropping}, {"churning", churning},
        {"channels", channels},
        {"making", making}, {"modifying", modifying}, {"sending", sending}, {"retiring", retiring},
        {"going-on", going_on}, {"going-on-again", going_on_again},
        {"receiving", receiving}, {"shared", shared}, {"batches", batches},
    };
    host.flag = &asleep, host.doorbells = (struct softhca_doorbells *)doorbells;
    for (size_t at = 0; argc == 2 && at < sizeof cases / sizeof *cases; at++)
        if (!strcmp(argv[1], cases[at].name)) {
            cases[at].run();
            return 0;
        }
    return 2;
}
