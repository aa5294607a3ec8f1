/* The library on an adapter process that answers, completes and reports what an input says: libFuzzer's entry.
   Nothing may be touched that is not the library's; calls may fail, and end. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz_library.h"

#define MOST 8
#define STEPS 48
#define ENTRIES 4

extern struct ibv_cq *ibv_create_cq(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
extern int ibv_resize_cq(struct ibv_cq *, int);
extern struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *);
extern int ibv_destroy_comp_channel(struct ibv_comp_channel *);
extern int ibv_get_cq_event(struct ibv_comp_channel *, struct ibv_cq **, void **);
extern void ibv_ack_cq_events(struct ibv_cq *, unsigned);
extern int ibv_get_async_event(struct ibv_context *, struct ibv_async_event *);
extern void ibv_ack_async_event(struct ibv_async_event *);
extern struct ibv_qp *ibv_create_qp(struct ibv_pd *, struct ibv_qp_init_attr *);
extern int ibv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int);
extern int ibv_query_qp(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
extern struct ibv_srq *ibv_create_srq(struct ibv_pd *, struct ibv_srq_init_attr *);
extern struct ibv_dm *ibv_import_dm(struct ibv_context *, uint32_t);
extern void ibv_unimport_dm(struct ibv_dm *);
extern ssize_t _ibv_query_gid_table(struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t, size_t);

static struct ibv_comp_channel *channel;
static struct ibv_cq *cqs[MOST];
static struct ibv_qp *qps[MOST];
static struct ibv_srq *srqs[MOST];
static unsigned char data[256];
static struct ibv_mr *kept[STEPS]; /* whose end the adapter has refused */
static int kept_count;

static void begin(void)
{
    channel = ibv_create_comp_channel(context);
}

static void make(unsigned char kind)
{
    struct ibv_srq_init_attr shared = {.attr = {ENTRIES, 2, 0}};
    struct ibv_qp_init_attr init = {.cap = {ENTRIES, ENTRIES, 2, 2, 64}, .qp_type = (int[]){2, 3, 4, 9}[kind / 4 % 4]};
    unsigned at = fed() % MOST;
    init.send_cq = cqs[fed() % MOST], init.recv_cq = cqs[fed() % MOST];
    init.srq = fed() % 4 == 3 ? srqs[fed() % MOST] : NULL;
    if (kind % 4 == 0 && !cqs[at])
        cqs[at] = ibv_create_cq(context, ENTRIES, NULL, channel, 0);
    else if (kind % 4 == 1 && !srqs[at])
        srqs[at] = ibv_create_srq(pd, &shared);
    else if (kind % 4 > 1 && !qps[at] && init.send_cq && init.recv_cq)
        qps[at] = ibv_create_qp(pd, &init);
}

static void end(unsigned char kind, unsigned at)
{
    if (kind % 3 == 0 && cqs[at] && !ibv_destroy_cq(cqs[at]))
        cqs[at] = NULL;
    else if (kind % 3 == 1 && srqs[at] && !ibv_destroy_srq(srqs[at]))
        srqs[at] = NULL;
    else if (kind % 3 == 2 && qps[at] && !ibv_destroy_qp(qps[at]))
        qps[at] = NULL;
}

static void poll_both(struct ibv_cq *cq)
{
    struct ibv_wc wc[3];
    if (cq)
        poll_cq(cq, fed() % 4, wc);
    if (cq && fed() % 2)
        req_notify_cq(cq, fed() % 2);
}

static void post(struct ibv_qp *qp, unsigned char kind)
{
    struct ibv_sge pieces[4] = {{(uintptr_t)data, kind, 0}, {(uintptr_t)data, kind / 2, 0}};
    struct ibv_send_wr send = {.wr_id = kind, .sg_list = pieces, .num_sge = kind % 4, .opcode = fed() % 16,
                               .send_flags = fed() & 15}, *bad_send;
    struct ibv_recv_wr receive = {.wr_id = kind, .sg_list = pieces, .num_sge = kind % 4}, *bad_receive;
    struct ibv_ah ah = {.handle = 1};
    struct ibv_mw mw = {.handle = 1};
    if (!qp)
        return;
    qp->state = fed() % 8 ? 3 : qp->state; /* what the adapter thinks of it is its own affair */
    if (send.opcode == SOFTHCA_BIND_MW)
        send.bind_mw.mw = &mw;
    else if (qp->qp_type == 4)
        send.wr.ud.ah = &ah;
    for (int i = 0; i < kind % 6; i++) {
        if (kind % 2)
            post_send(qp, &send, &bad_send);
        else
            post_recv(qp, &receive, &bad_receive);
    }
}

static void take_events(void)
{
    struct ibv_async_event event;
    struct ibv_cq *cq;
    void *given;
    if (channel) {
        fcntl(channel->fd, F_SETFL, O_NONBLOCK);
        if (!ibv_get_cq_event(channel, &cq, &given))
            ibv_ack_cq_events(cq, 1);
    }
    fcntl(context->async_fd, F_SETFL, O_NONBLOCK);
    if (!ibv_get_async_event(context, &event))
        ibv_ack_async_event(&event);
}

static void modify(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = fed() % 8};
    struct ibv_qp_init_attr init;
    if (!qp)
        return;
    ibv_modify_qp(qp, &attr, 1);
    ibv_query_qp(qp, &attr, 1, &init);
}

static void query(void)
{
    struct ibv_port_attr port;
    struct ibv_gid_entry entries[4];
    query_port_attr(context, 1, &port, sizeof port);
    _ibv_query_gid_table(context, entries, 4, 0, sizeof *entries);
}

static void memory(unsigned char kind)
{
    struct ibv_dm *dm;
    struct ibv_mr *mr;
    unsigned char byte[4];
    if (kind % 2 && (mr = ibv_reg_mr(pd, data, sizeof data, 1)) && ibv_dereg_mr(mr))
        kept[kept_count++] = mr; /* at most one in a step */
    if (kind % 2 || !(dm = ibv_import_dm(context, 1)))
        return;
    dm->memcpy_from_dm(byte, dm, (uint64_t)fed() << 8, 4);
    dm->memcpy_to_dm(dm, ((struct dm *)dm)->length & ~(size_t)3, byte, 4);
    if (((struct dm *)dm)->length >= 4)
        dm->memcpy_to_dm(dm, (((struct dm *)dm)->length - 4) & ~(size_t)3, byte, 4); /* its last page */
    ibv_unimport_dm(dm);
}

static void step(void)
{
    unsigned char kind = fed();
    unsigned at = fed() % MOST;
    switch (kind % 10) {
    case 0: case 1: make(kind / 10); break;
    case 2: end(kind / 10, at); break;
    case 3: complete(cqs[at], qps[fed() % MOST]); break;
    case 4: poll_both(cqs[at]); break;
    case 5: post(qps[at], kind); break;
    case 6: adapter_event(at, fed() % 24, fed() % 4); take_events(); break;
    case 7: modify(qps[at]); break;
    case 8: memory(kind / 10); query(); break;
    case 9: if (cqs[at]) ibv_resize_cq(cqs[at], 1 + fed() % 8); break;
    }
}

static void finish(void)
{
    for (unsigned at = 0; at < MOST; at++)
        end(2, at);
    for (unsigned at = 0; at < MOST; at++)
        end(1, at), end(0, at);
    while (kept_count)
        ibv_dereg_mr(kept[--kept_count]);
    if (channel)
        ibv_destroy_comp_channel(channel);
    channel = NULL;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count)
{
    play(bytes, count, STEPS, begin, step, finish);
    return 0;
}
