/* A client of the rdma_cm device that writes its commands itself, as librdmacm does, and others than that one
   would.  rdmacm_client CASE ADDRESS: status 0 where all is right.  "storm" goes on for ever, and writes a
   byte to its output after each step. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ucma.h"

#define CHECK(what) ((what) ? (void)0 : fail(__LINE__, #what))
#define REFUSED(error, what) (CHECK((what) == -1), CHECK(errno == (error)))
#define TCP 0x0106
#define UDP 0x0111
#define IB 0x013F
#define DEVICE "/dev/infiniband/rdma_cm"
#define COMMAND(fd, number, fields, out) command(fd, number, &(fields), sizeof(fields), out)

static const char *address;
static int storming;

static void fail(int line, const char *what)
{
    fprintf(stderr, "line %d: %s (errno %d)\n", line, what, errno);
    _exit(1);
}

static void step(void)
{
    if (storming)
        CHECK(write(1, ".", 1) == 1);
}

static int open_file(int flags)
{
    int fd = open(DEVICE, O_RDWR | O_CLOEXEC | flags);
    CHECK(fd >= 0);
    return fd;
}

static int command(int fd, uint32_t number, const void *fields, size_t bytes, size_t out)
{
    unsigned char whole[1024];
    struct ucma_header header = {number, (uint16_t)bytes, (uint16_t)out};
    ssize_t done;
    memcpy(whole, &header, sizeof header);
    memcpy(whole + sizeof header, fields, bytes);
    done = write(fd, whole, sizeof header + bytes);
    if (done < 0)
        return -1;
    CHECK(done == (ssize_t)(sizeof header + bytes));
    return 0;
}

static struct sockaddr_in6 at(const char *ip, uint16_t port)
{
    struct sockaddr_in6 whole;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    memset(&whole, 0, sizeof whole);
    CHECK(inet_pton(AF_INET, ip, &four.sin_addr) == 1);
    memcpy(&whole, &four, sizeof four);
    return whole;
}

static uint8_t types[3]; /* of queue pairs, by uid, in the port space IB */

static uint32_t create(int fd, uint64_t uid, uint16_t space)
{
    uint32_t id = 0;
    struct ucma_create_id fields = {.uid = uid, .response = (uintptr_t)&id, .ps = space,
                                    .qp_type = space == IB ? types[uid] : 0};
    CHECK(!COMMAND(fd, UCMA_CREATE_ID, fields, sizeof id));
    return id;
}

static int destroy(int fd, uint32_t id, uint32_t *reported)
{
    uint32_t found = 0;
    struct ucma_query fields = {.response = (uintptr_t)&found, .id = id};
    int result = COMMAND(fd, UCMA_DESTROY_ID, fields, sizeof found);
    if (reported)
        *reported = found;
    return result;
}

static int bind_to(int fd, uint32_t id, const char *ip, uint16_t port)
{
    struct ucma_bind_ip fields = {.addr = at(ip, port), .id = id};
    return COMMAND(fd, UCMA_BIND_IP, fields, 0);
}

static int number(int fd, uint32_t which, uint32_t id, uint32_t value)
{
    struct ucma_number fields = {id, value};
    return COMMAND(fd, which, fields, 0);
}

static int resolve(int fd, uint32_t id, const char *ip, uint16_t port)
{
    struct ucma_resolve_ip fields = {.dst_addr = at(ip, port), .id = id, .timeout_ms = 1000};
    return COMMAND(fd, UCMA_RESOLVE_IP, fields, 0);
}

static struct ucma_route route_of(int fd, uint32_t id)
{
    struct ucma_route route;
    struct ucma_query fields = {.response = (uintptr_t)&route, .id = id};
    CHECK(!COMMAND(fd, UCMA_QUERY_ROUTE, fields, sizeof route));
    return route;
}

static uint16_t port_of(int fd, uint32_t id)
{
    return ntohs(route_of(fd, id).src_addr.sin6_port); /* where IPv4's has it too */
}

/* Another one for each connection: one that comes again is taken for a connection that is over. */
static uint32_t qp_num(int passive)
{
    static uint32_t count;
    count += !passive;
    return ((uint32_t)getpid() << 9 | (count & 0xff) << 1 | (uint32_t)passive) & 0xffffff;
}

static int connect_trying(int fd, uint32_t id, const char *data, uint8_t bytes, uint8_t reads, uint8_t tries)
{
    struct ucma_connect fields = {.id = id, .conn_param = {.qp_num = qp_num(0), .private_data_len = bytes,
        .responder_resources = reads, .initiator_depth = reads, .retry_count = 5, .rnr_retry_count = tries,
        .valid = 1}};
    memcpy(fields.conn_param.private_data, data, bytes);
    return COMMAND(fd, UCMA_CONNECT, fields, 0);
}

static int connect_to(int fd, uint32_t id, const char *data, uint8_t bytes, uint8_t reads)
{
    return connect_trying(fd, id, data, bytes, reads, 6);
}

static int accept_as(int fd, uint32_t id, uint64_t uid, const char *data, int valid)
{
    struct ucma_accept fields = {.uid = uid, .id = id, .conn_param = {.qp_num = qp_num(1),
        .responder_resources = 2, .initiator_depth = 3, .private_data_len = (uint8_t)strlen(data),
        .valid = (uint8_t)valid}};
    memcpy(fields.conn_param.private_data, data, strlen(data));
    return COMMAND(fd, UCMA_ACCEPT, fields, 0);
}

static int reject(int fd, uint32_t id, const char *data)
{
    struct ucma_reject fields = {.id = id, .private_data_len = (uint8_t)strlen(data)};
    memcpy(fields.private_data, data, strlen(data));
    return COMMAND(fd, UCMA_REJECT, fields, 0);
}

static int disconnect(int fd, uint32_t id)
{
    return COMMAND(fd, UCMA_DISCONNECT, id, 0);
}

static int get_event(int fd, struct ucma_event *event)
{
    uint64_t response = (uintptr_t)event;
    memset(event, 0, sizeof *event);
    return COMMAND(fd, UCMA_GET_EVENT, response, sizeof *event);
}

static struct ucma_event expect(int fd, uint32_t kind, uint64_t uid)
{
    struct ucma_event event;
    CHECK(!get_event(fd, &event));
    if (event.event != kind || event.uid != uid)
        fprintf(stderr, "event %u of %llu, not %u\n", event.event, (unsigned long long)event.uid, kind);
    CHECK(event.event == kind);
    CHECK(event.uid == uid);
    return event;
}

static int readable(int fd)
{
    struct pollfd one = {fd, POLLIN, 0};
    CHECK(poll(&one, 1, 0) >= 0);
    return one.revents;
}

static struct ucma_qp_attr attributes_of(int fd, uint32_t id, uint32_t state)
{
    struct ucma_qp_attr found;
    struct ucma_query fields = {.response = (uintptr_t)&found, .id = id, .option = state};
    CHECK(!COMMAND(fd, UCMA_INIT_QP_ATTR, fields, sizeof found));
    return found;
}

/* An identifier that has a route to a port. */
static uint32_t routed(int fd, uint16_t space, uint16_t port)
{
    uint32_t id = create(fd, 1, space);
    CHECK(!resolve(fd, id, address, port));
    expect(fd, UCMA_ADDR_RESOLVED, 1);
    CHECK(!number(fd, UCMA_RESOLVE_ROUTE, id, 1000));
    expect(fd, UCMA_ROUTE_RESOLVED, 1);
    return id;
}

static void ack_timeout(int fd, uint32_t id, uint8_t exponent)
{
    struct ucma_set_option fields = {.optval = (uintptr_t)&exponent, .id = id, .optname = 3, .optlen = 1};
    CHECK(!COMMAND(fd, UCMA_SET_OPTION, fields, 0));
}

/* An active identifier, resolved, and a listener at the same port, whose uids are 1 and 2.  A connection's
   time-wait is longer than a case. */
static uint16_t ends(int fd, uint16_t space, uint32_t *active, uint32_t *listener)
{
    uint16_t port;
    *listener = create(fd, 2, space);
    CHECK(!bind_to(fd, *listener, "0.0.0.0", 0));
    port = port_of(fd, *listener);
    CHECK(port >= 32768);
    CHECK(!number(fd, UCMA_LISTEN, *listener, 4));
    step();
    *active = routed(fd, space, port);
    ack_timeout(fd, *active, 24);
    step();
    return port;
}

/* Cases */

/* Who cannot resolve stays bound, and may try again; all addresses are this machine's, as a destination. */
static void resolves_again(int fd)
{
    uint32_t id = create(fd, 1, TCP);
    struct ucma_resolve_ip mixed = {.src_addr = at(address, 0), .id = id, .timeout_ms = 1000,
                                    .dst_addr = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}};
    struct ucma_route route;
    struct sockaddr_in own, found;
    uint16_t port;
    REFUSED(EINVAL, COMMAND(fd, UCMA_RESOLVE_IP, mixed, 0));
    port = port_of(fd, id);
    CHECK(port >= 32768);
    REFUSED(EINVAL, bind_to(fd, id, address, 0));
    CHECK(!resolve(fd, id, "0.0.0.0", 9));
    expect(fd, UCMA_ADDR_RESOLVED, 1);
    route = route_of(fd, id);
    memcpy(&own, &route.src_addr, sizeof own);
    memcpy(&found, &route.dst_addr, sizeof found);
    CHECK(own.sin_port == htons(port) && found.sin_port == htons(9));
    CHECK(own.sin_addr.s_addr == found.sin_addr.s_addr);
    CHECK(!destroy(fd, id, NULL));
}

static void case_refusals(void)
{
    int fd = open_file(0), other = open_file(0), fresh = 1;
    uint32_t id = create(fd, 1, TCP), second = create(fd, 2, TCP), small = 0;
    struct ucma_bind ib = {.id = id, .addr_size = 48, .addr = {.ss_family = 27}};
    struct ucma_set_option reuse = {.optval = (uintptr_t)&fresh, .id = id, .optname = 1, .optlen = 4};
    struct ucma_query query = {.response = (uintptr_t)&small, .id = id};
    uint16_t port;
    REFUSED(ENOENT, number(fd, UCMA_LISTEN, 12345, 1));
    REFUSED(EINVAL, number(other, UCMA_LISTEN, id, 1));
    REFUSED(EINVAL, command(fd, UCMA_LISTEN, &id, 4, 0));
    REFUSED(EINVAL, command(fd, UCMA_COMMANDS, &id, 4, 0));
    REFUSED(ENOSYS, command(fd, UCMA_GET_OPTION, &id, 4, 0));
    REFUSED(ENOSPC, COMMAND(fd, UCMA_QUERY_ROUTE, query, 4));
    REFUSED(EINVAL, (int)write(fd, &id, 3));
    REFUSED(EINVAL, COMMAND(fd, UCMA_BIND, ib, 0));
    REFUSED(EADDRNOTAVAIL, bind_to(fd, id, "192.0.2.77", 0));
    REFUSED(EADDRNOTAVAIL, bind_to(fd, id, "239.1.1.1", 0));
    REFUSED(EINVAL, number(fd, UCMA_RESOLVE_ROUTE, id, 1));
    REFUSED(EINVAL, connect_to(fd, id, "", 0, 1));
    REFUSED(EINVAL, accept_as(fd, id, 1, "", 1));
    REFUSED(EINVAL, accept_as(fd, id, 1, "", 0));
    REFUSED(EINVAL, reject(fd, id, ""));
    REFUSED(EINVAL, disconnect(fd, id));
    CHECK(!bind_to(fd, id, address, 0));
    port = port_of(fd, id);
    REFUSED(EINVAL, bind_to(fd, id, address, 0));
    REFUSED(EADDRINUSE, bind_to(fd, second, address, port));
    REFUSED(EADDRINUSE, bind_to(fd, second, "0.0.0.0", port));
    REFUSED(EINVAL, COMMAND(fd, UCMA_SET_OPTION, reuse, 0));
    CHECK(!destroy(fd, id, NULL));
    CHECK(!bind_to(fd, second, address, port));
    id = create(fd, 1, TCP);
    CHECK(!bind_to(fd, id, "0.0.0.0", 0));
    CHECK(!number(fd, UCMA_LISTEN, id, 0));
    REFUSED(EINVAL, number(fd, UCMA_LISTEN, id, 0));
    resolves_again(fd);
    CHECK(!close(other));
    CHECK(!close(fd));
    REFUSED(EBADF, number(fd, UCMA_LISTEN, id, 0));
}

/* The port space IB: connections of what types are accepted, and what their queue pairs are told. */
static void case_types(void)
{
    static const struct {
        uint8_t active, passive;
        int fits;
        uint32_t receiving[2], sending[2]; /* masks of the active side, and of the passive one */
    } cases[] = {
        {2, 2, 1, {0x129181, 0x129181}, {0x12e01, 0x12e01}}, {9, 10, 1, {0x101181, 0x129181}, {0x12e01, 0x10201}},
        {3, 3, 1, {0x101181, 0x101181}, {0x10001, 0x10001}}, {9, 2, 0, {0}, {0}}, {2, 10, 0, {0}, {0}},
        {3, 2, 0, {0}, {0}}, {9, 9, 0, {0}, {0}}, {4, 2, 0, {0}, {0}},
    };
    int fd = open_file(0);
    uint32_t id, active, listener;
    struct ucma_event event;
    struct ucma_create_id bad = {.response = (uintptr_t)&id, .ps = IB, .qp_type = 8};
    REFUSED(EPROTONOSUPPORT, COMMAND(fd, UCMA_CREATE_ID, bad, 4));
    bad.ps = 2; /* IPoIB */
    bad.qp_type = 4;
    REFUSED(EPROTONOSUPPORT, COMMAND(fd, UCMA_CREATE_ID, bad, 4));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        types[1] = cases[i].active;
        types[2] = cases[i].passive;
        ends(fd, IB, &active, &listener);
        CHECK(!connect_to(fd, active, "", 0, 2));
        if (!cases[i].fits) {
            event = expect(fd, types[1] == 4 ? UCMA_UNREACHABLE : UCMA_REJECTED, 1);
            CHECK(event.status == (types[1] == 4 ? 1 : 8));
        } else {
            event = expect(fd, UCMA_CONNECT_REQUEST, 2);
            id = event.id;
            CHECK(attributes_of(fd, id, 2).qp_attr_mask == cases[i].receiving[1]);
            CHECK(!accept_as(fd, id, 3, "", 1));
            expect(fd, UCMA_CONNECT_RESPONSE, 1);
            CHECK(attributes_of(fd, active, 1).qp_attr_mask == 0x39);
            CHECK(attributes_of(fd, active, 2).qp_attr_mask == cases[i].receiving[0]);
            CHECK(attributes_of(fd, active, 3).qp_attr_mask == cases[i].sending[0]);
            CHECK(attributes_of(fd, id, 3).qp_attr_mask == cases[i].sending[1]);
            CHECK(!destroy(fd, id, NULL));
        }
        CHECK(!destroy(fd, active, NULL) && !destroy(fd, listener, NULL));
    }
    /* its ports are not those of TCP */
    types[2] = 2;
    active = create(fd, 2, IB);
    listener = create(fd, 1, TCP);
    CHECK(!bind_to(fd, active, address, 0) && !bind_to(fd, listener, address, port_of(fd, active)));
    CHECK(!close(fd));
}

static void case_descriptors(void)
{
    int fd = open_file(0), other = open_file(O_NONBLOCK);
    uint32_t id = create(fd, 1, TCP), second = create(fd, 2, TCP), reported = 0;
    struct ucma_migrate_id migrate = {.response = (uintptr_t)&reported, .id = second, .fd = (uint32_t)fd};
    struct ucma_event event;
    struct stat status;
    CHECK(!fstat(fd, &status) && S_ISCHR(status.st_mode));
    CHECK(!readable(fd));
    REFUSED(EAGAIN, get_event(other, &event));
    CHECK(!resolve(fd, id, address, 1));
    CHECK(!resolve(fd, second, address, 2));
    CHECK(readable(fd) == POLLIN);
    expect(fd, UCMA_ADDR_RESOLVED, 1);
    CHECK(readable(fd) == POLLIN);
    CHECK(!COMMAND(other, UCMA_MIGRATE_ID, migrate, 4));
    CHECK(reported == 0);
    CHECK(!readable(fd) && readable(other) == POLLIN);
    REFUSED(EINVAL, destroy(fd, second, NULL));
    expect(other, UCMA_ADDR_RESOLVED, 2);
    REFUSED(EAGAIN, get_event(other, &event));
    CHECK(!number(other, UCMA_RESOLVE_ROUTE, second, 1));
    CHECK(readable(other) == POLLIN);
    CHECK(!destroy(other, second, &reported)); /* what it has not given out goes with it */
    CHECK(reported == 1);
    CHECK(!readable(other));
    CHECK(!number(fd, UCMA_RESOLVE_ROUTE, id, 1));
    CHECK(dup2(open("/dev/null", O_RDWR), fd) == fd); /* closed behind our back */
    CHECK(write(fd, "anything", 8) == 8);
    CHECK(!close(fd) && !close(other));
}

/* Events that a program writes itself, or librdmacm in its stead: they come among the others, as they are. */
static void case_written(void)
{
    int fd = open_file(0), other = open_file(O_NONBLOCK);
    uint32_t id = create(fd, 5, TCP), reported = 0;
    struct ucma_write_event mine = {.id = id, .event = UCMA_USER, .status = 7, .arg = {0x89abcdef, 0x01234567}};
    struct ucma_event event;
    CHECK(!COMMAND(fd, UCMA_WRITE_CM_EVENT, mine, 0));
    CHECK(readable(fd) == POLLIN);
    CHECK(!resolve(fd, id, address, 1));
    CHECK(!get_event(fd, &event));
    CHECK(event.event == 18 && event.uid == 5 && event.id == id && event.status == 7);
    CHECK(!memcmp(event.param.arg, mine.arg, 8));
    expect(fd, UCMA_ADDR_RESOLVED, 5);
    mine.event = UCMA_INTERNAL;
    CHECK(!COMMAND(fd, UCMA_WRITE_CM_EVENT, mine, 0));
    CHECK(!get_event(fd, &event) && event.event == 19);
    for (mine.event = 0; mine.event < 30; mine.event++)
        if (mine.event != UCMA_USER && mine.event != UCMA_INTERNAL)
            REFUSED(EINVAL, COMMAND(fd, UCMA_WRITE_CM_EVENT, mine, 0));
    mine.event = UCMA_USER;
    REFUSED(EINVAL, COMMAND(other, UCMA_WRITE_CM_EVENT, mine, 0)); /* another channel's identifier */
    REFUSED(ENOSYS, COMMAND(fd, UCMA_RESOLVE_IB_SERVICE, mine, 0)); /* on InfiniBand ports alone */
    CHECK(!readable(fd));
    CHECK(!COMMAND(fd, UCMA_WRITE_CM_EVENT, mine, 0));
    CHECK(!get_event(fd, &event) && !destroy(fd, id, &reported));
    CHECK(reported == 4);
    CHECK(!close(fd) && !close(other));
}

static void case_connections(void)
{
    int fd = open_file(0);
    uint32_t active, listener, reported;
    struct ucma_event event;
    struct ucma_qp_attr found;
    uint16_t port = ends(fd, TCP, &active, &listener);
    CHECK(route_of(fd, active).num_paths == 1 && route_of(fd, active).node_guid);
    REFUSED(EINVAL, connect_to(fd, active, (const char[57]){0}, 57, 1));
    REFUSED(EINVAL, connect_to(fd, active, "", 0, 254));
    CHECK(!connect_to(fd, active, "hello", 5, 4));
    event = expect(fd, UCMA_CONNECT_REQUEST, 2);
    CHECK(event.param.conn.private_data_len == 56 && !memcmp(event.param.conn.private_data, "hello\0", 6));
    CHECK(event.param.conn.qp_num == (qp_num(1) & ~1U) && event.param.conn.responder_resources == 4);
    CHECK(event.param.conn.retry_count == 5 && event.param.conn.rnr_retry_count == 6);
    CHECK(port_of(fd, event.id) == port);
    found = attributes_of(fd, event.id, 2);
    CHECK(found.dest_qp_num == (qp_num(1) & ~1U) && found.qp_attr_mask == 0x129181);
    CHECK(found.max_dest_rd_atomic == 4);
    CHECK(!accept_as(fd, event.id, 3, "welcome", 1));
    CHECK(expect(fd, UCMA_CONNECT_RESPONSE, 1).param.conn.private_data_len == 196);
    found = attributes_of(fd, active, 3);
    CHECK(found.qp_attr_mask == 0x12e01 && found.retry_cnt == 5 && found.max_rd_atomic == 2);
    found = attributes_of(fd, active, 2);
    CHECK(found.dest_qp_num == qp_num(1) && found.max_dest_rd_atomic == 3);
    CHECK(!accept_as(fd, active, 0, "", 0)); /* establishes */
    CHECK(!expect(fd, UCMA_ESTABLISHED, 3).param.conn.private_data_len);
    REFUSED(EINVAL, accept_as(fd, active, 0, "", 0));
    CHECK(!disconnect(fd, active));
    CHECK(!expect(fd, UCMA_DISCONNECTED, 3).param.conn.private_data_len);
    CHECK(!disconnect(fd, event.id));
    CHECK(!expect(fd, UCMA_DISCONNECTED, 1).param.conn.private_data_len);
    CHECK(!readable(fd));
    CHECK(!disconnect(fd, active));
    CHECK(!destroy(fd, event.id, &reported) && reported == 2);
    CHECK(!destroy(fd, active, &reported) && reported == 4);
    CHECK(!destroy(fd, listener, &reported) && reported == 1);
    CHECK(!close(fd));
}

/* How long a peer waits where no receive was posted: a program may be as late as with a kernel, 655 ms each time,
   before counted tries are over; one that tries for ever waits shortly. What each end names is for the other. */
static void case_tries(void)
{
    uint32_t active, listener;
    struct ucma_event event;
    struct ucma_qp_attr found;
    for (uint8_t tries = 6; tries <= 7; tries++) {
        int fd = open_file(0);
        ends(fd, TCP, &active, &listener);
        CHECK(!connect_trying(fd, active, "", 0, 1, tries));
        event = expect(fd, UCMA_CONNECT_REQUEST, 2);
        CHECK(attributes_of(fd, event.id, 2).min_rnr_timer == (tries == 7 ? 22 : 0));
        CHECK(!accept_as(fd, event.id, 3, "", 1)); /* with no tries at all */
        CHECK(!expect(fd, UCMA_CONNECT_RESPONSE, 1).param.conn.rnr_retry_count);
        found = attributes_of(fd, active, 3);
        CHECK(found.rnr_retry == 0);
        CHECK(attributes_of(fd, event.id, 3).rnr_retry == tries);
        CHECK(attributes_of(fd, active, 2).min_rnr_timer == (tries == 7 ? 22 : 0));
        CHECK(attributes_of(fd, event.id, 2).min_rnr_timer == 0);
        CHECK(!close(fd));
    }
}

/* A request that nobody has taken yet names an identifier that the program does not know, whatever it guesses;
   it ends with its listener, and with the file, whichever of the two the numbers have first. */
static void case_untaken(void)
{
    uint32_t spare, active, listener, child, moved;
    struct pollfd one = {.events = POLLIN};
    for (int round = 0; round < 4; round++) {
        int fd = open_file(0), other = open_file(0);
        struct ucma_migrate_id move = {.response = (uintptr_t)&moved, .fd = (uint32_t)fd};
        one.fd = fd;
        spare = create(fd, 1, TCP);
        ends(fd, TCP, &active, &listener);
        CHECK(!destroy(fd, spare, NULL)); /* the request's identifier has its number */
        child = spare;
        CHECK(!connect_to(fd, active, "", 0, 1));
        CHECK(poll(&one, 1, 10000) == 1);
        REFUSED(ENOENT, destroy(fd, child, NULL));
        REFUSED(ENOENT, accept_as(fd, child, 3, "", 1));
        move.id = child;
        REFUSED(ENOENT, COMMAND(other, UCMA_MIGRATE_ID, move, 4));
        move.id = listener;
        if (round == 1)
            CHECK(!destroy(fd, listener, NULL));
        if (round >= 2)
            CHECK(!COMMAND(other, UCMA_MIGRATE_ID, move, 4));
        if (round == 3) {
            CHECK(expect(other, UCMA_CONNECT_REQUEST, 2).id == child);
            CHECK(!accept_as(other, child, 3, "", 1) && !destroy(other, listener, NULL));
            CHECK(!destroy(other, child, NULL));
        }
        CHECK(!close(fd) && !close(other));
    }
}

/* All that has come to this program's listeners until now is an event, if it is one at all. */
static void settle(int marks, uint16_t port)
{
    uint32_t active = routed(marks, TCP, port);
    struct ucma_event event;
    CHECK(!connect_to(marks, active, "", 0, 1));
    event = expect(marks, UCMA_CONNECT_REQUEST, 2);
    CHECK(!reject(marks, event.id, "") && !destroy(marks, event.id, NULL));
    expect(marks, UCMA_REJECTED, 1);
    CHECK(!destroy(marks, active, NULL));
}

/* Requests that have given way to later ones, or whose peers have taken them back, before the program has taken
   the event, are none any more. */
static void case_displaced(void)
{
    for (int kind = 0; kind < 2; kind++) {
        int fd = open_file(0), marks = open_file(0), asking = open_file(0);
        uint16_t space = kind ? UDP : TCP, port, marked;
        uint32_t spare, listener = create(fd, 3, space), mark, last = 0, left = 2;
        marked = ends(marks, TCP, &spare, &mark);
        CHECK(!bind_to(fd, listener, "0.0.0.0", 0));
        port = port_of(fd, listener);
        CHECK(!number(fd, UCMA_LISTEN, listener, 2));
        for (int i = 0; i < 40; i++) {
            last = routed(asking, space, port);
            CHECK(!connect_to(asking, last, "", 0, 1));
        }
        settle(marks, marked);
        if (space == TCP) {
            CHECK(!destroy(asking, last, NULL));
            settle(marks, marked);
            left = 1;
        }
        while (left--) {
            CHECK(readable(fd));
            CHECK(!destroy(fd, expect(fd, UCMA_CONNECT_REQUEST, 3).id, NULL));
        }
        CHECK(!readable(fd));
        CHECK(!close(fd) && !close(marks) && !close(asking));
    }
}

static void case_timewait(void)
{
    int fd = open_file(0);
    uint32_t active, listener, exits[4] = {0}, parted = 0;
    struct ucma_event event;
    ends(fd, TCP, &active, &listener);
    ack_timeout(fd, active, 0);
    CHECK(!connect_to(fd, active, "", 0, 1));
    event = expect(fd, UCMA_CONNECT_REQUEST, 2);
    CHECK(!accept_as(fd, event.id, 3, "", 1));
    expect(fd, UCMA_CONNECT_RESPONSE, 1);
    CHECK(!accept_as(fd, active, 0, "", 0));
    expect(fd, UCMA_ESTABLISHED, 3);
    CHECK(!disconnect(fd, active));
    expect(fd, UCMA_DISCONNECTED, 3);
    CHECK(!disconnect(fd, event.id));
    for (int i = 0; i < 3; i++) { /* each side's time-wait ends when it ends */
        CHECK(!get_event(fd, &event));
        CHECK(event.uid == 1 || event.uid == 3);
        CHECK(!event.status);
        if (event.event == UCMA_DISCONNECTED)
            parted += event.uid == 1 && !exits[1];
        else
            exits[event.uid] += event.event == UCMA_TIMEWAIT_EXIT;
    }
    CHECK(parted == 1 && exits[1] == 1 && exits[3] == 1);
    CHECK(!readable(fd));
    CHECK(!disconnect(fd, active));
    CHECK(!close(fd));
}

static void case_refused(void)
{
    int fd = open_file(0);
    uint32_t active, listener;
    struct ucma_event event;
    uint16_t port = ends(fd, TCP, &active, &listener);
    CHECK(!connect_to(fd, active, "", 0, 1));
    event = expect(fd, UCMA_CONNECT_REQUEST, 2);
    CHECK(!reject(fd, event.id, "no"));
    event = expect(fd, UCMA_REJECTED, 1);
    CHECK(event.status == 28 && !strcmp((char *)event.param.conn.private_data, "no"));
    CHECK(!destroy(fd, active, NULL));
    active = routed(fd, TCP, port);
    CHECK(!connect_to(fd, active, "", 0, 1));
    event = expect(fd, UCMA_CONNECT_REQUEST, 2);
    CHECK(!accept_as(fd, event.id, 3, "", 1)); /* no more at a time than the peer has asked for */
    CHECK(attributes_of(fd, event.id, 2).max_dest_rd_atomic == 1);
    CHECK(attributes_of(fd, event.id, 3).max_rd_atomic == 1);
    expect(fd, UCMA_CONNECT_RESPONSE, 1);
    CHECK(!reject(fd, active, "after all"));
    CHECK(expect(fd, UCMA_REJECTED, 3).status == 28);
    active = routed(fd, TCP, port);
    CHECK(!connect_to(fd, active, "", 0, 1));
    while (!readable(fd))
        ;
    CHECK(!destroy(fd, listener, NULL)); /* with a request that nobody has taken */
    event = expect(fd, UCMA_REJECTED, 1);
    active = routed(fd, TCP, port);
    CHECK(!connect_to(fd, active, "", 0, 1));
    CHECK(expect(fd, UCMA_REJECTED, 1).status == 8); /* nobody listens */
    listener = create(fd, 2, TCP);
    CHECK(!bind_to(fd, listener, "0.0.0.0", port));
    CHECK(!number(fd, UCMA_LISTEN, listener, 1)); /* the port is free again */
    CHECK(!close(fd));
}

/* Who asks by IPv4 is told of by the listener for `uid`, or refused. */
static void asked_by_four(int fd, uint16_t port, uint64_t uid)
{
    uint32_t active = routed(fd, TCP, port);
    CHECK(!connect_to(fd, active, "", 0, 1));
    if (uid) {
        struct ucma_event event = expect(fd, UCMA_CONNECT_REQUEST, uid);
        CHECK(!reject(fd, event.id, ""));
    }
    CHECK(expect(fd, UCMA_REJECTED, 1).status == (uid ? 28 : 8));
    CHECK(!destroy(fd, active, NULL));
}

/* Listeners at all addresses of IPv4 and at all of IPv6 have one port, in either order. */
static void case_families(void)
{
    for (uint32_t first = 0; first < 2; first++) {
        int fd = open_file(0), only = 1;
        uint32_t four = create(fd, 4, TCP), six = create(fd, 6, TCP);
        struct ucma_bind_ip all = {.addr = {.sin6_family = AF_INET6}, .id = six};
        struct ucma_set_option option = {.optval = (uintptr_t)&only, .id = six,
                                         .optname = UCMA_OPTION_AFONLY, .optlen = sizeof only};
        uint16_t port;
        CHECK(!bind_to(fd, four, "0.0.0.0", 0));
        port = port_of(fd, four);
        all.addr.sin6_port = htons(port);
        CHECK(!COMMAND(fd, UCMA_SET_OPTION, option, 0));
        CHECK(!COMMAND(fd, UCMA_BIND_IP, all, 0));
        CHECK(!number(fd, UCMA_LISTEN, first ? six : four, 4));
        CHECK(!number(fd, UCMA_LISTEN, first ? four : six, 4));
        asked_by_four(fd, port, 4);
        CHECK(!destroy(fd, four, NULL));
        asked_by_four(fd, port, 0);
        four = create(fd, 5, TCP);
        CHECK(!bind_to(fd, four, "0.0.0.0", port));
        CHECK(!number(fd, UCMA_LISTEN, four, 4));
        CHECK(!destroy(fd, six, NULL));
        asked_by_four(fd, port, 5);
        CHECK(!close(fd));
    }
}

static void case_datagrams(void)
{
    int fd = open_file(0);
    uint32_t active, listener, group = 0;
    struct ucma_event event;
    struct ucma_query leave = {.response = (uintptr_t)&group};
    struct ucma_join_ip_mcast join = {.response = (uintptr_t)&group, .uid = 9, .addr = at("239.8.7.6", 0)};
    ends(fd, UDP, &active, &listener);
    join.id = active;
    CHECK(!connect_to(fd, active, "who", 3, 1));
    event = expect(fd, UCMA_CONNECT_REQUEST, 2);
    CHECK(event.param.ud.private_data_len == 180 && !strcmp((char *)event.param.ud.private_data, "who"));
    CHECK(!accept_as(fd, event.id, 3, "me", 1));
    event = expect(fd, UCMA_ESTABLISHED, 1);
    CHECK(event.param.ud.qp_num == qp_num(1) && event.param.ud.qkey == 0x01234567);
    CHECK(event.param.ud.ah_attr.is_global && !strcmp((char *)event.param.ud.private_data, "me"));
    CHECK(attributes_of(fd, active, 1).qkey == 0x01234567);
    CHECK(!disconnect(fd, active)); /* which changes nothing */
    CHECK(!COMMAND(fd, UCMA_JOIN_IP_MCAST, join, 4));
    REFUSED(EADDRINUSE, COMMAND(fd, UCMA_JOIN_IP_MCAST, join, 4));
    event = expect(fd, UCMA_MULTICAST_JOIN, 9);
    CHECK(event.id == group && event.param.ud.qp_num == 0xFFFFFF);
    leave.id = group;
    CHECK(!COMMAND(fd, UCMA_LEAVE_MCAST, leave, 4));
    CHECK(group == 1); /* events that it had */
    CHECK(!COMMAND(fd, UCMA_JOIN_IP_MCAST, join, 4));
    CHECK(readable(fd));
    leave.id = group;
    CHECK(!COMMAND(fd, UCMA_LEAVE_MCAST, leave, 4));
    CHECK(!readable(fd) && group == 0);
    leave.id = 77777;
    REFUSED(ENOENT, COMMAND(fd, UCMA_LEAVE_MCAST, leave, 4));
    CHECK(!close(fd));
}

static void case_forks(void)
{
    int fd = open_file(0), status;
    uint32_t active, listener;
    struct ucma_event event;
    pid_t child;
    ends(fd, TCP, &active, &listener);
    child = fork();
    if (!child) {
        uint32_t id;
        int own;
        REFUSED(EIO, number(fd, UCMA_LISTEN, listener, 1));
        REFUSED(EIO, get_event(fd, &event));
        own = open_file(0);
        id = create(own, 5, TCP);
        CHECK(!resolve(own, id, address, 1));
        expect(own, UCMA_ADDR_RESOLVED, 5);
        CHECK(!close(fd) && !close(own));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && !status);
    child = vfork(); /* has the parent's memory, and descriptors of its own */
    if (!child)
        _exit(close(fd) != 0);
    CHECK(waitpid(child, &status, 0) == child && !status);
    CHECK(!connect_to(fd, active, "", 0, 1));
    event = expect(fd, UCMA_CONNECT_REQUEST, 2);
    CHECK(!accept_as(fd, event.id, 3, "", 1));
    expect(fd, UCMA_CONNECT_RESPONSE, 1);
    CHECK(!close(fd));
}

static void *wait_for_event(void *argument)
{
    struct ucma_event event;
    CHECK(!get_event(*(int *)argument, &event));
    CHECK(event.event == UCMA_ADDR_RESOLVED);
    return &storming;
}

static void *make_identifiers(void *argument)
{
    int fd = *(int *)argument;
    for (int round = 0; round < 50; round++) {
        uint32_t id = create(fd, 7, TCP), reported;
        CHECK(!bind_to(fd, id, address, 0));
        CHECK(!resolve(fd, id, address, 1));
        CHECK(!destroy(fd, id, &reported) && !reported);
    }
    return NULL;
}

static void case_threads(void)
{
    int fd = open_file(0), closed = open_file(0);
    uint32_t ids[3];
    pthread_t waiters[3], makers[4], stuck;
    void *result;
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_create(&makers[i], NULL, make_identifiers, &fd));
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_join(makers[i], NULL));
    CHECK(!readable(fd));
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&waiters[i], NULL, wait_for_event, &fd));
    CHECK(!pthread_cancel(waiters[0]));
    CHECK(!pthread_join(waiters[0], &result) && result == PTHREAD_CANCELED);
    for (int i = 0; i < 3; i++) {
        ids[i] = create(fd, 1, TCP);
        CHECK(!resolve(fd, ids[i], address, 1));
    }
    for (int i = 1; i < 3; i++)
        CHECK(!pthread_join(waiters[i], &result) && result == &storming);
    expect(fd, UCMA_ADDR_RESOLVED, 1);
    CHECK(!pthread_create(&stuck, NULL, wait_for_event, &closed)); /* it waits on, whenever it has begun to */
    usleep(1000);
    fcntl(closed, F_GETFD);
    CHECK(!pthread_cancel(stuck) && !pthread_join(stuck, NULL));
    CHECK(!close(closed));
    ids[0] = create(fd, 2, TCP);
    CHECK(!bind_to(fd, ids[0], address, 0));
    ids[1] = port_of(fd, ids[0]);
    CHECK(!close(fd)); /* whoever was cancelled keeps nothing of it */
    fd = open_file(0);
    CHECK(!bind_to(fd, create(fd, 1, TCP), address, (uint16_t)ids[1]));
    CHECK(!close(fd));
}

struct closing {
    int fd;
    uint32_t id;
    _Atomic pid_t threads[3];
    _Atomic int ended;
};

static void *destroys(void *argument)
{
    struct closing *closing = argument;
    closing->threads[0] = gettid();
    CHECK(!destroy(closing->fd, closing->id, NULL));
    return NULL;
}

static void *waits(void *argument)
{
    struct closing *closing = argument;
    struct ucma_event event;
    closing->threads[1] = gettid();
    get_event(closing->fd, &event);
    closing->ended = 1;
    return NULL;
}

static void *closes(void *argument)
{
    struct closing *closing = argument;
    closing->threads[2] = gettid();
    CHECK(!close(closing->fd));
    return NULL;
}

/* Wait until a thread sleeps in one of two system calls (both may be the same one), or has ended. */
static void sleeps_in(struct closing *closing, int which, long one, long other)
{
    char path[64], said[64];
    for (long number = -1; number != one && number != other && !closing->ended; sched_yield()) {
        ssize_t got = 0;
        int file;
        snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)closing->threads[which]);
        file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0)
            got = read(file, said, sizeof said - 1), close(file);
        said[got > 0 ? got : 0] = 0;
        if (said[0] >= '0' && said[0] <= '9')
            number = strtol(said, NULL, 10);
    }
}

/* Who waited for events before a close goes on waiting, though a command of another thread was under way: the
   adapter process is stopped when the byte has come, and goes on after the second one. */
static void case_closing(void)
{
    struct closing closing = {.fd = open_file(0)};
    pthread_t threads[3];
    char byte;
    closing.id = create(closing.fd, 1, TCP);
    CHECK(!bind_to(closing.fd, closing.id, address, 0));
    CHECK(!number(closing.fd, UCMA_LISTEN, closing.id, 1));
    storming = 1;
    step();
    CHECK(read(0, &byte, 1) == 1);
    CHECK(!pthread_create(&threads[0], NULL, destroys, &closing));
    sleeps_in(&closing, 0, SYS_poll, SYS_ppoll);
    CHECK(!pthread_create(&threads[1], NULL, waits, &closing));
    sleeps_in(&closing, 1, SYS_futex, SYS_read);
    CHECK(!pthread_create(&threads[2], NULL, closes, &closing));
    sleeps_in(&closing, 2, SYS_futex, SYS_futex);
    step();
    CHECK(!pthread_join(threads[0], NULL) && !pthread_join(threads[2], NULL));
    sleeps_in(&closing, 1, SYS_read, SYS_read);
    CHECK(!closing.ended);
    CHECK(!pthread_cancel(threads[1]) && !pthread_join(threads[1], NULL));
}

/* The adapter process goes: it is killed when the byte has come. */
static void case_removal(void)
{
    int fd = open_file(0);
    uint32_t id = create(fd, 1, TCP), second = create(fd, 2, TCP), ids[3] = {id}, told = 0, handle = 0;
    struct ucma_event event;
    CHECK(!bind_to(fd, id, address, 0));
    ends(fd, TCP, &id, &second); /* 1, and 2 that listens at all addresses */
    CHECK(!connect_to(fd, id, "", 0, 1));
    handle = expect(fd, UCMA_CONNECT_REQUEST, 2).id;
    CHECK(!accept_as(fd, handle, 3, "", 1));
    expect(fd, UCMA_CONNECT_RESPONSE, 1);
    CHECK(!accept_as(fd, id, 0, "", 0));
    expect(fd, UCMA_ESTABLISHED, 3);
    CHECK(!disconnect(fd, id));
    expect(fd, UCMA_DISCONNECTED, 3); /* which is not answered any more */
    storming = 1;
    step();
    for (int i = 0; i < 4; i++) {
        CHECK(!get_event(fd, &event));
        CHECK(event.event == UCMA_DEVICE_REMOVAL && event.uid >= 1 && event.uid <= 3);
        told += 1U << 4 * event.uid;
    }
    CHECK(told == 0x1120); /* twice uid 1, once 2 and 3 */
    CHECK(!readable(fd));
    CHECK(!disconnect(fd, id) && !disconnect(fd, handle)); /* nobody is there to be told */
    REFUSED(EINVAL, connect_to(fd, id, "", 0, 1));
    REFUSED(EIO, bind_to(fd, create(fd, 4, TCP), address, 0));
    CHECK(!destroy(fd, ids[0], NULL) && !destroy(fd, id, NULL) && !destroy(fd, handle, NULL));
    CHECK(!destroy(fd, second, NULL));
    CHECK(!close(fd));
}

/* Who is bound to any address is attached to its adapter, and so listens at once; a byte says that it is bound. */
static void case_bound(void)
{
    int fd = open_file(0);
    uint32_t id = create(fd, 1, TCP);
    char end;
    CHECK(!bind_to(fd, id, "0.0.0.0", 0));
    storming = 1;
    step();
    CHECK(!read(0, &end, 1));
    CHECK(!close(fd));
}

/* Bytes that mean nothing: whatever happens is an error or does no harm. */
static void case_garbage(void)
{
    int fd = open_file(O_NONBLOCK), other = open_file(O_NONBLOCK);
    static unsigned char room[4096];
    uint64_t words[64], place = (uintptr_t)room;
    unsigned char *bytes = (unsigned char *)words;
    unsigned seed = 4711;
    for (int round = 0; round < 20000; round++) {
        uint32_t which = (uint32_t)rand_r(&seed) % (UCMA_COMMANDS + 2);
        size_t length = (size_t)rand_r(&seed) % 320;
        for (size_t i = 0; i < sizeof words; i++)
            bytes[i] = (unsigned char)(rand_r(&seed) % 3 ? 0 : rand_r(&seed) % (rand_r(&seed) % 2 ? 4 : 256));
        words[0] = place;
        if (which == UCMA_CREATE_ID || which == UCMA_BIND || which == UCMA_ACCEPT)
            words[1] = place;
        if (which == UCMA_SET_OPTION)
            bytes[20] = bytes[21] = bytes[22] = bytes[23] = 0;
        if (which == UCMA_CREATE_ID && rand_r(&seed) % 2)
            memcpy(bytes + 16, &(uint16_t){rand_r(&seed) % 2 ? TCP : UDP}, 2);
        if ((which == UCMA_BIND_IP || which == UCMA_RESOLVE_IP || which == UCMA_JOIN_IP_MCAST))
            for (int at = 0; at < 64; at += 8)
                if (rand_r(&seed) % 2)
                    memcpy(bytes + at, &(uint16_t){AF_INET}, 2);
        words[0] = which == UCMA_RESOLVE_IP ? words[0] & ~0xffffULL : place;
        command(rand_r(&seed) % 4 ? fd : other, which, bytes, length, (size_t)rand_r(&seed) % 400);
    }
    CHECK(!close(fd) && !close(other));
}

static void case_storm(void)
{
    storming = 1;
    for (;;) {
        int fd = open_file(0);
        uint32_t active, listener;
        struct ucma_event event;
        ends(fd, TCP, &active, &listener);
        CHECK(!connect_to(fd, active, "", 0, 1));
        step();
        event = expect(fd, UCMA_CONNECT_REQUEST, 2);
        step();
        CHECK(!accept_as(fd, event.id, 3, "", 1));
        step();
        expect(fd, UCMA_CONNECT_RESPONSE, 1);
        step();
        CHECK(!accept_as(fd, active, 0, "", 0));
        step();
        expect(fd, UCMA_ESTABLISHED, 3);
        CHECK(!disconnect(fd, active));
        step();
        expect(fd, UCMA_DISCONNECTED, 3);
        CHECK(!destroy(fd, active, NULL));
        step();
        CHECK(!close(fd));
        step();
    }
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"refusals", case_refusals}, {"types", case_types},
                 {"descriptors", case_descriptors}, {"written", case_written}, {"garbage", case_garbage},
                 {"connections", case_connections}, {"tries", case_tries}, {"refused", case_refused},
                 {"datagrams", case_datagrams},
                 {"families", case_families},
                 {"timewait", case_timewait}, {"untaken", case_untaken}, {"displaced", case_displaced},
                 {"forks", case_forks}, {"removal", case_removal}, {"threads", case_threads},
                 {"closing", case_closing}, {"bound", case_bound}, {"storm", case_storm}};
    address = count > 2 ? words[2] : "127.0.0.1";
    for (size_t i = 0; count > 1 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(words[1], cases[i].name)) {
            cases[i].run();
            return 0;
        }
    return 2;
}
