/* The library's sources with an adapter that is a script: what it is told stands in `told` and `calls`, and it refuses
   what `refuses` says.  A program that includes this has cases, of which argv[1] names one. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "library.h"

#define host_pass_descriptor real_pass_descriptor
#define host_take_memory real_take_memory
#define make_memory make_host_memory
#include "host.c"
#undef host_pass_descriptor
#undef host_take_memory
#undef make_memory

#undef CALL
#undef TELL
#undef GET
#define CALL(host, error, name, fields, reply) ((void)(host), told.name = *(fields), (error) = script_##name(reply))
#define TELL(host, error, name, fields) ((void)(host), told.name = *(fields), calls.name++, (error) = refuses)
#define GET(host, error, name, reply) ((void)(host), (error) = script_##name(reply))

#define CHECK(condition)                                              \
    do {                                                              \
        if (!(condition)) {                                           \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);   \
            exit(1);                                                  \
        }                                                             \
    } while (0)

static int refuses, refuses_calls; /* everything, or what is answered */
static struct softhca_run run_told;
static struct {
    struct softhca_dealloc_pd dealloc_pd;
    struct softhca_attach_arena attach_arena;
    struct softhca_detach_arena detach_arena;
    struct softhca_reg_mr reg_mr;
    struct softhca_dereg_mr dereg_mr;
    struct softhca_rereg_mr rereg_mr;
    struct softhca_alloc_null_mr alloc_null_mr;
    struct softhca_alloc_mw alloc_mw;
    struct softhca_dealloc_mw dealloc_mw;
    struct softhca_create_ah create_ah;
    struct softhca_destroy_ah destroy_ah;
    struct softhca_query_gid query_gid;
    struct softhca_alloc_dm alloc_dm;
    struct softhca_free_dm free_dm;
    struct softhca_create_flow create_flow;
    struct softhca_destroy_flow destroy_flow;
    struct softhca_open_xrcd open_xrcd;
    struct softhca_close_xrcd close_xrcd;
    struct softhca_export_context export_context;
    struct softhca_import_context import_context;
    struct softhca_import_pd import_pd;
    struct softhca_unimport_pd unimport_pd;
    struct softhca_import_mr import_mr;
} told;
static struct {
    int dealloc_pd, attach_arena, detach_arena, dereg_mr, dealloc_mw, destroy_ah, free_dm, destroy_flow, close_xrcd,
        export_context, import_context, import_pd, unimport_pd;
} calls;
static unsigned char value_told[64], mask_told[64];
static uint32_t numbers = 100, own_gid_at;

static int script_alloc_pd(struct softhca_alloc_pd_reply *reply)
{
    reply->pd = ++numbers;
    return refuses | refuses_calls;
}

static int script_reg_mr(struct softhca_reg_mr_reply *reply)
{
    run_told = *told.reg_mr.frames;
    reply->lkey = reply->rkey = ++numbers;
    return refuses | refuses_calls;
}

static int script_rereg_mr(struct softhca_rereg_mr_reply *reply)
{
    run_told = *told.rereg_mr.frames;
    reply->lkey = reply->rkey = ++numbers;
    return refuses | refuses_calls;
}

static int script_alloc_null_mr(struct softhca_alloc_null_mr_reply *reply)
{
    reply->lkey = ++numbers;
    return refuses | refuses_calls;
}

static int script_alloc_mw(struct softhca_alloc_mw_reply *reply)
{
    reply->mw = ++numbers, reply->rkey = 0x12ff;
    return refuses | refuses_calls;
}

static int script_create_ah(struct softhca_create_ah_reply *reply)
{
    reply->ah = ++numbers;
    return refuses | refuses_calls;
}

static int script_query_gid(struct softhca_query_gid_reply *reply)
{
    memset(reply->gid, told.query_gid.index == own_gid_at ? 7 : 1, sizeof reply->gid);
    return refuses | refuses_calls;
}

static int script_alloc_dm(struct softhca_alloc_dm_reply *reply)
{
    reply->dm = ++numbers;
    return refuses | refuses_calls;
}

static int script_create_flow(struct softhca_create_flow_reply *reply)
{
    if (told.create_flow.value_bytes)
        memcpy(value_told, told.create_flow.value, 64), memcpy(mask_told, told.create_flow.mask, 64);
    reply->flow = ++numbers;
    return refuses | refuses_calls;
}

static int script_open_xrcd(struct softhca_open_xrcd_reply *reply)
{
    reply->xrcd = ++numbers;
    return refuses | refuses_calls;
}

static int script_import_mr(struct softhca_import_mr_reply *reply)
{
    *reply = (struct softhca_import_mr_reply){3, 4, 4096};
    return refuses | refuses_calls;
}

int host_pass_descriptor(struct host *host, int descriptor, uint32_t *number)
{
    (void)host;
    *number = 77;
    return descriptor < 0 ? EBADF : 0;
}

static int passed = -1;
static size_t passed_bytes;
int host_take_memory(struct host *host, uint32_t dm, int *descriptor, size_t *length)
{
    (void)host, (void)dm;
    *descriptor = dup(passed), *length = passed_bytes;
    return 0;
}

#include "advice.c"
#include "device_memory.c"
#include "events.c"
#include "extended.c"
#include "flow.c"
#include "import.c"
#include "loans.c"
#include "memory.c"

/* The parts of the library that are not here. */

static struct cq one_cq;
static struct qp one_qp;
static struct ibv_pd *parent_told;
static int extended, post_error;

struct ibv_cq_ex *make_cq(struct ibv_context *base, uint32_t entries, void *cq_context,
                          struct ibv_comp_channel *channel, struct ibv_pd *parent)
{
    (void)base, (void)entries, (void)cq_context, (void)channel;
    parent_told = parent;
    return &one_cq.ex;
}

void cq_set_extended(struct cq *cq, uint64_t wc_flags)
{
    (void)cq, (void)wc_flags;
}

struct ibv_qp *make_qp(struct ibv_context *base, struct ibv_qp_init_attr_ex *attr)
{
    (void)base, (void)attr;
    return &one_qp.ex.base;
}

struct ibv_qp *make_scaled_qp(struct ibv_context *base, struct ibv_qp_init_attr_ex *attr)
{
    (void)base, (void)attr;
    return NULL;
}

void set_scaling_ops(struct verbs_front *front)
{
    (void)front;
}

void qp_set_extended(struct qp *qp)
{
    (void)qp;
    extended++;
}

struct ibv_srq *make_srq(struct ibv_context *base, struct ibv_srq_init_attr_ex *attr)
{
    (void)base, (void)attr;
    return NULL;
}

int modify_rate_limit(struct ibv_qp *base, struct ibv_qp_rate_limit_attr *attr)
{
    (void)base, (void)attr;
    return 0;
}

int query_device_ex(struct ibv_context *base, const void *input, struct ibv_device_attr_ex *attr, size_t bytes)
{
    (void)base, (void)input, (void)attr, (void)bytes;
    return 0;
}

int post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)base, (void)wr, (void)bad;
    return post_error;
}

EXPORT int ibv_query_gid(struct ibv_context *base, uint8_t port, int index, union ibv_gid *gid)
{
    (void)base, (void)port, (void)index;
    memset(gid, 9, sizeof *gid);
    return 0;
}

static char name_told[100], place_told[200];
static int closed;
struct device *device_at(const char *name, const char *place)
{
    static struct device device;
    strcpy(name_told, name), strcpy(place_told, place);
    return &device;
}

static struct context opened;
struct ibv_context *open_context(struct device *device)
{
    (void)device;
    return &opened.context;
}

int ibv_close_device(struct ibv_context *base)
{
    CHECK(base == &opened.context);
    closed++;
    return 0;
}

static uint64_t held_offset, released_offset;
static size_t released_bytes;
static int holds = -1, releases;

int softhca_buffers_hold(const void *address, size_t length, uint64_t *offset)
{
    (void)address, (void)length;
    *offset = held_offset;
    return holds;
}

void softhca_buffers_release(uint64_t offset, size_t length)
{
    releases++, released_offset = offset, released_bytes = length;
}

/* What the cases are made of. */

static struct host host = {.memfd = -1, .control = -1, .wake = -1};

struct named {
    const char *name;
    void (*run)(void);
};

static int run_one(const struct named *cases, size_t count, int argc, char **argv)
{
    static uint64_t flag, doorbells[512 + 1 + 2 * SOFTHCA_DOORBELL_SLOTS];
    CHECK(!make_host_memory(&host));
    host.flag = &flag, host.doorbells = (struct softhca_doorbells *)doorbells;
    pthread_mutex_init(&host.allocating, NULL);
    pthread_mutex_init(&host.commanding, NULL);
    for (size_t at = 0; argc == 2 && at < count; at++)
        if (!strcmp(argv[1], cases[at].name)) {
            cases[at].run();
            return 0;
        }
    return 2;
}
