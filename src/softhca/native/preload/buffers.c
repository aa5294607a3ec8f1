/* Memory for large blocks that an adapter process maps too, so that it copies without asking the kernel.

   Once the program has opened a device, blocks for which the C library would ask the kernel anyway (128 KiB and
   more, and those that are aligned to pages) come from a pool: a sparse memfd, mapped shared.  A region in it
   is registered by its place there.  All else is the allocator's that comes next.

   A block that is registered stays until it is deregistered, also where the program frees it.  A forked child has
   copies of its own, as it has of private memory: it makes them before fork returns, while the parent waits.
   What clones itself without the C library's fork shares the pool's memory.  SOFTHCA_BUFFERS=0: no pool. */
#define _GNU_SOURCE
#include "../buffers.h"
#include "../kernel.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define PAGE 4096ULL
#define PAGES (uint32_t)(BUFFERS_BYTES / PAGE)
#define LEAST (128ULL << 10)
#define EARLY_BYTES 65536
#define HUGE (2ULL << 20) /* the pool begins at a multiple of it: blocks are not aligned to more */

/* By page; `pages` and `users` count at a block's first one. */
struct page {
    uint32_t block; /* the block's first page and 1; 0: free */
    uint32_t pages;
    uint32_t users;
    uint32_t freed;
};

static struct {
    pthread_mutex_t lock;
    unsigned char *base;
    struct page *table;
    int descriptor;  /* -1: nothing new comes from the pool */
    int made, open;
    uint32_t hint, high; /* where to look first; no page from `high` on was ever given */
    int ends[2];         /* the child's word to its parent, while fork is under way */
} pool = {.descriptor = -1, .ends = {-1, -1}};

static void *(*next_malloc)(size_t), *(*next_calloc)(size_t, size_t), *(*next_realloc)(void *, size_t);
static void *(*next_memalign)(size_t, size_t);
static void (*next_free)(void *);
static size_t (*next_usable)(void *);

/* What is asked for while the next allocator is looked for: never given back.  A block's size stands before it. */
static unsigned char early[EARLY_BYTES] __attribute__((aligned(16)));
static size_t early_used;
static __thread int finding __attribute__((tls_model("initial-exec")));

/* Zeroed, and aligned as memalign() does; NULL and ENOMEM where there is no room. */
static void *early_block(size_t bytes, size_t alignment)
{
    size_t used = __atomic_load_n(&early_used, __ATOMIC_RELAXED), step = 16, at;
    while (step < alignment && step < EARLY_BYTES)
        step *= 2;
    do {
        uintptr_t place = (uintptr_t)early + used + sizeof bytes;
        at = (size_t)(((place + step - 1) & ~(uintptr_t)(step - 1)) - (uintptr_t)early);
        if (step < alignment || bytes > EARLY_BYTES || at > EARLY_BYTES - bytes) {
            errno = ENOMEM;
            return NULL;
        }
    } while (!__atomic_compare_exchange_n(&early_used, &used, at + bytes, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    memcpy(early + at - sizeof bytes, &bytes, sizeof bytes);
    return early + at;
}

static int is_early(const void *block)
{
    return (const unsigned char *)block >= early && (const unsigned char *)block <= early + EARLY_BYTES;
}

static size_t early_room(const void *block)
{
    size_t bytes;
    memcpy(&bytes, (const unsigned char *)block - sizeof bytes, sizeof bytes);
    return bytes;
}

/* Whether the next allocator is known. */
static int found_next(void)
{
    if (__builtin_expect(__atomic_load_n(&next_malloc, __ATOMIC_ACQUIRE) != NULL, 1))
        return 1;
    if (finding)
        return 0;
    finding = 1;
    next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    next_memalign = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "memalign");
    next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    next_usable = (size_t(*)(void *))dlsym(RTLD_NEXT, "malloc_usable_size");
    __atomic_store_n(&next_malloc, (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc"), __ATOMIC_RELEASE);
    finding = 0;
    return 1;
}

/* The pool */

static int is_pooled(const void *address)
{
    const unsigned char *base = __atomic_load_n(&pool.base, __ATOMIC_ACQUIRE), *place = address;
    return base && place >= base && place < base + BUFFERS_BYTES;
}

static void *in_page(uint32_t page)
{
    return pool.base + page * PAGE;
}

static uint32_t up(uint32_t page, uint32_t alignment)
{
    return (page + alignment - 1) / alignment * alignment;
}

/* The first of `count` free pages from `from` on, aligned; PAGES: there are none. */
static uint32_t find_free(uint32_t from, uint32_t count, uint32_t alignment)
{
    uint32_t first = up(from, alignment), page;
    while (first <= PAGES - count) {
        for (page = first; page < first + count && page < pool.high && !pool.table[page].block; page++)
            ;
        if (page == first + count || page >= pool.high)
            return first;
        page = pool.table[page].block - 1;
        first = up(page + pool.table[page].pages, alignment);
    }
    return PAGES;
}

static void *take(size_t bytes, size_t alignment)
{
    uint64_t wanted = (bytes + PAGE - 1) / PAGE, step = alignment > PAGE ? alignment / PAGE : 1;
    uint32_t first = PAGES, count = (uint32_t)wanted;
    if (bytes > BUFFERS_BYTES / 2 || alignment > HUGE)
        return NULL;
    pthread_mutex_lock(&pool.lock);
    if (pool.open && pool.descriptor >= 0) {
        first = find_free(pool.hint, count, (uint32_t)step);
        if (first == PAGES)
            first = find_free(0, count, (uint32_t)step);
    }
    if (first != PAGES) {
        for (uint32_t page = first; page < first + count; page++)
            pool.table[page] = (struct page){.block = first + 1};
        pool.table[first].pages = count;
        pool.hint = first + count;
        if (pool.high < pool.hint) {
            madvise(in_page(pool.high), (pool.hint - pool.high) * PAGE, MADV_DODUMP);
            pool.high = pool.hint;
        }
    }
    pthread_mutex_unlock(&pool.lock);
    return first == PAGES ? NULL : in_page(first);
}

/* With the lock: the pages of a block are free, and zero. */
static void give_back(uint32_t first)
{
    uint32_t count = pool.table[first].pages;
    if (pool.descriptor < 0)
        madvise(in_page(first), count * PAGE, MADV_DONTNEED);
    else if (madvise(in_page(first), count * PAGE, MADV_REMOVE))
        memset(in_page(first), 0, count * PAGE);
    memset(&pool.table[first], 0, count * sizeof pool.table[0]);
    if (first < pool.hint)
        pool.hint = first;
}

static void give(void *block)
{
    int before = errno;
    uint32_t first = (uint32_t)(((unsigned char *)block - pool.base) / PAGE);
    pthread_mutex_lock(&pool.lock);
    if (pool.table[first].block != first + 1 || pool.table[first].freed || (uintptr_t)block % PAGE)
        abort(); /* as other allocators do */
    if (pool.table[first].users)
        pool.table[first].freed = 1;
    else
        give_back(first);
    pthread_mutex_unlock(&pool.lock);
    errno = before;
}

static size_t room(const void *block)
{
    return pool.table[((const unsigned char *)block - pool.base) / PAGE].pages * PAGE;
}

/* With the lock: one user more or less of each block that a range touches; whether all of it lies in blocks. */
static int use(uint32_t first, uint32_t end, int more)
{
    for (uint32_t page = first; page < end;) {
        uint32_t block = pool.table[page].block;
        if (!block || (more > 0 && pool.table[block - 1].freed)) {
            if (page > first)
                use(first, page, -1);
            return 0;
        }
        page = block - 1 + pool.table[block - 1].pages;
        pool.table[block - 1].users += (uint32_t)more;
        if (!pool.table[block - 1].users && pool.table[block - 1].freed)
            give_back(block - 1);
    }
    return 1;
}

EXPORT int softhca_buffers_hold(const void *address, size_t length, uint64_t *offset)
{
    int descriptor = -1;
    uint64_t begin, end;
    if (!length || !is_pooled(address))
        return -1;
    begin = (uint64_t)((const unsigned char *)address - pool.base);
    if (length > BUFFERS_BYTES - begin)
        return -1;
    end = (begin + length + PAGE - 1) / PAGE;
    pthread_mutex_lock(&pool.lock);
    if (pool.descriptor >= 0 && use((uint32_t)(begin / PAGE), (uint32_t)end, 1))
        descriptor = pool.descriptor;
    pthread_mutex_unlock(&pool.lock);
    *offset = begin;
    return descriptor;
}

EXPORT void softhca_buffers_release(uint64_t offset, size_t length)
{
    pthread_mutex_lock(&pool.lock);
    use((uint32_t)(offset / PAGE), (uint32_t)((offset + length + PAGE - 1) / PAGE), -1);
    pthread_mutex_unlock(&pool.lock);
}

/* Forks: the child has copies, and no pool. */

static void before_fork(void)
{
    pthread_mutex_lock(&pool.lock);
    pool.ends[0] = pool.ends[1] = -1;
    if (pool.descriptor >= 0 && pool.high && pipe2(pool.ends, O_CLOEXEC))
        pool.ends[0] = pool.ends[1] = -1;
}

static void in_parent(void)
{
    char word;
    if (pool.ends[0] >= 0) {
        close(pool.ends[1]);
        while (read(pool.ends[0], &word, 1) < 0 && errno == EINTR)
            ;
        close(pool.ends[0]);
    }
    pthread_mutex_unlock(&pool.lock);
}

/* Where there is no memory for the copies the pages go: who touches them ends, and nobody else's change. */
static void copy_pages(void)
{
    size_t used = pool.high * PAGE;
    unsigned char *copies = MAP_FAILED;
    if (used)
        copies = mmap(NULL, used, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (copies != MAP_FAILED) {
        for (off_t begin = 0, end; (begin = lseek(pool.descriptor, begin, SEEK_DATA)) >= 0; begin = end) {
            end = lseek(pool.descriptor, begin, SEEK_HOLE);
            if (begin >= (off_t)used || end <= begin)
                break;
            if (end > (off_t)used)
                end = (off_t)used;
            memcpy(copies + begin, pool.base + begin, (size_t)(end - begin));
        }
    }
    if (mmap(pool.base, BUFFERS_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0)
            == MAP_FAILED
        || (copies != MAP_FAILED
            && mremap(copies, used, used, MREMAP_MAYMOVE | MREMAP_FIXED, pool.base) == MAP_FAILED))
        _exit(127);
}

static void in_child(void)
{
    pthread_mutexattr_t kind;
    if (pool.descriptor >= 0) {
        copy_pages();
        close(pool.descriptor);
        pool.descriptor = -1;
        pool.open = 0;
        for (uint32_t page = 0; page < pool.high;) {
            uint32_t block = pool.table[page].block, count = block ? pool.table[block - 1].pages : 1;
            if (block) {
                pool.table[block - 1].users = 0; /* regions are the parent's */
                if (pool.table[block - 1].freed)
                    give_back(block - 1);
            }
            page += count;
        }
    }
    for (int end = 0; end < 2; end++)
        if (pool.ends[end] >= 0)
            close(pool.ends[end]);
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&pool.lock, &kind);
}

/* The memory of `descriptor`, at a multiple of HUGE. */
static unsigned char *map_aligned(int descriptor)
{
    unsigned char *room, *base;
    room = mmap(NULL, BUFFERS_BYTES + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return MAP_FAILED;
    base = (unsigned char *)(((uintptr_t)room + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    if (base > room)
        munmap(room, (size_t)(base - room));
    munmap(base + BUFFERS_BYTES, HUGE - (size_t)(base - room));
    if (mmap(base, BUFFERS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, descriptor, 0)
        != MAP_FAILED) {
        madvise(base, BUFFERS_BYTES, MADV_DONTDUMP); /* a core file would bring each page; `take` says which */
        return base;
    }
    munmap(base, BUFFERS_BYTES);
    return MAP_FAILED;
}

static void make_pool(void)
{
    const char *wanted = getenv("SOFTHCA_BUFFERS");
    size_t table_bytes = PAGES * sizeof(struct page);
    struct page *table;
    void *base;
    int descriptor;
    if (wanted && !strcmp(wanted, "0"))
        return;
    descriptor = memory_file("softhca-buffers", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0)
        return;
    base = table = MAP_FAILED;
    if (!ftruncate(descriptor, BUFFERS_BYTES)
        && !fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        base = map_aligned(descriptor);
        table = mmap(NULL, table_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                     0);
    }
    if (base == MAP_FAILED || table == MAP_FAILED || pthread_atfork(before_fork, in_parent, in_child)) {
        if (base != MAP_FAILED)
            munmap(base, BUFFERS_BYTES);
        if (table != MAP_FAILED)
            munmap(table, table_bytes);
        close(descriptor);
        return;
    }
    pool.table = table;
    pool.descriptor = descriptor;
    __atomic_store_n(&pool.base, base, __ATOMIC_RELEASE);
}

__attribute__((constructor)) static void prepare(void)
{
    pthread_mutexattr_t kind; /* handlers of other forks, under the lock, may allocate */
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&pool.lock, &kind);
}

EXPORT void softhca_buffers_open(void)
{
    int before = errno;
    pthread_mutex_lock(&pool.lock);
    if (!pool.made) {
        pool.made = 1;
        make_pool();
    }
    if (pool.descriptor >= 0)
        __atomic_store_n(&pool.open, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&pool.lock);
    errno = before;
}

/* The allocator */

static void *pooled(size_t bytes, size_t alignment)
{
    if (__builtin_expect(!__atomic_load_n(&pool.open, __ATOMIC_ACQUIRE), 1))
        return NULL;
    return bytes >= LEAST || (alignment >= PAGE && bytes >= PAGE) ? take(bytes, alignment) : NULL;
}

EXPORT void *malloc(size_t bytes)
{
    void *block = pooled(bytes, 0);
    return block ? block : found_next() ? next_malloc(bytes) : early_block(bytes, 0);
}

EXPORT void *calloc(size_t count, size_t each)
{
    size_t bytes;
    int overflows = __builtin_mul_overflow(count, each, &bytes);
    void *block = overflows ? NULL : pooled(bytes, 0);
    return block ? block : found_next() ? next_calloc(count, each) : early_block(overflows ? SIZE_MAX : bytes, 0);
}

EXPORT void free(void *block)
{
    if (is_pooled(block))
        give(block);
    else if (block && !is_early(block) && found_next())
        next_free(block);
}

EXPORT void *realloc(void *block, size_t bytes)
{
    size_t held;
    void *other;
    if (is_early(block))
        held = early_room(block);
    else if (is_pooled(block))
        held = room(block);
    else if (!found_next())
        return early_block(bytes, 0); /* `block` is NULL: there are no others yet */
    else if (!__atomic_load_n(&pool.open, __ATOMIC_ACQUIRE) || bytes < LEAST || !next_usable
             || (held = block ? next_usable(block) : 0) >= LEAST)
        return next_realloc(block, bytes); /* what is large already grows best where it is */
    if (!bytes) {
        free(block);
        return NULL;
    }
    if (is_pooled(block) && bytes <= held && bytes >= held / 2)
        return block;
    other = malloc(bytes);
    if (other) {
        memcpy(other, block, bytes < held ? bytes : held);
        free(block);
    }
    return other;
}

EXPORT void *memalign(size_t alignment, size_t bytes)
{
    void *block = alignment & (alignment - 1) ? NULL : pooled(bytes, alignment);
    return block ? block : found_next() ? next_memalign(alignment, bytes) : early_block(bytes, alignment);
}

EXPORT void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

EXPORT int posix_memalign(void **place, size_t alignment, size_t bytes)
{
    int before = errno;
    void *block;
    if (!alignment || alignment % sizeof(void *) || alignment & (alignment - 1))
        return EINVAL;
    block = memalign(alignment, bytes);
    errno = before;
    if (!block)
        return ENOMEM;
    *place = block;
    return 0;
}

EXPORT void *valloc(size_t bytes)
{
    return memalign(PAGE, bytes);
}

EXPORT void *pvalloc(size_t bytes)
{
    size_t whole;
    if (__builtin_add_overflow(bytes, PAGE - 1, &whole)) {
        errno = ENOMEM;
        return NULL;
    }
    return memalign(PAGE, whole / PAGE * PAGE);
}

EXPORT size_t malloc_usable_size(void *block)
{
    if (!block)
        return 0;
    if (is_early(block))
        return early_room(block);
    return is_pooled(block) ? room(block) : found_next() && next_usable ? next_usable(block) : 0;
}
