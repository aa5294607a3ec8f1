/* Records what programs call of a library: compiled into a copy of it with -pg -mfentry, so that each of its
   functions begins with a call of __fentry__, where all arguments still stand in their registers.

   A call from outside of the library is a line of the file that SOFTHCA_RECORD names: the process, the thread, the
   library's file, the function's place in it, and the six words that may be arguments, in hexadecimal numbers.
   All by system calls of its own: the library may stand in the place of those of libc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define UNRECORDED __attribute__((no_instrument_function))

struct registers {
    uint64_t r11, r10, r9, r8, rcx, rdx, rsi, rdi, rax, function, caller;
};

static uint64_t begin, end;
static const char *object;
static int file = -1;
static __thread int inside __attribute__((tls_model("initial-exec")));

UNRECORDED static int find(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uint64_t first = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_LOAD || !(info->dlpi_phdr[i].p_flags & PF_X)
            || (uint64_t)find - first >= info->dlpi_phdr[i].p_memsz)
            continue;
        begin = info->dlpi_addr;
        end = first + info->dlpi_phdr[i].p_memsz;
        object = info->dlpi_name;
        return 1;
    }
    return 0;
}

UNRECORDED static void begin_record(void)
{
    const char *path = getenv("SOFTHCA_RECORD");
    dl_iterate_phdr(find, NULL);
    if (path)
        file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

UNRECORDED __attribute__((used, visibility("hidden"))) void softhca_record(const struct registers *at)
{
    char line[512];
    int bytes;
    if (inside)
        return;
    inside = 1;
    if (!object)
        begin_record();
    if (file >= 0 && at->caller - begin >= end - begin) {
        bytes = snprintf(line, sizeof line, "%lx %lx %s %lx %lx %lx %lx %lx %lx %lx\n", syscall(SYS_getpid),
                         syscall(SYS_gettid), object, at->function - begin, at->rdi, at->rsi, at->rdx, at->rcx,
                         at->r8, at->r9);
        syscall(SYS_write, file, line, bytes);
    }
    inside = 0;
}

__asm__(".text\n"
        ".globl __fentry__\n.hidden __fentry__\n.type __fentry__, @function\n"
        "__fentry__:\n"
        "push %rax\npush %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\npush %r10\npush %r11\n"
        "mov %rsp, %rdi\n"
        "sub $8, %rsp\n"
        "call softhca_record\n"
        "add $8, %rsp\n"
        "pop %r11\npop %r10\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\npop %rax\n"
        "ret\n"
        ".size __fentry__, . - __fentry__\n");
