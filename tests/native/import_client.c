/* Two programs, one of which uses what the other has made.  "export PROGRAM WORDS..." opens the device, and
   starts PROGRAM, which finds as its last words: a descriptor that stands for it, a domain, a region, the
   region's address and key, device memory; when it has ended well, so does this one.  "import ..." is such a program. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verbs.h"

extern struct ibv_device **ibv_get_device_list(int *);
extern struct ibv_context *ibv_open_device(struct ibv_device *);
extern struct ibv_context *ibv_import_device(int);
extern int ibv_close_device(struct ibv_context *);
extern struct ibv_pd *ibv_alloc_pd(struct ibv_context *);
extern struct ibv_pd *ibv_import_pd(struct ibv_context *, uint32_t);
extern void ibv_unimport_pd(struct ibv_pd *);
extern int ibv_dealloc_pd(struct ibv_pd *);
extern struct ibv_mr *ibv_reg_mr(struct ibv_pd *, void *, size_t, int);
extern struct ibv_mr *ibv_import_mr(struct ibv_pd *, uint32_t);
extern void ibv_unimport_mr(struct ibv_mr *);
extern struct ibv_dm *ibv_import_dm(struct ibv_context *, uint32_t);
extern void ibv_unimport_dm(struct ibv_dm *);
extern int ibv_rereg_mr(struct ibv_mr *, int, struct ibv_pd *, void *, size_t, int);
extern int ibv_dereg_mr(struct ibv_mr *);
extern struct ibv_cq *ibv_create_cq(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
extern int ibv_destroy_cq(struct ibv_cq *);
extern struct ibv_qp *ibv_create_qp(struct ibv_pd *, struct ibv_qp_init_attr *);
extern int ibv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int);
extern int ibv_destroy_qp(struct ibv_qp *);
extern int ibv_query_gid(struct ibv_context *, uint8_t, int, union ibv_gid *);

#define CHECK(what) ((what) ? (void)0 : fail(__LINE__, #what))
#define FRONT(context) ((struct verbs_front *)((char *)(context) - sizeof(struct verbs_front)))
#define BYTES 8192u
static const char TEXT[] = "made by another program";

static void fail(int line, const char *what)
{
    fprintf(stderr, "line %d: %s (errno %d)\n", line, what, errno);
    _exit(1);
}

static int exporter(int count, char **words)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    char *data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), found[6][32];
    struct ibv_mr *mr = ibv_reg_mr(pd, data, BYTES, 15);
    uint32_t handle = mr->handle;
    const char **told = calloc((size_t)count + 7, sizeof *told);
    struct verbs_front *front = FRONT(context);
    struct ibv_alloc_dm_attr wanted = {.length = 6000};
    struct ibv_dm *dm = front->alloc_dm(context, &wanted);
    char seen[12];
    int descriptor = dup(context->cmd_fd), status;
    pid_t child;
    CHECK(descriptor >= 0); /* a duplicate, and open in the child */
    CHECK(!ibv_rereg_mr(mr, 5, NULL, data, BYTES, 7) && mr->handle == handle);
    strcpy(data, TEXT);
    CHECK(dm && !dm->memcpy_to_dm(dm, 4, TEXT, sizeof TEXT));
    snprintf(found[5], 32, "%u", dm->handle);
    snprintf(found[0], 32, "%d", descriptor);
    snprintf(found[1], 32, "%u", pd->handle);
    snprintf(found[2], 32, "%u", mr->handle);
    snprintf(found[3], 32, "%llu", (unsigned long long)(uintptr_t)data);
    snprintf(found[4], 32, "%u", mr->lkey);
    memcpy(told, words, (size_t)count * sizeof *told);
    for (int i = 0; i < 6; i++)
        told[count + i] = found[i];
    fflush(NULL);
    child = fork();
    if (!child) {
        execvp(told[0], (char **)told);
        _exit(127);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (status)
        fprintf(stderr, "status %#x of %s\n", (unsigned)status, told[0]);
    CHECK(!status);
    CHECK(!dm->memcpy_from_dm(seen, dm, 100, 12) && !memcmp(seen, "seen here to", 12) && !front->free_dm(dm));
    CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    return 0;
}

static void connect_to(struct ibv_context *context, struct ibv_qp *qp, uint32_t peer)
{
    struct ibv_qp_attr attr = {.qp_state = 1, .port_num = 1, .qp_access_flags = 15};
    CHECK(!ibv_modify_qp(qp, &attr, 0x39));
    attr = (struct ibv_qp_attr){.qp_state = 2, .path_mtu = 3, .dest_qp_num = peer, .max_dest_rd_atomic = 4,
                                .min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1}};
    CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
    CHECK(!ibv_modify_qp(qp, &attr, 0x129181));
    attr = (struct ibv_qp_attr){.qp_state = 3, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
                                .max_rd_atomic = 4};
    CHECK(!ibv_modify_qp(qp, &attr, 0x12e01));
}

static void refusals(struct ibv_context *context, struct ibv_pd *pd, uint32_t pd_handle)
{
    int other = memfd_create("another", MFD_ALLOW_SEALING), lie = memfd_create("lie", MFD_ALLOW_SEALING);
    static const char says[] = "softhca device 1\nsofthca0\n@softhca-nobody\n";
    CHECK(!ibv_import_device(-1) && errno == EBADF);
    CHECK(!ibv_import_device(other) && errno == EOPNOTSUPP);
    CHECK(write(lie, says, sizeof says - 1) == sizeof says - 1);
    CHECK(!ibv_import_device(lie) && errno == EOPNOTSUPP); /* not sealed */
    CHECK(!fcntl(lie, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
    CHECK(!ibv_import_device(lie) && errno == ECONNREFUSED);
    CHECK(!ibv_import_pd(context, pd_handle) && errno == EALREADY);
    CHECK(!ibv_import_pd(context, 0xfffffe) && errno == ENOENT);
    CHECK(!ibv_import_mr(pd, 0xfffffe) && errno == ENOENT);
    CHECK(!ibv_import_dm(context, 0xfffffe) && errno == ENOENT);
    close(other);
    close(lie);
}

/* Copies, a region, and a write, a read and an atomic into it: the other program sees what they do. */
static void device_memory(struct ibv_context *context, struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_cq *cq,
                          struct ibv_mr *own, uint32_t handle)
{
    struct verbs_front *front = FRONT(context);
    struct ibv_dm *dm = ibv_import_dm(context, handle);
    char *data = own->addr;
    struct ibv_sge piece = {.addr = (uintptr_t)data, .length = 16, .lkey = own->lkey};
    struct ibv_send_wr wr = {.sg_list = &piece, .num_sge = 1, .send_flags = 2}, *bad;
    struct ibv_wc wc = {0};
    struct ibv_mr *over;
    uint64_t number = 0;
    CHECK(dm && dm->handle == handle && !dm->memcpy_from_dm(data, dm, 4, sizeof TEXT) && !strcmp(data, TEXT));
    CHECK(dm->memcpy_to_dm(dm, 5998, "long", 4) == EINVAL && front->free_dm(dm) == EINVAL);
    CHECK((over = front->reg_dm_mr(pd, dm, 4096, 64, 15 | 32)));
    memcpy(data, "written into it.", 16);
    for (int i = 0; i < 3; i++) {
        wr.opcode = (int[]){0, 4, 6}[i]; /* RDMA WRITE, READ, fetch and add */
        if (i == 1)
            memset(data, 0, 16);
        if (i == 2) {
            piece.length = 8;
            wr.wr.atomic.remote_addr = 24, wr.wr.atomic.compare_add = 5, wr.wr.atomic.rkey = over->rkey;
        } else {
            wr.wr.rdma.remote_addr = 8, wr.wr.rdma.rkey = over->rkey;
        }
        CHECK(!context->ops.post_send(qp, &wr, &bad));
        while (!context->ops.poll_cq(cq, 1, &wc))
            ;
        CHECK(!wc.status);
        CHECK(i != 1 || !memcmp(data, "written into it.", 16));
    }
    CHECK(!dm->memcpy_from_dm(data, dm, 4104, 16) && !memcmp(data, "written into it.", 16));
    CHECK(!dm->memcpy_from_dm(&number, dm, 4096 + 24, 8) && number == 5);
    CHECK(!dm->memcpy_to_dm(dm, 100, "seen here to", 12));
    CHECK(!ibv_dereg_mr(over));
    ibv_unimport_dm(dm);
}

static int importer(char **words)
{
    static char got[BYTES];
    struct ibv_context *context = ibv_import_device(atoi(words[0]));
    uint32_t pd_handle = (uint32_t)strtoul(words[1], NULL, 10);
    struct ibv_pd *pd;
    struct ibv_mr *mr, *own;
    struct ibv_cq *cq;
    struct ibv_qp *pair[2];
    struct ibv_send_wr wr = {.opcode = 0, .send_flags = 2, .num_sge = 1}, *bad;
    struct ibv_sge piece = {.length = sizeof TEXT};
    struct ibv_wc wc = {0};
    CHECK(context && context->cmd_fd == atoi(words[0]));
    CHECK((pd = ibv_import_pd(context, pd_handle)) && pd->handle == pd_handle);
    CHECK((mr = ibv_import_mr(pd, (uint32_t)strtoul(words[2], NULL, 10))));
    CHECK(mr->length == BYTES && mr->lkey == strtoul(words[4], NULL, 10) && !mr->addr);
    refusals(context, pd, pd_handle);
    CHECK((own = ibv_reg_mr(pd, got, BYTES, 15)) && (cq = ibv_create_cq(context, 8, NULL, NULL, 0)));
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = 2, .cap = {8, 8, 1, 1, 0}};
    CHECK((pair[0] = ibv_create_qp(pd, &init)) && (pair[1] = ibv_create_qp(pd, &init)));
    connect_to(context, pair[0], pair[1]->qp_num);
    connect_to(context, pair[1], pair[0]->qp_num);
    piece.addr = strtoull(words[3], NULL, 10); /* in the other program */
    piece.lkey = mr->lkey;
    wr.sg_list = &piece;
    wr.wr.rdma.remote_addr = (uintptr_t)got;
    wr.wr.rdma.rkey = own->rkey;
    CHECK(!context->ops.post_send(pair[0], &wr, &bad));
    while (!context->ops.poll_cq(cq, 1, &wc))
        ;
    CHECK(!wc.status && !strcmp(got, TEXT));
    device_memory(context, pd, pair[0], cq, own, (uint32_t)strtoul(words[5], NULL, 10));
    CHECK(ibv_dealloc_pd(pd) && ibv_dereg_mr(mr)); /* they are another program's */
    CHECK(!ibv_destroy_qp(pair[0]) && !ibv_destroy_qp(pair[1]) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(own));
    ibv_unimport_mr(mr);
    ibv_unimport_pd(pd);
    CHECK((pd = ibv_import_pd(context, pd_handle))); /* again */
    ibv_unimport_pd(pd);
    CHECK(!ibv_close_device(context) && fcntl(atoi(words[0]), F_GETFD) < 0 && errno == EBADF);
    return 0;
}

int main(int count, char **words)
{
    if (count > 2 && !strcmp(words[1], "export"))
        return exporter(count - 2, words + 2);
    return count == 8 && !strcmp(words[1], "import") ? importer(words + 2) : 2;
}
