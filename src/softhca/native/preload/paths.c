/* Files that programs look for themselves where they expect RDMA devices, beside libibverbs: the character
   devices of /dev/infiniband, and /sys/class/infiniband, for which a folder stands that SOFTHCA_SYSTEM_FILES
   names.  /dev/infiniband/rdma_cm, through which librdmacm speaks to a kernel, is answered here (cm_….c).
   Preloaded; paths elsewhere are left as they are. */
#define _GNU_SOURCE
#include "cm.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define NODES "/dev/infiniband/uverbs"
#define CM "/dev/infiniband/rdma_cm"
#define CM_ABI "/sys/class/misc/rdma_cm/abi_version"
#define CLASS "/sys/class/infiniband"
#define NEXT(name) ((__typeof__(&name))next(#name, &found_##name))
#define DECLARE(name) static void *found_##name

static void *next(const char *name, void **found)
{
    if (!*found)
        *found = dlsym(RTLD_NEXT, name);
    return *found;
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
    descriptor = memfd_create("abi_version", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
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

/* What stands for `path`, in `room` where it is another one. */
static const char *place(const char *path, char *room, size_t bytes)
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

DECLARE(stat);
DECLARE(lstat);
DECLARE(access);
DECLARE(faccessat);
DECLARE(fstatat);
DECLARE(statx);
DECLARE(readlink);
DECLARE(opendir);
DECLARE(scandir);
DECLARE(open);
DECLARE(openat);
DECLARE(fopen);
DECLARE(realpath);
DECLARE(close);
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

EXPORT int faccessat(int folder, const char *path, int mode, int flags)
{
    return NEXT(faccessat)(folder, PLACED(path), mode, flags);
}

EXPORT int fstatat(int folder, const char *path, struct stat *status, int flags)
{
    return NEXT(fstatat)(folder, PLACED(path), status, flags);
}

EXPORT int statx(int folder, const char *path, int flags, unsigned mask, struct statx *status)
{
    return NEXT(statx)(folder, PLACED(path), flags, mask, status);
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

EXPORT FILE *fopen64(const char *path, const char *mode)
{
    return fopen(path, mode);
}

EXPORT int stat64(const char *path, struct stat64 *status)
{
    return NEXT(stat)(PLACED(path), (struct stat *)status);
}

EXPORT int lstat64(const char *path, struct stat64 *status)
{
    return NEXT(lstat)(PLACED(path), (struct stat *)status);
}

EXPORT int fstatat64(int folder, const char *path, struct stat64 *status, int flags)
{
    return NEXT(fstatat)(folder, PLACED(path), (struct stat *)status, flags);
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

/* As programs that were linked with a glibc before 2.33 call them, those of manylinux wheels among them. */
#define OLD(name, plain, kind)                                                     \
    EXPORT int name(int version, const char *path, struct kind *status);           \
    EXPORT int name(int version, const char *path, struct kind *status)            \
    {                                                                              \
        (void)version;                                                             \
        return NEXT(plain)(PLACED(path), (struct stat *)status);                   \
    }
OLD(__xstat, stat, stat)
OLD(__xstat64, stat, stat64)
OLD(__lxstat, lstat, stat)
OLD(__lxstat64, lstat, stat64)

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

static int status_of(int descriptor, struct stat *status)
{
    if (fstatat(descriptor, "", status, AT_EMPTY_PATH))
        return -1;
    if (cm_find(descriptor)) {
        status->st_mode = S_IFCHR | 0600;
        status->st_rdev = makedev(10, 58);
    }
    return 0;
}

EXPORT int fstat(int descriptor, struct stat *status)
{
    return status_of(descriptor, status);
}

EXPORT int fstat64(int descriptor, struct stat64 *status)
{
    return status_of(descriptor, (struct stat *)status);
}

EXPORT int __fxstat(int version, int descriptor, struct stat *status);
EXPORT int __fxstat(int version, int descriptor, struct stat *status)
{
    (void)version;
    return status_of(descriptor, status);
}

EXPORT int __fxstat64(int version, int descriptor, struct stat64 *status);
EXPORT int __fxstat64(int version, int descriptor, struct stat64 *status)
{
    (void)version;
    return status_of(descriptor, (struct stat *)status);
}
