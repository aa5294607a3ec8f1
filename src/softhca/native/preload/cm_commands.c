/* The commands of the rdma_cm device that concern an identifier alone: what is not said to a peer. */
#include "cm.h"

#include <arpa/inet.h>
#include <stdio.h>

#define AF_IB_ 27
#define COMM_EST 4U
#define PATH_MS 2000U
#define ANSWER(response, value, room) answer(response, &(value), sizeof(value), room)

union fields {
    struct ucma_create_id create;
    struct ucma_query query;
    struct ucma_bind_ip bind_ip;
    struct ucma_bind bind;
    struct ucma_resolve_ip resolve_ip;
    struct ucma_resolve_addr resolve;
    struct ucma_number number;
    struct ucma_connect connect;
    struct ucma_accept accept;
    struct ucma_reject reject;
    uint32_t id;
    struct ucma_set_option option;
    struct ucma_join_ip_mcast join_ip;
    struct ucma_join_mcast join;
    struct ucma_migrate_id migrate;
    struct ucma_write_event write_event;
};

static void answer(uint64_t response, const void *value, size_t bytes, size_t room)
{
    memcpy((void *)(uintptr_t)response, value, bytes < room ? bytes : room);
}

/* The type of queue pairs in a port space; 0: there is none such. */
static uint8_t type_in(const struct ucma_create_id *asked)
{
    if (asked->ps == SPACE_TCP || asked->ps == SPACE_UDP)
        return asked->ps == SPACE_TCP ? TYPE_RC : TYPE_UD;
    if (asked->ps != SPACE_IB)
        return 0;
    switch (asked->qp_type) {
    case TYPE_RC: case TYPE_UC: case TYPE_UD: case TYPE_XRC_SEND: case TYPE_XRC_RECV:
        return asked->qp_type;
    }
    return 0;
}

static int create_id(struct file *file, const union fields *fields, size_t room)
{
    struct identifier *id;
    uint32_t handle;
    int error;
    if (room < sizeof handle)
        return ENOSPC;
    if (!type_in(&fields->create))
        return EPROTONOSUPPORT;
    error = identifier_new(file, fields->create.ps, type_in(&fields->create), fields->create.uid, &id);
    if (error)
        return error;
    handle = id->handle;
    ANSWER(fields->create.response, handle, room);
    return 0;
}

static int destroy_id(struct identifier *id, const union fields *fields, size_t room)
{
    uint32_t reported;
    if (room < sizeof reported)
        return ENOSPC;
    reported = id->events_reported;
    identifier_free(id);
    ANSWER(fields->query.response, reported, room);
    return 0;
}

/* Addresses */

static int bind_to(struct identifier *id, const void *address, size_t bytes)
{
    struct ip ip;
    uint8_t after;
    int error = ip_parse(address, bytes, &ip);
    error = error ? error : state_after(id, CM_BIND, &after);
    error = error ? error : identifier_bind(id, &ip);
    if (error)
        return error;
    id->state = after;
    if (!id->place)
        devices_attach();
    return 0;
}

static int use_place(struct identifier *id, struct place *place)
{
    id->place = place;
    memcpy(id->source.gid, place->address, 16);
    return 0;
}

/* Bind to `source`, or to any address where that is none; it stays bound, whatever becomes of the rest, as the
   kernel's does. */
static int bind_source(struct identifier *id, const struct ip *source, const struct ip *destination)
{
    struct ip any = {.version = destination->version};
    int error;
    if (id->state != CM_IDLE)
        return 0;
    if (any.version == 4)
        any.gid[10] = any.gid[11] = 0xff;
    error = identifier_bind(id, source->version ? source : &any);
    if (!error)
        id->state = CM_BOUND;
    return error;
}

/* The address is that of a port; who has one on native links that is no GID of the subnet is asked for, and
   told later. */
static int find_port(struct identifier *id, uint32_t timeout_ms, uint8_t after)
{
    if (id->place->native && !shares_subnet(id->place, id->destination.gid) && !ip_is_group(&id->destination))
        return port_ask(id, timeout_ms);
    memcpy(id->peer_gid, id->destination.gid, 16);
    id->state = after;
    return queue_event(id, UCMA_ADDR_RESOLVED, 0);
}

static int resolve(struct identifier *id, const void *from, size_t from_bytes, const void *to,
                   size_t to_bytes, uint32_t timeout_ms)
{
    struct ip source = {.version = 0}, destination;
    struct place *place = id->place;
    uint8_t after;
    sa_family_t family = AF_UNSPEC;
    int error;
    if (from_bytes >= sizeof family)
        memcpy(&family, from, sizeof family);
    error = ip_parse(to, to_bytes, &destination);
    if (!error && family != AF_UNSPEC)
        error = ip_parse(from, from_bytes, &source);
    error = error ? error : state_after(id, CM_RESOLVE_ADDRESS, &after);
    if (!error && id->question)
        error = EINVAL;
    error = error ? error : bind_source(id, &source, &destination);
    if (error)
        return error;
    if (id->source.version != destination.version)
        error = EINVAL;
    place = id->place;
    if (!error && !place)
        error = place_towards(&destination, &place);
    if (!error && !id->place)
        error = use_place(id, place);
    if (error)
        return error;
    if (ip_is_localhost(&destination) || ip_is_any(&destination)) /* no device's: this one's */
        memcpy(destination.gid, place->address, 16);
    id->destination = destination;
    return find_port(id, timeout_ms, after);
}

static int bind_ip(struct identifier *id, const union fields *fields, size_t room)
{
    (void)room;
    return bind_to(id, &fields->bind_ip.addr, sizeof fields->bind_ip.addr);
}

static int bind_any(struct identifier *id, const union fields *fields, size_t room)
{
    (void)room;
    if (fields->bind.addr.ss_family == AF_IB_) /* so the library uses the commands for IP addresses */
        return EINVAL;
    return bind_to(id, &fields->bind.addr, fields->bind.addr_size);
}

static int resolve_ip(struct identifier *id, const union fields *fields, size_t room)
{
    const struct ucma_resolve_ip *asked = &fields->resolve_ip;
    (void)room;
    return resolve(id, &asked->src_addr, sizeof asked->src_addr, &asked->dst_addr, sizeof asked->dst_addr,
                   asked->timeout_ms);
}

static int resolve_addr(struct identifier *id, const union fields *fields, size_t room)
{
    const struct ucma_resolve_addr *asked = &fields->resolve;
    (void)room;
    return resolve(id, &asked->src_addr, asked->src_size, &asked->dst_addr, asked->dst_size,
                   asked->timeout_ms);
}

/* On native links the answer comes later. */
static int find_route(struct identifier *id, uint32_t timeout_ms)
{
    uint8_t after;
    int error = state_after(id, CM_RESOLVE_ROUTE, &after);
    if (error || id->question)
        return EINVAL;
    if (id->place->native)
        return route_ask(id, timeout_ms);
    id->state = after;
    return queue_event(id, UCMA_ROUTE_RESOLVED, 0);
}

static int resolve_route(struct identifier *id, const union fields *fields, size_t room)
{
    (void)room;
    return find_route(id, fields->number.number);
}

static int has_route(const struct identifier *id)
{
    return id->place && id->destination.version && id->state != CM_RESOLVED;
}

static int query_route(struct identifier *id, const union fields *fields, size_t room)
{
    struct ucma_route route;
    if (room < offsetof(struct ucma_route, ibdev_index))
        return ENOSPC;
    memset(&route, 0, sizeof route);
    ip_write(&id->source, &route.src_addr);
    ip_write(&id->destination, &route.dst_addr);
    route.ibdev_index = UINT32_MAX; /* which device it is the GUID says */
    if (id->place) {
        struct ucma_path *path = &route.ib_route[0];
        route.node_guid = id->place->port->device->guid;
        route.port_num = id->place->port->number;
        route.num_paths = has_route(id) ? 1 : 0;
        memcpy(path->sgid, id->place->gid, 16);
        memcpy(path->dgid, id->peer_gid, 16);
        path->pkey = id->route.known ? htons(id->route.pkey) : 0xffff;
        path->dlid = htons(id->route.dlid);
        path->sl = id->route.sl;
        path->mtu = id->route.known ? id->route.mtu : id->place->mtu;
        path->hop_limit = 64;
        path->traffic_class = id->traffic_class;
        path->reversible = 1;
        path->numb_path = 1;
        path->packet_life_time = 18;
    }
    ANSWER(fields->query.response, route, room);
    return 0;
}

static uint16_t written_bytes(const struct ip *ip)
{
    return ip->version == 4 ? sizeof(struct sockaddr_in) : ip->version ? sizeof(struct sockaddr_in6) : 0;
}

static int query_addresses(struct identifier *id, const union fields *fields, size_t room)
{
    struct ucma_addresses found;
    if (fields->query.option != UCMA_QUERY_ADDR) /* GIDs and paths are asked for with AF_IB alone */
        return ENOSYS;
    if (room < offsetof(struct ucma_addresses, ibdev_index))
        return ENOSPC;
    memset(&found, 0, sizeof found);
    ip_write(&id->source, &found.src_addr);
    ip_write(&id->destination, &found.dst_addr);
    found.src_size = written_bytes(&id->source);
    found.dst_size = written_bytes(&id->destination);
    found.ibdev_index = UINT32_MAX;
    if (id->place) {
        found.node_guid = id->place->port->device->guid;
        found.port_num = id->place->port->number;
        found.pkey = 0xffff;
    }
    ANSWER(fields->query.response, found, room);
    return 0;
}

/* Options */

static int set_id_option(struct identifier *id, uint32_t name, const void *value, size_t bytes)
{
    int number = 0;
    uint8_t byte;
    if (name > UCMA_OPTION_ACK_TIMEOUT)
        return ENOSYS;
    if (name == UCMA_OPTION_TOS || name == UCMA_OPTION_ACK_TIMEOUT) {
        if (bytes != sizeof byte)
            return EINVAL;
        memcpy(&byte, value, sizeof byte);
        if (name == UCMA_OPTION_TOS)
            id->traffic_class = byte;
        else if (byte > 31)
            return EINVAL;
        else
            id->ack_timeout = byte;
        return 0;
    }
    if (bytes != sizeof number || id->state != CM_IDLE)
        return EINVAL;
    memcpy(&number, value, sizeof number);
    if (name == UCMA_OPTION_REUSEADDR)
        id->reuse = number != 0;
    else
        id->family_only = number != 0;
    return 0;
}

static int set_option(struct identifier *id, const union fields *fields, size_t room)
{
    const struct ucma_set_option *option = &fields->option;
    (void)room;
    if (option->level == UCMA_OPTION_ID)
        return set_id_option(id, option->optname, (const void *)(uintptr_t)option->optval, option->optlen);
    if (option->level == UCMA_OPTION_IB && option->optname == UCMA_OPTION_IB_PATH)
        return find_route(id, PATH_MS); /* the addresses say all of it */
    return ENOSYS;
}

/* Groups */

static int join_ip_mcast(struct identifier *id, const union fields *fields, size_t room)
{
    const struct ucma_join_ip_mcast *asked = &fields->join_ip;
    return room < 4 ? ENOSPC : group_join(id, asked->response, asked->uid, &asked->addr, sizeof asked->addr);
}

static int join_mcast(struct identifier *id, const union fields *fields, size_t room)
{
    const struct ucma_join_mcast *asked = &fields->join;
    if (room < 4)
        return ENOSPC;
    return group_join(id, asked->response, asked->uid, &asked->addr, asked->addr_size);
}

static int leave_mcast(struct file *file, const union fields *fields, size_t room)
{
    uint32_t reported;
    int error = room < sizeof reported ? ENOSPC : group_leave(file, fields->query.id, &reported);
    if (!error)
        ANSWER(fields->query.response, reported, room);
    return error;
}

/* Other files */

static int migrate_id(struct file *file, const union fields *fields, size_t room)
{
    struct file *from = file_of((int)fields->migrate.fd);
    struct identifier *id;
    int error;
    if (room < 4)
        return ENOSPC;
    if (!from)
        return EBADF;
    error = from->dead ? EBADF : identifier_find(from, fields->migrate.id, &id);
    if (error)
        return error;
    if (from != file) {
        id->file = file;
        file_move(from, file, id, NULL);
    }
    ANSWER(fields->migrate.response, id->events_reported, room);
    return 0;
}

/* Peers */

static int connect_to(struct identifier *id, const union fields *fields, size_t room)
{
    (void)room;
    return fields->connect.conn_param.valid ? cm_connect(id, &fields->connect.conn_param) : EINVAL;
}

static int listen_at(struct identifier *id, const union fields *fields, size_t room)
{
    (void)room;
    return cm_listen(id, fields->number.number);
}

static int accept_it(struct identifier *id, const union fields *fields, size_t room)
{
    (void)room;
    return cm_accept(id, fields->accept.conn_param.valid ? &fields->accept.conn_param : NULL,
                     fields->accept.uid);
}

static int reject_it(struct identifier *id, const union fields *fields, size_t room)
{
    (void)room;
    return cm_reject(id, &fields->reject);
}

static int disconnect(struct identifier *id, const union fields *fields, size_t room)
{
    (void)fields, (void)room;
    return cm_disconnect(id);
}

static int notify(struct identifier *id, const union fields *fields, size_t room)
{
    (void)room;
    return fields->number.number == COMM_EST ? cm_notify(id) : 0;
}

/* Whoever reads this channel's events is to be told by the program itself, or by librdmacm. */
static int write_event(struct identifier *id, const union fields *fields, size_t room)
{
    const struct ucma_write_event *said = &fields->write_event;
    struct event *event;
    (void)room;
    if (said->event != UCMA_USER && said->event != UCMA_INTERNAL)
        return EINVAL;
    event = event_new(id, said->event);
    if (!event)
        return ENOMEM;
    event->ucma.status = said->status;
    memcpy(event->ucma.param.arg, said->arg, sizeof said->arg);
    file_post(id->file, event);
    return 0;
}

static int init_qp_attr(struct identifier *id, const union fields *fields, size_t room)
{
    struct ucma_qp_attr attributes;
    int error;
    if (room < sizeof attributes)
        return ENOSPC;
    error = cm_attributes(id, fields->query.option, &attributes);
    if (!error)
        ANSWER(fields->query.response, attributes, room);
    return error;
}

#define AT(member) offsetof(union fields, member)

static const struct command {
    const char *name;
    int (*of_file)(struct file *, const union fields *, size_t);
    int (*of_identifier)(struct identifier *, const union fields *, size_t);
    size_t id, least;
} commands[UCMA_COMMANDS] = {
    [UCMA_CREATE_ID] = {"CREATE_ID", create_id, NULL, 0, 18},
    [UCMA_DESTROY_ID] = {"DESTROY_ID", NULL, destroy_id, AT(query.id), 12},
    [UCMA_BIND_IP] = {"BIND_IP", NULL, bind_ip, AT(bind_ip.id), 40},
    [UCMA_RESOLVE_IP] = {"RESOLVE_IP", NULL, resolve_ip, AT(resolve_ip.id), 64},
    [UCMA_RESOLVE_ROUTE] = {"RESOLVE_ROUTE", NULL, resolve_route, AT(number.id), 8},
    [UCMA_QUERY_ROUTE] = {"QUERY_ROUTE", NULL, query_route, AT(query.id), 12},
    [UCMA_CONNECT] = {"CONNECT", NULL, connect_to, AT(connect.id), 276},
    [UCMA_LISTEN] = {"LISTEN", NULL, listen_at, AT(number.id), 8},
    [UCMA_ACCEPT] = {"ACCEPT", NULL, accept_it, AT(accept.id), 284},
    [UCMA_REJECT] = {"REJECT", NULL, reject_it, AT(reject.id), 264},
    [UCMA_DISCONNECT] = {"DISCONNECT", NULL, disconnect, AT(id), 4},
    [UCMA_INIT_QP_ATTR] = {"INIT_QP_ATTR", NULL, init_qp_attr, AT(query.id), 16},
    [UCMA_SET_OPTION] = {"SET_OPTION", NULL, set_option, AT(option.id), 24},
    [UCMA_NOTIFY] = {"NOTIFY", NULL, notify, AT(number.id), 8},
    [UCMA_JOIN_IP_MCAST] = {"JOIN_IP_MCAST", NULL, join_ip_mcast, AT(join_ip.id), 48},
    [UCMA_LEAVE_MCAST] = {"LEAVE_MCAST", leave_mcast, NULL, 0, 12},
    [UCMA_MIGRATE_ID] = {"MIGRATE_ID", migrate_id, NULL, 0, 16},
    [UCMA_QUERY] = {"QUERY", NULL, query_addresses, AT(query.id), 16},
    [UCMA_BIND] = {"BIND", NULL, bind_any, AT(bind.id), 8},
    [UCMA_RESOLVE_ADDR] = {"RESOLVE_ADDR", NULL, resolve_addr, AT(resolve.id), 16},
    [UCMA_JOIN_MCAST] = {"JOIN_MCAST", NULL, join_mcast, AT(join.id), 24},
    [UCMA_WRITE_CM_EVENT] = {"WRITE_CM_EVENT", NULL, write_event, AT(write_event.id), 24},
};

/* Whether a command is one by which librdmacm finds out what there is, so that its refusal is no error: a new
   identifier, and the first bind of a program, which names an address of the family AF_IB. */
static int is_probe(uint32_t number, const union fields *fields)
{
    return number == UCMA_CREATE_ID || (number == UCMA_BIND && fields->bind.addr.ss_family == AF_IB_);
}

int cm_command(struct file *file, const struct ucma_header *header, const void *data)
{
    const struct command *command = &commands[header->command];
    struct identifier *id;
    union fields fields;
    uint32_t handle;
    int error;
    if (!command->name)
        return ENOSYS;
    if (header->in < command->least)
        return EINVAL;
    memset(&fields, 0, sizeof fields);
    memcpy(&fields, data, header->in < sizeof fields ? header->in : sizeof fields);
    if (command->of_file) {
        error = command->of_file(file, &fields, header->out);
    } else {
        memcpy(&handle, (const char *)&fields + command->id, sizeof handle);
        error = identifier_find(file, handle, &id);
        error = error ? error : command->of_identifier(id, &fields, header->out);
    }
    if (error && !is_probe(header->command, &fields) && getenv("SOFTHCA_DEBUG"))
        fprintf(stderr, "softhca: rdma_cm: %s: %s\n", command->name, strerror(error));
    return error;
}
