/* Identifiers, addresses and listeners of the rdma_cm device, with two places and an adapter that is a script;
   argv[1] names what is tried. */
#define _GNU_SOURCE
#include "cm.h"

#include <arpa/inet.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#undef CALL
#define CALL(host, error, name, fields, reply) ((void)(host), (error) = asked_to_listen(fields, reply))
static int asked_to_listen(const struct softhca_cm_listen *fields, struct softhca_cm_listen_reply *reply);
#include "cm_addresses.c"
#include "cm_identifiers.c"
#include "cm_listen.c"

#define CHECK(condition)                                              \
    do {                                                              \
        if (!(condition)) {                                           \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);   \
            exit(1);                                                  \
        }                                                             \
    } while (0)

static struct device device;
static struct port ports[2] = {{.device = &device, .cm = 1}, {.device = &device, .cm = 2}};
static struct place places[2] = {{.port = &ports[0]}, {.port = &ports[1]}};
static uint32_t listened, ended[8], ends, last_backlog;
static uint64_t last_service;
static int refuses, no_devices;
static struct file *one, *two;

static int asked_to_listen(const struct softhca_cm_listen *fields, struct softhca_cm_listen_reply *reply)
{
    last_backlog = fields->backlog, last_service = fields->service_id;
    reply->id = 100 + ++listened;
    return refuses && listened >= 2 ? ENOMEM : 0;
}

void cm_end(struct port *port, uint32_t number)
{
    CHECK(port == &ports[0] || port == &ports[1]);
    ended[ends++ % 8] = number;
}

static uint32_t moved;
void file_move(struct file *from, struct file *to, struct identifier *owner, struct group *group)
{
    (void)from, (void)to, (void)owner, (void)group;
    moved++;
}

static struct event *posted;
void file_post(struct file *file, struct event *event)
{
    CHECK(file == one || file == two);
    free(posted);
    posted = event;
}

int port_open(struct port *port)
{
    (void)port;
    return 0;
}

int place_at(const struct ip *address, struct place **found)
{
    for (int at = 0; at < 2; at++)
        if (!memcmp(address->gid, places[at].address, 16))
            return *found = &places[at], 0;
    return no_devices ? ENODEV : EADDRNOTAVAIL;
}

struct place **places_all(uint32_t *count)
{
    struct place **all = calloc(2, sizeof *all);
    all[0] = &places[0], all[1] = &places[1];
    *count = 2;
    return all;
}

static struct ip ip(const char *text, uint16_t port)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_scope_id = 7};
    struct ip found;
    int is_four = inet_pton(AF_INET, text, &four.sin_addr) == 1;
    CHECK(is_four || inet_pton(AF_INET6, text, &six.sin6_addr) == 1);
    CHECK(!(is_four ? ip_parse(&four, sizeof four, &found) : ip_parse(&six, sizeof six, &found)));
    return found;
}

static struct identifier *new_one(struct file *file, uint16_t space)
{
    struct identifier *id;
    CHECK(!identifier_new(file, space, space == SPACE_UDP ? TYPE_UD : TYPE_RC, 9, &id));
    return id;
}

static int bind_it(struct identifier *id, const char *text, uint16_t port)
{
    struct ip address = ip(text, port);
    int error = identifier_bind(id, &address);
    if (!error)
        id->state = CM_BOUND;
    return error;
}

static void addresses(void)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(0x1234)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(0x1234), .sin6_scope_id = 7}, back;
    struct ip found = ip("10.1.2.3", 0x1234);
    CHECK(found.port == 0x1234 && found.version == 4 && found.gid[10] == 0xff && found.gid[12] == 10);
    memset(&back, 0xAA, sizeof back);
    ip_write(&found, &back);
    inet_pton(AF_INET, "10.1.2.3", &four.sin_addr);
    CHECK(!memcmp(&back, &four, sizeof four) && ((char *)&back)[sizeof four] == (char)0xAA);
    found = ip("fe80::1", 0x1234);
    CHECK(found.port == 0x1234 && found.version == 6 && found.scope == 7);
    ip_write(&found, &back);
    inet_pton(AF_INET6, "fe80::1", &six.sin6_addr);
    CHECK(!memcmp(&back, &six, sizeof six));
    CHECK(ip_parse(&four, sizeof four - 1, &found) == EINVAL && ip_parse(&six, sizeof six - 1, &found) == EINVAL);
    CHECK(ip_parse(&four, 1, &found) && !ip_parse(&four, sizeof four, &found));
    six.sin6_family = AF_UNIX;
    CHECK(ip_parse(&six, sizeof six, &found) == EAFNOSUPPORT);
    for (int at = 0; at < 8; at++) {
        static const char *const texts[] = {"223.0.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1",
                                            "127.0.0.1", "127.0.0.2", "::1", "ff02::1"};
        found = ip(texts[at], 0);
        CHECK(ip_is_group(&found) == (at == 1 || at == 2 || at == 7));
        CHECK(ip_is_localhost(&found) == (at == 4 || at == 6));
        CHECK(gid_is_loopback(found.gid) == (at >= 4 && at <= 6));
        CHECK(!ip_is_any(&found));
    }
    found = ip("0.0.0.0", 5);
    CHECK(ip_is_any(&found));
    found = ip("::", 5);
    CHECK(ip_is_any(&found));
}

static void numbers(void)
{
    struct identifier *ids[192], *found;
    struct event event = {.owner = NULL};
    uint32_t handle = 0;
    mallopt(M_PERTURB, 0x55); /* memory that was not cleared is not 0 */
    for (uint32_t at = 0; at < 192; at++) {
        ids[at] = new_one(one, SPACE_TCP);
        CHECK(ids[at]->handle == at && ids[at]->psn < 1 << 24);
    }
    CHECK(!identifier_find(one, 129, &found) && found == ids[129]);
    CHECK(identifier_find(two, 129, &found) == EINVAL && identifier_find(one, 191, &found) == 0);
    CHECK(identifier_find(one, 192, &found) == ENOENT && identifier_find(one, UINT32_MAX, &found) == ENOENT);
    ids[5]->port = &ports[1], ids[5]->number = 77;
    identifier_free(ids[7]), identifier_free(ids[5]);
    CHECK(ends == 1 && ended[0] == 77 && moved == 2 && identifier_find(one, 5, &found) == ENOENT);
    CHECK(new_one(one, SPACE_TCP)->handle == 5 && new_one(two, SPACE_TCP)->handle == 7);
    for (uint32_t at = 0; at < 192; at++)
        CHECK(identifier_next(&handle)->handle == at);
    CHECK(!identifier_next(&handle));
    ids[0]->request = calloc(1, sizeof *ids[0]->request); /* the program does not know of it yet */
    CHECK(identifier_find(one, 0, &found) == ENOENT);
    CHECK(!queue_event(ids[1], 4, -5) && posted->ucma.id == 1 && posted->ucma.uid == 9);
    CHECK(posted->ucma.event == 4 && posted->ucma.status == (uint32_t)-5 && posted->owner == ids[1]);
    ids[2]->request = &event, event.child = ids[2]; /* of a file that ends */
    identifier_free(ids[2]);
    CHECK(!event.child);
    identifiers_forget();
    CHECK(new_one(one, SPACE_TCP)->handle == 0);
}

static void binding(void)
{
    struct identifier *any = new_one(one, SPACE_TCP), *first = new_one(one, SPACE_TCP);
    struct identifier *second = new_one(two, SPACE_TCP), *spare = new_one(one, SPACE_UDP);
    CHECK(bind_it(first, "10.9.9.9", 5) == EADDRNOTAVAIL && bind_it(first, "224.0.0.1", 5) == EADDRNOTAVAIL);
    CHECK(!first->bound);
    CHECK(!bind_it(first, "10.0.0.1", 5) && first->place == &places[0] && first->source.port == 5);
    CHECK(!bind_it(second, "10.0.0.2", 5) && second->place == &places[1]);
    CHECK(bind_it(any, "0.0.0.0", 5) == EADDRINUSE && !any->source.version && !any->bound);
    CHECK(!bind_it(spare, "0.0.0.0", 5)); /* of another space */
    CHECK(!bind_it(any, "::", 5));        /* of another version */
    identifier_free(any), any = new_one(one, SPACE_TCP);
    CHECK(!bind_it(any, "0.0.0.0", 0) && any->source.port >= FIRST_EPHEMERAL && any->source.port <= LAST_EPHEMERAL);
    spare = new_one(one, SPACE_TCP);
    CHECK(bind_it(spare, "10.0.0.1", any->source.port) == EADDRINUSE);
    identifier_free(any);
    CHECK(!bind_it(spare, "10.0.0.1", 6));
    any = new_one(one, SPACE_TCP);
    CHECK(bind_it(any, "10.0.0.1", 6) == EADDRINUSE);
    any->reuse = 1;
    CHECK(bind_it(any, "10.0.0.1", 6) == EADDRINUSE);
    spare->reuse = 1;
    CHECK(!bind_it(any, "10.0.0.1", 6));
    CHECK(cm_listen(any, 1) == EADDRINUSE && !any->listens && any->state == CM_BOUND);
    identifier_free(spare);
    CHECK(!cm_listen(any, 1) && any->listens);
    spare = new_one(one, SPACE_TCP), spare->reuse = 1;
    CHECK(bind_it(spare, "10.0.0.1", 6) == EADDRINUSE); /* which listens */
    /* no device is at an address of loopback: all addresses */
    CHECK(bind_it(spare, "127.0.0.1", 6) == EADDRINUSE && !spare->bound && !bind_it(spare, "127.0.0.1", 7));
    CHECK(!spare->place && spare->source.gid[12] == 127 && spare->source.port == 7);
    first = new_one(one, SPACE_TCP);
    CHECK(bind_it(first, "10.0.0.2", 7) == EADDRINUSE && !first->place && !bind_it(first, "::1", 7));
    CHECK(bind_it(new_one(one, SPACE_TCP), "127.0.0.2", 8) == EADDRNOTAVAIL);
    /* whose connection a listener has been asked for has no port of its own */
    spare = new_one(one, SPACE_TCP), spare->source = first->source, spare->source.port = 9;
    CHECK(!bind_it(new_one(one, SPACE_TCP), "::1", 9));
    no_devices = 1;
    CHECK(bind_it(spare, "127.0.0.1", 10) == ENODEV);
}

static void listening(void)
{
    struct identifier *first = new_one(one, SPACE_TCP), *second = new_one(one, SPACE_TCP), *six;
    struct softhca_cm_header entry = {.listener = 101, .qp_type = TYPE_RC};
    struct ip_header header = {.ip = 0x40};
    CHECK(!bind_it(first, "10.0.0.1", 5) && !cm_listen(first, 0));
    CHECK(last_backlog == BACKLOG && last_service == ((uint64_t)SPACE_TCP << 16 | 5) && first->state == CM_LISTENING);
    CHECK(cm_listen(first, 0) == EINVAL);
    memcpy(header.destination + 12, places[0].address + 12, 4);
    CHECK(cm_listener(&ports[0], &entry, &header) == first && !cm_listener(&ports[1], &entry, &header));
    entry.qp_type = TYPE_UC;
    CHECK(!cm_listener(&ports[0], &entry, &header));
    entry.qp_type = TYPE_RC, entry.listener = 102;
    CHECK(!cm_listener(&ports[0], &entry, &header));
    entry.listener = 101, header.destination[15]++;
    CHECK(!cm_listener(&ports[0], &entry, &header));
    header.destination[15]--;
    /* IPv6 at any address shares the adapter's listener, where it is told apart by the version */
    six = new_one(one, SPACE_TCP), six->family_only = 1;
    CHECK(!bind_it(six, "::", 5) && !cm_listen(six, 2000) && last_backlog == MOST_BACKLOG);
    CHECK(six->listening_count == 2 && six->listening[0].number == 101 && six->listening[1].number == 102);
    CHECK(cm_listener(&ports[0], &entry, &header) == first);
    header.ip = 0x60;
    CHECK(cm_listener(&ports[0], &entry, &header) == six);
    /* another port space has a listener of its own */
    second->qp_type = TYPE_UD, second->space = SPACE_UDP;
    CHECK(!bind_it(second, "10.0.0.2", 5) && !cm_listen(second, 1) && second->listening[0].number == 103);
    identifier_free(second), second = new_one(one, SPACE_TCP);
    CHECK(ends == 1 && ended[0] == 103);
    ends = 0;
    identifier_free(first);
    CHECK(ends == 0);
    header.ip = 0x40;
    CHECK(!cm_listener(&ports[0], &entry, &header)); /* `family_only` */
    six->family_only = 0;
    CHECK(cm_listener(&ports[0], &entry, &header) == six);
    identifier_free(six);
    CHECK(ends == 2 && ended[0] + ended[1] == 203);
    first = new_one(one, SPACE_TCP); /* localhost: requests to all addresses */
    listened = 0, ends = 0;
    CHECK(!bind_it(first, "127.0.0.1", 5) && !cm_listen(first, 1) && first->listening_count == 2);
    CHECK(cm_listener(&ports[0], &entry, &header) == first);
    identifier_free(first);
    /* one that is refused by its second port has none, and may try again */
    CHECK(!bind_it(second, "0.0.0.0", 8));
    listened = 0, ends = 0, refuses = 1;
    CHECK(cm_listen(second, 1) == ENOMEM && second->state == CM_BOUND && !second->listens);
    CHECK(!second->listening && !second->listening_count && ends == 1 && ended[0] == 101);
    refuses = 0;
    CHECK(!cm_listen(second, MOST_BACKLOG + 1) && last_backlog == MOST_BACKLOG);
    second->state = CM_BOUND, cm_stop_listening(second), second->listens = 0;
    CHECK(!cm_listen(second, 1024) && second->listening_count == 2 && last_backlog == 1024);
    /* unbound: at any IPv4 address, with a port of its own */
    first = new_one(one, SPACE_UDP);
    CHECK(!cm_listen(first, 1) && first->bound && first->source.port && first->source.version == 4);
    entry.kind = SOFTHCA_CM_SIDR_REQUEST, entry.listener = first->listening[1].number;
    CHECK(cm_listener(&ports[1], &entry, &header) == first);
    /* who asks with the sending end of XRC is answered with the receiving one */
    first = new_one(one, SPACE_IB), first->qp_type = TYPE_XRC_RECV;
    CHECK(!cm_listen(first, 1));
    entry.kind = SOFTHCA_CM_REQUEST, entry.listener = first->listening[0].number, entry.qp_type = TYPE_XRC_SEND;
    CHECK(cm_listener(&ports[0], &entry, &header) == first);
    entry.qp_type = TYPE_XRC_RECV - 5;
    CHECK(!cm_listener(&ports[0], &entry, &header));
}

/* Listeners of one port number: which share one of the adapter's, and when that ends. */
static void sharing(void)
{
    struct identifier *first = new_one(one, SPACE_TCP), *six = new_one(one, SPACE_TCP);
    struct ip address = ip("fd00::1", 0);
    CHECK(!bind_it(first, "10.0.0.1", 5) && !cm_listen(first, 1) && first->listening[0].number == 101);
    /* IPv6 at any address takes requests to IPv4 ones too, unless it says that it does not */
    CHECK(!bind_it(six, "::", 5) && !cm_listen(six, 1) && six->listening[0].number == 102);
    identifier_free(six);
    /* at an address of its own it is told apart by that */
    memcpy(places[1].address, address.gid, 16), places[1].port = &ports[0];
    six = new_one(one, SPACE_TCP), six->family_only = 0;
    CHECK(!bind_it(six, "fd00::1", 5) && !cm_listen(six, 1) && six->listening[0].number == 101);
    identifier_free(six);
    /* numbers are each port's own */
    places[1].port = &ports[1], listened = 0, ends = 0;
    six = new_one(one, SPACE_TCP);
    CHECK(!bind_it(six, "fd00::1", 6) && !cm_listen(six, 1) && six->listening[0].number == 101);
    identifier_free(first);
    CHECK(ends == 1 && ended[0] == 101);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"addresses", addresses}, {"numbers", numbers}, {"binding", binding}, {"listening", listening},
        {"sharing", sharing},
    };
    struct ip address = ip("10.0.0.1", 0);
    one = calloc(1, sizeof *one), two = calloc(1, sizeof *two);
    memcpy(places[0].address, address.gid, 16);
    address = ip("10.0.0.2", 0);
    memcpy(places[1].address, address.gid, 16);
    for (size_t at = 0; argc == 2 && at < sizeof cases / sizeof *cases; at++)
        if (!strcmp(argv[1], cases[at].name)) {
            cases[at].run();
            return 0;
        }
    return 2;
}
