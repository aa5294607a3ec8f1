/* Files that programs look for themselves where they expect RDMA devices, beside libibverbs: the character
   devices of /dev/infiniband, and /sys/class/infiniband, for which a folder stands that SOFTHCA_SYSTEM_FILES
   names.  /dev/infiniband/rdma_cm, through which librdmacm speaks to a kernel, is answered here (cm_….c).
   Preloaded; paths elsewhere are left as they are. */
#define _GNU_SOURCE
#include "cm.h"
#include "paths.h"
#include "../kernel.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NODES "/dev/infiniband/uverbs"
#define CM "/dev/infiniband/rdma_cm"
#define CM_ABI "/sys/class/misc/rdma_cm/abi_version"
#define CLASS "/sys/class/infiniband"

static char absent; /* stands for a function that no object has: to ask again would cost each call of it */

void *next_function(const char *name, void **found)
{
    if (!*found && !(*found = dlsym(RTLD_NEXT, name)))
        *found = &absent;
    return *found == &absent ? NULL : *found;
}

DECLARE(write);

static int is_cm(const char *path)
{
    return path && !strcmp(path, CM) && cm_serves();
}

/* A file that says which version of the device's commands is answered; -1: `path` is not that one. */
static int abi_file(const char *path, int flags)
{
    int descriptor;
    if (!path || strcmp(path, CM_ABI) || !cm_serves())
        return -1;
    descriptor = memory_file("abi_version", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
    if (descriptor >= 0 && (NEXT(write)(descriptor, "4\n", 2) != 2 || lseek(descriptor, 0, SEEK_SET))) {
        close(descriptor);
        return -1;
    }
    return descriptor;
}

/* Opened here, or -2: elsewhere. */
static int open_here(const char *path, int flags)
{
    int descriptor = abi_file(path, flags);
    return descriptor >= 0 ? descriptor : is_cm(path) ? cm_open(flags) : -2;
}

const char *place(const char *path, char *room, size_t bytes)
{
    const char *folder;
    if (!path || path[0] != '/')
        return path;
    if (!strncmp(path, NODES, sizeof NODES - 1) || is_cm(path))
        return "/dev/null";
    if (strncmp(path, CLASS, sizeof CLASS - 1) || (path[sizeof CLASS - 1] && path[sizeof CLASS - 1] != '/'))
        return path;
    folder = getenv("SOFTHCA_SYSTEM_FILES");
    if (!folder || !*folder || snprintf(room, bytes, "%s%s", folder, path + strlen("/sys")) >= (int)bytes)
        return path;
    return room;
}

DECLARE(access);
DECLARE(faccessat);
DECLARE(readlink);
DECLARE(opendir);
DECLARE(scandir);
DECLARE(open);
DECLARE(openat);
DECLARE(fopen);
DECLARE(realpath);
DECLARE(close);

EXPORT int access(const char *path, int mode)
{
    return NEXT(access)(PLACED(path), mode);
}

EXPORT int faccessat(int folder, const char *path, int mode, int flags)
{
    return NEXT(faccessat)(folder, PLACED(path), mode, flags);
}

EXPORT ssize_t readlink(const char *path, char *to, size_t bytes)
{
    return NEXT(readlink)(PLACED(path), to, bytes);
}

EXPORT DIR *opendir(const char *path)
{
    return NEXT(opendir)(PLACED(path));
}

EXPORT int scandir(const char *path, struct dirent ***list, int (*chosen)(const struct dirent *),
                   int (*order)(const struct dirent **, const struct dirent **))
{
    return NEXT(scandir)(PLACED(path), list, chosen, order);
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
    int found = open_here(path, flags);
    return found != -2 ? found : NEXT(open)(PLACED(path), flags, mode);
}

EXPORT int openat(int folder, const char *path, int flags, ...)
{
    va_list words;
    va_start(words, flags);
    mode_t mode = mode_of(flags, words);
    va_end(words);
    int found = open_here(path, flags);
    return found != -2 ? found : NEXT(openat)(folder, PLACED(path), flags, mode);
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
    int descriptor = abi_file(path, O_CLOEXEC);
    if (descriptor >= 0)
        return fdopen(descriptor, "r");
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
    int found = open_here(path, flags);
    return found != -2 ? found : NEXT(open)(PLACED(path), flags | O_LARGEFILE, mode);
}

EXPORT int openat64(int folder, const char *path, int flags, ...)
{
    va_list words;
    va_start(words, flags);
    mode_t mode = mode_of(flags, words);
    va_end(words);
    return openat(folder, path, flags | O_LARGEFILE, mode);
}

EXPORT int __open_2(const char *path, int flags);
EXPORT int __open_2(const char *path, int flags)
{
    return open(path, flags, 0);
}

EXPORT int __open64_2(const char *path, int flags);
EXPORT int __open64_2(const char *path, int flags)
{
    return open64(path, flags, 0);
}

EXPORT int __openat_2(int folder, const char *path, int flags);
EXPORT int __openat_2(int folder, const char *path, int flags)
{
    return openat(folder, path, flags, 0);
}

EXPORT int __openat64_2(int folder, const char *path, int flags);
EXPORT int __openat64_2(int folder, const char *path, int flags)
{
    return openat64(folder, path, flags, 0);
}

EXPORT FILE *fopen64(const char *path, const char *mode)
{
    return fopen(path, mode);
}

EXPORT int scandir64(const char *path, struct dirent64 ***list, int (*chosen)(const struct dirent64 *),
                     int (*order)(const struct dirent64 **, const struct dirent64 **))
{
    return NEXT(scandir)(PLACED(path), (struct dirent ***)list, (int (*)(const struct dirent *))(void *)chosen,
                         (int (*)(const struct dirent **, const struct dirent **))(void *)order);
}

EXPORT ssize_t __readlink_chk(const char *path, char *to, size_t bytes, size_t room);
EXPORT ssize_t __readlink_chk(const char *path, char *to, size_t bytes, size_t room)
{
    return NEXT(readlink)(PLACED(path), to, bytes < room ? bytes : room);
}

/* Descriptors of the connection manager's device. */

EXPORT ssize_t write(int descriptor, const void *data, size_t bytes)
{
    struct file *file = cm_find(descriptor);
    return file ? cm_write(file, descriptor, data, bytes) : NEXT(write)(descriptor, data, bytes);
}

EXPORT int close(int descriptor)
{
    struct file *file = cm_find(descriptor);
    return file ? cm_close(file, descriptor) : NEXT(close)(descriptor);
}
