/* The rdma_cm device on an adapter process that answers what an input says: commands as the input has them, entries
   of a port's channel, and what subnet administration answers; on RoCEv2 and on native links.  libFuzzer's entry.

   No device has a thread: what has come is taken here, after each step and while the device waits. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>

#define pthread_create(thread, attributes, run, argument) ((void)(argument), (void)&(run), 0)
#define pthread_join(thread, result) ((void)0)
#include "preload/cm_devices.c"
#undef pthread_create
#undef pthread_join

#include "fuzz_adapter.h"
#include "fuzz_tables.h"

#define STEPS 48
#define NATIVE 8 /* of an input's first byte */
#define LID 0xC001

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
    static const uint8_t prefixes[4][2] = {{0xfe, 0x80}, {0xfd, 0}, {0xff, 0x12}, {0, 0}};
    const uint16_t port = htons((uint16_t)(0x8000 + kind % 3));
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = port,
                               .sin_addr.s_addr = htonl(addresses[kind / 4 % 4])};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = port};
    if (!adapter_native || kind / 16 % 4 == 3) {
        memcpy(at, &four, sizeof four);
        return;
    }
    memcpy(&six.sin6_addr, prefixes[kind / 4 % 4], 2);
    six.sin6_addr.s6_addr[15] = kind / 4 % 4 == 3 ? 0 : 1 + kind / 64; /* its own one, and others' */
    memcpy(at, &six, sizeof six);
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

/* Put an entry into the adapter's end of a ring, or anything where the adapter writes. */
static void put(struct ring *ring, const void *entry, uint32_t bytes)
{
    unsigned char how = fed();
    if (how % 16 == 15) {
        adapter_scribble(ring, entry, bytes);
        ring->tail = ring->control->tail;
    } else if (bytes <= ring->body_bytes) {
        bytes -= how % 16 == 14;
        ring_copy_in(ring, ring->body_tail, entry, bytes);
        ring_add(ring, bytes);
        ring_publish(ring);
    }
}

static void entry(const struct device *device)
{
    static unsigned char whole[SOFTHCA_CM_ENTRY_BYTES];
    unsigned char *data = whole + sizeof(struct softhca_cm_header);
    struct ring *ring = adapter_ring(device->host, COMMAND_OPEN_CM);
    struct softhca_cm_header header;
    fed_bytes(&header, sizeof header);
    fed_bytes(data, SOFTHCA_CM_PRIVATE_BYTES);
    header.kind = fed() % 16;
    header.listener = fed() % 4 ? 1 : fed() % 4, header.id = fed() % 4 ? 1 : fed() % 4; /* an honest one's are 1 */
    if (fed() % 4)
        data[0] = 0, data[1] = adapter_native ? 0x60 : 0x40, header.private_bytes = 92, header.qp_type = 2;
    memcpy(whole, &header, sizeof header);
    if (ring)
        put(ring, whole, sizeof whole);
}

/* What subnet administration says: records of the questions' kinds, about the port itself or anybody. */
static void answer(const struct device *device, uint64_t transaction)
{
    static const uint8_t own[16] = {0xfe, 0x80, [15] = 1};
    unsigned char whole[sizeof(struct softhca_mad_header) + SOFTHCA_MAD_BYTES];
    unsigned char *mad = whole + sizeof(struct softhca_mad_header), kind = fed();
    const uint16_t attribute = htons(((uint16_t[]){0x35, 0x31, 0x38, 0})[kind / 16 % 4]);
    struct ring *ring = adapter_ring(device->host, COMMAND_REGISTER_AGENT);
    memset(whole, 0, sizeof whole);
    fed_bytes(whole, fed());
    memset(whole, 0, sizeof(uint32_t)); /* the status */
    whole[0] = kind % 16 == 15 ? fed() : 0;
    memcpy(mad + 8, &transaction, sizeof transaction);
    memcpy(mad + 16, &attribute, sizeof attribute);
    if (kind % 4) {
        memset(mad + 4, 0, 2); /* no error */
        if (attribute == htons(0x31))
            memcpy(mad + 64, own, sizeof own);
        else if (attribute == htons(0x35))
            mad[97] = 2, mad[106] = mad[107] = 0xff, mad[110] = 4; /* LID, P_Key, MTU */
        else if (attribute == htons(0x38))
            mad[92] = LID >> 8, mad[93] = LID & 0xff;
    }
    if (ring)
        put(ring, whole, sizeof whole);
}

/* The adapter's answer comes, and the device takes it, while somebody waits for it. */
int no_nap(const struct timespec *time, struct timespec *left)
{
    uint64_t transaction = adapter_question();
    (void)time, (void)left;
    for (struct device *each = devices; transaction && each; each = each->next)
        if (each->host)
            answer(each, transaction);
    return 0;
}

static void take_news(void)
{
    for (struct device *each = devices; each; each = each->next)
        if (each->host)
            take_all(each);
}

/* What happens to the first device. */
static void happen(unsigned char kind)
{
    uint64_t transaction = fed() % 4 ? adapter_question() : 0;
    if (!devices || !devices->host)
        return;
    if (kind % 4 < 2)
        entry(devices);
    else if (kind % 4 == 2)
        answer(devices, transaction ? transaction : fed());
    else if (kind / 4 % 8 == 7 && shutdown(devices->events, SHUT_RDWR) == 0)
        watch(devices); /* it has gone */
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
    unsigned char kind;
    setenv("SOFTHCA_DEVICES", "fuzz=unix:@fuzz", 1);
    adapter_begin(bytes, count);
    kind = fed();
    adapter_honest = kind % 8 != 0;
    adapter_native = kind / NATIVE % 2;
    for (int i = 0; i < 2; i++)
        files[i] = cm_open(O_NONBLOCK | O_CLOEXEC);
    for (int i = 0; i < STEPS && fed_more() && files[0] >= 0 && files[1] >= 0; i++) {
        kind = fed();
        if (kind % 8 < 5)
            command();
        else if (kind % 8 < 7)
            happen(kind / 8);
        else
            take_event(kind / 8 % 2);
        take_news();
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
