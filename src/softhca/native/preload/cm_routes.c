/* Routes on native links: what subnet administration says of the way from a port to a GID.  The rules are those
   of `softhca.driver.rdmacm.routes`: a PathRecord is asked for (IBTA vol. 1, 15.2.5.16), by a datagram to the
   subnet manager's port, and the device's thread takes the answer. */
#include "cm.h"

#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#define QUESTIONS 64U /* that a port has under way */
#define RETRIES 3U
#define CLASS_SUBN_ADM 3
#define CLASS_VERSION 2
#define METHOD_GET 1
#define PATH_RECORD 0x35
#define COMPONENTS (1U << 2 | 1U << 3 | 1U << 11 | 1U << 12) /* DGID, SGID, Reversible, NumbPath */
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

static void question(uint8_t *mad, const uint8_t *own, const uint8_t *gid, uint64_t transaction)
{
    memset(mad, 0, SOFTHCA_MAD_BYTES);
    mad[0] = 1;
    mad[1] = CLASS_SUBN_ADM;
    mad[2] = CLASS_VERSION;
    mad[3] = METHOD_GET;
    put(mad + 8, transaction, 8);
    put(mad + 16, PATH_RECORD, 2);
    put(mad + 48, COMPONENTS, 8);
    memcpy(mad + 64, gid, 16);
    memcpy(mad + 80, own, 16);
    mad[105] = 0x80 | 1; /* one, reversible */
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
    if (!last && getrandom(&start, sizeof start, GRND_NONBLOCK) == (ssize_t)sizeof start)
        last = start;
    return ++last ? last : ++last;
}

int route_ask(struct identifier *id, uint32_t timeout_ms)
{
    struct port *port = id->place->port;
    struct softhca_query_port query = {.port_num = port->number};
    struct softhca_query_port_reply now;
    uint8_t mad[SOFTHCA_MAD_BYTES];
    uint64_t transaction = new_transaction();
    struct softhca_send_mad fields = {
        .timeout_ms = timeout_ms / (RETRIES + 1) ? timeout_ms / (RETRIES + 1) : 1, .retries = RETRIES,
        .qpn = 1, .qkey = GENERAL_QKEY, .mad = mad, .mad_bytes = sizeof mad};
    int error;
    CALL(host_of(port), error, query_port, &query, &now);
    if (!error && (!now.lid || !now.sm_lid))
        error = ENETDOWN;
    if (!error && port->questions >= QUESTIONS)
        error = EAGAIN;
    error = error ? error : agent_open(port);
    if (error)
        return error;
    question(mad, id->place->gid, id->destination.gid, transaction);
    fields.agent = port->agent;
    fields.dlid = (uint16_t)now.sm_lid;
    fields.sl = (uint8_t)now.sm_sl;
    TELL(host_of(port), error, send_mad, &fields);
    if (error)
        return error;
    id->question = transaction;
    port->questions++;
    ring_bell(port->device);
    return 0;
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

static struct identifier *asker(const struct port *port, uint64_t transaction)
{
    struct identifier *id;
    uint32_t handle = 0;
    while ((id = identifier_next(&handle)))
        if (id->question == transaction && id->place && id->place->port == port)
            return id;
    return NULL;
}

static void answered(struct port *port, uint32_t status, const uint8_t *mad)
{
    struct identifier *id = asker(port, get(mad + 8, 8));
    struct route route;
    int error;
    if (!id)
        return; /* it has gone meanwhile */
    id->question = 0;
    error = status ? (int)status : read_route(port, mad, &route);
    if (error) {
        queue_event(id, UCMA_ROUTE_ERROR, -error);
    } else if (!state_after(id, CM_RESOLVE_ROUTE, &id->state)) {
        id->route = route;
        queue_event(id, UCMA_ROUTE_RESOLVED, 0);
    }
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
