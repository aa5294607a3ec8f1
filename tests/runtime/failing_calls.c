/* A library to be preloaded: one call in turn, of those that take memory or descriptors, fails as if the system
   had none left.  ``arm(n)``: the n-th from now on does; ``disarm()`` gives its name, or NULL where there were
   fewer.  Calls of all threads count, of C extensions and of Python itself. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>

static atomic_long left = -1;
static const char *_Atomic failed;

void arm(long number)
{
    failed = NULL;
    left = number;
}

const char *disarm(void)
{
    left = -1;
    return failed;
}

static int fails(const char *name, int error)
{
    long before = left;
    do {
        if (before < 0)
            return 0;
    } while (!atomic_compare_exchange_weak(&left, &before, before - 1));
    if (before)
        return 0;
    failed = name;
    errno = error;
    return 1;
}

/* Not what the interpreter itself takes, for objects and for frames of a thread, of which it could say nothing. */
static int of_python(size_t length, int how)
{
    return how == (MAP_PRIVATE | MAP_ANONYMOUS) && (length == 1 << 14 || length == 1 << 18 || length == 1 << 20);
}

#define PLAIN(result, name, types) static result (*plain) types; \
    if (!plain) \
        plain = (result (*) types)dlsym(RTLD_NEXT, #name)

#define ONE(result, bad, error, name, types, words) \
    result name types \
    { \
        PLAIN(result, name, types); \
        return fails(#name, error) ? bad : plain words; \
    }

#define MAPS(name, offset) \
    void *name(void *at, size_t n, int rights, int how, int fd, offset from) \
    { \
        PLAIN(void *, name, (void *, size_t, int, int, int, offset)); \
        return !of_python(n, how) && fails(#name, ENOMEM) ? MAP_FAILED : plain(at, n, rights, how, fd, from); \
    }

MAPS(mmap, off_t)
MAPS(mmap64, off64_t)
ONE(int, -1, EMFILE, memfd_create, (const char *name, unsigned int flags), (name, flags))
ONE(int, -1, ENOSPC, ftruncate, (int fd, off_t length), (fd, length))
ONE(int, -1, ENOSPC, ftruncate64, (int fd, off64_t length), (fd, length))
ONE(int, -1, EMFILE, socket, (int family, int kind, int protocol), (family, kind, protocol))
ONE(int, -1, EMFILE, socketpair, (int f, int k, int p, int made[2]), (f, k, p, made))
ONE(int, -1, EMFILE, epoll_create, (int size), (size))
ONE(int, -1, EMFILE, epoll_create1, (int flags), (flags))
ONE(int, -1, ENOSPC, epoll_ctl, (int epoll, int how, int fd, struct epoll_event *e), (epoll, how, fd, e))
ONE(int, -1, EMFILE, eventfd, (unsigned int value, int flags), (value, flags))
ONE(int, -1, EMFILE, pipe2, (int made[2], int flags), (made, flags))
ONE(int, -1, EMFILE, dup, (int fd), (fd))
ONE(int, -1, EMFILE, dup3, (int fd, int at, int flags), (fd, at, flags))

static int control(int (*plain)(int, int, ...), int fd, int how, long word)
{
    if ((how == F_DUPFD || how == F_DUPFD_CLOEXEC) && fails("fcntl", EMFILE))
        return -1;
    return plain(fd, how, word);
}

#define CONTROL(name) \
    int name(int fd, int how, ...) \
    { \
        long word; \
        va_list words; \
        PLAIN(int, name, (int, int, ...)); \
        va_start(words, how); \
        word = va_arg(words, long); \
        va_end(words); \
        return control(plain, fd, how, word); \
    }

CONTROL(fcntl)
CONTROL(fcntl64)
