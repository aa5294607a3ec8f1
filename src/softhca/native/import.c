/* Objects of other processes: the descriptor that stands for a context, which a program passes on, and what
   who was given it imports (softhca.driver.command_descriptors, softhca.adapter.context_sharing). */
#include "library.h"
#include "kernel.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_LINE "softhca device 1\n"
#define MOST_BYTES 1024
#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

int export_context(struct context *context)
{
    struct softhca_export_context fields;
    char text[MOST_BYTES];
    int bytes = snprintf(text, sizeof text, FIRST_LINE "%s\n%s\n", context->device->device.name,
                         context->device->socket);
    int made = memory_file("softhca-commands", MFD_CLOEXEC | MFD_ALLOW_SEALING), error = 0;
    if (made < 0)
        return errno;
    if (write(made, text, (size_t)bytes) != bytes || fcntl(made, F_ADD_SEALS, SEALS))
        error = errno ? errno : EIO;
    if (!error)
        error = host_pass_descriptor(context->host, made, &fields.descriptor);
    if (!error)
        TELL(context->host, error, export_context, &fields);
    if (error)
        close(made);
    else
        context->context.cmd_fd = made;
    return error;
}

/* What a descriptor from anybody says: name and socket, which stand in `text`; errno. */
static int read_descriptor(int descriptor, char text[MOST_BYTES + 1], char **name, char **place)
{
    int seals = fcntl(descriptor, F_GET_SEALS);
    char *end;
    ssize_t bytes;
    if (seals < 0)
        return errno == EBADF ? EBADF : EOPNOTSUPP;
    bytes = (seals & SEALS) == SEALS ? pread(descriptor, text, MOST_BYTES + 1, 0) : -1;
    if (bytes <= 0 || bytes > MOST_BYTES || text[bytes - 1] != '\n' || memchr(text, 0, (size_t)bytes))
        return EOPNOTSUPP;
    text[bytes - 1] = 0;
    *name = text + sizeof FIRST_LINE - 1;
    if (strncmp(text, FIRST_LINE, sizeof FIRST_LINE - 1) || !(end = strchr(*name, '\n')) || end == *name)
        return EOPNOTSUPP;
    *end = 0;
    *place = end + 1;
    return !**place || strchr(*place, '\n') ? EOPNOTSUPP : 0;
}

EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
    struct softhca_import_context fields;
    char text[MOST_BYTES + 1], *name, *place;
    struct ibv_context *base;
    struct device *device;
    int error = read_descriptor(cmd_fd, text, &name, &place);
    if (error)
        return failed(error);
    device = device_at(name, place);
    base = device ? open_context(device) : NULL;
    if (!base)
        return NULL;
    error = host_pass_descriptor(HOST(base), cmd_fd, &fields.descriptor);
    if (!error)
        TELL(HOST(base), error, import_context, &fields);
    if (error) {
        ibv_close_device(base);
        return failed(error);
    }
    base->cmd_fd = cmd_fd; /* closed with the context, as programs expect */
    return base;
}

EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *base, uint32_t handle)
{
    struct softhca_import_pd fields = {.pd = handle};
    struct pd *pd = calloc(1, sizeof *pd);
    int error;
    if (!pd)
        return failed(ENOMEM);
    TELL(HOST(base), error, import_pd, &fields);
    if (error) {
        free(pd);
        return failed(error);
    }
    pd->pd.context = base;
    pd->pd.handle = handle;
    return &pd->pd;
}

EXPORT void ibv_unimport_pd(struct ibv_pd *base)
{
    struct softhca_unimport_pd fields = {.pd = base->handle};
    int error; /* nobody is told: a domain with something in it is let go of with the context */
    TELL(HOST(base->context), error, unimport_pd, &fields);
    (void)error;
    free(base);
}

EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
    struct softhca_import_mr fields = {.pd = pd->handle, .mr = handle};
    struct softhca_import_mr_reply reply;
    struct mr *mr = calloc(1, sizeof *mr);
    int error;
    if (!mr)
        return failed(ENOMEM);
    CALL(HOST(pd->context), error, import_mr, &fields, &reply);
    if (error) {
        free(mr);
        return failed(error);
    }
    mr->mr = (struct ibv_mr){.context = pd->context, .pd = pd, .length = reply.length, .handle = handle,
                             .lkey = reply.lkey, .rkey = reply.rkey};
    return &mr->mr;
}

EXPORT void ibv_unimport_mr(struct ibv_mr *base)
{
    free(base);
}
