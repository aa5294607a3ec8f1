/* The commands of the rdma_cm device: what they take, and what they answer; argv[1] names what is tried. */
#include "preload_script.h"

/* A command whose answer has room for `out` bytes; errno. */
static int command(uint32_t number, const void *fields, size_t bytes, size_t out)
{
    struct ucma_header header = {.command = number, .in = (uint16_t)bytes, .out = (uint16_t)out};
    return cm_command(&file, &header, fields);
}
#define COMMAND(number, fields, out) command(number, &(fields), sizeof(fields), out)

static void creating(void)
{
    uint32_t handle = 1000;
    struct ucma_create_id fields = {.uid = 3, .response = (uintptr_t)&handle, .ps = SPACE_IB, .qp_type = TYPE_UC};
    struct identifier *id;
    CHECK(COMMAND(UCMA_CREATE_ID, fields, 3) == ENOSPC && handle == 1000);
    CHECK(!COMMAND(UCMA_CREATE_ID, fields, 4) && !identifier_find(&file, handle, &id) && id->qp_type == TYPE_UC);
    fields.qp_type = TYPE_XRC_RECV;
    CHECK(!COMMAND(UCMA_CREATE_ID, fields, 4) && !identifier_find(&file, handle, &id) && id->qp_type == TYPE_XRC_RECV);
    fields.qp_type = 8;
    CHECK(COMMAND(UCMA_CREATE_ID, fields, 4) == EPROTONOSUPPORT);
    fields.ps = 2, fields.qp_type = TYPE_RC;
    CHECK(COMMAND(UCMA_CREATE_ID, fields, 4) == EPROTONOSUPPORT);
    fields.ps = SPACE_UDP;
    CHECK(!COMMAND(UCMA_CREATE_ID, fields, 4) && !identifier_find(&file, handle, &id) && id->qp_type == TYPE_UD);
    struct ucma_query end = {.response = (uintptr_t)&handle, .id = id->handle};
    id->events_reported = 3;
    CHECK(COMMAND(UCMA_DESTROY_ID, end, 3) == ENOSPC && !COMMAND(UCMA_DESTROY_ID, end, 4) && handle == 3);
    CHECK(COMMAND(UCMA_DESTROY_ID, end, 4) == ENOENT);
    CHECK(command(UCMA_CREATE_ID, &fields, 17, 4) == EINVAL && command(UCMA_GET_OPTION, &fields, 18, 4) == ENOSYS);
}

static void options(void)
{
    struct identifier *id = new_one(TYPE_RC, &four, "10.0.0.9");
    int number = 1;
    uint8_t byte = 32;
    struct ucma_set_option fields = {.optval = (uintptr_t)&byte, .id = id->handle, .optname = UCMA_OPTION_ACK_TIMEOUT,
                                     .optlen = 1};
    CHECK(COMMAND(UCMA_SET_OPTION, fields, 0) == EINVAL && id->ack_timeout == -1);
    byte = 31;
    CHECK(!COMMAND(UCMA_SET_OPTION, fields, 0) && id->ack_timeout == 31);
    fields.optname = UCMA_OPTION_TOS, byte = 0x44;
    CHECK(!COMMAND(UCMA_SET_OPTION, fields, 0) && id->traffic_class == 0x44);
    fields.optlen = 4;
    CHECK(COMMAND(UCMA_SET_OPTION, fields, 0) == EINVAL);
    fields.optname = UCMA_OPTION_AFONLY, fields.optval = (uintptr_t)&number;
    CHECK(!COMMAND(UCMA_SET_OPTION, fields, 0) && id->family_only == 1 && !id->reuse);
    fields.optname = UCMA_OPTION_REUSEADDR;
    CHECK(!COMMAND(UCMA_SET_OPTION, fields, 0) && id->reuse == 1);
    fields.optlen = 1;
    CHECK(COMMAND(UCMA_SET_OPTION, fields, 0) == EINVAL);
    fields.optlen = 4, id->state = CM_BOUND;
    CHECK(COMMAND(UCMA_SET_OPTION, fields, 0) == EINVAL);
    fields.optname = 9;
    CHECK(COMMAND(UCMA_SET_OPTION, fields, 0) == ENOSYS);
    fields.level = UCMA_OPTION_IB, fields.optname = UCMA_OPTION_IB_PATH + 1, id->state = CM_RESOLVED;
    CHECK(COMMAND(UCMA_SET_OPTION, fields, 0) == ENOSYS && id->state == CM_RESOLVED);
    fields.optname = UCMA_OPTION_IB_PATH;
    CHECK(!COMMAND(UCMA_SET_OPTION, fields, 0) && id->state == CM_ROUTED);
}

/* What is told of an identifier, which has a path when its route is known. */
static void queries(void)
{
    struct identifier *id = new_one(TYPE_RC, &four, "10.0.0.9"), *unbound = new_one(TYPE_RC, &six, "fd00::9");
    struct ucma_route route;
    struct ucma_addresses found;
    struct ucma_qp_attr attributes;
    struct ucma_query query = {.response = (uintptr_t)&route, .id = id->handle};
    device.guid = 0x1122, id->state = CM_RESOLVED;
    CHECK(!COMMAND(UCMA_QUERY_ROUTE, query, sizeof route) && route.num_paths == 0 && route.node_guid == 0x1122);
    id->state = CM_ROUTED;
    CHECK(!COMMAND(UCMA_QUERY_ROUTE, query, sizeof route) && route.num_paths == 1 && route.port_num == 1);
    CHECK(route.ib_route[0].mtu == 4 && route.ib_route[0].pkey == 0xffff && route.ib_route[0].dgid[15] == 9);
    CHECK(route.ib_route[0].hop_limit == 64 && route.ib_route[0].packet_life_time == 18);
    CHECK(COMMAND(UCMA_QUERY_ROUTE, query, 180) == ENOSPC);
    id->route = (struct route){.dlid = 0x102, .mtu = 2, .pkey = 0x8003, .sl = 4, .known = 1};
    CHECK(!COMMAND(UCMA_QUERY_ROUTE, query, sizeof route) && route.ib_route[0].dlid == htons(0x102));
    CHECK(route.ib_route[0].mtu == 2 && route.ib_route[0].pkey == htons(0x8003) && route.ib_route[0].sl == 4);
    /* GIDs are the port's and its peer's, whatever their addresses are */
    id->place = &native, native.address[15] = 99, id->peer_gid[15] = 98;
    CHECK(!COMMAND(UCMA_QUERY_ROUTE, query, sizeof route) && !memcmp(route.ib_route[0].sgid, native.gid, 16));
    CHECK(route.ib_route[0].dgid[15] == 98);
    query.response = (uintptr_t)&found;
    CHECK(!COMMAND(UCMA_QUERY, query, sizeof found) && found.src_size == 16 && found.dst_size == 16);
    id->destination.version = 0;
    CHECK(!COMMAND(UCMA_QUERY, query, sizeof found) && found.dst_size == 0);
    query.id = unbound->handle, unbound->place = NULL;
    CHECK(!COMMAND(UCMA_QUERY, query, sizeof found) && found.src_size == 28 && found.dst_size == 28 && !found.port_num);
    query.option = UCMA_QUERY_PATH;
    CHECK(COMMAND(UCMA_QUERY, query, sizeof found) == ENOSYS);
    query = (struct ucma_query){.response = (uintptr_t)&attributes, .id = id->handle, .option = INIT};
    CHECK(COMMAND(UCMA_INIT_QP_ATTR, query, sizeof attributes - 1) == ENOSPC);
    CHECK(!COMMAND(UCMA_INIT_QP_ATTR, query, sizeof attributes) && attributes.qp_attr_mask == 0x39);
}

static void asking(void)
{
    struct identifier *id = new_one(TYPE_RC, &native, "10.0.0.9");
    struct ucma_number number = {.id = id->handle, .number = 100};
    struct ucma_connect connect = {.id = id->handle};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    struct ucma_resolve_ip resolve = {.id = id->handle, .timeout_ms = 100};
    struct ucma_migrate_id migrate = {.id = id->handle, .fd = 2};
    uint32_t reported = 77;
    inet_pton(AF_INET, "10.0.0.9", &to.sin_addr), memcpy(&resolve.dst_addr, &to, sizeof to);
    id->state = CM_BOUND, id->source = ip("10.0.0.1", 5);
    CHECK(!COMMAND(UCMA_RESOLVE_IP, resolve, 0) && id->question && id->state == CM_BOUND);
    CHECK(COMMAND(UCMA_RESOLVE_IP, resolve, 0) == EINVAL); /* it is asked for */
    id->state = CM_RESOLVED;
    CHECK(COMMAND(UCMA_RESOLVE_ROUTE, number, 0) == EINVAL);
    id->question = 0;
    CHECK(!COMMAND(UCMA_RESOLVE_ROUTE, number, 0) && id->question);
    id->state = CM_ROUTED, id->question = 0;
    CHECK(COMMAND(UCMA_CONNECT, connect, 0) == EINVAL && id->state == CM_ROUTED); /* without parameters */
    connect.conn_param.valid = 1;
    CHECK(!COMMAND(UCMA_CONNECT, connect, 0) && id->state == CM_CONNECTING);
    number.number = 5, told.cm_establish.id = 0;
    CHECK(!COMMAND(UCMA_NOTIFY, number, 0) && !told.cm_establish.id);
    number.number = COMM_EST;
    CHECK(!COMMAND(UCMA_NOTIFY, number, 0) && told.cm_establish.id == 501);
    /* to another file: of one that is its own, or the parent's of a forked child */
    migrate.response = (uintptr_t)&reported, migrate.fd = 3;
    CHECK(COMMAND(UCMA_MIGRATE_ID, migrate, 4) == EBADF && COMMAND(UCMA_MIGRATE_ID, migrate, 3) == ENOSPC);
    migrate.fd = 2, id->file = &other_file, id->events_reported = 6, other_file.dead = 1;
    CHECK(COMMAND(UCMA_MIGRATE_ID, migrate, 4) == EBADF && id->file == &other_file && reported == 77);
    other_file.dead = 0;
    moves = 0;
    CHECK(!COMMAND(UCMA_MIGRATE_ID, migrate, 4) && id->file == &file && reported == 6 && moves == 1);
    migrate.fd = 1;
    CHECK(!COMMAND(UCMA_MIGRATE_ID, migrate, 4) && id->file == &file && moves == 1); /* where it is already */
}

/* Addresses that are resolved at once, and what stays of a failed attempt. */
static void resolving(void)
{
    struct identifier *id = new_one(TYPE_UD, &native, "10.0.0.9"), *idle;
    struct sockaddr_in group = {.sin_family = AF_INET}, any = group;
    struct sockaddr_in6 six_to = {.sin6_family = AF_INET6};
    struct ucma_resolve_ip resolve = {.id = id->handle, .timeout_ms = 100};
    struct ucma_resolve_addr sized = {.id = id->handle};
    struct ucma_join_mcast join = {.id = id->handle};
    struct ucma_query leave = {.id = 1};
    struct ucma_bind bind = {.id = id->handle, .addr_size = 48, .addr = {.ss_family = AF_IB_}};
    setenv("SOFTHCA_DEVICES", "one=unix:place", 1);
    device_now.phys_port_cnt = 1, port_now.gid_tbl_len = 1, port_now.link_layer = ETHERNET;
    memcpy(gids[0], four.gid, 16);
    inet_pton(AF_INET, "239.1.2.3", &group.sin_addr), inet_pton(AF_INET6, "fd00::5", &six_to.sin6_addr);
    id->source = ip("10.0.0.1", 5), id->state = CM_BOUND;
    memcpy(&resolve.dst_addr, &group, sizeof group);
    CHECK(!COMMAND(UCMA_RESOLVE_IP, resolve, 0) && !id->question && id->state == CM_RESOLVED); /* nobody is asked */
    CHECK(posted->ucma.event == UCMA_ADDR_RESOLVED);
    id->state = CM_BOUND, memcpy(&resolve.dst_addr, &any, sizeof any);
    id->place = &four;
    CHECK(!COMMAND(UCMA_RESOLVE_IP, resolve, 0) && !memcmp(id->destination.gid, four.address, 16));
    CHECK(!identifier_new(&file, SPACE_TCP, TYPE_RC, 9, &idle)); /* of an address of each version */
    resolve.id = idle->handle;
    memcpy(&resolve.src_addr, &any, sizeof any), inet_pton(AF_INET, "10.0.0.1", &any.sin_addr);
    memcpy(&resolve.src_addr, &any, sizeof any), memcpy(&resolve.dst_addr, &six_to, sizeof six_to);
    CHECK(COMMAND(UCMA_RESOLVE_IP, resolve, 0) == EINVAL && idle->state == CM_BOUND && idle->source.version == 4);
    id->state = CM_IDLE;
    CHECK(COMMAND(UCMA_BIND, bind, 0) == EINVAL);
    CHECK(command(UCMA_RESOLVE_ADDR, &sized, 15, 0) == EINVAL && command(UCMA_RESOLVE_ADDR, &sized, 16, 0) != EINVAL);
    CHECK(command(UCMA_JOIN_MCAST, &join, 23, 4) == EINVAL && command(UCMA_JOIN_MCAST, &join, 24, 4) != EINVAL);
    CHECK(command(UCMA_LEAVE_MCAST, &leave, 11, 4) == EINVAL && command(UCMA_LEAVE_MCAST, &leave, 12, 4) == ENOENT);
}

/* Events that programs write themselves: the two kinds that there are for them. */
static void written(void)
{
    struct identifier *id = new_one(TYPE_RC, &four, "10.0.0.9");
    struct ucma_write_event event = {.id = id->handle, .status = 6, .arg = {7, 8}};
    for (event.event = UCMA_USER - 1; event.event <= UCMA_INTERNAL + 1; event.event++)
        CHECK((COMMAND(UCMA_WRITE_CM_EVENT, event, 0) == EINVAL)
              == (event.event < UCMA_USER || event.event > UCMA_INTERNAL));
    CHECK(posted->ucma.event == UCMA_INTERNAL && posted->ucma.status == 6 && posted->ucma.uid == 9);
    CHECK(posted->ucma.param.arg[0] == 7 && posted->ucma.param.arg[1] == 8);
}

/* Who is bound to no device yet has all of them from then on. */
static void binding(void)
{
    struct identifier *id;
    struct sockaddr_in any = {.sin_family = AF_INET}, own = any;
    struct ucma_bind_ip fields = {.id = 0};
    inet_pton(AF_INET, "10.0.0.1", &own.sin_addr);
    setenv("SOFTHCA_DEVICES", "one=unix:place", 1);
    device_now.phys_port_cnt = 1, port_now.gid_tbl_len = 1, port_now.link_layer = ETHERNET;
    memcpy(gids[0], four.gid, 16);
    CHECK(!identifier_new(&file, SPACE_TCP, TYPE_RC, 9, &id));
    fields.id = id->handle, memcpy(&fields.addr, &any, sizeof any);
    CHECK(!listed()->host && !COMMAND(UCMA_BIND_IP, fields, 0) && listed()->host && !id->place);
    CHECK(id->state == CM_BOUND && COMMAND(UCMA_BIND_IP, fields, 0) == EINVAL);
    CHECK(!identifier_new(&file, SPACE_TCP, TYPE_RC, 9, &id));
    fields.id = id->handle, memcpy(&fields.addr, &own, sizeof own);
    CHECK(!COMMAND(UCMA_BIND_IP, fields, 0) && id->place == &listed()->places[0]);
    CHECK(!identifier_new(&file, SPACE_TCP, TYPE_RC, 9, &id));
    fields.id = id->handle, memset(gids[0], 0, 16); /* it has gone, and no other one has come */
    CHECK(COMMAND(UCMA_BIND_IP, fields, 0) == EADDRNOTAVAIL && id->state == CM_IDLE);
}

int main(int argc, char **argv)
{
    static const struct tried cases[] = {
        {"creating", creating}, {"options", options}, {"queries", queries}, {"asking", asking}, {"binding", binding},
        {"resolving", resolving}, {"written", written},
    };
    return run(argc, argv, cases, sizeof cases / sizeof *cases);
}
