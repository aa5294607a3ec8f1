/* A client of the library that says what it hears of its port's addresses, a line for each line that it reads:
   "event" (waits for an asynchronous one: its type and port), "table" (the length of the GID table, and the
   entries that ibv_query_gid_table tells, by index), "handle INDEX PEER" (an address handle from there to a
   GID: errno, 0 where there is one), "bind ADDRESS" (an identifier of RDMA CM: likewise). */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ucma.h"
#include "verbs.h"

extern struct ibv_device **ibv_get_device_list(int *);
extern struct ibv_context *ibv_open_device(struct ibv_device *);
extern int ibv_close_device(struct ibv_context *);
extern struct ibv_pd *ibv_alloc_pd(struct ibv_context *);
extern int ibv_dealloc_pd(struct ibv_pd *);
extern int ibv_get_async_event(struct ibv_context *, struct ibv_async_event *);
extern void ibv_ack_async_event(struct ibv_async_event *);
extern int ibv_query_gid(struct ibv_context *, uint8_t, int, union ibv_gid *);
extern int ibv_query_port(struct ibv_context *, uint8_t, struct ibv_port_attr *);
extern ssize_t _ibv_query_gid_table(struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t, size_t);
extern struct ibv_ah *ibv_create_ah(struct ibv_pd *, struct ibv_ah_attr *);
extern int ibv_destroy_ah(struct ibv_ah *);

static struct ibv_context *context;
static struct ibv_pd *pd;

static void event(void)
{
    struct ibv_async_event found;
    if (ibv_get_async_event(context, &found))
        exit(3);
    printf("%d %d\n", (int)found.event_type, found.element.port_num);
    ibv_ack_async_event(&found);
}

static void table(void)
{
    struct ibv_gid_entry entries[32];
    struct ibv_port_attr port;
    union ibv_gid gid;
    char text[INET6_ADDRSTRLEN];
    ssize_t count = _ibv_query_gid_table(context, entries, 32, 0, sizeof *entries);
    if (count < 0 || ibv_query_port(context, 1, &port))
        exit(4);
    printf("%d", port.gid_tbl_len);
    for (ssize_t i = 0; i < count; i++) {
        if (ibv_query_gid(context, 1, (int)entries[i].gid_index, &gid)
            || memcmp(&gid, &entries[i].gid, sizeof gid))
            exit(5);
        printf(" %u=%s", entries[i].gid_index, inet_ntop(AF_INET6, &gid, text, sizeof text));
    }
    putchar('\n');
}

static void handle(int index, const char *peer)
{
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
    struct ibv_ah *ah;
    attr.grh.sgid_index = (uint8_t)index;
    attr.grh.hop_limit = 1;
    inet_pton(AF_INET6, peer, &attr.grh.dgid);
    ah = ibv_create_ah(pd, &attr);
    printf("%d\n", ah ? 0 : errno);
    if (ah)
        ibv_destroy_ah(ah);
}

/* As librdmacm writes it, in one file for all. */
static int told(const void *fields, size_t bytes, uint32_t number, size_t out)
{
    static int file = -1;
    unsigned char whole[512];
    struct ucma_header header = {number, (uint16_t)bytes, (uint16_t)out};
    if (file < 0 && (file = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC)) < 0)
        exit(6);
    memcpy(whole, &header, sizeof header);
    memcpy(whole + sizeof header, fields, bytes);
    return write(file, whole, sizeof header + bytes) < 0 ? errno : 0;
}

static void bind_to(const char *address)
{
    uint32_t id = 0, reported = 0;
    struct ucma_create_id create = {.response = (uintptr_t)&id, .ps = 0x0106};
    struct ucma_bind_ip at = {.id = 0};
    struct ucma_query destroy = {.response = (uintptr_t)&reported};
    struct sockaddr_in four = {.sin_family = AF_INET};
    inet_pton(AF_INET, address, &four.sin_addr);
    memcpy(&at.addr, &four, sizeof four);
    if (told(&create, sizeof create, UCMA_CREATE_ID, sizeof id))
        exit(7);
    at.id = destroy.id = id;
    printf("%d\n", told(&at, sizeof at, UCMA_BIND_IP, 0));
    told(&destroy, sizeof destroy, UCMA_DESTROY_ID, sizeof reported);
}

int main(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    char line[128], peer[64];
    int index;
    context = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
    pd = context ? ibv_alloc_pd(context) : NULL;
    if (!pd)
        return 2;
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "event\n"))
            event();
        else if (!strcmp(line, "table\n"))
            table();
        else if (sscanf(line, "handle %d %63s", &index, peer) == 2)
            handle(index, peer);
        else if (sscanf(line, "bind %63s", peer) == 1)
            bind_to(peer);
        fflush(stdout);
    }
    return ibv_dealloc_pd(pd) || ibv_close_device(context);
}
