/* Memory, events, flows and domains of the library: which frames are taken and given back, what the adapter is told, and
   what programs may do. */
#define _GNU_SOURCE
#include "objects_script.h"

static struct context context = {.host = &host, .context = {.num_comp_vectors = 1}};
static struct pd pd = {.pd = {.context = &context.context, .handle = 9}},
                 second = {.pd = {.context = &context.context, .handle = 10}}, gone = {.pd = {.handle = 99}};

/* Whether so many slots are taken. */
static int slots_taken(uint32_t count)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < ALL_SLOTS / 64; i++)
        found += (uint32_t)__builtin_popcountll(host.slots.words[i]);
    return found == count;
}

static unsigned char *pages(size_t count)
{
    unsigned char *made = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(made != MAP_FAILED);
    return made;
}

/* Cases */

static void registering(void)
{
    unsigned char *memory = pages(4);
    struct ibv_mr *mr = ibv_reg_mr_iova2(&pd.pd, memory + 100, 2 * PAGE, 0x777000 + 5,
                                         SOFTHCA_ACCESS_LOCAL_WRITE | SOFTHCA_ACCESS_ZERO_BASED | 1u << 20);
    CHECK(mr && told.reg_mr.page_offset == 100 && told.reg_mr.va == 0x777005 && told.reg_mr.zero_based == 1);
    CHECK(told.reg_mr.access == (SOFTHCA_ACCESS_LOCAL_WRITE | SOFTHCA_ACCESS_ZERO_BASED) && run_told.count == 3);
    CHECK(told.attach_arena.pages == 3 && told.attach_arena.address == (uintptr_t)memory && slots_taken(1));
    CHECK(!ibv_dereg_mr(mr) && told.detach_arena.pages == 3 && slots_taken(0));
    CHECK(!ibv_reg_mr(&pd.pd, memory, 1, 1 << 7 << 3) && errno == EOPNOTSUPP);
    CHECK(!ibv_reg_mr_iova(&pd.pd, (void *)(~0ull - PAGE), 2 * PAGE, 0, 0) && errno == EINVAL);
    /* no page at all is one page for the adapter */
    mr = ibv_reg_mr(&pd.pd, memory, 0, 0);
    CHECK(mr && told.attach_arena.pages == 1 && !ibv_dereg_mr(mr) && slots_taken(0));
    /* exactly a slot's pages take one slot */
    mr = ibv_reg_mr(&pd.pd, memory, 4 * PAGE, 0);
    CHECK(mr && slots_taken(1));
    host.dead = EIO;
    refuses = EIO; /* an adapter that has gone keeps nothing alive */
    CHECK(!ibv_dereg_mr(mr));
    host.dead = 0;
    refuses = 0;
    mark(&host.slots, MEMORY_SLOTS, 64, 0);
    refuses = ENOMEM;
    CHECK(!ibv_reg_mr(&pd.pd, memory, PAGE, 0) && errno == ENOMEM && slots_taken(0));
    refuses = 0, refuses_calls = EPERM; /* the frames were taken already */
    CHECK(!ibv_reg_mr(&pd.pd, memory, PAGE, 0) && errno == EPERM && slots_taken(0));
    refuses_calls = 0;
    munmap(memory + 3 * PAGE, PAGE); /* the last page is not there, or not to be written */
    CHECK(!ibv_reg_mr(&pd.pd, memory, 4 * PAGE, 0) && errno == EFAULT);
    mprotect(memory + 2 * PAGE, PAGE, PROT_READ);
    CHECK(!ibv_reg_mr(&pd.pd, memory, 3 * PAGE, SOFTHCA_ACCESS_LOCAL_WRITE) && errno == EFAULT);
    mr = ibv_reg_mr(&pd.pd, memory, 3 * PAGE, SOFTHCA_ACCESS_REMOTE_READ);
    CHECK(mr && !ibv_dereg_mr(mr));
    mr = ibv_reg_mr(&pd.pd, memory, 2 * PAGE, SOFTHCA_ACCESS_LOCAL_WRITE); /* what lies behind is nobody's matter */
    CHECK(mr && !ibv_dereg_mr(mr));
    host.foreign = EPERM;
    CHECK(!ibv_reg_mr(&pd.pd, memory, PAGE, 0) && errno == EPERM);
}

static void large(void)
{
    size_t bytes = (size_t)SOFTHCA_SLOT_PAGES * PAGE;
    unsigned char *memory = pages(SOFTHCA_SLOT_PAGES + 1);
    struct ibv_mr *one = ibv_reg_mr(&pd.pd, memory, bytes, 0), *two;
    CHECK(one && slots_taken(1));
    two = ibv_reg_mr(&pd.pd, memory, bytes + 1, 0);
    CHECK(two && slots_taken(3));
    CHECK(!ibv_dereg_mr(two) && slots_taken(1) && !ibv_dereg_mr(one) && slots_taken(0));
}

/* Memory of the program's pool, which the adapter maps once. */
static void pooled(void)
{
    struct ibv_mr *mr;
    holds = open("/dev/null", O_RDONLY), held_offset = 3 * PAGE + 100;
    refuses = ENOMEM;
    CHECK(!ibv_reg_mr(&pd.pd, pages(1), 2 * PAGE, 0) && releases == 1 && slots_taken(0));
    refuses = 0;
    mr = ibv_reg_mr(&pd.pd, pages(2), PAGE, 0); /* it is not tried again */
    CHECK(mr && releases == 2 && told.attach_arena.memory == SOFTHCA_MEMORY_FOREIGN);
    CHECK(!ibv_dereg_mr(mr) && releases == 2);
    host.foreign = EPERM; /* nothing was attached, so nothing is detached */
    CHECK(!ibv_reg_mr(&pd.pd, pages(1), PAGE, 0) && errno == EPERM && releases == 3 && calls.detach_arena == 1);
    host.foreign = 0, releases = 2;
    host.pool_tried = 0;
    mr = ibv_reg_mr(&pd.pd, pages(1) + 100, 2 * PAGE, 0);
    CHECK(mr && told.attach_arena.memory == SOFTHCA_MEMORY_PASSED && told.attach_arena.address == 77);
    CHECK(run_told.first == host.pool + 3 && run_told.count == 3 && releases == 2);
    CHECK(!ibv_dereg_mr(mr) && releases == 3 && released_offset == 3 * PAGE && released_bytes == 3 * PAGE);
    holds = -1;
    mr = ibv_reg_mr(&pd.pd, pages(1), 1, 0); /* the slot behind the pool is not the pool */
    CHECK(mr && run_told.first == host.pool + BUFFERS_BYTES / PAGE && !ibv_dereg_mr(mr) && releases == 3);
}

static void reregistering(void)
{
    unsigned char *memory = pages(3);
    struct ibv_mr *mr = ibv_reg_mr(&pd.pd, memory, PAGE, SOFTHCA_ACCESS_LOCAL_WRITE), *demand;
    uint32_t key = mr->lkey, handle = mr->handle, first = run_told.first;
    CHECK(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == -1 && errno == EINVAL);
    CHECK(ibv_rereg_mr(mr, 8, NULL, NULL, 0, 0) == -1 && ibv_rereg_mr(mr, REREG_PD, NULL, NULL, 0, 0) == -1);
    CHECK(ibv_rereg_mr(mr, REREG_TRANSLATION, NULL, memory, 0, 0) == -1);
    CHECK(ibv_rereg_mr(mr, REREG_ACCESS, NULL, NULL, 0, SOFTHCA_ACCESS_ON_DEMAND) == -1);
    CHECK(!ibv_rereg_mr(mr, REREG_ACCESS, NULL, NULL, 0, SOFTHCA_ACCESS_REMOTE_READ | 1 << 21));
    CHECK(told.rereg_mr.access == SOFTHCA_ACCESS_REMOTE_READ && told.rereg_mr.pd == 9 && told.rereg_mr.lkey == key);
    CHECK(mr->lkey != key && mr->rkey == mr->lkey && mr->handle == handle && mr->addr == memory);
    key = mr->lkey;
    CHECK(!ibv_rereg_mr(mr, REREG_PD, &second.pd, NULL, 0, 0x3f));
    CHECK(told.rereg_mr.lkey == key && told.rereg_mr.pd == 10 && told.rereg_mr.access == SOFTHCA_ACCESS_REMOTE_READ);
    CHECK(mr->pd == &second.pd);
    CHECK(!ibv_rereg_mr(mr, REREG_TRANSLATION, NULL, memory + PAGE + 8, PAGE, 0));
    CHECK(told.rereg_mr.pd == 10 && told.rereg_mr.page_offset == 8 && told.rereg_mr.length == PAGE);
    CHECK(mr->addr == memory + PAGE + 8 && mr->length == PAGE && slots_taken(1) && run_told.first != first);
    refuses_calls = EINVAL; /* the frames of before stay, and those of now are given back */
    CHECK(ibv_rereg_mr(mr, REREG_TRANSLATION, NULL, memory, PAGE, 0) == -1);
    refuses_calls = 0;
    CHECK(mr->addr == memory + PAGE + 8 && slots_taken(1));
    mr->pd = &gone.pd; /* the name of its domain may be no longer, as a parent domain's */
    CHECK(!ibv_rereg_mr(mr, REREG_ACCESS, NULL, NULL, 0, 0) && told.rereg_mr.pd == 10);
    CHECK(!ibv_dereg_mr(mr) && told.detach_arena.pages == 2);
    demand = ibv_reg_mr(&pd.pd, memory, PAGE, SOFTHCA_ACCESS_ON_DEMAND);
    CHECK(demand && told.reg_mr.address == (uintptr_t)memory && !told.reg_mr.frames_count);
    key = demand->lkey;
    CHECK(table_find(&context.mrs, key) == demand);
    CHECK(!ibv_rereg_mr(demand, REREG_TRANSLATION, NULL, memory + PAGE, 8, 0));
    CHECK(told.rereg_mr.address == (uintptr_t)memory + PAGE && ((struct mr *)demand)->iova == (uintptr_t)memory + PAGE);
    CHECK(!table_find(&context.mrs, key) && table_find(&context.mrs, demand->lkey) == demand);
    key = demand->lkey;
    CHECK(!context.mrs.buckets[(key - 1) % BUCKETS] && context.mrs.buckets[key % BUCKETS]);
    CHECK(!ibv_dereg_mr(demand) && !context.mrs.buckets[key % BUCKETS]);
}

static void domains(void)
{
    struct ibv_pd *own = ibv_alloc_pd(&context.context);
    struct ibv_parent_domain_init_attr attr = {.pd = own, .pd_context = &host};
    struct ibv_pd *parent = alloc_parent_domain(&context.context, &attr);
    CHECK(own && parent && parent->handle == own->handle && !((struct pd *)parent)->pd_context);
    CHECK(ibv_dealloc_pd(own) == EBUSY && !calls.dealloc_pd);
    ((struct pd *)parent)->users = 1; /* a ring stands in what it gave */
    CHECK(ibv_dealloc_pd(parent) == EBUSY);
    ((struct pd *)parent)->users = 0;
    CHECK(!ibv_dealloc_pd(parent) && !calls.dealloc_pd && !ibv_dealloc_pd(own) && calls.dealloc_pd == 1);
    attr.pd = NULL;
    CHECK(!alloc_parent_domain(&context.context, &attr) && errno == EINVAL);
    attr.pd = &pd.pd, attr.comp_mask = 8;
    CHECK(!alloc_parent_domain(&context.context, &attr) && errno == EOPNOTSUPP);
    attr.comp_mask = 1, attr.alloc = malloc;
    CHECK(!alloc_parent_domain(&context.context, &attr) && errno == EINVAL);
    attr.comp_mask = 2;
    parent = alloc_parent_domain(&context.context, &attr);
    CHECK(parent && ((struct pd *)parent)->pd_context == &host && !((struct pd *)parent)->alloc);
    attr.pd = parent, attr.comp_mask = 0; /* a parent domain of one */
    CHECK((own = alloc_parent_domain(&context.context, &attr)) && ibv_dealloc_pd(parent) == EBUSY);
    CHECK(!ibv_dealloc_pd(own) && !ibv_dealloc_pd(parent) && !pd.users);
}

static unsigned char *given;
static uint64_t kinds_told[2];
static int freed;
static void *give(struct ibv_pd *base, void *of, size_t bytes, size_t alignment, uint64_t kind)
{
    (void)base, (void)of, (void)bytes;
    CHECK(alignment == PAGE);
    kinds_told[0] = kind;
    return given;
}

static void take_back(struct ibv_pd *base, void *of, void *memory, uint64_t kind)
{
    (void)base, (void)of;
    CHECK(memory == given);
    kinds_told[1] = kind, freed++;
}

static void lending(void)
{
    struct pd parent = {.pd = {.context = &context.context}, .original = &pd, .alloc = give, .free = take_back};
    struct ring ring;
    CHECK(!host_make_ring(&host, &ring, 4, 64) && ring.run.count == 3);
    CHECK(!lend_ring(NULL, &ring, 4) && !lend_ring(&pd.pd, &ring, 4) && !ring.loan);
    given = (unsigned char *)-1; /* the library's own */
    CHECK(!lend_ring(&parent.pd, &ring, 4) && !ring.loan && !parent.users);
    given = NULL;
    CHECK(lend_ring(&parent.pd, &ring, 4) == ENOMEM && !freed);
    given = pages(3) + 8;
    CHECK(lend_ring(&parent.pd, &ring, 4) == EINVAL && freed == 1 && !parent.users);
    given -= 8;
    mprotect(given + 2 * PAGE, PAGE, PROT_READ);
    CHECK(lend_ring(&parent.pd, &ring, 4) == EINVAL && freed == 2);
    mprotect(given + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE);
    CHECK(!lend_ring(&parent.pd, &ring, 4) && kinds_told[0] == 4 && parent.users == 1 && freed == 2);
    ring.control->tail = 0x1234; /* both are the same pages */
    CHECK(*(uint64_t *)given == 0x1234);
    given[2 * PAGE] = 9;
    CHECK(ring.bodies[0] == 9);
    host_free_ring(&host, &ring);
    CHECK(freed == 3 && kinds_told[1] == 4 && !parent.users);
    given[0] = 7, given[2 * PAGE] = 7; /* the program's own again: what becomes of the ring's pages is not seen */
    CHECK(!host_make_ring(&host, &ring, 4, 64));
    CHECK(!((unsigned char *)ring.control)[0] && !ring.bodies[0]);
    host_free_ring(&host, &ring);
}

static void device_memory(void)
{
    struct ibv_alloc_dm_attr attr = {.length = PAGE + 8, .log_align_req = 12};
    struct ibv_dm *dm = alloc_dm(&context.context, &attr), *imported;
    unsigned char bytes[16] = "0123456789abcde", back[16] = "", *memory;
    struct ibv_mr *mr;
    struct context elsewhere = {.host = &host};
    struct pd stranger = {.pd = {.context = &elsewhere.context}};
    int made;
    CHECK(dm && told.alloc_dm.descriptor == 77 && context.dm_bytes == PAGE + 8);
    attr.log_align_req = 13;
    CHECK(!alloc_dm(&context.context, &attr) && errno == EINVAL);
    attr.log_align_req = 0, attr.length = 0;
    CHECK(!alloc_dm(&context.context, &attr) && errno == EINVAL && context.dm_bytes == PAGE + 8);
    attr.length = MAX_DM_BYTES - PAGE - 7;
    CHECK(!alloc_dm(&context.context, &attr) && errno == ENOMEM && context.dm_bytes == PAGE + 8);
    attr.length--; /* all that is left */
    struct ibv_dm *rest = alloc_dm(&context.context, &attr);
    CHECK(rest && context.dm_bytes == MAX_DM_BYTES && !free_dm(rest) && calls.free_dm == 1);
    attr.length = PAGE, refuses = EPERM, made = dup(0);
    CHECK(!close(made));
    CHECK(!alloc_dm(&context.context, &attr) && errno == EPERM && context.dm_bytes == PAGE + 8);
    CHECK(dup(0) == made && !close(made)); /* its file is closed */
    refuses = 0;
    CHECK(!dm->memcpy_to_dm(dm, PAGE, bytes, 8) && !dm->memcpy_from_dm(back, dm, PAGE, 8) && !memcmp(bytes, back, 8));
    CHECK(dm->memcpy_to_dm(dm, PAGE, bytes, 12) == EINVAL && dm->memcpy_to_dm(dm, ~3ull, bytes, 8) == EINVAL);
    CHECK(!dm->memcpy_to_dm(dm, PAGE + 8, bytes, 0) && dm->memcpy_to_dm(dm, PAGE + 12, bytes, 0) == EINVAL);
    CHECK(dm->memcpy_to_dm(dm, 2, bytes, 4) == EINVAL && dm->memcpy_to_dm(dm, 0, bytes, 2) == EINVAL);
    CHECK(dm->memcpy_from_dm(back, dm, 2, 4) == EINVAL && dm->memcpy_from_dm(back, dm, 0, 2) == EINVAL);
    CHECK(!reg_dm_mr(&pd.pd, dm, 0, 8, 0) && errno == EOPNOTSUPP); /* named from 0 on alone */
    CHECK(!reg_dm_mr(&pd.pd, dm, PAGE, 9, SOFTHCA_ACCESS_ZERO_BASED) && errno == EINVAL);
    CHECK(!reg_dm_mr(&stranger.pd, dm, 0, 8, SOFTHCA_ACCESS_ZERO_BASED) && errno == EINVAL);
    refuses = ENOMEM;
    CHECK(!reg_dm_mr(&pd.pd, dm, 0, 8, SOFTHCA_ACCESS_ZERO_BASED) && slots_taken(0));
    refuses = 0, refuses_calls = ENOMEM;
    CHECK(!reg_dm_mr(&pd.pd, dm, 0, 8, SOFTHCA_ACCESS_ZERO_BASED) && slots_taken(0));
    refuses_calls = 0;
    mr = reg_dm_mr(&pd.pd, dm, PAGE - 4, 8, SOFTHCA_ACCESS_ZERO_BASED);
    CHECK(mr && told.reg_mr.page_offset == PAGE - 4 && run_told.count == 2 && slots_taken(1));
    CHECK(free_dm(dm) == EBUSY && ibv_rereg_mr(mr, REREG_PD, &second.pd, NULL, 0, 0) == -1);
    CHECK(!ibv_dereg_mr(mr) && slots_taken(0) && told.detach_arena.pages == 2);
    mr = reg_dm_mr(&pd.pd, dm, PAGE, 8, SOFTHCA_ACCESS_ZERO_BASED);
    CHECK(mr && run_told.first % SOFTHCA_SLOT_PAGES == 1 && run_told.count == 1 && !ibv_dereg_mr(mr));
    mr = reg_dm_mr(&pd.pd, dm, PAGE, 8, SOFTHCA_ACCESS_ZERO_BASED | (1u << 20)); /* what may be passed over */
    CHECK(mr && told.reg_mr.access == SOFTHCA_ACCESS_ZERO_BASED && !ibv_dereg_mr(mr));
    CHECK(slots_taken(0) && calls.detach_arena == 4);
    made = ((struct dm *)dm)->descriptor;
    CHECK(ftruncate(made, 0) < 0 && fcntl(made, F_GETFD) & FD_CLOEXEC);
    passed = made, passed_bytes = PAGE + 8;
    imported = ibv_import_dm(&context.context, dm->handle);
    CHECK(imported && !imported->memcpy_from_dm(back, imported, PAGE, 8) && free_dm(imported) == EINVAL);
    passed = ((struct dm *)imported)->descriptor;
    ibv_unimport_dm(dm); /* which it is not */
    CHECK(!dm->memcpy_to_dm(dm, 0, bytes, 4));
    passed_bytes = 0;
    CHECK(!ibv_import_dm(&context.context, 1) && errno == EPROTO);
    passed_bytes = 2 * PAGE + 1; /* more than there is, though its last page begins within */
    CHECK(!ibv_import_dm(&context.context, 1) && errno == EPROTO);
    passed = memfd_create("loose", MFD_ALLOW_SEALING), passed_bytes = PAGE;
    CHECK(!ftruncate(passed, PAGE) && !ibv_import_dm(&context.context, 1) && errno == EPROTO); /* it may shrink */
    fcntl(passed, F_ADD_SEALS, F_SEAL_SHRINK);
    CHECK(!ftruncate(passed, PAGE + 1));
    passed_bytes = PAGE + 1;
    CHECK(!ibv_import_dm(&context.context, 1) && errno == EPROTO); /* the rest of its last page is not there */
    made = dup(passed);
    close(made);
    passed_bytes = 0;
    CHECK(!ibv_import_dm(&context.context, 1) && dup(passed) == made); /* none stays open */
    made = ((struct dm *)dm)->descriptor, memory = ((struct dm *)dm)->memory;
    CHECK(!free_dm(dm) && !context.dm_bytes && calls.free_dm == 2 && fcntl(made, F_GETFD) < 0);
    CHECK(msync(memory, PAGE, MS_ASYNC) && msync(memory + PAGE, PAGE, MS_ASYNC)); /* nothing is there any more */
    attr.length = MAX_DM_BYTES; /* the most that there is may be another process's too */
    dm = alloc_dm(&context.context, &attr);
    CHECK(dm && (passed = dup(((struct dm *)dm)->descriptor)) >= 0);
    passed_bytes = MAX_DM_BYTES;
    imported = ibv_import_dm(&context.context, dm->handle);
    CHECK(imported && !imported->memcpy_from_dm(back, imported, MAX_DM_BYTES - 8, 8));
    ibv_unimport_dm(imported);
    CHECK(!free_dm(dm) && !context.dm_bytes);
    host.dead = EIO; /* as in a forked child, which may still copy */
    attr.length = 8;
    dm = alloc_dm(&context.context, &attr);
    CHECK(dm && !dm->handle && !dm->memcpy_to_dm(dm, 0, bytes, 8));
    CHECK(!reg_dm_mr(&pd.pd, dm, 0, 8, SOFTHCA_ACCESS_ZERO_BASED) && errno == EIO);
}

static void advice(void)
{
    unsigned char *memory = pages(4);
    struct ibv_mr *mr = ibv_reg_mr_iova2(&pd.pd, memory, 3 * PAGE, 0x10000, SOFTHCA_ACCESS_ON_DEMAND), *plain;
    struct ibv_sge one = {0x10000 + PAGE - 1, 2, mr->lkey}, two[] = {one, {0x10000, 3 * PAGE + 1, mr->lkey}};
    unsigned char there[4];
    CHECK(advise_mr(&pd.pd, PREFETCH_NO_FAULT + 1, 0, &one, 1) == EOPNOTSUPP);
    CHECK(advise_mr(&pd.pd, PREFETCH, 2, &one, 1) == EINVAL && advise_mr(&pd.pd, PREFETCH, 0, &one, 0) == EINVAL);
    CHECK(advise_mr(&pd.pd, PREFETCH_WRITE, 0, &one, 1) == EFAULT); /* nothing may be written there */
    CHECK(advise_mr(&pd.pd, PREFETCH, 0, two, 2) == EFAULT && advise_mr(&second.pd, PREFETCH, 0, &one, 1) == EFAULT);
    CHECK(!advise_mr(&pd.pd, PREFETCH_NO_FAULT, 0, &one, 1));
    CHECK(!mincore(memory, 4 * PAGE, there) && !(there[0] & 1) && !(there[1] & 1));
    CHECK(!advise_mr(&pd.pd, PREFETCH, FLUSH, &one, 1));
    CHECK(!mincore(memory, 4 * PAGE, there) && there[0] & 1 && there[1] & 1 && !(there[2] & 1));
    one = (struct ibv_sge){0x10000 + 3 * PAGE, 0, mr->lkey}; /* nothing, at its end */
    CHECK(!advise_mr(&pd.pd, PREFETCH, 0, &one, 1));
    one = (struct ibv_sge){0x10000 + 2 * PAGE, PAGE + 1, mr->lkey};
    CHECK(advise_mr(&pd.pd, PREFETCH, 0, &one, 1) == EFAULT);
    one.length = PAGE;
    munmap(memory + 2 * PAGE, PAGE);
    CHECK(!advise_mr(&pd.pd, PREFETCH, 0, &one, 1) && advise_mr(&pd.pd, PREFETCH, FLUSH, &one, 1) == EFAULT);
    plain = ibv_reg_mr(&pd.pd, memory, PAGE, 0);
    table_add(&context, &context.mrs, &((struct mr *)plain)->entry, plain->lkey, plain);
    ((struct mr *)plain)->domain = 9;
    one = (struct ibv_sge){(uintptr_t)memory, 1, plain->lkey};
    CHECK(advise_mr(&pd.pd, PREFETCH, 0, &one, 1) == EINVAL);
}

static void windows(void)
{
    struct ibv_mw *mw = alloc_mw(&pd.pd, 1);
    struct ibv_mw_bind bind = {.wr_id = 1};
    CHECK(mw && mw->rkey == 0x12ff);
    post_error = ENOMEM;
    CHECK(bind_mw(&one_qp.ex.base, mw, &bind) == ENOMEM && mw->rkey == 0x12ff);
    post_error = 0;
    CHECK(!bind_mw(&one_qp.ex.base, mw, &bind) && mw->rkey == 0x1200);
    bind.send_flags = SEND_INLINE;
    CHECK(bind_mw(&one_qp.ex.base, mw, &bind) == EINVAL);
    bind.send_flags = 0, mw->type = 2;
    CHECK(bind_mw(&one_qp.ex.base, mw, &bind) == EINVAL && !dealloc_mw(mw));
    CHECK(alloc_null_mr(&pd.pd)->length == SIZE_MAX && told.alloc_null_mr.pd == 9);
}

static void address_handles(void)
{
    struct ibv_ah_attr attr = {.grh = {.flow_label = 0x1fffff, .sgid_index = 2, .hop_limit = 3, .traffic_class = 4},
                               .sl = 5, .src_path_bits = 6, .static_rate = 7, .is_global = 1, .port_num = 1};
    struct ibv_wc wc = {.wc_flags = SOFTHCA_WC_GRH, .slid = 8, .sl = 2, .dlid_path_bits = 3};
    struct ibv_grh grh = {.version_tclass_flow = htonl(0x6abcdef1)};
    struct ibv_ah *ah = ibv_create_ah(&pd.pd, &attr);
    unsigned char none[16] = {0}, nine[16];
    memset(nine, 9, 16);
    CHECK(ah && told.create_ah.flow_label == 0xfffff && told.create_ah.sgid_index == 2 && told.create_ah.hop_limit == 3);
    CHECK(told.create_ah.traffic_class == 4 && told.create_ah.sl == 5 && told.create_ah.src_path_bits == 6);
    CHECK(told.create_ah.static_rate == 7 && told.create_ah.pd == 9 && !ibv_destroy_ah(ah));
    context.roce_sl = 2; /* on RoCE who names no address names itself */
    CHECK(ibv_create_ah(&pd.pd, &attr) && !memcmp(told.create_ah.dgid, none, 16));
    attr.is_global = 0, attr.dlid = 4;
    CHECK(ibv_create_ah(&pd.pd, &attr) && !told.create_ah.is_global);
    attr.dlid = 0;
    CHECK(ibv_create_ah(&pd.pd, &attr) && !memcmp(told.create_ah.dgid, nine, 16) && told.create_ah.is_global);
    context.roce_sl = 0;
    CHECK(ibv_create_ah(&pd.pd, &attr) && !told.create_ah.is_global);
    memset(&grh.dgid, 7, 16), memset(&grh.sgid, 6, 16);
    own_gid_at = MOST_GIDS - 1;
    CHECK(!ibv_init_ah_from_wc(&context.context, 1, &wc, &grh, &attr) && attr.grh.sgid_index == MOST_GIDS - 1);
    CHECK(attr.grh.dgid.raw[0] == 6 && attr.grh.flow_label == 0xcdef1 && attr.grh.traffic_class == 0xab);
    CHECK(attr.dlid == 8 && attr.sl == 2 && attr.src_path_bits == 3 && attr.is_global && attr.grh.hop_limit == 64);
    context.roce_sl = 3; /* by IPv6 */
    CHECK(!ibv_init_ah_from_wc(&context.context, 1, &wc, &grh, &attr) && !attr.sl && attr.grh.traffic_class == 0xab);
    context.roce_sl = 2; /* by IPv4, whose header has neither */
    CHECK(!ibv_init_ah_from_wc(&context.context, 1, &wc, &grh, &attr) && !attr.grh.traffic_class);
    own_gid_at = MOST_GIDS;
    CHECK(ibv_init_ah_from_wc(&context.context, 1, &wc, &grh, &attr) == -1 && errno == ENOENT);
    wc.wc_flags = 0;
    CHECK(!ibv_init_ah_from_wc(&context.context, 1, &wc, &grh, &attr) && !attr.is_global && attr.dlid == 8);
}

static void versions(void)
{
    /* an IPv4 header whose words make more than 16 bits more than once */
    static const unsigned char header[20] = {0x45, 0, 0xff, 0xff, 0xff, 0xff, 0x40, 0, 64, 17, 0x3b, 0x6b,
                                             192, 0, 2, 1, 192, 0, 2, 2};
    struct ibv_grh grh = {0};
    union ibv_gid source, own;
    unsigned char *ipv4 = (unsigned char *)&grh + 20;
    uint32_t sum = 0;
    memcpy(ipv4, header, 20);
    ipv4[10] = ipv4[11] = 0;
    for (int i = 0; i < 20; i += 2)
        sum += (uint32_t)ipv4[i] << 8 | ipv4[i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    ipv4[10] = (unsigned char)(~sum >> 8), ipv4[11] = (unsigned char)~sum;
    gids_of(&grh, &source, &own);
    CHECK(source.raw[11] == 0xff && source.raw[15] == 1 && own.raw[15] == 2 && own.raw[12] == 192 && !own.raw[0]);
    ipv4[11] ^= 1;
    gids_of(&grh, &source, &own);
    CHECK(!memcmp(&source, &grh.sgid, 16) && !memcmp(&own, &grh.dgid, 16));
}

/* Whether a thread has begun to wait; it has no other reason to sleep. */
static int sleeps(int thread)
{
    char path[64], text[256] = "", *state;
    int stat;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    stat = open(path, O_RDONLY);
    CHECK(stat < 0 || read(stat, text, sizeof text - 1) > 0);
    close(stat);
    state = strrchr(text, ')');
    return state && state[2] == 'S';
}

static atomic_int sleeper;

static void *awaits(void *of)
{
    struct cq *cq = of;
    sleeper = gettid();
    struct ibv_cq *seen = &cq->ex.base;
    await_acknowledged(&seen->mutex, &seen->cond, &seen->comp_events_completed, cq->comp_events_got);
    return NULL;
}

static void events(void)
{
    struct cq cq = {.ex.base = {.context = &context.context, .cq_context = &host, .mutex = PTHREAD_MUTEX_INITIALIZER,
                                .cond = PTHREAD_COND_INITIALIZER}};
    struct qp qp = {.ex.base = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER}};
    struct srq srq = {.srq = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER}};
    struct ibv_comp_channel channel = {.context = &context.context};
    struct softhca_event sent[] = {{SOFTHCA_EVENT_CQ_ERR, 5, 0}, {SOFTHCA_EVENT_COMPLETION, 6, 0},
                                   {SOFTHCA_EVENT_COMPLETION, 5, 0}, {SOFTHCA_EVENT_COMPLETION, 5, 0}};
    struct ibv_async_event event;
    struct ibv_cq *seen;
    struct ibv_comp_channel *made;
    struct timespec limit;
    pthread_t thread;
    void *cq_context;
    int ends[2];
    CHECK(!pipe2(ends, O_NONBLOCK));
    table_add(&context, &context.cqs, &cq.entry, 5, &cq);
    table_add(&context, &context.qps, &qp.entry, 5, &qp);
    table_add(&context, &context.srqs, &srq.entry, 5, &srq);
    channel.fd = context.context.async_fd = ends[0];
    /* neither another kind nor a queue that has gone is an event */
    CHECK(write(ends[1], sent, sizeof sent) == sizeof sent);
    for (int i = 0; i < 2; i++)
        CHECK(!ibv_get_cq_event(&channel, &seen, &cq_context) && seen == &cq.ex.base && cq_context == &host);
    CHECK(cq.comp_events_got == 2 && !cq.async_events_got && read(ends[0], sent, 1) < 0 && errno == EAGAIN);
    CHECK(!pthread_create(&thread, NULL, awaits, &cq));
    while (!sleeps(sleeper))
        sched_yield();
    ibv_ack_cq_events(seen, 2);
    CHECK(seen->comp_events_completed == 2 && !clock_gettime(CLOCK_REALTIME, &limit));
    limit.tv_sec += 30; /* it is woken at once */
    CHECK(!pthread_timedjoin_np(thread, NULL, &limit));
    for (int kind = 0; kind <= (int)SOFTHCA_EVENT_GID_CHANGE; kind++) {
        struct softhca_event raw = {.kind = (uint32_t)kind, .element = 5};
        uint32_t before = cq.async_events_got + qp.async_events_got + srq.async_events_got, after;
        int of_port = kind >= (int)SOFTHCA_EVENT_DEVICE_FATAL && kind != (int)SOFTHCA_EVENT_SRQ_ERR
            && kind != (int)SOFTHCA_EVENT_SRQ_LIMIT_REACHED && kind != (int)SOFTHCA_EVENT_QP_LAST_WQE_REACHED;
        void *element = kind == 0 ? (void *)&cq : kind == (int)SOFTHCA_EVENT_SRQ_ERR
            || kind == (int)SOFTHCA_EVENT_SRQ_LIMIT_REACHED ? (void *)&srq : (void *)&qp;
        CHECK(write(ends[1], &raw, sizeof raw) == sizeof raw && !ibv_get_async_event(&context.context, &event));
        CHECK(event.event_type == kind && (of_port ? event.element.port_num == 5 : event.element.qp == element));
        after = cq.async_events_got + qp.async_events_got + srq.async_events_got;
        CHECK(after == before + !of_port);
        ibv_ack_async_event(&event);
        CHECK(cq.ex.base.async_events_completed + qp.ex.base.events_completed + srq.srq.events_completed == after);
        CHECK(cq.async_events_got == cq.ex.base.async_events_completed);
        CHECK(srq.async_events_got == srq.srq.events_completed);
    }
    struct wq wq = {.wq = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER}};
    struct softhca_event fatal = {.kind = SOFTHCA_EVENT_WQ_FATAL, .element = 5};
    table_add(&context, &context.wqs, &wq.entry, 5, &wq);
    CHECK(write(ends[1], &fatal, sizeof fatal) == sizeof fatal && !ibv_get_async_event(&context.context, &event));
    CHECK(event.element.wq == &wq.wq && wq.async_events_got == 1 && wq.wq.events_completed == 0);
    ibv_ack_async_event(&event);
    CHECK(wq.wq.events_completed == 1);
    CHECK(write(ends[1], sent, 3) == 3); /* less than an event: the adapter is not to be trusted */
    CHECK(ibv_get_cq_event(&channel, &seen, &cq_context) == -1 && errno == EIO);
    host.dead = EPERM;
    CHECK(!ibv_create_comp_channel(&context.context) && errno == EPERM);
    host.dead = 0;
    made = calloc(1, sizeof(struct channel));
    *made = (struct ibv_comp_channel){.context = &context.context, .fd = ends[0], .refcnt = 1};
    CHECK(ibv_destroy_comp_channel(made) == EBUSY && fcntl(ends[0], F_GETFD) >= 0);
    made->refcnt = 0;
    CHECK(!ibv_destroy_comp_channel(made) && fcntl(ends[0], F_GETFD) < 0);
}

static void tables(void)
{
    struct numbered one, two, three;
    table_add(&context, &context.qps, &one, 3, &one);
    table_add(&context, &context.qps, &two, 3 + BUCKETS, &two);
    table_add(&context, &context.qps, &three, 3, &three); /* a number that was given again */
    CHECK(table_find(&context.qps, 3 + BUCKETS) == &two && !table_find(&context.qps, 3 + 2 * BUCKETS));
    table_remove(&context, &context.qps, &one);
    CHECK(table_find(&context.qps, 3) == &three && table_find(&context.qps, 3 + BUCKETS) == &two);
    table_remove(&context, &context.qps, &one); /* again does nothing */
    table_remove(&context, &context.qps, &three);
    CHECK(!table_find(&context.qps, 3) && table_find(&context.qps, 3 + BUCKETS) == &two);
}

/* A rule of one specification: bytes at `from` of its value and mask are `bytes`. */
static int rule_of(uint32_t type, unsigned value_at, unsigned value_bytes, unsigned from, unsigned bytes)
{
    struct {
        struct ibv_flow_attr attr;
        unsigned char spec[100];
    } all = {.attr = {.num_of_specs = 1, .port = 1, .priority = 3}};
    struct flow_spec spec = {type, (uint16_t)(value_at + 2 * value_bytes)};
    struct ibv_flow *flow;
    memcpy(all.spec, &spec, sizeof spec);
    for (unsigned i = 0; i < bytes; i++) {
        all.spec[value_at + from + i] = (unsigned char)(0xf1 + i);
        all.spec[value_at + value_bytes + from + i] = 0x0f;
    }
    flow = create_flow(&one_qp.ex.base, &all.attr);
    return !flow || destroy_flow(flow);
}

/* Whether `bytes` at `place` of the key are asked for, and else nothing but that there is the header. */
static int asks(unsigned place, unsigned bytes, unsigned header_at, unsigned char header)
{
    for (unsigned i = 0; i < 64; i++) {
        int here = i >= place && i < place + bytes, is_header = header && i == header_at;
        unsigned char mask = (unsigned char)(here ? 0x0f : is_header ? 0xff : 0);
        unsigned char value = (unsigned char)(here ? (0xf1 + i - place) & 0x0f : is_header ? header : 0);
        if (mask_told[i] != mask || value_told[i] != value)
            return 0;
    }
    return 1;
}

static void flows(void)
{
    struct ibv_flow_attr attr = {.type = 1};
    one_qp.ex.base.context = &context.context;
    CHECK(!rule_of(SPEC_TCP, 6, 4, 0, 2) && asks(58, 2, 60, 6) && told.create_flow.port_num == 1);
    CHECK(told.create_flow.priority == 3 && !rule_of(SPEC_UDP, 6, 4, 2, 2) && asks(56, 2, 60, 17));
    CHECK(!rule_of(SPEC_ETH, 6, 16, 12, 2) && asks(12, 2, 0, 0) && !rule_of(SPEC_ETH, 6, 16, 0, 6) && asks(0, 6, 0, 0));
    CHECK(!rule_of(SPEC_IPV4, 8, 8, 4, 4) && asks(40, 4, 16, 4));
    for (unsigned i = 0; i < 4; i++)
        CHECK(!rule_of(SPEC_IPV4_EXT, 8, 12, 8 + i, 1) && asks(17 + i, 1, 16, 4));
    CHECK(!rule_of(SPEC_IPV6, 8, 40, 33, 3) && asks(21, 3, 16, 6) && !rule_of(SPEC_IPV6, 8, 40, 16, 16));
    CHECK(asks(40, 16, 16, 6) && !rule_of(SPEC_IPV6, 8, 40, 32, 1) && asks(0, 0, 16, 6)); /* a label has 20 bits */
    CHECK(rule_of(0x55, 8, 8, 0, 1) && errno == EOPNOTSUPP);
    /* two that cannot both be, one that is cut short, and one that is no specification at all */
    struct {
        struct ibv_flow_attr attr;
        unsigned char specs[64];
    } all = {.attr = {.num_of_specs = 2, .port = 2}};
    struct flow_spec tcp = {SPEC_TCP, 14}, udp = {SPEC_UDP, 14};
    memcpy(all.specs, &tcp, sizeof tcp), memcpy(all.specs + 14, &udp, sizeof udp);
    CHECK(!create_flow(&one_qp.ex.base, &all.attr) && errno == EINVAL);
    memcpy(all.specs + 14, &tcp, sizeof tcp);
    struct ibv_flow *both = create_flow(&one_qp.ex.base, &all.attr);
    CHECK(both && told.create_flow.port_num == 2 && !destroy_flow(both));
    tcp.size = 13, memcpy(all.specs, &tcp, sizeof tcp), all.attr.num_of_specs = 1;
    CHECK(!create_flow(&one_qp.ex.base, &all.attr) && errno == EINVAL);
    tcp = (struct flow_spec){0x55, sizeof tcp - 1}, memcpy(all.specs, &tcp, sizeof tcp);
    CHECK(!create_flow(&one_qp.ex.base, &all.attr) && errno == EINVAL);
    attr.comp_mask = 1;
    CHECK(!create_flow(&one_qp.ex.base, &attr) && errno == EINVAL);
    attr = (struct ibv_flow_attr){.type = 0x101};
    CHECK(!create_flow(&one_qp.ex.base, &attr) && errno == EINVAL);
    attr = (struct ibv_flow_attr){.flags = 2};
    CHECK(!create_flow(&one_qp.ex.base, &attr) && errno == EOPNOTSUPP);
    attr = (struct ibv_flow_attr){.type = 1, .num_of_specs = 1}; /* all frames: nothing more can be asked for */
    CHECK(!create_flow(&one_qp.ex.base, &attr) && errno == EINVAL);
    host.dead = EIO;
    attr = (struct ibv_flow_attr){0};
    refuses = 0;
    struct ibv_flow *flow = create_flow(&one_qp.ex.base, &attr);
    refuses = EIO;
    CHECK(flow && !destroy_flow(flow)); /* it has gone with the adapter */
}

static void front(void)
{
    struct ibv_values_ex values = {.comp_mask = 3};
    struct ibv_cq_init_attr_ex cq = {.comp_mask = 1, .flags = 4, .parent_domain = &pd.pd};
    struct ibv_qp_init_attr_ex qp = {.comp_mask = 4, .create_flags = 1};
    struct ibv_xrcd_init_attr attr = {.comp_mask = 1, .fd = -1};
    struct ibv_xrcd *xrcd;
    CHECK(query_rt_values(&context.context, &values) == EOPNOTSUPP);
    values.comp_mask = 0;
    CHECK(!query_rt_values(&context.context, &values) && values.comp_mask == 1);
    CHECK(!create_cq_ex(&context.context, &cq) && errno == EOPNOTSUPP);
    cq.comp_mask = 0, cq.comp_vector = 1;
    CHECK(!create_cq_ex(&context.context, &cq) && errno == EINVAL);
    cq.comp_vector = 0;
    CHECK(create_cq_ex(&context.context, &cq) && !parent_told);
    cq.comp_mask = 2;
    CHECK(create_cq_ex(&context.context, &cq) && parent_told == &pd.pd);
    cq.parent_domain = NULL;
    CHECK(!create_cq_ex(&context.context, &cq) && errno == EINVAL);
    cq.comp_mask = 4;
    CHECK(!create_cq_ex(&context.context, &cq) && errno == EOPNOTSUPP);
    cq.comp_mask = 0, cq.wc_flags = 1 << 8;
    CHECK(!create_cq_ex(&context.context, &cq) && errno == EOPNOTSUPP);
    cq.wc_flags = 1 << 7;
    CHECK(create_cq_ex(&context.context, &cq));
    CHECK(!create_qp_ex(&context.context, &qp) && errno == EOPNOTSUPP);
    qp = (struct ibv_qp_init_attr_ex){.comp_mask = 8};
    CHECK(!create_qp_ex(&context.context, &qp) && errno == EOPNOTSUPP);
    qp = (struct ibv_qp_init_attr_ex){.comp_mask = 64, .send_ops_flags = 1 << 10};
    CHECK(!create_qp_ex(&context.context, &qp) && errno == EOPNOTSUPP);
    qp.send_ops_flags = 1;
    CHECK(create_qp_ex(&context.context, &qp) && extended == 1);
    qp.comp_mask = 1;
    CHECK(create_qp_ex(&context.context, &qp) && extended == 1);
    CHECK(!open_xrcd(&context.context, &attr) && errno == EINVAL);
    attr.comp_mask = 3, attr.oflags = O_CREAT | O_EXCL;
    xrcd = open_xrcd(&context.context, &attr);
    CHECK(xrcd && told.open_xrcd.flags == (SOFTHCA_XRCD_CREATE | SOFTHCA_XRCD_EXCLUSIVE));
    attr.oflags = O_CREAT;
    CHECK(open_xrcd(&context.context, &attr) && told.open_xrcd.flags == SOFTHCA_XRCD_CREATE);
    attr.fd = open("/proc/self/exe", O_RDONLY), attr.oflags = 0;
    CHECK(open_xrcd(&context.context, &attr) && told.open_xrcd.flags == SOFTHCA_XRCD_FILE);
    struct stat file;
    CHECK(!fstat(attr.fd, &file) && told.open_xrcd.device == file.st_dev && told.open_xrcd.inode == file.st_ino);
    CHECK(dup2(attr.fd, 0) == 0); /* a program without standard input has it at 0 */
    attr.fd = 0;
    CHECK(open_xrcd(&context.context, &attr) && told.open_xrcd.flags == SOFTHCA_XRCD_FILE);
    refuses = EBUSY;
    CHECK(close_xrcd(xrcd) == EBUSY);
    refuses = 0;
    CHECK(!close_xrcd(xrcd));
}

int main(int argc, char **argv)
{
    static const struct named cases[] = {
        {"registering", registering},
        {"large", large},
        {"pooled", pooled},
        {"reregistering", reregistering},
        {"domains", domains},
        {"lending", lending},
        {"device-memory", device_memory},
        {"advice", advice},
        {"windows", windows},
        {"addresses", address_handles},
        {"versions", versions},
        {"events", events},
        {"tables", tables},
        {"flows", flows},
        {"front", front},
    };
    return run_one(cases, sizeof cases / sizeof *cases, argc, argv);
}
