/* What programs are told of files, where libc has functions of the names that glibc had before 2.33, of those it
   has since, or of neither: status.c and paths.c stand here whole; argv[1] names what is tried, argv[2] a folder
   that stands for /sys. */
#define _GNU_SOURCE
#include "cm.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *looked_up(void *where, const char *name);
#define dlsym looked_up
#include "paths.c"
#undef dlsym
#include "status.c"

#define NAME "/sys/class/infiniband/x/name"
#define LINK "/sys/class/infiniband/x/link" /* to it */
#define CHECK(condition)                                              \
    do {                                                              \
        if (!(condition)) {                                           \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);   \
            exit(1);                                                  \
        }                                                             \
    } while (0)

static struct file device;
static int device_descriptor = -1, calls, lookups;
static const char *family;

int cm_serves(void) { return 0; }
int cm_open(int flags) { return (void)flags, -1; }
int cm_close(struct file *file, int descriptor) { return (void)file, (void)descriptor, 0; }
struct file *cm_find(int descriptor) { return descriptor == device_descriptor ? &device : NULL; }
ssize_t cm_write(struct file *file, int descriptor, const void *data, size_t bytes)
{
    return (void)file, (void)descriptor, (void)data, (ssize_t)bytes;
}

static int libc_fstatat(int folder, const char *path, struct stat *status, int flags)
{
    calls++;
    return (int)syscall(SYS_newfstatat, folder, path, status, flags);
}

static int libc_stat(const char *path, struct stat *status)
{
    return libc_fstatat(AT_FDCWD, path, status, 0);
}

static int libc_lstat(const char *path, struct stat *status)
{
    return libc_fstatat(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

static int libc_fxstatat(int version, int folder, const char *path, struct stat *status, int flags)
{
    return version == LAYOUT ? libc_fstatat(folder, path, status, flags) : (errno = EINVAL, -1);
}

static int libc_xstat(int version, const char *path, struct stat *status)
{
    return libc_fxstatat(version, AT_FDCWD, path, status, 0);
}

static int libc_lxstat(int version, const char *path, struct stat *status)
{
    return libc_fxstatat(version, AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

static int libc_statx(int folder, const char *path, int flags, unsigned mask, struct statx *status)
{
    calls++;
    return (int)syscall(SYS_statx, folder, path, flags, mask, status);
}

static const struct {
    const char *family, *name;
    void *function;
} libc[] = {
    {"new", "stat", libc_stat}, {"new", "lstat", libc_lstat}, {"new", "fstatat", libc_fstatat},
    {"new", "statx", libc_statx}, {"old", "__xstat", libc_xstat}, {"old", "__lxstat", libc_lxstat},
    {"old", "__fxstatat", libc_fxstatat},
};

static void *looked_up(void *where, const char *name)
{
    lookups++;
    for (size_t i = 0; i < sizeof libc / sizeof *libc; i++)
        if (!strcmp(libc[i].name, name))
            return strcmp(libc[i].family, family) ? NULL : libc[i].function;
    return dlsym(where, name);
}

/* Each name, the ones and the others, finds the file that stands for the path. */
static void every_name(void)
{
    struct stat status;
    struct stat64 status64;
    struct statx statusx;
    CHECK(!stat(NAME, &status) && status.st_size == 6 && calls == 1);
    CHECK(!lstat(NAME, &status) && status.st_size == 6 && calls == 2);
    CHECK(!fstatat(AT_FDCWD, NAME, &status, 0) && status.st_size == 6 && calls == 3);
    CHECK(!stat64(NAME, &status64) && status64.st_size == 6 && calls == 4);
    CHECK(!lstat64(NAME, &status64) && status64.st_size == 6 && calls == 5);
    CHECK(!fstatat64(AT_FDCWD, NAME, &status64, 0) && status64.st_size == 6 && calls == 6);
    CHECK(!__xstat(LAYOUT, NAME, &status) && status.st_size == 6 && calls == 7);
    CHECK(!__lxstat(LAYOUT, NAME, &status) && status.st_size == 6 && calls == 8);
    CHECK(!__fxstatat(LAYOUT, AT_FDCWD, NAME, &status, 0) && status.st_size == 6 && calls == 9);
    CHECK(!__xstat64(LAYOUT, NAME, &status64) && status64.st_size == 6 && calls == 10);
    CHECK(!__lxstat64(LAYOUT, NAME, &status64) && status64.st_size == 6 && calls == 11);
    CHECK(!__fxstatat64(LAYOUT, AT_FDCWD, NAME, &status64, 0) && status64.st_size == 6 && calls == 12);
    CHECK(!statx(AT_FDCWD, NAME, 0, STATX_SIZE, &statusx) && statusx.stx_size == 6);
    CHECK(!lstat(LINK, &status) && S_ISLNK(status.st_mode) && !stat(LINK, &status) && S_ISREG(status.st_mode));
    CHECK(stat("/sys/class/infiniband/absent", &status) == -1 && errno == ENOENT);
}

/* An open rdma_cm device is a character device, by every name; other descriptors are what they are. */
static void every_descriptor(void)
{
    struct stat status;
    struct stat64 status64;
    int pair[2];
    CHECK(!pipe(pair));
    CHECK(!fstat(pair[0], &status) && S_ISFIFO(status.st_mode) && calls == 1);
    CHECK(!__fxstat(LAYOUT, pair[0], &status) && S_ISFIFO(status.st_mode) && calls == 2);
    device_descriptor = pair[0];
    CHECK(!fstat(pair[0], &status) && S_ISCHR(status.st_mode) && status.st_rdev == makedev(10, 58));
    CHECK(!fstat64(pair[0], &status64) && S_ISCHR(status64.st_mode));
    CHECK(!__fxstat(LAYOUT, pair[0], &status) && S_ISCHR(status.st_mode));
    CHECK(!__fxstat64(LAYOUT, pair[0], &status64) && S_ISCHR(status64.st_mode) && calls == 6);
    CHECK(fstat(-1, &status) == -1 && errno == EBADF);
}

static void newer(void)
{
    struct statx status;
    family = "new";
    every_name();
    CHECK(!statx(AT_FDCWD, NAME, 0, STATX_SIZE, &status) && calls == 17);
}

static void older(void)
{
    struct statx status;
    int before;
    family = "old";
    every_name();
    before = lookups;
    CHECK(!statx(AT_FDCWD, NAME, 0, STATX_SIZE, &status) && calls == 15);
    CHECK(!stat(NAME, (struct stat *)&status) && lookups == before); /* what is absent is looked up once */
}

static void newer_descriptors(void)
{
    family = "new";
    every_descriptor();
}

static void older_descriptors(void)
{
    family = "old";
    every_descriptor();
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"newer", newer},
        {"older", older},
        {"newer-descriptors", newer_descriptors},
        {"older-descriptors", older_descriptors},
    };
    CHECK(count == 3 && !setenv("SOFTHCA_SYSTEM_FILES", words[2], 1));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, words[1]))
            return cases[i].run(), 0;
    return 2;
}
