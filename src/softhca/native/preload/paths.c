/* Files that programs look for themselves where they expect RDMA devices, beside libibverbs: the character
   devices of /dev/infiniband, and /sys/class/infiniband, for which a folder stands that SOFTHCA_SYSTEM_FILES
   names.  Preloaded; paths elsewhere are left as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define EXPORT __attribute__((visibility("default")))
#define NODES "/dev/infiniband/uverbs"
#define CLASS "/sys/class/infiniband"
#define NEXT(name) ((__typeof__(&name))next(#name, &found_##name))
#define DECLARE(name) static void *found_##name

static void *next(const char *name, void **found)
{
    if (!*found)
        *found = dlsym(RTLD_NEXT, name);
    return *found;
}

/* What stands for `path`, in `room` where it is another one. */
static const char *place(const char *path, char *room, size_t bytes)
{
    const char *folder;
    if (!path || path[0] != '/')
        return path;
    if (!strncmp(path, NODES, sizeof NODES - 1))
        return "/dev/null";
    if (strncmp(path, CLASS, sizeof CLASS - 1) || (path[sizeof CLASS - 1] && path[sizeof CLASS - 1] != '/'))
        return path;
    folder = getenv("SOFTHCA_SYSTEM_FILES");
    if (!folder || !*folder || snprintf(room, bytes, "%s%s", folder, path + strlen("/sys")) >= (int)bytes)
        return path;
    return room;
}

DECLARE(stat);
DECLARE(lstat);
DECLARE(access);
DECLARE(open);
DECLARE(openat);
DECLARE(fopen);
DECLARE(realpath);
#define PLACED(path) place(path, (char[4096]){0}, 4096)

EXPORT int stat(const char *path, struct stat *status)
{
    return NEXT(stat)(PLACED(path), status);
}

EXPORT int lstat(const char *path, struct stat *status)
{
    return NEXT(lstat)(PLACED(path), status);
}

EXPORT int access(const char *path, int mode)
{
    return NEXT(access)(PLACED(path), mode);
}

static mode_t mode_of(int flags, va_list words)
{
    return flags & (O_CREAT | __O_TMPFILE) ? (mode_t)va_arg(words, int) : 0;
}

EXPORT int open(const char *path, int flags, ...)
{
    va_list words;
    va_start(words, flags);
    mode_t mode = mode_of(flags, words);
    va_end(words);
    return NEXT(open)(PLACED(path), flags, mode);
}

EXPORT int openat(int folder, const char *path, int flags, ...)
{
    va_list words;
    va_start(words, flags);
    mode_t mode = mode_of(flags, words);
    va_end(words);
    return NEXT(openat)(folder, PLACED(path), flags, mode);
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
    return NEXT(fopen)(PLACED(path), mode);
}

EXPORT char *realpath(const char *path, char *resolved)
{
    return NEXT(realpath)(PLACED(path), resolved);
}

/* What is compiled with _FORTIFY_SOURCE, and the 64-bit names, where they are the same functions. */
EXPORT char *__realpath_chk(const char *path, char *resolved, size_t room);
EXPORT char *__realpath_chk(const char *path, char *resolved, size_t room)
{
    (void)room; /* the compiler has seen that it is PATH_MAX, or more */
    return NEXT(realpath)(PLACED(path), resolved);
}

EXPORT int open64(const char *path, int flags, ...)
{
    va_list words;
    va_start(words, flags);
    mode_t mode = mode_of(flags, words);
    va_end(words);
    return NEXT(open)(PLACED(path), flags | O_LARGEFILE, mode);
}

EXPORT FILE *fopen64(const char *path, const char *mode)
{
    return NEXT(fopen)(PLACED(path), mode);
}

EXPORT int stat64(const char *path, struct stat64 *status)
{
    return NEXT(stat)(PLACED(path), (struct stat *)status);
}
