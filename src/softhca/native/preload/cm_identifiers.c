/* Identifiers: their numbers, addresses, port numbers and states; the rules are those of
   `softhca.driver.rdmacm`, and the states are made of its table. */
#include "cm.h"
#include "../kernel.h"

#define FIRST_EPHEMERAL 32768U
#define LAST_EPHEMERAL 60999U

static struct identifier **table;
static uint32_t capacity, hint;

int identifier_new(struct file *file, uint16_t space, uint8_t qp_type, uint64_t uid, struct identifier **found)
{
    struct identifier *id = calloc(1, sizeof *id), **grown;
    uint32_t handle = 0;
    if (!id)
        return ENOMEM;
    while (hint < capacity && table[hint])
        hint++;
    handle = hint;
    if (handle == capacity) {
        grown = realloc(table, (capacity + 64) * sizeof *grown);
        if (!grown) {
            free(id);
            return ENOMEM;
        }
        table = grown;
        memset(table + capacity, 0, 64 * sizeof *table);
        capacity += 64;
    }
    if (random_bytes(&id->psn, sizeof id->psn, GRND_NONBLOCK) != (ssize_t)sizeof id->psn)
        id->psn = (uint32_t)((uintptr_t)id >> 4);
    id->psn &= 0xffffff;
    id->file = file;
    id->space = space;
    id->qp_type = qp_type;
    id->uid = uid;
    id->handle = handle;
    id->state = CM_IDLE;
    id->ack_timeout = id->family_only = -1;
    id->qkey = UDP_QKEY;
    table[handle] = id;
    *found = id;
    return 0;
}

int identifier_find(struct file *file, uint32_t handle, struct identifier **found)
{
    if (handle >= capacity || !table[handle] || table[handle]->request)
        return ENOENT;
    *found = table[handle];
    return (*found)->file == file ? 0 : EINVAL;
}

struct identifier *identifier_next(uint32_t *handle)
{
    while (*handle < capacity && !table[*handle])
        ++*handle;
    return *handle < capacity ? table[(*handle)++] : NULL;
}

/* Where an exchange is under way, the peer is notified; pending events are dropped. */
void identifier_free(struct identifier *id)
{
    table[id->handle] = NULL;
    if (id->handle < hint)
        hint = id->handle;
    if (id->request)
        id->request->child = NULL; /* all of its file end */
    file_move(id->file, NULL, id, NULL);
    cm_stop_listening(id);
    if (id->port)
        cm_end(id->port, id->number);
    while (id->groups) {
        struct group *next = id->groups->next;
        free(id->groups);
        id->groups = next;
    }
    free(id);
}

/* In a forked child: they are the parent's. */
void identifiers_forget(void)
{
    table = NULL;
    capacity = hint = 0;
}

int state_after(const struct identifier *id, int input, uint8_t *state)
{
    int after = cm_transitions[id->state][input];
    if (after < 0)
        return EINVAL;
    *state = (uint8_t)after;
    return 0;
}

struct event *event_new(struct identifier *owner, uint32_t kind)
{
    struct event *event = calloc(1, sizeof *event);
    if (!event)
        return NULL;
    event->owner = owner;
    event->ucma.uid = owner->uid;
    event->ucma.id = owner->handle;
    event->ucma.event = kind;
    return event;
}

int queue_event(struct identifier *id, uint32_t kind, int status)
{
    struct event *event = event_new(id, kind);
    if (!event)
        return ENOMEM;
    event->ucma.status = (uint32_t)status;
    file_post(id->file, event);
    return 0;
}

/* Port numbers: two identifiers have one only at different addresses (without a place one is at all of them), or
   where both allow it and none of them listens. */

static int same_numbers(const struct identifier *one, const struct identifier *other, uint16_t port)
{
    return one != other && other->bound && one->space == other->space && other->source.port == port
        && one->source.version == other->source.version;
}

static int meet(const struct identifier *one, const struct identifier *other, int listens)
{
    if (one->reuse && other->reuse && !listens && !other->listens)
        return 0;
    return !one->place || !other->place || !memcmp(one->source.gid, other->source.gid, 16);
}

static int port_is_free(const struct identifier *id, uint16_t port)
{
    struct identifier *each;
    uint32_t handle = 0;
    while ((each = identifier_next(&handle)))
        if (same_numbers(id, each, port))
            return 0;
    return 1;
}

static int port_meets(const struct identifier *id, int listens)
{
    struct identifier *each;
    uint32_t handle = 0;
    while ((each = identifier_next(&handle)))
        if (same_numbers(id, each, id->source.port) && meet(id, each, listens))
            return EADDRINUSE;
    return 0;
}

static int take_port(struct identifier *id)
{
    uint32_t count = LAST_EPHEMERAL + 1 - FIRST_EPHEMERAL, start = 0;
    if (id->source.port)
        return port_meets(id, 0);
    if (random_bytes(&start, sizeof start, GRND_NONBLOCK) != (ssize_t)sizeof start)
        start = id->psn;
    for (uint32_t step = 0; step < count; step++) {
        uint16_t port = (uint16_t)(FIRST_EPHEMERAL + (start % count + step) % count);
        if (port_is_free(id, port)) {
            id->source.port = port;
            return 0;
        }
    }
    return EADDRNOTAVAIL;
}

int identifier_listen_port(struct identifier *id)
{
    int error = port_meets(id, 1);
    id->listens = !error;
    return error;
}

/* Take an address and a port; the state is the caller's.  Localhost is all addresses where no device is at one
   of loopback, as with the kernel. */
int identifier_bind(struct identifier *id, const struct ip *address)
{
    struct place *place = NULL;
    int error;
    if (ip_is_group(address))
        return EADDRNOTAVAIL;
    error = ip_is_any(address) ? 0 : place_at(address, &place);
    if (error && !(error == EADDRNOTAVAIL && ip_is_localhost(address)))
        return error;
    id->source = *address;
    id->place = place;
    if (place)
        memcpy(id->source.gid, place->address, 16); /* localhost stands for another one */
    error = take_port(id);
    if (error) {
        memset(&id->source, 0, sizeof id->source);
        id->place = NULL;
        return error;
    }
    id->bound = 1;
    return 0;
}
