/* A library to be preloaded: one call in turn, of those that take memory or descriptors, fails as if the system
   had none left.  ``arm(n, times)``: the n-th from now on does, and those behind it, so many; ``disarm()`` gives
   the name of the first, or NULL where there were fewer.  Calls of all threads count, of C extensions and of Python itself.

   Where FAILING_CALLS names a file, the counter and the name are in it (`struct turns`), so that another process
   arms this one: two numbers of eight bytes, n and -times, n = -times where nothing fails, and a name that ends
   with a zero byte. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <netinet/in.h>
#include <unistd.h>

struct turns {
    atomic_long left, last;
    char failed[48];
};

static struct turns own = {0, 0, ""};
static struct turns *turns = &own;

void arm(long number, long times)
{
    turns->failed[0] = 0;
    turns->last = -times;
    turns->left = number;
}

const char *disarm(void)
{
    turns->left = turns->last = 0;
    return turns->failed[0] ? turns->failed : NULL;
}

static int fails(const char *name, int error)
{
    long before = turns->left;
    do {
        if (before <= turns->last)
            return 0;
    } while (!atomic_compare_exchange_weak(&turns->left, &before, before - 1));
    if (before > 0)
        return 0;
    if (before == 0)
        strncpy(turns->failed, name, sizeof turns->failed - 1);
    errno = error;
    return 1;
}

__attribute__((constructor)) static void be_armed_by_another(void)
{
    const char *path = getenv("FAILING_CALLS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *at = mmap(NULL, sizeof *turns, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        turns = at;
    close(fd);
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

int epoll_ctl(int epoll, int how, int fd, struct epoll_event *e)
{
    PLAIN(int, epoll_ctl, (int, int, int, struct epoll_event *));
    return how == EPOLL_CTL_ADD && fails("epoll_ctl", ENOSPC) ? -1 : plain(epoll, how, fd, e);
}

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

/* Descriptors that are passed: too many under way. */
ssize_t sendmsg(int fd, const struct msghdr *what, int flags)
{
    PLAIN(ssize_t, sendmsg, (int, const struct msghdr *, int));
    const struct cmsghdr *first = CMSG_FIRSTHDR(what);
    if (first && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_RIGHTS && fails("sendmsg", ETOOMANYREFS))
        return -1;
    return plain(fd, what, flags);
}

ONE(int, -1, EMFILE, accept4, (int fd, struct sockaddr *from, socklen_t *length, int flags), (fd, from, length, flags))

/* Joining a group takes memory of the kernel's. */
int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
    PLAIN(int, setsockopt, (int, int, int, const void *, socklen_t));
    int joins = (level == IPPROTO_IP && name == IP_ADD_MEMBERSHIP) || (level == IPPROTO_IPV6 && name == IPV6_JOIN_GROUP);
    return joins && fails("setsockopt", ENOBUFS) ? -1 : plain(fd, level, name, value, length);
}

/* By number, as Python makes a pidfd. */
long syscall(long number, ...)
{
    long a, b, c, d, e, f;
    va_list words;
    PLAIN(long, syscall, (long, ...));
    va_start(words, number);
    a = va_arg(words, long), b = va_arg(words, long), c = va_arg(words, long);
    d = va_arg(words, long), e = va_arg(words, long), f = va_arg(words, long);
    va_end(words);
    if (number == SYS_pidfd_open && fails("pidfd_open", EMFILE))
        return -1;
    return plain(number, a, b, c, d, e, f);
}

#define OPENS(name) \
    int name(const char *path, int how, ...) \
    { \
        mode_t mode; \
        va_list words; \
        PLAIN(int, name, (const char *, int, ...)); \
        va_start(words, how); \
        mode = va_arg(words, mode_t); \
        va_end(words); \
        return fails(#name, EMFILE) ? -1 : plain(path, how, mode); \
    }

OPENS(open)
OPENS(open64)
