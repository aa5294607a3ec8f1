/* What programs are told of files: of those that are elsewhere (paths.c), and of open rdma_cm devices, which are
   sockets in truth.

   A program that was linked with glibc 2.33 or newer calls stat() and its kin.  In an older glibc these are no
   functions: what was linked with one calls __xstat() and its kin, which are told the version of `struct stat`.
   Both kinds are answered, and handed on to those that the libc at hand has; it has one layout for both. */
#define _GNU_SOURCE
#include "cm.h"
#include "paths.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifdef __x86_64__
#define LAYOUT 1 /* _STAT_VER of glibc before 2.33 */
#else
#define LAYOUT 0
#endif

int __xstat(int version, const char *path, struct stat *status);
int __lxstat(int version, const char *path, struct stat *status);
int __fxstatat(int version, int folder, const char *path, struct stat *status, int flags);
DECLARE(stat);
DECLARE(lstat);
DECLARE(fstatat);
DECLARE(statx);
DECLARE(__xstat);
DECLARE(__lxstat);
DECLARE(__fxstatat);

EXPORT int stat(const char *path, struct stat *status)
{
    return NEXT(stat) ? NEXT(stat)(PLACED(path), status) : NEXT(__xstat)(LAYOUT, PLACED(path), status);
}

EXPORT int lstat(const char *path, struct stat *status)
{
    return NEXT(lstat) ? NEXT(lstat)(PLACED(path), status) : NEXT(__lxstat)(LAYOUT, PLACED(path), status);
}

EXPORT int fstatat(int folder, const char *path, struct stat *status, int flags)
{
    return NEXT(fstatat) ? NEXT(fstatat)(folder, PLACED(path), status, flags)
                         : NEXT(__fxstatat)(LAYOUT, folder, PLACED(path), status, flags);
}

EXPORT int fstat(int descriptor, struct stat *status)
{
    if (fstatat(descriptor, "", status, AT_EMPTY_PATH))
        return -1;
    if (cm_find(descriptor)) {
        status->st_mode = S_IFCHR | 0600;
        status->st_rdev = makedev(10, 58);
    }
    return 0;
}

/* Since glibc 2.28. */
EXPORT int statx(int folder, const char *path, int flags, unsigned mask, struct statx *status)
{
    return NEXT(statx) ? NEXT(statx)(folder, PLACED(path), flags, mask, status)
                       : (int)syscall(SYS_statx, folder, PLACED(path), flags, mask, status);
}

/* The 64-bit names are the same functions, and so are the older ones. */
EXPORT int stat64(const char *path, struct stat64 *status)
{
    return stat(path, (struct stat *)status);
}

EXPORT int lstat64(const char *path, struct stat64 *status)
{
    return lstat(path, (struct stat *)status);
}

EXPORT int fstatat64(int folder, const char *path, struct stat64 *status, int flags)
{
    return fstatat(folder, path, (struct stat *)status, flags);
}

EXPORT int fstat64(int descriptor, struct stat64 *status)
{
    return fstat(descriptor, (struct stat *)status);
}

#define OLD(name, plain, kind)                                           \
    EXPORT int name(int version, const char *path, struct kind *status); \
    EXPORT int name(int version, const char *path, struct kind *status)  \
    {                                                                    \
        (void)version;                                                   \
        return plain(path, (struct stat *)status);                       \
    }
OLD(__xstat, stat, stat)
OLD(__xstat64, stat, stat64)
OLD(__lxstat, lstat, stat)
OLD(__lxstat64, lstat, stat64)

#define OLD_OPEN(name, kind)                                            \
    EXPORT int name(int version, int descriptor, struct kind *status);  \
    EXPORT int name(int version, int descriptor, struct kind *status)   \
    {                                                                   \
        (void)version;                                                  \
        return fstat(descriptor, (struct stat *)status);                \
    }
OLD_OPEN(__fxstat, stat)
OLD_OPEN(__fxstat64, stat64)

#define OLD_AT(name, kind)                                                                            \
    EXPORT int name(int version, int folder, const char *path, struct kind *status, int flags);       \
    EXPORT int name(int version, int folder, const char *path, struct kind *status, int flags)        \
    {                                                                                                 \
        (void)version;                                                                                \
        return fstatat(folder, path, (struct stat *)status, flags);                                   \
    }
OLD_AT(__fxstatat, stat)
OLD_AT(__fxstatat64, stat64)
