/* The rdma_cm device with an adapter that is a script: what it tells the adapter stands in `told`, and what it posts
   to programs in `posted`. */
#ifndef PRELOAD_SCRIPT_H
#define PRELOAD_SCRIPT_H

#define _GNU_SOURCE
#include "cm.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#undef CALL
#undef TELL
#undef GET
#define CALL(host, error, name, fields, reply) ((void)(host), (error) = script_##name(fields, reply))
#define TELL(host, error, name, fields) \
    ((void)(host), told.name = *(fields), keep_mad(sizeof told.name, &told.name), (error) = refuses)
#define GET(host, error, name, reply) ((void)(host), (error) = script_##name(reply))

static int refuses;
static uint32_t tellings; /* MADs and ends of connections */
static struct {
    struct softhca_cm_connect cm_connect;
    struct softhca_cm_resolve cm_resolve;
    struct softhca_cm_reply cm_reply;
    struct softhca_cm_ready cm_ready;
    struct softhca_cm_answer cm_answer;
    struct softhca_cm_reject cm_reject;
    struct softhca_cm_disconnect cm_disconnect;
    struct softhca_cm_establish cm_establish;
    struct softhca_send_mad send_mad;
} told;
static uint8_t asked_mad[SOFTHCA_MAD_BYTES]; /* the question that was sent last */
static struct softhca_query_port_reply port_now;
static struct softhca_query_device_reply device_now;
static uint16_t pkeys[4];
static uint8_t gids[4][16];
static int attach_error; /* errno with which no adapter is attached to; 0: all are */
static uint32_t freed_rings, naps;
static sigset_t blocked_then; /* when a thread was made last */

static void keep_mad(size_t bytes, const void *fields)
{
    if (fields == &told.send_mad && bytes == sizeof told.send_mad)
        memcpy(asked_mad, told.send_mad.mad, sizeof asked_mad);
}

#define KEEPS(name, number)                                                                             \
    static int script_##name(const struct softhca_##name *fields, struct softhca_##name##_reply *reply) \
    {                                                                                                   \
        told.name = *fields;                                                                            \
        reply->id = number;                                                                             \
        return refuses;                                                                                 \
    }
KEEPS(cm_connect, 501)
KEEPS(cm_resolve, 502)

static int script_query_port(const struct softhca_query_port *fields, struct softhca_query_port_reply *reply)
{
    (void)fields;
    *reply = port_now;
    return 0;
}

static int script_query_pkey(const struct softhca_query_pkey *fields, struct softhca_query_pkey_reply *reply)
{
    reply->pkey = pkeys[fields->index];
    return 0;
}

static int script_query_gid(const struct softhca_query_gid *fields, struct softhca_query_gid_reply *reply)
{
    memcpy(reply->gid, gids[fields->index % 4], 16);
    return 0;
}

static int script_query_device(struct softhca_query_device_reply *reply)
{
    *reply = device_now;
    return 0;
}

static int script_register_agent(const struct softhca_register_agent *fields,
                                 struct softhca_register_agent_reply *reply)
{
    (void)fields;
    reply->agent = 7;
    return 0;
}

static int script_open_cm(const struct softhca_open_cm *fields, struct softhca_open_cm_reply *reply)
{
    (void)fields;
    reply->cm = 6;
    return refuses;
}

static int count_nap(const struct timespec *length, struct timespec *left)
{
    (void)length, (void)left;
    naps++;
    return 0;
}

static int make_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    pthread_sigmask(SIG_BLOCK, NULL, &blocked_then);
    return pthread_create(thread, attributes, run, argument);
}
#define nanosleep count_nap
#define pthread_create make_thread

#include "cm_addresses.c"
#include "cm_commands.c"
#include "cm_connect.c"
#include "cm_devices.c"
#include "cm_groups.c"
#include "cm_identifiers.c"
#include "cm_routes.c"
#undef nanosleep
#undef pthread_create

#define CHECK(condition)                                              \
    do {                                                              \
        if (!(condition)) {                                           \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);   \
            exit(1);                                                  \
        }                                                             \
    } while (0)

static struct file file, other_file;
static struct port ports[2];
static struct device device = {.most_resources = 16, .most_depth = 12, .ports = ports, .port_count = 2,
                               .events = -1, .bell = -1};
static struct place four = {.port = &ports[0], .index = 3, .mtu = 4}, six, native;
static struct identifier *listener;
static struct event *posted;

/* The parts of the preloaded object that are not here. */

struct host *host_attach(const char *path)
{
    (void)path;
    errno = attach_error;
    return attach_error ? NULL : calloc(1, sizeof(struct host));
}

void host_detach(struct host *host)
{
    free(host);
}

void host_abandon(struct host *host)
{
    free(host);
}

int host_open_channel(struct host *host, int asynchronous, uint32_t *number, int *descriptor)
{
    (void)host, (void)asynchronous;
    *number = 5;
    *descriptor = eventfd(0, EFD_CLOEXEC);
    return *descriptor < 0 ? errno : 0;
}

int host_make_ring(struct host *host, struct ring *ring, uint32_t entries, uint64_t body_bytes)
{
    static struct softhca_ring control;
    (void)host, (void)entries, (void)body_bytes;
    ring->control = &control;
    return 0;
}

void host_free_ring(struct host *host, struct ring *ring)
{
    (void)host, (void)ring;
    freed_rings++;
}

int host_exchange(struct host *host, size_t bytes)
{
    (void)host, (void)bytes;
    tellings++;
    return 0;
}

void lock_commands(struct host *host, int *cancel_state)
{
    (void)host, (void)cancel_state;
}

void unlock_commands(struct host *host, int cancel_state)
{
    (void)host, (void)cancel_state;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the cases have it: a device's thread waits */

void cm_lock(int *cancel_state)
{
    (void)cancel_state;
    pthread_mutex_lock(&lock);
}

void cm_unlock(int cancel_state)
{
    (void)cancel_state;
    pthread_mutex_unlock(&lock);
}

void file_post(struct file *to, struct event *event)
{
    CHECK(to == &file || to == &other_file);
    free(posted);
    posted = event;
}

static uint32_t moves;
static struct identifier *moved_owner;
static struct group *moved_group;
void file_move(struct file *from, struct file *to, struct identifier *owner, struct group *group)
{
    (void)from, (void)to;
    moves++, moved_owner = owner, moved_group = group;
}

void file_drop(struct file *from, struct event *event)
{
    (void)from;
    free(event);
}

struct file *file_of(int descriptor)
{
    return descriptor == 1 ? &file : descriptor == 2 ? &other_file : NULL;
}

int cm_listen(struct identifier *id, uint32_t backlog)
{
    (void)id, (void)backlog;
    return 0;
}

struct identifier *cm_listener(const struct port *port, const struct softhca_cm_header *entry,
                               const struct ip_header *header)
{
    (void)port, (void)entry, (void)header;
    return listener;
}

void cm_stop_listening(struct identifier *id)
{
    (void)id;
}

/* What the cases are made of. */

static struct ip ip(const char *text, uint16_t port)
{
    struct ip found;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int is_four = inet_pton(AF_INET, text, &v4.sin_addr) == 1;
    CHECK(is_four || inet_pton(AF_INET6, text, &v6.sin6_addr) == 1);
    CHECK(!(is_four ? ip_parse(&v4, sizeof v4, &found) : ip_parse(&v6, sizeof v6, &found)));
    return found;
}

static void address(struct place *place, const char *text)
{
    struct ip found = ip(text, 0);
    memcpy(place->gid, found.gid, 16);
    memcpy(place->address, found.gid, 16);
}

static struct identifier *new_one(uint8_t type, struct place *place, const char *to)
{
    struct identifier *id;
    CHECK(!identifier_new(&file, type == TYPE_UD ? SPACE_UDP : SPACE_TCP, type, 9, &id));
    id->place = place;
    ip_of_gid(place->address, 0x1234, &id->source);
    id->destination = ip(to, 0x5678);
    memcpy(id->peer_gid, id->destination.gid, 16);
    return id;
}

/* One whose peer and path are known.  Not all programs need it. */
static inline struct identifier *met(uint8_t type, struct place *place)
{
    struct identifier *id = new_one(type, place, "10.0.0.9");
    id->port = place->port, id->number = 77;
    id->own = (struct end){.qp_num = 11, .psn = 12, .responder_resources = 3, .initiator_depth = 4, .retry_cnt = 5,
                           .rnr_retry = 6, .known = 1};
    id->peer = (struct end){.qp_num = 21, .psn = 22, .responder_resources = 8, .initiator_depth = 9, .retry_cnt = 2,
                            .rnr_retry = 1, .known = 1};
    id->path = (struct path){.mtu = 3, .ack_timeout = 14, .traffic_class = 0x21, .sl = 2, .lid = 40,
                             .flow_label = 0x54321, .known = 1};
    return id;
}

struct tried {
    const char *name;
    void (*run)(void);
};

/* Run the case that the program is told of; its exit status. */
static int run(int argc, char **argv, const struct tried *cases, size_t count)
{
    struct host *host = host_attach("");
    struct place own[3];
    int cancel_state = 0;
    six = native = four;
    address(&four, "10.0.0.1"), address(&six, "fd00::1"), address(&native, "fe80::7");
    native.native = 1, native.port = &ports[1];
    for (uint32_t at = 0; at < 2; at++)
        ports[at] = (struct port){.device = &device, .number = (uint8_t)(at + 1), .open = 1, .cm = at + 1};
    own[0] = four, own[1] = six, own[2] = native;
    device.host = host, device.places = own, device.place_count = 3;
    memcpy(pkeys, (uint16_t[]){0xFFFF, 0, 0xF001, 0}, sizeof pkeys);
    port_now = (struct softhca_query_port_reply){.lid = 4, .sm_lid = 5, .pkey_tbl_len = 4};
    cm_lock(&cancel_state);
    for (size_t at = 0; argc == 2 && at < count; at++)
        if (!strcmp(argv[1], cases[at].name)) {
            cases[at].run();
            return 0;
        }
    return 2;
}

#endif
