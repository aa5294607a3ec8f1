/* What passes between an identifier and its peer: commands for the adapter's connection manager, which speaks
   to the peer's, and what it says of their connections. */
#include "cm.h"

#include <arpa/inet.h>

#define REQUEST_BYTES 92U
#define RESOLUTION_BYTES 216U
#define ACK_TIMEOUT 19
#define CM_RESPONSE_TIMEOUT 20
#define MAX_CM_RETRIES 15
#define FOREVER 7
#define RNR_TIMER_OF_COUNTED_TRIES 0  /* 655.36 ms, Linux's value */
#define RNR_TIMER_OF_ENDLESS_TRIES 22 /* 20.48 ms */
#define HOP_LIMIT 64
#define NOBODY_LISTENS 8
#define REJECTED_BY_CONSUMER 28
#define SIDR_NOT_SUPPORTED 1
#define SIDR_REJECTED 2
#define INIT 1U
#define RTR 2U
#define RTS 3U
#define RIGHTS 14U /* remote write, read, atomic */

enum {
    MASK_STATE = 1, MASK_ACCESS = 8, MASK_PKEY_INDEX = 16, MASK_PORT = 32, MASK_QKEY = 64, MASK_AV = 128,
    MASK_PATH_MTU = 256, MASK_TIMEOUT = 512, MASK_RETRY_CNT = 1024, MASK_RNR_RETRY = 2048, MASK_RQ_PSN = 4096,
    MASK_MAX_RD = 8192, MASK_MIN_RNR = 32768, MASK_SQ_PSN = 65536, MASK_MAX_DEST_RD = 131072,
    MASK_DEST_QPN = 1 << 20
};

static void write_address(uint8_t *to, const uint8_t *gid, int version)
{
    memset(to, 0, 16);
    if (version == 4)
        memcpy(to + 12, gid + 12, 4);
    else
        memcpy(to, gid, 16);
}

/* The private data of a request: the header, and the program's; their length, 0: they are too many. */
static uint32_t request_data(const struct identifier *id, const struct ucma_conn_param *parameters,
                             uint8_t *data)
{
    struct ip_header header = {.ip = (uint8_t)(id->destination.version << 4), .port = htons(id->source.port)};
    uint32_t room = connects(id) ? REQUEST_BYTES : RESOLUTION_BYTES;
    uint32_t bytes = HEADER_BYTES + parameters->private_data_len;
    if (bytes > room)
        return 0;
    write_address(header.source, id->place->address, id->destination.version);
    write_address(header.destination, id->destination.gid, id->destination.version);
    memcpy(data, &header, HEADER_BYTES);
    memcpy(data + HEADER_BYTES, parameters->private_data, parameters->private_data_len);
    return bytes;
}

/* This end, with no more READs and atomics at a time than the device, and the peer, can do. */
static int set_own(struct identifier *id, const struct ucma_conn_param *parameters)
{
    const struct device *device = id->place->port->device;
    uint8_t resources = parameters->responder_resources, depth = parameters->initiator_depth;
    resources = resources == 0xff ? device->most_resources : resources;
    depth = depth == 0xff ? device->most_depth : depth;
    if (resources > device->most_resources || depth > device->most_depth)
        return EINVAL;
    if (id->peer.known) {
        resources = resources < id->peer.initiator_depth ? resources : id->peer.initiator_depth;
        depth = depth < id->peer.responder_resources ? depth : id->peer.responder_resources;
    }
    id->own = (struct end){
        .qp_num = parameters->qp_num & 0xffffff, .psn = id->psn, .responder_resources = resources,
        .initiator_depth = depth, .retry_cnt = parameters->retry_count < 7 ? parameters->retry_count : 7,
        .rnr_retry = parameters->rnr_retry_count < 7 ? parameters->rnr_retry_count : 7,
        .srq = parameters->srq != 0, .flow_control = parameters->flow_control != 0, .known = 1};
    return 0;
}

/* Commands */

static int send_request(struct identifier *id, struct port *port, const void *data, uint32_t bytes)
{
    struct softhca_cm_connect fields = {
        .cm = port->cm, .service_id = service_id(id->space, id->destination.port),
        .dlid = id->route.dlid, .sl = id->route.sl, .pkey_index = id->route.pkey_index,
        .traffic_class = id->path.traffic_class, .hop_limit = HOP_LIMIT, .path_mtu = id->path.mtu,
        .sgid_index = (uint8_t)id->place->index,
        .ack_timeout = id->path.ack_timeout, .cm_response_timeout = CM_RESPONSE_TIMEOUT,
        .max_cm_retries = MAX_CM_RETRIES, .qp_num = id->own.qp_num, .starting_psn = id->own.psn,
        .qp_type = id->qp_type,
        .responder_resources = id->own.responder_resources, .initiator_depth = id->own.initiator_depth,
        .retry_cnt = id->own.retry_cnt, .rnr_retry = id->own.rnr_retry, .srq = id->own.srq,
        .flow_control = id->own.flow_control, .private_data = data, .private_data_bytes = bytes};
    struct softhca_cm_connect_reply reply;
    int error;
    memcpy(fields.dgid, id->path.gid, 16);
    CALL(host_of(port), error, cm_connect, &fields, &reply);
    if (!error)
        id->number = reply.id;
    return error;
}

static int send_resolution(struct identifier *id, struct port *port, const void *data, uint32_t bytes)
{
    struct softhca_cm_resolve fields = {
        .cm = port->cm, .service_id = service_id(id->space, id->destination.port),
        .dlid = id->route.dlid, .sl = id->route.sl, .pkey_index = id->route.pkey_index,
        .traffic_class = id->path.traffic_class, .hop_limit = HOP_LIMIT, .path_mtu = id->path.mtu,
        .sgid_index = (uint8_t)id->place->index,
        .ack_timeout = id->path.ack_timeout, .cm_response_timeout = CM_RESPONSE_TIMEOUT,
        .max_cm_retries = MAX_CM_RETRIES, .private_data = data, .private_data_bytes = bytes};
    struct softhca_cm_resolve_reply reply;
    int error;
    memcpy(fields.dgid, id->path.gid, 16);
    CALL(host_of(port), error, cm_resolve, &fields, &reply);
    if (!error)
        id->number = reply.id;
    return error;
}

static uint8_t ack_timeout(const struct identifier *id, uint8_t otherwise)
{
    return id->ack_timeout < 0 ? otherwise : (uint8_t)id->ack_timeout;
}

int cm_connect(struct identifier *id, const struct ucma_conn_param *parameters)
{
    uint8_t data[HEADER_BYTES + UCMA_PRIVATE_BYTES], after;
    struct port *port = id->place ? id->place->port : NULL;
    uint32_t bytes;
    int error = state_after(id, CM_CONNECT, &after);
    if (error || !port || !id->destination.port)
        return EINVAL;
    bytes = request_data(id, parameters, data);
    if (!bytes)
        return EINVAL;
    id->path = (struct path){.traffic_class = id->traffic_class, .hop_limit = HOP_LIMIT,
                             .lid = id->route.dlid, .sl = id->route.sl,
                             .mtu = id->route.known ? id->route.mtu : id->place->mtu,
                             .ack_timeout = ack_timeout(id, ACK_TIMEOUT), .known = 1};
    memcpy(id->path.gid, id->peer_gid, 16);
    if (parameters->qkey)
        id->qkey = parameters->qkey;
    error = set_own(id, parameters);
    error = error ? error : port_open(port);
    if (!error)
        error = (connects(id) ? send_request : send_resolution)(id, port, data, bytes);
    if (error)
        return error;
    id->port = port;
    id->active = 1;
    id->state = after;
    return 0;
}

static int answer_datagrams(struct identifier *id, const struct ucma_conn_param *parameters)
{
    struct softhca_cm_answer fields = {
        .cm = id->port->cm, .id = id->number, .qp_num = parameters->qp_num & 0xffffff,
        .qkey = parameters->qkey ? parameters->qkey : id->qkey, .private_data = parameters->private_data,
        .private_data_bytes = parameters->private_data_len};
    int error;
    TELL(host_of(id->port), error, cm_answer, &fields);
    if (!error)
        id->qkey = fields.qkey;
    return error;
}

/* The type that a reply names: its request's. */
static uint8_t peers_type(uint8_t qp_type)
{
    return qp_type == TYPE_XRC_RECV ? TYPE_XRC_SEND : qp_type;
}

static int send_reply(struct identifier *id, const struct ucma_conn_param *parameters)
{
    struct softhca_cm_reply fields = {
        .cm = id->port->cm, .id = id->number, .qp_num = id->own.qp_num, .starting_psn = id->own.psn,
        .qp_type = peers_type(id->qp_type), .responder_resources = id->own.responder_resources,
        .initiator_depth = id->own.initiator_depth, .retry_cnt = id->own.retry_cnt,
        .rnr_retry = id->own.rnr_retry, .srq = id->own.srq, .flow_control = id->own.flow_control,
        .private_data = parameters->private_data, .private_data_bytes = parameters->private_data_len};
    int error;
    TELL(host_of(id->port), error, cm_reply, &fields);
    return error;
}

/* The peer's reply is accepted. */
static int establish(struct identifier *id)
{
    struct softhca_cm_ready fields = {.id = id->number};
    uint8_t after;
    int error = state_after(id, CM_ESTABLISH, &after);
    if (error || !id->port)
        return EINVAL;
    fields.cm = id->port->cm;
    TELL(host_of(id->port), error, cm_ready, &fields);
    if (!error)
        id->state = after;
    return error;
}

int cm_accept(struct identifier *id, const struct ucma_conn_param *parameters, uint64_t uid)
{
    uint8_t after;
    int error;
    if (!parameters)
        return establish(id);
    error = state_after(id, CM_ACCEPT, &after);
    if (error || !id->port)
        return EINVAL;
    if (!connects(id)) {
        error = answer_datagrams(id, parameters);
        after = CM_CONNECTED;
    } else {
        error = set_own(id, parameters);
        error = error ? error : send_reply(id, parameters);
    }
    if (!error) {
        id->uid = uid;
        id->state = after;
    }
    return error;
}

int cm_reject(struct identifier *id, const struct ucma_reject *asked)
{
    struct softhca_cm_reject fields = {
        .id = id->number, .reason = asked->reason ? asked->reason : REJECTED_BY_CONSUMER,
        .private_data = asked->private_data, .private_data_bytes = asked->private_data_len};
    struct softhca_cm_answer answer = {
        .id = id->number, .status = SIDR_REJECTED, .private_data = asked->private_data,
        .private_data_bytes = asked->private_data_len};
    uint8_t after;
    int error = state_after(id, CM_REJECT, &after);
    if (error || !id->port)
        return EINVAL;
    fields.cm = answer.cm = id->port->cm;
    if (connects(id))
        TELL(host_of(id->port), error, cm_reject, &fields);
    else
        TELL(host_of(id->port), error, cm_answer, &answer);
    if (!error)
        id->state = after;
    return error;
}

void cm_end(struct port *port, uint32_t number)
{
    struct softhca_cm_destroy fields = {.cm = port->cm, .id = number};
    struct host *host = host_of(port);
    int cancel_state;
    lock_commands(host, &cancel_state); /* it may have ended by itself, which is no error to tell of */
    host_exchange(host, softhca_encode_cm_destroy(host->out, sizeof host->out, host->tag + 1, &fields));
    unlock_commands(host, cancel_state);
}

int cm_disconnect(struct identifier *id)
{
    struct softhca_cm_disconnect fields = {.id = id->number};
    uint8_t after, before = id->state;
    int error = state_after(id, CM_DISCONNECT, &after);
    if (error || !id->port)
        return EINVAL;
    if (!connects(id)) /* nobody is told, and its address stays resolved, as with the kernel */
        return 0;
    fields.cm = id->port->cm;
    if (id->goodbye || (after == CM_CLOSING && before != CM_CLOSING))
        TELL(host_of(id->port), error, cm_disconnect, &fields);
    else if (before != CM_CLOSING && before != CM_CLOSED && before != CM_DISCONNECTED && before != CM_REMOVED)
        cm_end(id->port, id->number);
    if (error)
        return error;
    id->goodbye = 0;
    id->state = after;
    return 0;
}

int cm_notify(struct identifier *id)
{
    struct softhca_cm_establish fields = {.id = id->number};
    int error;
    if (!id->port)
        return EINVAL;
    fields.cm = id->port->cm;
    TELL(host_of(id->port), error, cm_establish, &fields);
    return error;
}

/* Queue pairs */

void cm_vector(const struct identifier *id, const uint8_t *gid, struct ucma_ah_attr *vector)
{
    memset(vector, 0, sizeof *vector);
    vector->sl = id->path.sl;
    vector->port_num = id->place->port->number;
    if (id->place->native) { /* within a subnet packets have no GRH */
        vector->dlid = id->path.lid;
        return;
    }
    memcpy(vector->dgid, gid, 16);
    vector->sgid_index = id->place->index;
    vector->hop_limit = HOP_LIMIT;
    vector->traffic_class = id->traffic_class ? id->traffic_class : id->path.traffic_class;
    vector->flow_label = id->path.flow_label;
    vector->is_global = 1;
}

/* How long the peer waits before it sends again what no receive was there for. Where its tries are counted, a
   program may be as late as with a kernel; before this end has named a number, the peer's stands for it. */
static uint8_t rnr_timer(const struct identifier *id)
{
    const struct end *end = id->own.known ? &id->own : &id->peer;
    return end->rnr_retry >= FOREVER ? RNR_TIMER_OF_ENDLESS_TRIES : RNR_TIMER_OF_COUNTED_TRIES;
}

static int receiving(const struct identifier *id, struct ucma_qp_attr *to)
{
    if (!id->peer.known || !id->path.known)
        return EINVAL;
    to->qp_attr_mask |= MASK_AV | MASK_PATH_MTU | MASK_DEST_QPN | MASK_RQ_PSN;
    if (id->qp_type == TYPE_RC || id->qp_type == TYPE_XRC_RECV)
        to->qp_attr_mask |= MASK_MAX_DEST_RD | MASK_MIN_RNR;
    cm_vector(id, id->path.gid, &to->ah_attr);
    to->path_mtu = id->path.mtu && id->path.mtu < id->place->mtu ? id->path.mtu : id->place->mtu;
    to->dest_qp_num = id->peer.qp_num;
    to->rq_psn = id->own.known ? id->own.psn : id->psn;
    to->max_dest_rd_atomic = id->own.known ? id->own.responder_resources : id->peer.initiator_depth;
    to->min_rnr_timer = rnr_timer(id);
    return 0;
}

static int sending(const struct identifier *id, struct ucma_qp_attr *to)
{
    /* Who was asked obeys the request, who asks what it asked for. */
    const struct end *end = id->active && id->own.known ? &id->own : &id->peer;
    if (!id->peer.known || !id->path.known)
        return EINVAL;
    to->sq_psn = id->peer.psn;
    if (id->qp_type == TYPE_RC || id->qp_type == TYPE_XRC_SEND)
        to->qp_attr_mask |= MASK_RETRY_CNT | MASK_RNR_RETRY | MASK_MAX_RD;
    if (id->qp_type != TYPE_UC)
        to->qp_attr_mask |= MASK_TIMEOUT;
    to->timeout = ack_timeout(id, id->path.ack_timeout);
    to->retry_cnt = end->retry_cnt;
    to->rnr_retry = id->peer.rnr_retry; /* what each end names is for the other one */
    to->max_rd_atomic = id->own.known ? id->own.initiator_depth : id->peer.responder_resources;
    return 0;
}

int cm_attributes(const struct identifier *id, uint32_t state, struct ucma_qp_attr *to)
{
    int connected = connects(id);
    memset(to, 0, sizeof *to);
    if (!id->place)
        return EINVAL;
    to->qp_attr_mask = MASK_STATE;
    to->qp_state = state;
    to->port_num = id->place->port->number;
    if (state == INIT) {
        to->qp_attr_mask |= MASK_PKEY_INDEX | MASK_PORT | (connected ? MASK_ACCESS : MASK_QKEY);
        to->pkey_index = id->route.pkey_index;
        to->qp_access_flags = RIGHTS;
        to->qkey = id->qkey;
        return 0;
    }
    if (state == RTR)
        return connected ? receiving(id, to) : 0;
    if (state != RTS)
        return EINVAL;
    to->qp_attr_mask |= MASK_SQ_PSN;
    to->sq_psn = id->psn;
    return connected ? sending(id, to) : 0;
}

/* What comes */

static void fill_private(const struct softhca_cm_header *entry, const uint8_t *data, uint32_t skipped,
                         uint8_t *to, uint8_t *bytes)
{
    uint32_t length = entry->private_bytes > skipped ? entry->private_bytes - skipped : 0;
    memcpy(to, data + skipped, length);
    *bytes = (uint8_t)length;
}

static void set_peer(struct identifier *id, const struct softhca_cm_header *entry)
{
    id->peer = (struct end){
        .qp_num = entry->qp_num, .psn = entry->starting_psn,
        .responder_resources = entry->responder_resources, .initiator_depth = entry->initiator_depth,
        .retry_cnt = entry->retry_cnt, .rnr_retry = entry->rnr_retry, .srq = entry->srq,
        .flow_control = entry->flow_control, .known = 1};
}

static void gid_of(uint64_t prefix, uint64_t interface, uint8_t *gid)
{
    prefix = __builtin_bswap64(prefix);
    interface = __builtin_bswap64(interface);
    memcpy(gid, &prefix, 8);
    memcpy(gid + 8, &interface, 8);
}

/* The identifier that an entry of a port is for. */
static struct identifier *owner_of(const struct port *port, uint32_t number)
{
    struct identifier *id;
    uint32_t handle = 0;
    while ((id = identifier_next(&handle)) && (id->port != port || id->number != number))
        ;
    return id;
}

static void refuse(struct port *port, const struct softhca_cm_header *entry)
{
    struct softhca_cm_reject reject = {.cm = port->cm, .id = entry->id, .reason = NOBODY_LISTENS};
    struct softhca_cm_answer answer = {.cm = port->cm, .id = entry->id, .status = SIDR_NOT_SUPPORTED};
    int error; /* it may have ended meanwhile */
    if (entry->kind == SOFTHCA_CM_REQUEST)
        TELL(host_of(port), error, cm_reject, &reject);
    else
        TELL(host_of(port), error, cm_answer, &answer);
    (void)error;
    cm_end(port, entry->id);
}

static void tell_request(struct identifier *listener, struct identifier *child, struct event *event,
                         const struct softhca_cm_header *entry, const uint8_t *data)
{
    struct ucma_conn_param *to = &event->ucma.param.conn;
    event->child = child;
    child->request = event;
    event->ucma.id = child->handle;
    if (!connects(child)) {
        fill_private(entry, data, HEADER_BYTES, event->ucma.param.ud.private_data,
                     &event->ucma.param.ud.private_data_len);
    } else {
        fill_private(entry, data, HEADER_BYTES, to->private_data, &to->private_data_len);
        /* what the peer has outstanding is what is answered here */
        to->responder_resources = entry->initiator_depth;
        to->initiator_depth = entry->responder_resources;
        to->flow_control = entry->flow_control;
        to->retry_count = entry->retry_cnt;
        to->rnr_retry_count = entry->rnr_retry;
        to->srq = entry->srq;
        to->qp_num = entry->qp_num;
    }
    file_post(listener->file, event);
}

static void requested(struct port *port, const struct softhca_cm_header *entry, const uint8_t *data)
{
    struct identifier *listener = NULL, *child = NULL;
    struct event *event = NULL;
    struct ip_header header;
    struct place *place;
    struct route route = {.dlid = entry->lid, .pkey = entry->pkey, .sl = entry->sl, .mtu = entry->path_mtu,
                          .known = 1};
    uint8_t own[16], wanted[16];
    memcpy(&header, data, sizeof header);
    gid_of(entry->own_gid_prefix, entry->own_gid_interface, own);
    read_address(wanted, header.destination, header.ip >> 4);
    place = place_of(port, own, wanted); /* some of the port's: it listens with one */
    if (entry->private_bytes >= HEADER_BYTES && !(header.versions >> 4)
        && (header.ip >> 4 == 4 || header.ip >> 4 == 6))
        listener = cm_listener(port, entry, &header);
    if (!listener || !place || (place->native && pkey_index(port, entry->pkey, &route.pkey_index))
        || !(event = event_new(listener, UCMA_CONNECT_REQUEST))
        || identifier_new(listener->file, listener->space, listener->qp_type, 0, &child)) {
        free(event);
        refuse(port, entry);
        return;
    }
    child->state = CM_REQUESTED;
    child->traffic_class = listener->traffic_class;
    child->ack_timeout = listener->ack_timeout;
    child->qkey = listener->qkey;
    child->place = place;
    ip_of_gid(place->address, listener->source.port, &child->source);
    read_address(own, header.source, header.ip >> 4);
    ip_of_gid(own, ntohs(header.port), &child->destination);
    child->port = port;
    child->number = entry->id;
    child->route = route;
    child->path = (struct path){.traffic_class = entry->traffic_class, .sl = entry->sl, .lid = entry->lid,
                                .hop_limit = entry->hop_limit, .mtu = entry->path_mtu,
                                .ack_timeout = entry->ack_timeout, .flow_label = entry->flow_label,
                                .known = 1};
    gid_of(entry->gid_prefix, entry->gid_interface, child->path.gid);
    set_peer(child, entry);
    tell_request(listener, child, event, entry, data);
}

/* The peer has replied: what both have named holds, as far as both can do it. */
static void replied(struct identifier *id, const struct softhca_cm_header *entry, struct ucma_event *ucma)
{
    struct ucma_conn_param *to = &ucma->param.conn;
    set_peer(id, entry);
    if (id->own.responder_resources > id->peer.initiator_depth)
        id->own.responder_resources = id->peer.initiator_depth;
    if (id->own.initiator_depth > id->peer.responder_resources)
        id->own.initiator_depth = id->peer.responder_resources;
    to->responder_resources = id->own.responder_resources;
    to->initiator_depth = id->own.initiator_depth;
    to->flow_control = entry->flow_control;
    to->rnr_retry_count = entry->rnr_retry;
    to->srq = entry->srq;
    to->qp_num = entry->qp_num;
}

static void resolved(struct identifier *id, const struct softhca_cm_header *entry, struct ucma_event *ucma)
{
    struct ucma_ud_param *to = &ucma->param.ud;
    if (entry->status) {
        ucma->event = UCMA_UNREACHABLE;
        ucma->status = entry->status;
        return;
    }
    id->state = CM_CONNECTED;
    cm_vector(id, id->peer_gid, &to->ah_attr);
    to->qp_num = entry->qp_num;
    to->qkey = entry->qkey;
}

/* What an entry is to an identifier: an input of its state, and an event. */
static const struct {
    uint8_t input, event;
} meanings[] = {
    [SOFTHCA_CM_REPLIED] = {CM_RESPONSE, UCMA_CONNECT_RESPONSE},
    [SOFTHCA_CM_ESTABLISHED] = {CM_READY, UCMA_ESTABLISHED},
    [SOFTHCA_CM_REJECTED] = {CM_REFUSAL, UCMA_REJECTED},
    [SOFTHCA_CM_UNREACHABLE] = {CM_UNREACHABLE, UCMA_UNREACHABLE},
    [SOFTHCA_CM_DISCONNECT_REQUEST] = {CM_GOODBYE, UCMA_DISCONNECTED},
    [SOFTHCA_CM_DISCONNECTED] = {CM_GONE, UCMA_DISCONNECTED},
    [SOFTHCA_CM_SIDR_REPLY] = {CM_RESPONSE, UCMA_ESTABLISHED},
    [SOFTHCA_CM_TIMEWAIT_OVER] = {CM_OVER, UCMA_TIMEWAIT_EXIT},
};

/* A request has ended, displaced by later ones or taken back, before the program has heard of it.  The adapter has
   forgotten it. */
static void request_ended(struct identifier *id)
{
    file_drop(id->file, id->request);
    id->request = NULL;
    id->port = NULL;
    identifier_free(id);
}

void cm_entry(struct port *port, const struct softhca_cm_header *entry, const uint8_t *data)
{
    struct identifier *id;
    struct event *event;
    uint8_t after, closing;
    int input;
    if (entry->kind == SOFTHCA_CM_REQUEST || entry->kind == SOFTHCA_CM_SIDR_REQUEST) {
        requested(port, entry, data);
        return;
    }
    id = owner_of(port, entry->id);
    if (!id || entry->kind >= sizeof meanings / sizeof *meanings || !meanings[entry->kind].event)
        return;
    if (entry->kind == SOFTHCA_CM_REJECTED && id->request) {
        request_ended(id);
        return;
    }
    input = meanings[entry->kind].input;
    if (entry->kind == SOFTHCA_CM_SIDR_REPLY && entry->status)
        input = CM_REFUSAL;
    if (state_after(id, input, &after))
        return;
    event = id->uid ? event_new(id, meanings[entry->kind].event) : NULL; /* not accepted yet: nobody's */
    closing = id->state == CM_CLOSING;
    id->state = after;
    if (entry->kind == SOFTHCA_CM_DISCONNECT_REQUEST)
        id->goodbye = !closing; /* else it has been answered */
    else if (entry->kind == SOFTHCA_CM_TIMEWAIT_OVER)
        id->goodbye = 0;
    if (!event)
        return;
    if (!connects(id))
        fill_private(entry, data, 0, event->ucma.param.ud.private_data,
                     &event->ucma.param.ud.private_data_len);
    else if (entry->kind == SOFTHCA_CM_REPLIED || entry->kind == SOFTHCA_CM_REJECTED)
        /* those of the other messages no kernel hands on */
        fill_private(entry, data, 0, event->ucma.param.conn.private_data,
                     &event->ucma.param.conn.private_data_len);
    if (entry->kind == SOFTHCA_CM_REPLIED)
        replied(id, entry, &event->ucma);
    else if (entry->kind == SOFTHCA_CM_SIDR_REPLY)
        resolved(id, entry, &event->ucma);
    else if (entry->kind == SOFTHCA_CM_REJECTED)
        event->ucma.status = entry->status;
    else if (entry->kind == SOFTHCA_CM_UNREACHABLE
             || (entry->kind == SOFTHCA_CM_DISCONNECTED && entry->status == ETIMEDOUT))
        event->ucma.status = (uint32_t)-ETIMEDOUT;
    file_post(id->file, event);
}
