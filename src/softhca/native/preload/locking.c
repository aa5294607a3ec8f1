/* mlockall(2) of a program: what it maps of devices is sparse, gigabytes of addresses of which few are ever
   used.  Locked as a whole it would take all the machine's memory, so pages are locked when they are touched. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define ONFAULT 4 /* MCL_ONFAULT; older headers have it not */

EXPORT int mlockall(int flags)
{
    if (flags & (MCL_CURRENT | MCL_FUTURE))
        flags |= ONFAULT;
    return (int)syscall(SYS_mlockall, flags);
}
