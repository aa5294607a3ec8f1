/* Routes and addresses on native links: what subnet administration says of the way to a GID, and of IP
   addresses.  The rules are those of `softhca.driver.rdmacm.routes`: a PathRecord (IBTA vol. 1, 15.2.5.16) or a
   ServiceRecord of DAPL's Address Translation Service is asked for, by a datagram to the subnet manager's port,
   and the device's thread takes the answer. */
#include "cm.h"
#include "../kernel.h"

#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define QUESTIONS 64U /* that a port has under way */
#define RETRIES 3U
#define CLASS_SUBN_ADM 3
#define CLASS_VERSION 2
#define METHOD_GET 1
#define PATH_RECORD 0x35
#define PATH_COMPONENTS (1U << 2 | 1U << 3 | 1U << 11 | 1U << 12) /* DGID, SGID, Reversible, NumbPath */
#define SERVICE_RECORD 0x31
#define MC_MEMBER_RECORD 0x38
#define METHOD_SET 2
/* MGID, PortGID, Q_Key, TClass, P_Key, SL, FlowLabel, JoinState */
#define GROUP_COMPONENTS (7U | 1U << 6 | 1U << 7 | 1U << 12 | 1U << 13 | 1U << 16)
#define FULL_MEMBER 1
#define ADDRESS_SERVICE 0x10000CE100415453ULL
#define OF_PORT 3U                      /* ServiceID, ServiceGID */
#define OF_ADDRESS (1U | 0xFFFFU << 7)  /* ServiceID, ServiceData8.1 … 16 */
#define DATA_AT 168
#define ADDRESS_MS 1000U
#define NAP_NS 1000000
#define GENERAL_QKEY 0x80010000U
#define LAST_UNICAST_LID 0xBFFF
#define ENTRY_BYTES (sizeof(struct softhca_mad_header) + SOFTHCA_MAD_BYTES)

static void put(uint8_t *to, uint64_t value, int bytes)
{
    while (bytes--) {
        to[bytes] = (uint8_t)value;
        value >>= 8;
    }
}

static uint64_t get(const uint8_t *from, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | from[i];
    return value;
}

/* The beginning of a question for one record. */
static void question(uint8_t *mad, uint16_t attribute, uint64_t components)
{
    memset(mad, 0, SOFTHCA_MAD_BYTES);
    mad[0] = 1;
    mad[1] = CLASS_SUBN_ADM;
    mad[2] = CLASS_VERSION;
    mad[3] = METHOD_GET;
    put(mad + 16, attribute, 2);
    put(mad + 48, components, 8);
}

static void question_of_path(uint8_t *mad, const uint8_t *own, const uint8_t *gid)
{
    question(mad, PATH_RECORD, PATH_COMPONENTS);
    memcpy(mad + 64, gid, 16);
    memcpy(mad + 80, own, 16);
    mad[105] = 0x80 | 1; /* one, reversible */
}

/* An IPv4 address stands in the last four bytes, behind zeros. */
static void question_of_address(uint8_t *mad, const struct ip *ip)
{
    question(mad, SERVICE_RECORD, OF_ADDRESS);
    put(mad + 56, ADDRESS_SERVICE, 8);
    memcpy(mad + DATA_AT + (ip->version == 4 ? 12 : 0), ip->gid + (ip->version == 4 ? 12 : 0),
           ip->version == 4 ? 4 : 16);
}

static void question_of_port(uint8_t *mad, const uint8_t *gid)
{
    question(mad, SERVICE_RECORD, OF_PORT);
    put(mad + 56, ADDRESS_SERVICE, 8);
    memcpy(mad + 64, gid, 16);
}

/* The MGID of an IP group: RFC 4391, 4, with RDMA CM's signature, as softhca.management.group_queries. */
static void write_mgid(uint8_t *mgid, const struct ip *group, uint16_t pkey)
{
    static const uint8_t four[4] = {0xff, 0x12, 0x40, 0x01}, six[4] = {0xff, 0x12, 0x60, 0x01};
    memcpy(mgid, group->gid, 16);
    if (group->version != 4 && (get(mgid, 4) & 0xfff0ffff) == 0xff10a01b)
        return; /* one that subnet administration has given */
    memcpy(mgid, group->version == 4 ? four : six, 4);
    put(mgid + 4, pkey, 2);
    if (group->version == 4) {
        memset(mgid + 6, 0, 6);
        mgid[12] &= 0x0f;
    }
}

static void question_of_group(uint8_t *mad, const uint8_t *gid, const struct ip *group, uint16_t pkey,
                              uint32_t qkey)
{
    question(mad, MC_MEMBER_RECORD, GROUP_COMPONENTS);
    mad[3] = METHOD_SET;
    write_mgid(mad + 56, group, pkey);
    memcpy(mad + 72, gid, 16);
    put(mad + 88, qkey, 4);
    put(mad + 96, pkey, 2);
    mad[104] = FULL_MEMBER;
}

static int agent_open(struct port *port)
{
    struct softhca_register_agent fields = {
        .port_num = port->number, .mgmt_class = CLASS_SUBN_ADM, .class_version = CLASS_VERSION,
        .entries = QUESTIONS, .body_bytes = QUESTIONS * ENTRY_BYTES};
    struct softhca_register_agent_reply reply;
    int error;
    if (port->asks)
        return 0;
    error = host_make_ring(host_of(port), &port->answers, QUESTIONS, fields.body_bytes);
    if (error)
        return error;
    fields.frames = &port->answers.run;
    fields.frames_count = 1;
    CALL(host_of(port), error, register_agent, &fields, &reply);
    if (error) {
        host_free_ring(host_of(port), &port->answers);
        return error;
    }
    port->agent = reply.agent;
    port->asks = 1;
    return 0;
}

static void ring_bell(const struct device *device)
{
    uint64_t one = 1;
    ssize_t written = write(device->bell, &one, sizeof one); /* where there is no room it rings already */
    (void)written;
}

/* A number that no question under way has. */
static uint64_t new_transaction(void)
{
    static uint64_t last;
    uint32_t start;
    if (!last && random_bytes(&start, sizeof start, GRND_NONBLOCK) == (ssize_t)sizeof start)
        last = start;
    return ++last ? last : ++last;
}

/* Send a question; its transaction, by which the answer is known; errno. */
static int ask(struct port *port, uint8_t *mad, uint32_t timeout_ms, uint64_t *transaction)
{
    struct softhca_query_port query = {.port_num = port->number};
    struct softhca_query_port_reply now;
    struct softhca_send_mad fields = {
        .timeout_ms = timeout_ms / (RETRIES + 1) ? timeout_ms / (RETRIES + 1) : 1, .retries = RETRIES,
        .qpn = 1, .qkey = GENERAL_QKEY, .mad = mad, .mad_bytes = SOFTHCA_MAD_BYTES};
    int error;
    CALL(host_of(port), error, query_port, &query, &now);
    if (!error && (!now.lid || !now.sm_lid))
        error = ENETDOWN;
    if (!error && port->questions >= QUESTIONS)
        error = EAGAIN;
    error = error ? error : agent_open(port);
    if (error)
        return error;
    *transaction = new_transaction();
    put(mad + 8, *transaction, 8);
    fields.agent = port->agent;
    fields.dlid = (uint16_t)now.sm_lid;
    fields.sl = (uint8_t)now.sm_sl;
    TELL(host_of(port), error, send_mad, &fields);
    if (error)
        return error;
    port->questions++;
    ring_bell(port->device);
    return 0;
}

int port_ask(struct identifier *id, uint32_t timeout_ms)
{
    uint8_t mad[SOFTHCA_MAD_BYTES];
    question_of_address(mad, &id->destination);
    return ask(id->place->port, mad, timeout_ms, &id->question);
}

int route_ask(struct identifier *id, uint32_t timeout_ms)
{
    uint8_t mad[SOFTHCA_MAD_BYTES];
    question_of_path(mad, id->place->gid, id->peer_gid);
    return ask(id->place->port, mad, timeout_ms, &id->question);
}

int group_ask(struct identifier *id, struct group *group, const struct ip *address, uint32_t timeout_ms)
{
    struct softhca_query_pkey query = {.port_num = id->place->port->number};
    struct softhca_query_pkey_reply own;
    uint8_t mad[SOFTHCA_MAD_BYTES];
    int error;
    CALL(host_of(id->place->port), error, query_pkey, &query, &own);
    if (error)
        return error;
    question_of_group(mad, id->place->gid, address, (uint16_t)(own.pkey | 0x8000), id->qkey);
    return ask(id->place->port, mad, timeout_ms, &group->question);
}

int pkey_index(const struct port *port, uint16_t pkey, uint16_t *found)
{
    struct softhca_query_port ask = {.port_num = port->number};
    struct softhca_query_port_reply attributes;
    int error;
    CALL(host_of(port), error, query_port, &ask, &attributes);
    for (uint32_t index = 0; !error && index < attributes.pkey_tbl_len && index < UINT16_MAX; index++) {
        struct softhca_query_pkey query = {.port_num = port->number, .index = index};
        struct softhca_query_pkey_reply own;
        CALL(host_of(port), error, query_pkey, &query, &own);
        if (!error && own.pkey && (own.pkey & 0x7fff) == (pkey & 0x7fff)) {
            *found = (uint16_t)index;
            return 0;
        }
    }
    return error ? error : ENOENT;
}

/* What an answer says; EHOSTUNREACH: there is no such path, or none that could be. */
static int read_route(const struct port *port, const uint8_t *mad, struct route *route)
{
    uint16_t status = (uint16_t)get(mad + 4, 2), pkey = (uint16_t)get(mad + 106, 2);
    *route = (struct route){.dlid = (uint16_t)get(mad + 96, 2), .sl = mad[109] & 15, .mtu = mad[110] & 0x3f,
                            .pkey = pkey, .known = 1};
    if (status || !route->dlid || route->dlid > LAST_UNICAST_LID || !route->mtu || route->mtu > 5)
        return EHOSTUNREACH;
    return pkey_index(port, pkey, &route->pkey_index) ? EHOSTUNREACH : 0;
}

/* Who has asked; `group`: for one of his groups. */
static struct identifier *asker(const struct port *port, uint64_t transaction, struct group **group)
{
    struct identifier *id;
    uint32_t handle = 0;
    while ((id = identifier_next(&handle))) {
        if (!id->place || id->place->port != port)
            continue;
        for (*group = id->groups; *group && (*group)->question != transaction; *group = (*group)->next)
            ;
        if (*group || id->question == transaction)
            return id;
    }
    return NULL;
}

static void route_found(struct identifier *id, uint32_t status, const uint8_t *mad)
{
    struct route route;
    int error = status ? (int)status : read_route(id->place->port, mad, &route);
    if (error) {
        queue_event(id, UCMA_ROUTE_ERROR, -error);
    } else if (!state_after(id, CM_RESOLVE_ROUTE, &id->state)) {
        id->route = route;
        queue_event(id, UCMA_ROUTE_RESOLVED, 0);
    }
}

static void port_found(struct identifier *id, uint32_t status, const uint8_t *mad)
{
    int error = status ? (int)status : get(mad + 4, 2) ? EHOSTUNREACH : 0;
    if (error) {
        queue_event(id, UCMA_ADDR_ERROR, -error);
    } else if (!state_after(id, CM_RESOLVE_ADDRESS, &id->state)) {
        memcpy(id->peer_gid, mad + 64, 16);
        queue_event(id, UCMA_ADDR_RESOLVED, 0);
    }
}

static void membership_found(struct identifier *id, struct group *group, uint32_t status, const uint8_t *mad)
{
    uint32_t way = (uint32_t)get(mad + 100, 4);
    struct membership found = {.qkey = (uint32_t)get(mad + 88, 4), .lid = (uint16_t)get(mad + 92, 2),
                               .sl = (uint8_t)(way >> 28), .flow_label = way >> 8 & 0xfffff,
                               .hop_limit = (uint8_t)way};
    memcpy(found.mgid, mad + 56, 16);
    group->question = 0;
    group_found(id, group, status ? (int)status : get(mad + 4, 2) ? EADDRNOTAVAIL : 0, &found);
}

/* The IP address of an own port: one place more. */
static void address_found(struct port *port, uint32_t status, const uint8_t *mad)
{
    struct place *first = place_of(port, mad + 64, mad + 64), named;
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, none[12];
    port->address_question = 0;
    port->address_known = !status;
    if (status || get(mad + 4, 2) || !first || memcmp(first->gid, mad + 64, 16))
        return;
    named = *first;
    memcpy(named.address, mad + DATA_AT, 16);
    if (!memcmp(named.address, none, sizeof none))
        memcpy(named.address, mapped, sizeof mapped);
    place_add(port->device, &named); /* without memory it has none */
}

static void answered(struct port *port, uint32_t status, const uint8_t *mad)
{
    uint64_t transaction = get(mad + 8, 8);
    struct group *group;
    struct identifier *id = transaction ? asker(port, transaction, &group) : NULL; /* 0: nobody has that one */
    if (id && group) {
        membership_found(id, group, status, mad);
    } else if (id) {
        id->question = 0;
        (get(mad + 16, 2) == PATH_RECORD ? route_found : port_found)(id, status, mad);
    } else if (transaction && transaction == port->address_question) {
        address_found(port, status, mad);
    } /* else who asked has gone meanwhile */
}

/* Take what has come for the ports of a device; whether more is to come. */
int routes_take(struct device *device)
{
    unsigned char entry[ENTRY_BYTES];
    struct softhca_mad_header header;
    uint32_t left = 0;
    for (uint32_t i = 0; i < device->port_count; i++) {
        struct port *port = &device->ports[i];
        while (port->asks && ring_take(&port->answers, entry, sizeof entry) == (int)sizeof entry) {
            ring_release(&port->answers);
            memcpy(&header, entry, sizeof header);
            port->questions -= port->questions != 0;
            answered(port, header.status, entry + sizeof header);
        }
        left += port->questions;
    }
    return left != 0;
}

static struct port *with_address_question(const struct device *device)
{
    for (uint32_t i = 0; i < device->port_count; i++)
        if (device->ports[i].address_question)
            return &device->ports[i];
    return NULL;
}

void addresses_learn(struct device *device)
{
    uint8_t mad[SOFTHCA_MAD_BYTES];
    for (uint32_t i = 0, places = device->place_count; i < places; i++) {
        struct place *place = &device->places[i];
        if (!place->native || place->port->address_known || place->port->address_question)
            continue;
        question_of_port(mad, place->gid);
        if (ask(place->port, mad, ADDRESS_MS, &place->port->address_question))
            place->port->address_question = 0;
    }
    /* Every question ends with an answer, or comes back; the adapter may have gone. */
    for (uint32_t waits = 0; with_address_question(device) && waits < 2 * ADDRESS_MS && !device->gone; waits++) {
        struct timespec nap = {.tv_nsec = NAP_NS};
        nanosleep(&nap, NULL);
        routes_take(device);
    }
    for (struct port *port; (port = with_address_question(device));)
        port->address_question = 0;
}
