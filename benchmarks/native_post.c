/* What a program in C pays itself: "cost" posts RDMA WRITEs of 8 bytes, inline, and polls their completions, and
   prints nanoseconds of both for one, without the time in which the adapter works.  "hold" opens a device, with a
   connection of its own to itself, and holds it until its input ends. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64
#define ROUNDS 3000

#define CHECK(what) ((what) ? (void)0 : (perror(#what), exit(1)))

static struct ibv_context *context;
static struct ibv_cq *cq;
static struct ibv_qp *pair[2];
static struct ibv_mr *mr;
static char data[64];

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void connect_to(struct ibv_qp *qp, uint32_t peer)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_RTR, attr.path_mtu = IBV_MTU_1024, attr.dest_qp_num = peer, attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1, attr.ah_attr.port_num = 1;
    CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
                                        | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr.qp_state = IBV_QPS_RTS, attr.timeout = 14, attr.retry_cnt = 7, attr.rnr_retry = 7;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY
                                        | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void open_all(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_pd *pd;
    CHECK(list && list[0] && (context = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(context)));
    CHECK((mr = ibv_reg_mr(pd, data, sizeof data, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
    CHECK((cq = ibv_create_cq(context, 2 * BATCH, NULL, NULL, 0)));
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
                                    .cap = {BATCH, 1, 1, 1, 8}};
    for (int i = 0; i < 2; i++)
        CHECK((pair[i] = ibv_create_qp(pd, &init)));
    for (int i = 0; i < 2; i++)
        connect_to(pair[i], pair[!i]->qp_num);
}

static int by_size(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void cost(void)
{
    static double posts[ROUNDS], polls[ROUNDS];
    struct ibv_sge piece = {(uintptr_t)data, 8, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE},
                       *bad;
    struct ibv_wc wc[BATCH];
    wr.wr.rdma.remote_addr = (uintptr_t)data + 32, wr.wr.rdma.rkey = mr->rkey;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now_ns();
        for (int i = 0; i < BATCH; i++)
            CHECK(!ibv_post_send(pair[0], &wr, &bad));
        posts[round] = (now_ns() - start) / BATCH;
        usleep(1000); /* the adapter completes all */
        start = now_ns();
        int found = 0;
        while (found < BATCH)
            found += ibv_poll_cq(cq, 16, wc);
        polls[round] = (now_ns() - start) / BATCH;
    }
    qsort(posts, ROUNDS, sizeof *posts, by_size);
    qsort(polls, ROUNDS, sizeof *polls, by_size);
    printf("post %.1f poll %.1f\n", posts[ROUNDS / 2], polls[ROUNDS / 2]);
}

int main(int count, char **words)
{
    char byte;
    open_all();
    if (count == 2 && !strcmp(words[1], "cost")) {
        cost();
    } else {
        puts("held");
        fflush(stdout);
        while (read(0, &byte, 1) > 0)
            ;
    }
    return 0;
}
