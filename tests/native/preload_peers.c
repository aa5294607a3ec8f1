/* What the rdma_cm device says to peers, and what it makes of what they say; argv[1] names what is tried. */
#include "preload_script.h"

static void requests(void)
{
    struct identifier *id = new_one(TYPE_RC, &four, "10.0.0.9");
    struct ucma_conn_param ask = {.qp_num = 0x12ABCDEF, .private_data = "hello", .private_data_len = 56,
                                  .responder_resources = 0xff, .initiator_depth = 0xff, .retry_count = 8,
                                  .rnr_retry_count = 9, .srq = 4, .flow_control = 1};
    struct ip_header header;
    id->state = CM_ROUTED, id->destination.port = 0;
    CHECK(cm_connect(id, &ask) == EINVAL && id->state == CM_ROUTED); /* nobody listens there */
    id->destination.port = 0x5678;
    ask.private_data_len = 57;
    CHECK(cm_connect(id, &ask) == EINVAL);
    ask.private_data_len = 56, ask.initiator_depth = 13;
    CHECK(cm_connect(id, &ask) == EINVAL);
    ask.initiator_depth = 0xff, ask.responder_resources = 17;
    CHECK(cm_connect(id, &ask) == EINVAL && id->state == CM_ROUTED);
    ask.responder_resources = 0xff, refuses = ENOMEM;
    CHECK(cm_connect(id, &ask) == ENOMEM && id->state == CM_ROUTED && !id->port && !id->active);
    refuses = 0, id->route = (struct route){.dlid = 9, .mtu = 2, .sl = 3, .pkey_index = 1, .known = 1};
    CHECK(!cm_connect(id, &ask) && id->state == CM_CONNECTING && id->number == 501 && id->active);
    CHECK(told.cm_connect.qp_num == 0xABCDEF && told.cm_connect.starting_psn == id->psn);
    CHECK(told.cm_connect.responder_resources == 16 && told.cm_connect.initiator_depth == 12);
    CHECK(told.cm_connect.retry_cnt == 7 && told.cm_connect.rnr_retry == 7 && told.cm_connect.srq == 1);
    CHECK(told.cm_connect.path_mtu == 2 && told.cm_connect.dlid == 9 && told.cm_connect.sl == 3);
    CHECK(told.cm_connect.pkey_index == 1 && told.cm_connect.ack_timeout == 19 && told.cm_connect.flow_control);
    CHECK(told.cm_connect.service_id == service_id(SPACE_TCP, 0x5678));
    CHECK(told.cm_connect.private_data_bytes == 92);
    CHECK(cm_connect(id, &ask) == EINVAL);
    id = new_one(TYPE_RC, &four, "10.0.0.9"), id->state = CM_ROUTED, id->ack_timeout = 0;
    CHECK(!cm_connect(id, &ask) && told.cm_connect.ack_timeout == 0);
    id = new_one(TYPE_UD, &six, "fd00::9"), id->state = CM_ROUTED, id->ack_timeout = 5;
    id->route = (struct route){.mtu = 4, .pkey_index = 2, .known = 1};
    ask.private_data_len = 181;
    CHECK(cm_connect(id, &ask) == EINVAL);
    ask.private_data_len = 180, ask.qkey = 0x777;
    CHECK(!cm_connect(id, &ask) && id->number == 502 && id->qkey == 0x777);
    CHECK(told.cm_resolve.private_data_bytes == 216 && told.cm_resolve.path_mtu == 4);
    CHECK(told.cm_resolve.ack_timeout == 5 && told.cm_resolve.pkey_index == 2);
    CHECK(request_data(id, &ask, (uint8_t[HEADER_BYTES + 256]){0}) == 216);
    uint8_t data[HEADER_BYTES + 256];
    six.gid[15] = 77; /* it says addresses, not GIDs */
    request_data(id, &ask, data);
    memcpy(&header, data, sizeof header);
    CHECK(header.ip == 0x60 && header.port == htons(0x1234) && !memcmp(header.source, six.address, 16));
    CHECK(!memcmp(header.destination, id->destination.gid, 16) && !memcmp(data + HEADER_BYTES, "hello", 6));
}

static void answers(void)
{
    struct identifier *id = met(TYPE_XRC_RECV, &four);
    struct ucma_conn_param ask = {.qp_num = 0x1000005, .responder_resources = 12, .initiator_depth = 12};
    struct ucma_reject no = {.reason = 0, .private_data_len = 2, .private_data = "no"};
    id->state = CM_REQUESTED;
    refuses = ENOMEM;
    CHECK(cm_accept(id, &ask, 33) == ENOMEM && id->state == CM_REQUESTED && id->uid == 9);
    refuses = 0;
    CHECK(!cm_accept(id, &ask, 33) && id->state == CM_ACCEPTED && id->uid == 33);
    CHECK(told.cm_reply.qp_type == TYPE_XRC_SEND && told.cm_reply.qp_num == 5 && told.cm_reply.id == 77);
    CHECK(told.cm_reply.responder_resources == 9 && told.cm_reply.initiator_depth == 8);
    id = met(TYPE_RC, &four), id->state = CM_RESPONDED;
    CHECK(!cm_accept(id, NULL, 0) && id->state == CM_CONNECTED && told.cm_ready.id == 77);
    id = met(TYPE_UD, &four), id->state = CM_REQUESTED, id->qkey = 5;
    CHECK(!cm_accept(id, &ask, 34) && id->state == CM_CONNECTED && told.cm_answer.qkey == 5);
    CHECK(told.cm_answer.qp_num == 5 && !told.cm_answer.status);
    id = met(TYPE_UD, &four), id->state = CM_REQUESTED, ask.qkey = 6;
    CHECK(!cm_accept(id, &ask, 35) && told.cm_answer.qkey == 6 && id->qkey == 6 && id->uid == 35);
    id = met(TYPE_UD, &four), id->state = CM_REQUESTED;
    CHECK(!cm_reject(id, &no) && told.cm_answer.status == SIDR_REJECTED && id->state == CM_CLOSED);
    CHECK(told.cm_answer.private_data_bytes == 2);
    id = met(TYPE_RC, &four), id->state = CM_REQUESTED;
    CHECK(!cm_reject(id, &no) && told.cm_reject.reason == 28 && told.cm_reject.private_data_bytes == 2);
    id = met(TYPE_RC, &four), id->state = CM_REQUESTED, no.reason = 24;
    CHECK(!cm_reject(id, &no) && told.cm_reject.reason == 24);
    CHECK(cm_reject(id, &no) == EINVAL);
    CHECK(!cm_notify(id) && told.cm_establish.id == 77);
    id->port = NULL;
    CHECK(cm_notify(id) == EINVAL);
}

/* Whether ending a connection says it to the peer, takes back what has not come about, or says nothing. */
static void parting(void)
{
    static const struct {
        uint8_t state, goodbye, after;
        int tells, ends;
    } cases[] = {
        {CM_CONNECTED, 0, CM_CLOSING, 1, 0}, {CM_ACCEPTED, 0, CM_CLOSING, 1, 0}, {CM_CLOSING, 0, CM_CLOSING, 0, 0},
        {CM_CONNECTING, 0, CM_CLOSED, 0, 1}, {CM_RESPONDED, 0, CM_CLOSED, 0, 1}, {CM_CLOSED, 0, CM_CLOSED, 0, 0},
        {CM_DISCONNECTED, 1, CM_DISCONNECTED, 1, 0}, {CM_DISCONNECTED, 0, CM_DISCONNECTED, 0, 0},
        {CM_REMOVED, 0, CM_REMOVED, 0, 0},
    };
    struct identifier *id;
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        id = met(TYPE_RC, &four), id->state = cases[at].state, id->goodbye = cases[at].goodbye;
        told.cm_disconnect.id = 0, tellings = 0;
        CHECK(!cm_disconnect(id) && id->state == cases[at].after && !id->goodbye);
        CHECK((told.cm_disconnect.id == 77) == cases[at].tells && (int)tellings == cases[at].ends);
    }
    id = met(TYPE_RC, &four), id->state = CM_CONNECTED, refuses = EIO;
    CHECK(cm_disconnect(id) == EIO && id->state == CM_CONNECTED);
    refuses = 0, id->state = CM_ROUTED;
    CHECK(cm_disconnect(id) == EINVAL);
    id = met(TYPE_UD, &four), id->state = CM_CONNECTED, told.cm_disconnect.id = 0; /* as with the kernel */
    CHECK(!cm_disconnect(id) && id->state == CM_CONNECTED && !told.cm_disconnect.id);
    id->port = NULL;
    CHECK(cm_disconnect(id) == EINVAL);
}

static void attributes(void)
{
    struct identifier *id = met(TYPE_RC, &four);
    struct ucma_qp_attr found;
    CHECK(!cm_attributes(id, 1, &found) && found.qp_attr_mask == 0x39 && found.qp_access_flags == 14);
    CHECK(!cm_attributes(id, 2, &found) && found.qp_attr_mask == 0x129181);
    CHECK(found.path_mtu == 3 && found.dest_qp_num == 21 && found.rq_psn == 12 && found.max_dest_rd_atomic == 3);
    CHECK(found.min_rnr_timer == 0 && found.ah_attr.is_global && found.ah_attr.traffic_class == 0x21);
    CHECK(found.ah_attr.sgid_index == 3 && found.ah_attr.flow_label == 0x54321 && found.ah_attr.sl == 2);
    CHECK(!cm_attributes(id, 3, &found) && found.qp_attr_mask == 0x12e01 && found.sq_psn == 22);
    CHECK(found.timeout == 14 && found.retry_cnt == 2 && found.rnr_retry == 1 && found.max_rd_atomic == 4);
    CHECK(cm_attributes(id, 4, &found) == EINVAL);
    id->active = 1, id->ack_timeout = 20, id->path.mtu = 5, id->traffic_class = 0x42, id->own.rnr_retry = 7;
    CHECK(!cm_attributes(id, 3, &found) && found.retry_cnt == 5 && found.timeout == 20 && found.rnr_retry == 1);
    CHECK(!cm_attributes(id, 2, &found) && found.path_mtu == 4 && found.ah_attr.traffic_class == 0x42);
    CHECK(found.min_rnr_timer == 22);
    id->own.known = 0, id->path.mtu = 0; /* before this end has named its own */
    CHECK(!cm_attributes(id, 2, &found) && found.rq_psn == id->psn && found.max_dest_rd_atomic == 9);
    CHECK(found.path_mtu == 4 && found.min_rnr_timer == 0);
    CHECK(!cm_attributes(id, 3, &found) && found.max_rd_atomic == 8 && found.retry_cnt == 2);
    id->peer.known = 0;
    CHECK(cm_attributes(id, 2, &found) == EINVAL && cm_attributes(id, 3, &found) == EINVAL);
    id = met(TYPE_UC, &native);
    CHECK(!cm_attributes(id, 2, &found) && found.qp_attr_mask == 0x101181);
    CHECK(!found.ah_attr.is_global && found.ah_attr.dlid == 40 && !found.ah_attr.hop_limit && !found.ah_attr.dgid[15]);
    CHECK(!cm_attributes(id, 3, &found) && found.qp_attr_mask == 0x10001);
    id = met(TYPE_XRC_RECV, &four); /* it answers READs and sends nothing */
    CHECK(!cm_attributes(id, 2, &found) && found.qp_attr_mask == 0x129181);
    CHECK(!cm_attributes(id, 3, &found) && found.qp_attr_mask == 0x10201);
    id = met(TYPE_UD, &four);
    CHECK(!cm_attributes(id, 1, &found) && found.qp_attr_mask == 0x71 && found.qkey == UDP_QKEY);
    CHECK(!cm_attributes(id, 3, &found) && found.qp_attr_mask == 0x10001 && found.sq_psn == id->psn);
    id->place = NULL;
    CHECK(cm_attributes(id, 1, &found) == EINVAL);
}

/* A request that comes, as the listener's program is told of it. */
static void asked(void)
{
    struct softhca_cm_header entry = {
        .kind = SOFTHCA_CM_REQUEST, .id = 90, .qp_num = 5, .starting_psn = 6, .qp_type = TYPE_RC, .private_bytes = 92,
        .responder_resources = 3, .initiator_depth = 4, .retry_cnt = 5, .rnr_retry = 6, .srq = 1, .flow_control = 1,
        .pkey = 0x7002, .path_mtu = 2, .traffic_class = 0x33, .ack_timeout = 17, .lid = 44, .sl = 1};
    struct ip_header header = {.ip = 0x40, .port = htons(0x4321)};
    uint8_t data[256] = {0};
    struct identifier *child;
    uint64_t half[2];
    listener = new_one(TYPE_RC, &four, "0.0.0.0");
    listener->traffic_class = 0x55, listener->ack_timeout = 21, listener->qkey = 8;
    memcpy(half, four.gid, 16);
    entry.own_gid_prefix = __builtin_bswap64(half[0]), entry.own_gid_interface = __builtin_bswap64(half[1]);
    memcpy(header.source + 12, (uint8_t[]){10, 0, 0, 9}, 4);
    memcpy(header.destination + 12, four.address + 12, 4);
    memcpy(data, &header, HEADER_BYTES);
    memcpy(data + HEADER_BYTES, "hi", 3);
    cm_entry(&ports[0], &entry, data);
    CHECK(posted && posted->ucma.event == UCMA_CONNECT_REQUEST && posted->ucma.uid == 9);
    child = posted->child;
    CHECK(child && child->request == posted && posted->ucma.id == child->handle && child->state == CM_REQUESTED);
    CHECK(posted->ucma.param.conn.responder_resources == 4 && posted->ucma.param.conn.initiator_depth == 3);
    CHECK(posted->ucma.param.conn.private_data_len == 56 && !strcmp((char *)posted->ucma.param.conn.private_data, "hi"));
    CHECK(posted->ucma.param.conn.retry_count == 5 && posted->ucma.param.conn.rnr_retry_count == 6);
    CHECK(posted->ucma.param.conn.srq && posted->ucma.param.conn.flow_control && posted->ucma.param.conn.qp_num == 5);
    CHECK(child->traffic_class == 0x55 && child->ack_timeout == 21 && child->qkey == 8 && child->number == 90);
    CHECK(child->destination.port == 0x4321 && child->destination.version == 4 && child->destination.gid[15] == 9);
    CHECK(child->source.port == 0x1234 && child->source.version == 4 && child->source.gid[15] == 1);
    CHECK(child->path.traffic_class == 0x33 && child->path.ack_timeout == 17 && child->path.mtu == 2);
    posted = NULL; /* the child's */
    /* a request that has ended before the program has taken it is none */
    CHECK(!identifier_find(&file, child->handle, &child) == 0);
    entry.kind = SOFTHCA_CM_REJECTED, tellings = 0;
    cm_entry(&ports[0], &entry, data);
    CHECK(!posted && !owner_of(&ports[0], 90) && !tellings); /* the adapter has forgotten it */
    /* refused: of another version of the header, of another IP version, too short, of nobody */
    entry.kind = SOFTHCA_CM_REQUEST;
    for (int at = 0; at < 4; at++) {
        struct identifier *before = listener;
        told.cm_reject.id = 0, tellings = 0;
        data[0] = at == 0 ? 0x10 : 0x0F, /* the minor version is anything */
        data[1] = at == 1 ? 0x50 : 0x40;
        entry.private_bytes = at == 2 ? HEADER_BYTES - 1 : 92;
        listener = at == 3 ? NULL : listener;
        cm_entry(&ports[0], &entry, data);
        listener = before;
        CHECK(!posted && told.cm_reject.id == 90 && told.cm_reject.reason == 8 && tellings == 1);
    }
    /* with the header alone the program's data are none; datagrams are refused by a status */
    entry.private_bytes = HEADER_BYTES, data[0] = 1;
    cm_entry(&ports[0], &entry, data);
    CHECK(posted && !posted->ucma.param.conn.private_data_len);
    posted = NULL;
    entry.kind = SOFTHCA_CM_SIDR_REQUEST, listener = NULL;
    cm_entry(&ports[0], &entry, data);
    CHECK(told.cm_answer.status == 1);
    /* on native links the partition must be the port's */
    listener = new_one(TYPE_RC, &native, "0.0.0.0"), entry.kind = SOFTHCA_CM_REQUEST;
    memcpy(half, native.gid, 16), told.cm_reject.id = 0;
    entry.own_gid_prefix = __builtin_bswap64(half[0]), entry.own_gid_interface = __builtin_bswap64(half[1]);
    cm_entry(&ports[1], &entry, data);
    CHECK(!posted && told.cm_reject.id == 90);
    entry.pkey = 0xF001;
    cm_entry(&ports[1], &entry, data);
    CHECK(posted && posted->child->route.pkey_index == 2 && posted->child->route.dlid == 44);
    posted = NULL;
}

/* What a connection's messages do to its state, and what is told of them. */
static void messages(void)
{
    struct softhca_cm_header entry = {.kind = SOFTHCA_CM_REPLIED, .id = 77, .qp_num = 31, .responder_resources = 2,
                                      .initiator_depth = 1, .rnr_retry = 4, .private_bytes = 3, .flow_control = 1};
    uint8_t data[256] = "yes";
    struct identifier *id = met(TYPE_RC, &four);
    id->state = CM_CONNECTING;
    cm_entry(&ports[1], &entry, data);
    CHECK(!posted && id->state == CM_CONNECTING); /* of another port */
    cm_entry(&ports[0], &entry, data);
    CHECK(posted->ucma.event == UCMA_CONNECT_RESPONSE && id->state == CM_RESPONDED && id->peer.qp_num == 31);
    CHECK(id->own.responder_resources == 1 && id->own.initiator_depth == 2);
    CHECK(posted->ucma.param.conn.responder_resources == 1 && posted->ucma.param.conn.initiator_depth == 2);
    CHECK(posted->ucma.param.conn.private_data_len == 3 && posted->ucma.param.conn.rnr_retry_count == 4);
    id->state = CM_CONNECTED, entry.kind = SOFTHCA_CM_DISCONNECT_REQUEST;
    cm_entry(&ports[0], &entry, data);
    CHECK(posted->ucma.event == UCMA_DISCONNECTED && id->goodbye && !posted->ucma.param.conn.private_data_len);
    entry.kind = SOFTHCA_CM_TIMEWAIT_OVER;
    cm_entry(&ports[0], &entry, data);
    CHECK(posted->ucma.event == UCMA_TIMEWAIT_EXIT && !id->goodbye && id->state == CM_CLOSED);
    id->state = CM_CLOSING, entry.kind = SOFTHCA_CM_DISCONNECT_REQUEST;
    cm_entry(&ports[0], &entry, data);
    CHECK(id->state == CM_DISCONNECTED && !id->goodbye);
    id->state = CM_CLOSING, entry.kind = SOFTHCA_CM_DISCONNECTED, entry.status = ETIMEDOUT;
    cm_entry(&ports[0], &entry, data);
    CHECK(posted->ucma.status == (uint32_t)-ETIMEDOUT);
    for (entry.status = 0; entry.status < 2; entry.status++) {
        id->state = CM_CLOSING;
        cm_entry(&ports[0], &entry, data);
        CHECK(posted->ucma.status == 0);
    }
    id->state = CM_CONNECTING, entry.kind = SOFTHCA_CM_REJECTED, entry.status = 28;
    cm_entry(&ports[0], &entry, data);
    CHECK(posted->ucma.event == UCMA_REJECTED && posted->ucma.status == 28 && id->state == CM_CLOSED);
    id->state = CM_CONNECTING, entry.kind = SOFTHCA_CM_UNREACHABLE;
    cm_entry(&ports[0], &entry, data);
    CHECK(posted->ucma.event == UCMA_UNREACHABLE && posted->ucma.status == (uint32_t)-ETIMEDOUT);
    id->state = CM_REQUESTED, id->uid = 0, free(posted), posted = NULL; /* nobody's yet */
    cm_entry(&ports[0], &entry, data);
    CHECK(!posted && id->state == CM_CLOSED);
    id = met(TYPE_UD, &four), id->number = 78, id->state = CM_CONNECTING;
    entry = (struct softhca_cm_header){.kind = SOFTHCA_CM_SIDR_REPLY, .id = 78, .status = 2, .qp_num = 3, .qkey = 4};
    cm_entry(&ports[0], &entry, data);
    CHECK(posted->ucma.event == UCMA_UNREACHABLE && posted->ucma.status == 2 && id->state == CM_CLOSED);
    id->state = CM_CONNECTING, entry.status = 0;
    cm_entry(&ports[0], &entry, data);
    CHECK(posted->ucma.event == UCMA_ESTABLISHED && id->state == CM_CONNECTED);
    CHECK(posted->ucma.param.ud.qp_num == 3 && posted->ucma.param.ud.qkey == 4);
}

int main(int argc, char **argv)
{
    static const struct tried cases[] = {
        {"requests", requests}, {"answers", answers}, {"parting", parting}, {"attributes", attributes},
        {"asked", asked}, {"messages", messages},
    };
    return run(argc, argv, cases, sizeof cases / sizeof *cases);
}
