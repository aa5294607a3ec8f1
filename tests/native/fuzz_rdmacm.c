/* The rdma_cm device on an adapter process that answers what an input says: commands as the input has them, and
   entries of a port's channel.  libFuzzer's entry. */
#include <arpa/inet.h>
#include <fcntl.h>

#include "preload/cm.h"

#include "fuzz_adapter.h"

#define STEPS 48

#define NONE 1000
#define AT(name, member) offsetof(struct ucma_##name, member)

/* By command: its bytes, and where what the kernel writes goes, the identifier and an address stand. */
static const struct {
    unsigned short bytes, response, id, address;
} layouts[UCMA_COMMANDS] = {
    [UCMA_CREATE_ID] = {24, 8, NONE, NONE},
    [UCMA_DESTROY_ID] = {16, 0, AT(query, id), NONE},
    [UCMA_BIND_IP] = {40, 0, AT(bind_ip, id), AT(bind_ip, addr)},
    [UCMA_RESOLVE_IP] = {64, NONE, AT(resolve_ip, id), AT(resolve_ip, dst_addr)},
    [UCMA_RESOLVE_ROUTE] = {8, NONE, 0, NONE},
    [UCMA_QUERY_ROUTE] = {16, 0, AT(query, id), NONE},
    [UCMA_CONNECT] = {288, NONE, AT(connect, id), NONE},
    [UCMA_LISTEN] = {8, NONE, 0, NONE},
    [UCMA_ACCEPT] = {296, NONE, AT(accept, id), NONE},
    [UCMA_REJECT] = {264, NONE, 0, NONE},
    [UCMA_DISCONNECT] = {4, NONE, 0, NONE},
    [UCMA_INIT_QP_ATTR] = {16, 0, AT(query, id), NONE},
    [UCMA_GET_EVENT] = {8, 0, NONE, NONE},
    [UCMA_SET_OPTION] = {24, 0, AT(set_option, id), NONE},
    [UCMA_NOTIFY] = {8, NONE, 0, NONE},
    [UCMA_JOIN_IP_MCAST] = {48, 0, AT(join_ip_mcast, id), AT(join_ip_mcast, addr)},
    [UCMA_LEAVE_MCAST] = {16, 0, AT(query, id), NONE},
    [UCMA_QUERY] = {16, 0, AT(query, id), NONE},
    [UCMA_BIND] = {136, NONE, 0, AT(bind, addr)},
    [UCMA_RESOLVE_ADDR] = {272, NONE, 0, AT(resolve_addr, dst_addr)},
    [UCMA_JOIN_MCAST] = {152, 0, AT(join_mcast, id), AT(join_mcast, addr)},
    [UCMA_MIGRATE_ID] = {16, 0, AT(migrate_id, id), NONE},
};
static unsigned char place[1024]; /* what commands write to, and options are read from */
static int files[2];

static void put_address(unsigned char *at, unsigned char kind)
{
    static const uint32_t addresses[4] = {0, 0x7f000001, 0xefaabbcc, 0x0a000001};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(0x8000 + kind % 3)),
                                     .sin_addr.s_addr = htonl(addresses[kind / 4 % 4])};
    memcpy(at, &four, sizeof four);
}

/* As the input has it; what it points to is the program's own, and so there. */
static void command(void)
{
    static const uint16_t spaces[4] = {0x106, 0x111, 0x13f, 2};
    unsigned char whole[8 + 512], *fields = whole + 8, which = fed(), how = fed();
    struct ucma_header header = {.command = which % (UCMA_COMMANDS + 1), .out = how % 4 ? sizeof place : fed()};
    uint64_t response = (uintptr_t)place;
    int at = files[how / 4 % 2];
    uint32_t number;
    memset(whole, 0, sizeof whole);
    header.in = header.command < UCMA_COMMANDS ? layouts[header.command].bytes : fed();
    fed_bytes(fields, header.in);
    if (header.command < UCMA_COMMANDS && layouts[header.command].bytes) {
        unsigned short id = layouts[header.command].id, address = layouts[header.command].address;
        if (layouts[header.command].response != NONE)
            memcpy(fields + layouts[header.command].response, &response, sizeof response);
        number = fed() % 6;
        if (id != NONE)
            memcpy(fields + id, &number, sizeof number);
        if (address != NONE && fed() % 8)
            put_address(fields + address, fed());
        if (header.command == UCMA_BIND || header.command == UCMA_JOIN_MCAST)
            memcpy(fields + address - 4, &(uint16_t){fed() % 2 ? 16 : fed()}, 2);
        if (header.command == UCMA_RESOLVE_ADDR)
            memcpy(fields + AT(resolve_addr, dst_size), &(uint16_t){fed() % 2 ? 16 : 600}, 2);
        if (header.command == UCMA_CREATE_ID)
            memcpy(fields + 16, &spaces[fed() % 4], 2);
        if (header.command == UCMA_SET_OPTION)
            memcpy(fields + AT(set_option, optlen), &number, sizeof number);
        if (header.command == UCMA_MIGRATE_ID)
            memcpy(fields + AT(migrate_id, fd), &files[fed() % 2], sizeof(int));
        if (fed() % 16 == 15)
            header.in = fed();
    }
    memcpy(whole, &header, sizeof header);
    cm_write(cm_find(at), at, whole, sizeof header + header.in);
}

static void entry(void)
{
    static unsigned char data[SOFTHCA_CM_PRIVATE_BYTES];
    struct softhca_cm_header header;
    struct place **places;
    uint32_t count;
    fed_bytes(&header, sizeof header);
    fed_bytes(data, sizeof data);
    header.kind = fed() % 16;
    header.listener = fed() % 4 ? 1 : fed() % 4, header.id = fed() % 4 ? 1 : fed() % 4; /* an honest one's are 1 */
    if (fed() % 4)
        data[0] = 0, data[1] = 0x40, header.private_bytes = 92, header.qp_type = 2;
    if (header.private_bytes > SOFTHCA_CM_PRIVATE_BYTES)
        header.private_bytes = SOFTHCA_CM_PRIVATE_BYTES;
    LOCKED(places = places_all(&count);
           for (uint32_t i = 0; i < count; i++)
               if (places[i]->port->open) {
                   cm_entry(places[i]->port, &header, data);
                   break;
               }
           free(places));
}

static void take_event(int which)
{
    unsigned char whole[16];
    struct ucma_header header = {UCMA_GET_EVENT, 8, sizeof(struct ucma_event)};
    uint64_t response = (uintptr_t)place;
    memcpy(whole, &header, 8);
    memcpy(whole + 8, &response, 8);
    cm_write(cm_find(files[which]), files[which], whole, sizeof whole);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count)
{
    struct file *file;
    setenv("SOFTHCA_DEVICES", "fuzz=unix:@fuzz", 1);
    adapter_begin(bytes, count);
    adapter_honest = fed() % 8 != 0;
    for (int i = 0; i < 2; i++)
        files[i] = cm_open(O_NONBLOCK | O_CLOEXEC);
    for (int i = 0; i < STEPS && fed_more() && files[0] >= 0 && files[1] >= 0; i++) {
        unsigned char kind = fed();
        if (kind % 8 < 5)
            command();
        else if (kind % 8 < 7)
            entry();
        else
            take_event(kind / 8 % 2);
        if (i == 2)
            adapter_honest = adapter_honest && fed() % 2;
    }
    adapter_honest = 1;
    for (int i = 0; i < 2; i++)
        if (files[i] >= 0 && (file = cm_find(files[i])))
            cm_close(file, files[i]);
    adapter_end();
    return 0;
}
