/* The devices of SOFTHCA_DEVICES that are adapter processes, as the connection manager uses them: an
   attachment each, and a thread that takes what happens to connections on their ports. */
#include "cm.h"

#include <arpa/inet.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MOST_DEVICES 64
#define ENTRIES 1024U
#define ROCE_PORT 4791
#define STACK_BYTES (1u << 20)
#define ETHERNET 2
#define PREFIX_BYTES 8 /* of a GID: those of its subnet */
#define QUESTION_MS 1 /* an agent tells nobody of what has come */

static struct device *devices;
static int devices_read;

/* The next word of SOFTHCA_DEVICES that is NAME=unix:PLACE, whose lengths stand in the two numbers; NULL: it
   was the last one. */
static const char *next_word(const char **text, size_t *name, size_t *place)
{
    while (**text) {
        size_t length = strcspn(*text, ",");
        const char *word = *text, *end = word + length, *equals;
        *text = end + (*end == ',');
        while (word < end && *word == ' ')
            word++;
        while (end > word && end[-1] == ' ')
            end--;
        equals = memchr(word, '=', (size_t)(end - word));
        if (!equals || equals == word || end - equals <= 6 || memcmp(equals, "=unix:", 6))
            continue;
        *name = (size_t)(equals - word);
        *place = (size_t)(end - equals) - 6;
        return word;
    }
    return NULL;
}

int cm_serves(void)
{
    const char *text = getenv("SOFTHCA_DEVICES");
    size_t name, place;
    return text && next_word(&text, &name, &place);
}

static void read_devices(void)
{
    const char *text = getenv("SOFTHCA_DEVICES"), *word;
    struct device **last = &devices;
    size_t name, place;
    int count = 0;
    devices_read = 1;
    while (text && count < MOST_DEVICES && (word = next_word(&text, &name, &place))) {
        struct device *device = calloc(1, sizeof *device);
        if (!device || name >= sizeof device->name || place >= sizeof device->socket) {
            free(device);
            continue;
        }
        memcpy(device->name, word, name);
        memcpy(device->socket, word + name + 6, place);
        device->events = device->bell = -1;
        *last = device;
        last = &device->next;
        count++;
    }
}

/* All of them, which are read at the first time; NULL: there is none. */
static struct device *listed(void)
{
    if (!devices_read)
        read_devices();
    return devices;
}

/* Attaching */

static int places_grow(struct device *device, uint32_t room)
{
    struct place *grown = room > device->place_room ? realloc(device->places, room * sizeof *grown) : NULL;
    if (room <= device->place_room)
        return 0;
    if (!grown)
        return ENOMEM;
    device->places = grown;
    device->place_room = room;
    return 0;
}

int place_add(struct device *device, const struct place *place)
{
    int error = places_grow(device, device->place_count + 1);
    if (!error)
        device->places[device->place_count++] = *place;
    return error;
}

/* Of RoCE ports the empty entries of GID tables are places too, which addresses may take later. */
static int is_used(const struct place *place)
{
    static const uint8_t none[16];
    return memcmp(place->gid, none, sizeof none) != 0;
}

static int learn_places(struct device *device, struct port *port)
{
    struct softhca_query_port query = {.port_num = port->number};
    struct softhca_query_port_reply attributes;
    int error;
    CALL(device->host, error, query_port, &query, &attributes);
    for (uint32_t index = 0; !error && index < attributes.gid_tbl_len && index < 256; index++) {
        struct place place = {.port = port, .index = (uint8_t)index, .mtu = (uint8_t)attributes.active_mtu,
                              .native = attributes.link_layer != ETHERNET};
        struct softhca_query_gid ask = {.port_num = port->number, .index = index};
        struct softhca_query_gid_reply gid;
        CALL(device->host, error, query_gid, &ask, &gid);
        if (error)
            continue;
        memcpy(place.gid, gid.gid, 16);
        memcpy(place.address, gid.gid, 16);
        if (!place.native || is_used(&place))
            error = place_add(device, &place);
    }
    return error;
}

static int learn(struct device *device)
{
    struct softhca_query_device_reply reply;
    int error;
    GET(device->host, error, query_device, &reply);
    if (error)
        return error;
    device->guid = __builtin_bswap64(reply.node_guid);
    device->most_resources = (uint8_t)(reply.max_qp_rd_atom < 255 ? reply.max_qp_rd_atom : 254);
    device->most_depth = (uint8_t)(reply.max_qp_init_rd_atom < 255 ? reply.max_qp_init_rd_atom : 254);
    device->ports = calloc((size_t)reply.phys_port_cnt + 1, sizeof *device->ports);
    if (!device->ports)
        return ENOMEM;
    device->port_count = reply.phys_port_cnt;
    for (uint32_t i = 0; i < device->port_count && !error; i++) {
        device->ports[i].device = device;
        device->ports[i].number = (uint8_t)(i + 1);
        error = learn_places(device, &device->ports[i]);
    }
    /* each port may have an IP address besides, which is known later */
    return error ? error : places_grow(device, device->place_count + device->port_count);
}

/* Ask which GID stands at a place of a RoCE port now; whether it is another one. */
static int place_renew(struct place *place)
{
    struct softhca_query_gid ask = {.port_num = place->port->number, .index = place->index};
    struct softhca_query_gid_reply reply;
    int error;
    if (place->native || place->port->device->gone)
        return 0;
    CALL(place->port->device->host, error, query_gid, &ask, &reply);
    if (error || !memcmp(place->gid, reply.gid, 16))
        return 0;
    memcpy(place->gid, reply.gid, 16);
    memcpy(place->address, reply.gid, 16);
    return 1;
}

static int places_renew(struct device *device)
{
    int renewed = 0;
    for (uint32_t i = 0; device->host && i < device->place_count; i++)
        renewed |= place_renew(&device->places[i]);
    return renewed;
}

static void take_entries(struct port *port)
{
    unsigned char entry[SOFTHCA_CM_ENTRY_BYTES];
    struct softhca_cm_header header;
    while (ring_take(&port->ring, entry, sizeof entry) == (int)sizeof entry) {
        ring_release(&port->ring);
        memcpy(&header, entry, sizeof header);
        if (header.private_bytes > SOFTHCA_CM_PRIVATE_BYTES)
            header.private_bytes = SOFTHCA_CM_PRIVATE_BYTES;
        cm_entry(port, &header, entry + sizeof header);
    }
}

/* Whether an identifier goes with a device: it is bound to it, or listens at all and it was the last one. */
static int is_removed(const struct identifier *id, const struct device *device)
{
    if (id->place)
        return id->place->port->device == device;
    for (uint32_t i = 0; i < id->listening_count; i++)
        if (!id->listening[i].port->device->gone)
            return 0;
    return id->listening_count != 0;
}

/* Wait for something to take; whether the device is still there. */
static int wait_for_news(const struct device *device, int asked)
{
    struct pollfd news[] = {{.fd = device->events, .events = POLLIN}, {.fd = device->bell, .events = POLLIN}};
    struct softhca_event event;
    uint64_t rung;
    if (poll(news, 2, asked ? QUESTION_MS : -1) < 0)
        return errno == EINTR;
    if (news[1].revents && read(device->bell, &rung, sizeof rung) < 0)
        return 0;
    return !news[0].revents || recv(device->events, &event, sizeof event, MSG_WAITALL) == (ssize_t)sizeof event;
}

/* Take what has come on all open ports of a device; whether subnet administration is to answer still. */
static int take_all(struct device *device)
{
    for (uint32_t i = 0; i < device->port_count; i++)
        if (device->ports[i].open)
            take_entries(&device->ports[i]);
    return routes_take(device);
}

static void *watch(void *argument)
{
    struct device *device = argument;
    struct identifier *id;
    uint32_t handle = 0;
    int cancel_state, asked = 0;
    while (wait_for_news(device, asked)) {
        cm_lock(&cancel_state);
        asked = !device->closing && take_all(device);
        cm_unlock(cancel_state);
    }
    cm_lock(&cancel_state);
    device->gone = 1;
    while (!device->closing && (id = identifier_next(&handle)))
        if (id->uid && is_removed(id, device) && !state_after(id, CM_REMOVAL, &id->state)) {
            id->goodbye = 0;
            queue_event(id, UCMA_DEVICE_REMOVAL, 0);
        }
    cm_unlock(cancel_state);
    return NULL;
}

/* A thread that takes no signals of the program's. */
static int start_thread(struct device *device)
{
    sigset_t every, before;
    pthread_attr_t attributes;
    int error;
    sigfillset(&every);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    error = pthread_create(&device->thread, &attributes, watch, device);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

static void detach(struct device *device)
{
    if (device->events >= 0)
        close(device->events);
    if (device->bell >= 0)
        close(device->bell);
    if (device->host)
        host_detach(device->host);
    free(device->ports);
    free(device->places);
    device->events = device->bell = -1;
    device->host = NULL;
    device->ports = NULL;
    device->places = NULL;
    device->port_count = device->place_count = device->place_room = 0;
}

static int attach(struct device *device)
{
    int error;
    if (device->host && !device->gone)
        addresses_learn(device);
    if (device->host)
        return device->gone ? EIO : 0;
    device->host = host_attach(device->socket);
    error = device->host ? learn(device) : errno;
    if (!error)
        error = host_open_channel(device->host, 0, &device->channel, &device->events);
    if (!error && (device->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        error = errno;
    if (!error)
        addresses_learn(device);
    if (!error)
        error = start_thread(device);
    if (error) {
        if (getenv("SOFTHCA_DEBUG"))
            fprintf(stderr, "softhca: %s at %s: %s\n", device->name, device->socket, strerror(error));
        detach(device);
    }
    return error;
}

int port_open(struct port *port)
{
    struct device *device = port->device;
    struct softhca_open_cm fields = {.port_num = port->number, .channel = device->channel,
                                     .entries = ENTRIES, .body_bytes = ENTRIES * SOFTHCA_CM_ENTRY_BYTES};
    struct softhca_open_cm_reply reply;
    int error;
    if (port->open)
        return device->gone ? EIO : 0;
    error = host_make_ring(device->host, &port->ring, ENTRIES, fields.body_bytes);
    if (error)
        return error;
    fields.frames = &port->ring.run;
    fields.frames_count = 1;
    CALL(device->host, error, open_cm, &fields, &reply);
    if (error) {
        host_free_ring(device->host, &port->ring);
        return error;
    }
    port->cm = reply.cm;
    port->open = 1;
    return 0;
}

struct device *devices_take(void)
{
    struct device *found = devices;
    for (struct device *each = found; each; each = each->next)
        each->closing = 1;
    devices = NULL;
    devices_read = 0;
    return found;
}

/* Without the lock, which a device's thread may be waiting for. */
void devices_free(struct device *list)
{
    while (list) {
        struct device *next = list->next;
        if (list->host) {
            shutdown(list->events, SHUT_RDWR);
            pthread_join(list->thread, NULL);
        }
        detach(list);
        free(list);
        list = next;
    }
}

void devices_abandon(void)
{
    for (struct device *each = devices; each; each = each->next) {
        if (each->host)
            host_abandon(each->host);
        if (each->events >= 0)
            close(each->events);
        if (each->bell >= 0)
            close(each->bell);
    }
    devices = NULL;
    devices_read = 0;
}

/* Addresses of devices: the same rules as `softhca.driver.rdmacm.local_devices`. */

struct wanted {
    const struct ip *address;
    uint8_t gid[16];
};

typedef int fit(const struct place *place, const struct wanted *wanted);

static int has_address(const struct place *place, const struct wanted *wanted)
{
    return !memcmp(place->address, wanted->address->gid, 16);
}

static int has_gid(const struct place *place, const struct wanted *wanted)
{
    return !memcmp(place->address, wanted->gid, 16);
}

static int is_of_version(const struct place *place, const struct wanted *wanted)
{
    struct ip ip;
    ip_of_gid(place->address, 0, &ip);
    return ip.version == wanted->address->version;
}

int shares_subnet(const struct place *place, const uint8_t *gid)
{
    return place->native && !memcmp(place->gid, gid, PREFIX_BYTES);
}

static int is_in_subnet(const struct place *place, const struct wanted *wanted)
{
    return shares_subnet(place, wanted->address->gid);
}

/* A native GID leads to no other subnet. */
static int leads_anywhere(const struct place *place, const struct wanted *wanted)
{
    return (!place->native || memcmp(place->gid, place->address, 16)) && is_of_version(place, wanted);
}

static int is_on_loopback(const struct place *place, const struct wanted *wanted)
{
    return gid_is_loopback(place->address) && is_of_version(place, wanted);
}

/* The first known place that fits best, by the first of the fits for which there is one: its number is `by`. */
static int choose_known(fit *const *fits, int count, const struct wanted *wanted, int otherwise,
                        struct place **found, int *by)
{
    if (!listed())
        return ENODEV;
    for (int i = 0; i < count; i++)
        for (struct device *each = listed(); each; each = each->next) {
            int error = attach(each);
            if (error)
                otherwise = error;
            for (uint32_t j = 0; !error && j < each->place_count; j++)
                if (is_used(&each->places[j]) && fits[i](&each->places[j], wanted)) {
                    *found = &each->places[j];
                    *by = i;
                    return 0;
                }
        }
    return otherwise;
}

/* The same of the places that there are: addresses come and go.  The first `exact` fits are of one address; who
   has found it, and there still, need not ask for all. */
static int choose(fit *const *fits, int count, int exact, const struct wanted *wanted, int otherwise,
                  struct place **found)
{
    int by = count, renewed = 0, error = choose_known(fits, count, wanted, otherwise, found, &by);
    if (!error && by < exact && !place_renew(*found))
        return 0;
    for (struct device *each = listed(); each; each = each->next)
        renewed |= places_renew(each);
    return renewed || by < exact ? choose_known(fits, count, wanted, otherwise, found, &by) : error;
}

int place_at(const struct ip *address, struct place **found)
{
    fit *const fits[] = {has_address, is_on_loopback};
    struct wanted wanted = {.address = address};
    return choose(fits, ip_is_localhost(address) ? 2 : 1, 1, &wanted, EADDRNOTAVAIL, found);
}

/* The address that the kernel's routes say packets to `destination` leave from. */
static int source_towards(const struct ip *destination, uint8_t *gid)
{
    struct sockaddr_storage address;
    socklen_t bytes = destination->version == 4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    struct ip to = *destination, from;
    int probe = socket(to.version == 4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), found = 0;
    if (probe < 0)
        return 0;
    to.port = ROCE_PORT;
    memset(&address, 0, sizeof address);
    ip_write(&to, &address);
    if (!connect(probe, (struct sockaddr *)&address, bytes)) {
        bytes = sizeof address;
        found = !getsockname(probe, (struct sockaddr *)&address, &bytes) && !ip_parse(&address, bytes, &from);
    }
    close(probe);
    if (found)
        memcpy(gid, from.gid, 16);
    return found;
}

int place_towards(const struct ip *destination, struct place **found)
{
    fit *fits[4] = {has_address};
    struct wanted wanted = {.address = destination};
    int count = 1, exact;
    if (source_towards(destination, wanted.gid))
        fits[count++] = has_gid;
    exact = count;
    fits[count++] = is_in_subnet;
    fits[count++] = leads_anywhere;
    return choose(fits, count, exact, &wanted, ENETUNREACH, found);
}

void devices_attach(void)
{
    for (struct device *each = listed(); each; each = each->next)
        attach(each);
}

static int is_first(const struct device *device, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (device->places[i].port == device->places[index].port)
            return 0;
    return 1;
}

struct place **places_all(uint32_t *count)
{
    struct place **found = NULL, **grown;
    *count = 0;
    for (struct device *each = listed(); each; each = each->next) {
        if (attach(each))
            continue;
        for (uint32_t i = 0; i < each->place_count; i++) {
            if (!is_first(each, i))
                continue;
            grown = realloc(found, (*count + 1) * sizeof *found);
            if (!grown)
                continue;
            found = grown;
            found[(*count)++] = &each->places[i];
        }
    }
    return found;
}

static struct place *known_place_of(struct port *port, const uint8_t *gid, const uint8_t *address, int *best)
{
    struct place *found = NULL;
    *best = -1;
    for (uint32_t i = 0; i < port->device->place_count; i++) {
        struct place *each = &port->device->places[i];
        int fit = !memcmp(each->gid, gid, 16) ? 1 + !memcmp(each->address, address, 16) : 0;
        if (each->port != port || fit <= *best)
            continue;
        *best = fit;
        found = each;
    }
    return found;
}

struct place *place_of(struct port *port, const uint8_t *gid, const uint8_t *address)
{
    int best;
    struct place *found = known_place_of(port, gid, address, &best);
    return best < 1 && places_renew(port->device) ? known_place_of(port, gid, address, &best) : found;
}
