/* Rings in memory that a program's own allocators give: those of a parent domain.  An adapter process reaches
   shared memory alone, so the ring's pages are put over what the allocator gave, and pages of the program's own
   again before it frees that.  Memory whose pages cannot be replaced one by one (huge pages) is kept for the
   ring's time, and the ring stands elsewhere. */
#define _GNU_SOURCE
#include "library.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define USE_DEFAULT ((unsigned char *)-1) /* an allocator leaves it to the library */

struct loan {
    struct pd *pd;
    unsigned char *memory;
    size_t covered;
    uint64_t kind;
};

static int is_writable(unsigned char *memory, size_t bytes)
{
    char zero = 0;
    struct iovec from = {&zero, 1};
    if ((uintptr_t)memory % PAGE)
        return 0;
    for (size_t at = 0; at < bytes; at += PAGE) {
        struct iovec to = {memory + at, 1};
        if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) < 0 && errno == EFAULT)
            return 0;
    }
    return 1;
}

static void end_loan(void *lent)
{
    struct loan *loan = lent;
    /* else it shows the device's pages for ever, and is nothing that could be used again */
    if (!loan->covered || mmap(loan->memory, loan->covered, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
        loan->pd->free(&loan->pd->pd, loan->pd->pd_context, loan->memory, loan->kind);
    __atomic_fetch_sub(&loan->pd->users, 1, __ATOMIC_SEQ_CST);
    free(loan);
}

int lend_ring(struct ibv_pd *base, struct ring *ring, uint64_t kind)
{
    struct pd *pd = (struct pd *)base;
    size_t bytes = (size_t)ring->run.count * PAGE;
    unsigned char *memory;
    struct loan *loan;
    if (!base || !pd->alloc)
        return 0;
    memory = pd->alloc(base, pd->pd_context, bytes, PAGE, kind);
    if (memory == USE_DEFAULT)
        return 0;
    if (!memory)
        return ENOMEM;
    if (!is_writable(memory, bytes)) {
        pd->free(base, pd->pd_context, memory, kind);
        return EINVAL;
    }
    loan = malloc(sizeof *loan);
    if (!loan) {
        pd->free(base, pd->pd_context, memory, kind);
        return ENOMEM;
    }
    *loan = (struct loan){.pd = pd, .memory = memory, .kind = kind};
    if (mmap(memory, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, HOST(base->context)->memfd,
             (off_t)ring->run.first * PAGE) != MAP_FAILED)
        loan->covered = bytes;
    __atomic_fetch_add(&pd->users, 1, __ATOMIC_SEQ_CST);
    ring->loan = loan;
    ring->end_loan = end_loan;
    return 0;
}
