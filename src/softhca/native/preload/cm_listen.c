/* Identifiers that listen.  Those of one port number that requests tell apart share one listener of the adapter. */
#include "cm.h"

#define MOST_BACKLOG 1024U
#define BACKLOG 128U

/* Whether requests for one service ID tell two identifiers apart: by the address, or by its version. */
static int apart(const struct identifier *one, const struct identifier *other)
{
    const struct identifier *six = one->source.version == 6 ? one : other;
    if (one->source.version == other->source.version)
        return one->place && other->place && memcmp(one->place->address, other->place->address, 16);
    return six->place || six->family_only == 1;
}

static int is_listening(const struct identifier *id, const struct port *port, uint32_t number)
{
    for (uint32_t i = 0; i < id->listening_count; i++)
        if (id->listening[i].port == port && id->listening[i].number == number)
            return 1;
    return 0;
}

void cm_stop_listening(struct identifier *id)
{
    uint32_t count = id->listening_count;
    id->listening_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct listening *each = &id->listening[i];
        struct identifier *other;
        uint32_t handle = 0;
        while ((other = identifier_next(&handle)) && !is_listening(other, each->port, each->number))
            ;
        if (!other)
            cm_end(each->port, each->number);
    }
    free(id->listening);
    id->listening = NULL;
}

/* The number of a listener for the same service ID, if all who share it are apart from `id`. */
static int shared_listener(const struct identifier *id, const struct port *port, uint32_t *number)
{
    struct identifier *other;
    uint32_t handle = 0;
    int found = 0;
    while ((other = identifier_next(&handle)))
        for (uint32_t i = 0; other != id && i < other->listening_count; i++) {
            if (other->listening[i].port != port || other->space != id->space
                || other->source.port != id->source.port)
                continue;
            if (!apart(id, other))
                return 0;
            *number = other->listening[i].number;
            found = 1;
        }
    return found;
}

static int listen_on(struct identifier *id, struct port *port, uint32_t backlog)
{
    struct softhca_cm_listen fields = {.service_id = service_id(id->space, id->source.port),
                                       .backlog = backlog};
    struct softhca_cm_listen_reply reply;
    int error = port_open(port);
    if (error)
        return error;
    fields.cm = port->cm;
    if (!shared_listener(id, port, &reply.id))
        CALL(host_of(port), error, cm_listen, &fields, &reply);
    if (!error)
        id->listening[id->listening_count++] = (struct listening){port, reply.id};
    return error;
}

static int listen_everywhere(struct identifier *id, struct place **places, uint32_t count, uint32_t backlog)
{
    int error = count ? 0 : ENODEV;
    id->listening = calloc(count, sizeof *id->listening);
    if (count && !id->listening)
        return ENOMEM;
    for (uint32_t i = 0; i < count && !error; i++)
        error = listen_on(id, places[i]->port, backlog);
    if (!error)
        return 0;
    cm_stop_listening(id);
    return error;
}

int cm_listen(struct identifier *id, uint32_t backlog)
{
    struct ip any = {.version = 4, .gid = {[10] = 0xff, [11] = 0xff}};
    struct place **all = NULL;
    uint32_t count = 1;
    uint8_t after;
    int error = state_after(id, CM_LISTEN, &after);
    if (!error && id->state == CM_IDLE) {
        error = identifier_bind(id, &any);
        id->state = error ? CM_IDLE : CM_BOUND;
    }
    if (!error)
        error = identifier_listen_port(id);
    if (error)
        return error;
    backlog = backlog == 0 ? BACKLOG : backlog < MOST_BACKLOG ? backlog : MOST_BACKLOG;
    if (!id->place)
        all = places_all(&count);
    error = listen_everywhere(id, id->place ? &id->place : all, count, backlog);
    free(all);
    if (error)
        id->listens = 0;
    else
        id->state = after;
    return error;
}

/* Whether a request to these addresses is for an identifier bound as `id` is. */
static int is_for(const struct identifier *id, const struct ip_header *header, const struct port *port)
{
    int version = header->ip >> 4;
    uint8_t gid[16];
    read_address(gid, header->destination, version);
    if (id->place)
        return !memcmp(gid, id->place->address, 16) && id->place->port == port;
    return version == id->source.version || (id->source.version == 6 && id->family_only != 1);
}

/* The type that a listener for a request has. */
static uint8_t entry_type(const struct softhca_cm_header *entry)
{
    if (entry->kind == SOFTHCA_CM_SIDR_REQUEST)
        return TYPE_UD;
    return entry->qp_type == TYPE_XRC_SEND ? TYPE_XRC_RECV : entry->qp_type;
}

struct identifier *cm_listener(const struct port *port, const struct softhca_cm_header *entry,
                               const struct ip_header *header)
{
    struct identifier *id;
    uint32_t handle = 0;
    while ((id = identifier_next(&handle)))
        if (is_listening(id, port, entry->listener) && entry_type(entry) == id->qp_type && is_for(id, header, port))
            return id;
    return NULL;
}
