/* What programs reach by the extended operations, and what is made of others' bytes: completions polled one by one,
   batches of work requests, windows, address handles of a datagram's first bytes, regions, device memory, domains,
   and objects of other processes; libFuzzer's entry.  The adapter process answers what the input says. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz_library.h"

#define STEPS 40
#define ENTRIES 4
#define MOST 4
#define ON_DEMAND 64
#define ZERO_BASED 32
#define TEXT_BYTES 200
#define RAW_PACKET 8
#define RULE_BYTES 512

extern int ibv_rereg_mr(struct ibv_mr *, int, struct ibv_pd *, void *, size_t, int);
extern int ibv_query_srq(struct ibv_srq *, struct ibv_srq_attr *);
extern struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *, struct ibv_wc *, struct ibv_grh *, uint8_t);
extern int ibv_destroy_ah(struct ibv_ah *);
extern struct ibv_context *ibv_import_device(int);
extern struct ibv_pd *ibv_import_pd(struct ibv_context *, uint32_t);
extern void ibv_unimport_pd(struct ibv_pd *);
extern struct ibv_mr *ibv_import_mr(struct ibv_pd *, uint32_t);
extern void ibv_unimport_mr(struct ibv_mr *);
extern int ibv_dealloc_pd(struct ibv_pd *);
extern struct ibv_qp *ibv_create_qp(struct ibv_pd *, struct ibv_qp_init_attr *);
extern struct ibv_srq *ibv_create_srq(struct ibv_pd *, struct ibv_srq_init_attr *);
extern int ibv_query_pkey(struct ibv_context *, uint8_t, int, uint16_t *);

static struct verbs_front *front;
static struct ibv_cq_ex *cq;
static struct ibv_qp *qp;
static struct ibv_srq *srqs[MOST];
static struct ibv_mr *mrs[MOST];
static struct ibv_dm *dms[MOST];
static struct ibv_mw *mws[MOST];
static struct ibv_ah *ahs[MOST];
static struct ibv_flow *flows[MOST];
static struct ibv_pd *parents[MOST];
static struct ibv_wq *wqs[MOST];
static struct ibv_rwq_ind_table *table;
static struct ibv_xrcd *xrcd;
static unsigned char data[2 * PAGE];
unsigned objects_seen; /* so that what is read is used */

static void make_queues(void)
{
    struct ibv_cq_init_attr_ex completion = {.cqe = ENTRIES, .wc_flags = 0xff};
    struct ibv_qp_init_attr_ex init = {.cap = {ENTRIES, ENTRIES, 2, 2, 64}, .comp_mask = 1 | 64, .pd = pd,
                                       .send_ops_flags = 0x1bff, .qp_type = fed() % 2 ? 2 : QPT_UD};
    if (!cq)
        cq = front->create_cq_ex(context, &completion);
    if (!cq)
        return;
    init.send_cq = init.recv_cq = &cq->base;
    if (!qp)
        qp = front->create_qp_ex(context, &init);
    if (qp)
        qp->state = 3; /* what the adapter thinks of it is its own affair */
}

static void begin(void)
{
    front = &CONTEXT(context)->front;
    make_queues();
}

/* One completion, as a program may ask for all of it; the sum is only to be made of something. */
static unsigned read_all(void)
{
    return (unsigned)cq->read_opcode(cq) + cq->read_vendor_err(cq) + cq->read_byte_len(cq) + cq->read_imm_data(cq)
        + cq->read_qp_num(cq) + cq->read_src_qp(cq) + cq->read_wc_flags(cq) + cq->read_slid(cq) + cq->read_sl(cq)
        + cq->read_dlid_path_bits(cq) + (unsigned)cq->read_completion_ts(cq);
}

static void poll_one_by_one(void)
{
    struct ibv_poll_cq_attr none = {0};
    if (!cq)
        return;
    complete(&cq->base, qp);
    if (cq->start_poll(cq, &none))
        return;
    do
        objects_seen += read_all();
    while (fed() % 2 && !cq->next_poll(cq));
    cq->end_poll(cq);
}

static void build(struct ibv_qp_ex *ex, unsigned char what)
{
    struct ibv_mw_bind_info window = {mrs[0], (uintptr_t)data, fed(), fed() & 7};
    struct ibv_sge pieces[2] = {{(uintptr_t)data, what, 1}, {(uintptr_t)data, what, 2}};
    ex->wr_id = what;
    ex->wr_flags = fed() & 15;
    switch (what % 11) {
    case 0: ex->send(ex); break;
    case 1: ex->send_imm(ex, what); break;
    case 2: ex->send_inv(ex, what); break;
    case 3: ex->local_inv(ex, what); break;
    case 4: ex->rdma_read(ex, what, what); break;
    case 5: ex->rdma_write(ex, what, what); break;
    case 6: ex->rdma_write_imm(ex, what, what, what); break;
    case 7: ex->atomic_cmp_swp(ex, what, what, 1, 2); break;
    case 8: (ex->atomic_fetch_add)(ex, what, what, 1); break;
    case 9: ex->atomic_write(ex, what, what, data); break;
    case 10: if (mws[0] && mrs[0]) ex->bind_mw(ex, mws[0], what, &window); else ex->send(ex); break;
    }
    if (qp->qp_type == QPT_UD && ahs[0])
        ex->set_ud_addr(ex, ahs[0], what, what);
    if (what % 3 == 0)
        ex->set_inline_data(ex, data, fed());
    else if (what % 3 == 1)
        ex->set_sge_list(ex, fed() % 4 % 3, pieces);
}

static void post_batch(void)
{
    struct ibv_qp_ex *ex = qp ? &QP(qp)->ex : NULL;
    if (!ex || !QP(qp)->extended)
        return;
    ex->start(ex);
    for (int i = fed() % 6; i > 0; i--)
        build(ex, fed());
    if (fed() % 4 == 0)
        ex->abort(ex);
    else
        ex->complete(ex);
}

static void regions(unsigned at, unsigned char kind)
{
    struct ibv_sge range = {(uintptr_t)data + fed(), (uint32_t)fed() << 4, mrs[at] ? mrs[at]->lkey : fed()};
    if (!mrs[at])
        mrs[at] = ibv_reg_mr(pd, data + kind, (size_t)fed() << 4, (kind % 2 ? ON_DEMAND : 0) | 7);
    else if (kind % 3 == 0 && !ibv_dereg_mr(mrs[at]))
        mrs[at] = NULL;
    else if (kind % 3 == 1)
        ibv_rereg_mr(mrs[at], fed() % 8, pd, data, fed(), (kind % 2 ? ON_DEMAND : 0) | fed() % 8);
    else
        advise_mr(pd, fed() % 4, fed() % 2, &range, 1);
}

static void device_memory(unsigned at, unsigned char kind)
{
    struct ibv_alloc_dm_attr attr = {.length = (size_t)kind << 6, .log_align_req = fed() % 16};
    struct ibv_mr *mr;
    unsigned char bytes[64] = {0};
    if (!dms[at]) {
        dms[at] = front->alloc_dm(context, &attr);
        return;
    }
    dms[at]->memcpy_to_dm(dms[at], (uint64_t)fed() << 4, bytes, fed() % sizeof bytes);
    dms[at]->memcpy_from_dm(bytes, dms[at], (uint64_t)fed() << 4, fed() % sizeof bytes);
    mr = front->reg_dm_mr(pd, dms[at], fed(), (size_t)kind << 4, ZERO_BASED | 7);
    if (mr && ibv_dereg_mr(mr)) { /* the memory stays, too: its region is the adapter's */
        HOST(context)->dead = EIO;
        ibv_dereg_mr(mr);
    }
    if (kind % 2 && !front->free_dm(dms[at]))
        dms[at] = NULL;
}

/* Of what the adapter does not let go the program's part ends with the adapter. */
static void end_all(struct ibv_qp *made, struct ibv_cq *own, struct ibv_srq *srq, struct ibv_mr *mr)
{
    for (int again = 0; again < 2; again++) {
        mr = mr && ibv_dereg_mr(mr) ? mr : NULL;
        made = made && ibv_destroy_qp(made) ? made : NULL;
        srq = srq && ibv_destroy_srq(srq) ? srq : NULL;
        own = own && ibv_destroy_cq(own) ? own : NULL;
        if (mr || made || srq || own)
            HOST(context)->dead = EIO;
    }
}

static void windows(unsigned at, unsigned char kind)
{
    struct ibv_mw_bind bind = {.wr_id = kind, .send_flags = fed() & 15,
                               .bind_info = {mrs[at], (uintptr_t)data, fed(), fed() & 7}};
    if (!mws[at])
        mws[at] = alloc_mw(pd, 1 + kind % 2);
    else if (kind % 2 && !dealloc_mw(mws[at]))
        mws[at] = NULL;
    else if (qp && mrs[at] && mws[at])
        bind_mw(qp, mws[at], &bind);
}

/* Rules of the sizes and in the order that the input says, in memory that is as long as they say. */
static void steer(unsigned at, unsigned char kind)
{
    static const uint32_t types[] = {0x20, 0x30, 0x31, 0x32, 0x40, 0x41, 0x120, 0x1000};
    struct {
        struct ibv_flow_attr attr;
        unsigned char specs[RULE_BYTES];
    } *rule;
    unsigned end = 0;
    if (flows[at]) {
        if (!front->destroy_flow(flows[at]))
            flows[at] = NULL;
        return;
    }
    rule = calloc(1, sizeof *rule);
    if (!qp || !rule) {
        free(rule);
        return;
    }
    rule->attr = (struct ibv_flow_attr){.type = kind % 8 ? 0 : fed(), .port = fed() % 3, .priority = fed(),
                                        .comp_mask = fed() % 16 == 15, .flags = fed() % 16 == 15};
    while (rule->attr.num_of_specs < kind % 5) {
        struct flow_spec head = {types[fed() % 8], (uint16_t)(fed() % 97)};
        if (end + head.size > RULE_BYTES || end + sizeof head > RULE_BYTES)
            break;
        fed_bytes(rule->specs + end, head.size);
        memcpy(rule->specs + end, &head, sizeof head);
        end += head.size < sizeof head ? sizeof head : head.size;
        rule->attr.num_of_specs++;
    }
    rule = realloc(rule, sizeof rule->attr + end); /* so that a look behind it is seen */
    flows[at] = rule ? front->create_flow(qp, &rule->attr) : NULL;
    free(rule);
}

/* Work queues, posts to them, a table of them and a queue pair with it. */
static void scale(unsigned at, unsigned char kind)
{
    struct ibv_wq_init_attr init = {.max_wr = ENTRIES, .max_sge = 2, .pd = pd, .cq = &cq->base,
                                    .comp_mask = kind == 255, .create_flags = kind};
    struct ibv_wq_attr attr = {.attr_mask = kind % 8, .wq_state = fed() % 4, .curr_wq_state = fed() % 4};
    struct ibv_wq *many[4];
    struct ibv_rwq_ind_table_init_attr making = {.log_ind_tbl_size = kind % 3, .ind_tbl = many};
    struct ibv_qp_init_attr_ex scaled = {.qp_type = RAW_PACKET, .comp_mask = 1 | 16 | 32, .pd = pd, .rwq_ind_tbl = table,
        .rx_hash_conf = {1, (uint8_t)(kind % 41), data, fed()}};
    struct ibv_sge pieces[2] = {{(uintptr_t)data, kind, 0}, {(uintptr_t)data, kind, 0}};
    struct ibv_recv_wr receive = {.sg_list = pieces, .num_sge = fed() % 3}, *bad;
    struct ibv_qp *made;
    if (!wqs[at]) {
        wqs[at] = cq ? front->create_wq(context, &init) : NULL;
        return;
    }
    for (int i = 0; i < 4; i++)
        many[i] = wqs[i % MOST] ? wqs[i % MOST] : kind % 16 ? wqs[at] : NULL;
    wqs[at]->post_recv(wqs[at], &receive, &bad);
    front->modify_wq(wqs[at], &attr);
    if (!table)
        table = front->create_rwq_ind_table(context, &making);
    made = front->create_qp_ex(context, &scaled);
    if (made && !context->ops.post_recv(made, &receive, &bad))
        abort(); /* it has no queue */
    end_all(made, NULL, NULL, NULL);
    if (table && kind % 4 == 1 && !front->destroy_rwq_ind_table(table))
        table = NULL;
    if (kind % 4 == 3 && !front->destroy_wq(wqs[at]))
        wqs[at] = NULL;
}

static void *give(struct ibv_pd *domain, void *unused, size_t bytes, size_t alignment, uint64_t kind)
{
    unsigned char answer = fed() % 8;
    void *found;
    (void)domain, (void)unused, (void)kind;
    if (answer < 2)
        return answer ? NULL : (void *)-1;
    found = mmap(NULL, bytes + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return found == MAP_FAILED ? NULL : (char *)found + (answer == 7 ? 8 : 0);
}

static void take(struct ibv_pd *domain, void *unused, void *memory, uint64_t kind)
{
    (void)domain, (void)unused, (void)kind;
    munmap((void *)((uintptr_t)memory / PAGE * PAGE), PAGE); /* its first page tells that it was given back once */
}

/* Domains by other names, of the allocators above; queues, regions and windows on them, in any order of ends. */
static void parent_domains(unsigned at, unsigned char kind)
{
    struct ibv_parent_domain_init_attr parts = {.pd = kind % 4 == 3 && parents[0] ? parents[0] : pd,
                                                .comp_mask = fed() % 5, .alloc = (void *)give,
                                                .free = fed() % 8 ? (void *)take : NULL, .pd_context = data};
    struct ibv_td *td = front->alloc_td(context, data);
    struct ibv_cq_init_attr_ex wanted = {.cqe = ENTRIES, .comp_mask = 2, .parent_domain = parents[at]};
    struct ibv_qp_init_attr init = {.qp_type = kind % 3 ? 2 : RAW_PACKET, .cap = {ENTRIES, ENTRIES, 1, 1, 0}};
    struct ibv_srq_init_attr shared = {.attr = {ENTRIES, 1, 0}};
    struct ibv_cq *own;
    struct ibv_qp *made;
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    parts.td = td;
    if (!parents[at]) {
        parents[at] = front->alloc_parent_domain(context, &parts);
    } else if (kind % 4 == 0) {
        if (!ibv_dealloc_pd(parents[at]))
            parents[at] = NULL;
    } else if (kind % 4 == 2 && !mrs[at]) {
        mrs[at] = ibv_reg_mr(parents[at], data, 64, ON_DEMAND | 1); /* which may be there when the domain is not */
    } else {
        own = (struct ibv_cq *)front->create_cq_ex(context, &wanted);
        init.send_cq = init.recv_cq = own;
        made = own ? ibv_create_qp(parents[at], &init) : NULL;
        srq = ibv_create_srq(parents[at], &shared);
        mr = kind % 4 == 1 ? front->alloc_null_mr(parents[at]) : ibv_reg_mr(parents[at], data, 64, ON_DEMAND | 1);
        end_all(made, own, srq, mr);
    }
    if (td)
        front->dealloc_td(td);
}

/* The first 40 bytes of a datagram are its sender's. */
static void address_handles(unsigned at)
{
    struct ibv_grh grh;
    struct ibv_wc wc = {.wc_flags = fed() % 4 ? SOFTHCA_WC_GRH : 0, .slid = fed(), .sl = fed()};
    fed_bytes(&grh, sizeof grh);
    if (ahs[at] && !ibv_destroy_ah(ahs[at]))
        ahs[at] = NULL;
    else if (!ahs[at])
        ahs[at] = ibv_create_ah_from_wc(pd, &wc, &grh, fed() % 3);
}

static void shared_receives(unsigned at, unsigned char kind)
{
    struct ibv_srq_init_attr_ex init = {.attr = {ENTRIES, 2, 0}, .comp_mask = kind % 2 ? 15 : 2, .srq_type = 1,
                                        .pd = pd, .cq = cq ? &cq->base : NULL};
    struct ibv_xrcd_init_attr domain = {.comp_mask = 3, .fd = -1, .oflags = O_CREAT};
    struct ibv_sge pieces[2] = {{(uintptr_t)data, kind, 0}, {(uintptr_t)data, kind, 0}};
    struct ibv_recv_wr receive = {.sg_list = pieces, .num_sge = fed() % 3}, *bad;
    struct ibv_srq_attr found;
    uint32_t number;
    if (!xrcd)
        xrcd = front->open_xrcd(context, &domain);
    if (srqs[at] && kind % 4 == 3 && !ibv_destroy_srq(srqs[at])) {
        srqs[at] = NULL;
    } else if (srqs[at]) {
        post_srq_recv(srqs[at], &receive, &bad);
        ibv_query_srq(srqs[at], &found);
        front->get_srq_num(srqs[at], &number);
    } else if (!(kind % 2) || (xrcd && cq)) {
        init.xrcd = xrcd;
        srqs[at] = front->create_srq_ex(context, &init);
    }
}

/* A descriptor from anybody: its bytes, or those of one that is right, and seals. */
static int descriptor(unsigned char kind)
{
    static const char right[] = "softhca device 1\nfuzz\n@fuzz\n";
    char text[TEXT_BYTES];
    size_t bytes = fed() % sizeof text;
    int whole = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    int made = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    fed_bytes(text, bytes);
    if (kind % 4) {
        memcpy(text, right, sizeof right - 1);
        bytes = kind % 4 == 3 ? bytes : sizeof right - 1;
    }
    if (made >= 0 && write(made, text, bytes) == (ssize_t)bytes)
        fcntl(made, F_ADD_SEALS, kind % 8 == 7 ? fed() & 15 : whole);
    return made;
}

static void import(unsigned char kind)
{
    int given = descriptor(kind);
    struct ibv_context *other = given < 0 ? NULL : ibv_import_device(given);
    struct ibv_pd *domain = other ? ibv_import_pd(other, fed()) : NULL;
    struct ibv_mr *mr = domain ? ibv_import_mr(domain, fed()) : NULL;
    if (mr)
        ibv_unimport_mr(mr);
    if (domain)
        ibv_unimport_pd(domain);
    if (other)
        ibv_close_device(other); /* with the descriptor */
    else if (given >= 0)
        close(given);
}

static void ask(void)
{
    struct ibv_device_attr_ex all;
    struct ibv_values_ex values = {.comp_mask = 1};
    uint16_t pkey;
    front->query_device_ex(context, NULL, &all, sizeof all);
    front->query_rt_values(context, &values);
    ibv_query_pkey(context, 1, fed(), &pkey);
}

static void step(void)
{
    unsigned char kind = fed(), which = fed();
    unsigned at = which % MOST;
    switch (kind % 14) {
    case 0: make_queues(); break;
    case 1: case 2: poll_one_by_one(); break;
    case 3: post_batch(); break;
    case 4: regions(at, which); break;
    case 5: device_memory(at, which); break;
    case 6: windows(at, which); break;
    case 7: address_handles(at); break;
    case 8: shared_receives(at, which); break;
    case 9: import(which); break;
    case 10: ask(); break;
    case 11: steer(at, which); break;
    case 12: parent_domains(at, which); break;
    case 13: scale(at, which); break;
    }
}

/* Of what the adapter alone keeps the memory of the program's own is freed. */
static void finish(void)
{
    for (int at = 0; at < MOST; at++)
        if (flows[at] && !front->destroy_flow(flows[at]))
            flows[at] = NULL;
    if (qp)
        ibv_destroy_qp(qp);
    if (table)
        front->destroy_rwq_ind_table(table);
    for (int at = 0; at < MOST; at++)
        if (wqs[at] && !front->destroy_wq(wqs[at]))
            wqs[at] = NULL;
    table = NULL;
    for (int at = MOST - 1; at >= 0; at--) /* the first one may be another one's */
        if (parents[at] && !ibv_dealloc_pd(parents[at]))
            parents[at] = NULL;
    for (int at = 0; at < MOST; at++) {
        if (srqs[at])
            ibv_destroy_srq(srqs[at]);
        if (mrs[at])
            ibv_dereg_mr(mrs[at]);
        if (dms[at])
            front->free_dm(dms[at]);
        free(mws[at]);
        free(ahs[at]);
        srqs[at] = NULL, mrs[at] = NULL, dms[at] = NULL, mws[at] = NULL, ahs[at] = NULL;
    }
    if (cq)
        ibv_destroy_cq(&cq->base);
    free(xrcd);
    qp = NULL, cq = NULL, xrcd = NULL;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count)
{
    play(bytes, count, STEPS, begin, step, finish);
    return 0;
}
