/* Calls to the kernel that have a function in glibc only since 2.25 and 2.27: made here, so that what is built
   runs with older ones too. */
#ifndef SOFTHCA_KERNEL_H
#define SOFTHCA_KERNEL_H

#include <linux/memfd.h>
#include <linux/random.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* memfd_create(2) */
static inline int memory_file(const char *name, unsigned flags)
{
    return (int)syscall(SYS_memfd_create, name, flags);
}

/* getrandom(2) */
static inline ssize_t random_bytes(void *to, size_t bytes, unsigned flags)
{
    return (ssize_t)syscall(SYS_getrandom, to, bytes, flags);
}

#endif
