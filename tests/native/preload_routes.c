/* What the rdma_cm device asks of subnet administration and makes of the answers, its groups and its devices;
   argv[1] names what is tried. */
#include "preload_script.h"

#include <fcntl.h>
#include <sys/time.h>

static void groups(void)
{
    struct identifier *id = new_one(TYPE_UD, &four, "10.0.0.9");
    struct membership found = {.lid = 0xC000, .sl = 3, .flow_label = 0x12345, .qkey = 6, .mgid = {0xff, 0x12}};
    struct sockaddr_in one = {.sin_family = AF_INET}, another = one;
    struct sockaddr_in6 other = {.sin6_family = AF_INET6};
    uint32_t number = 0, second = 0, reported = 0;
    struct ucma_ah_attr *way;
    inet_pton(AF_INET, "239.1.2.3", &one.sin_addr), inet_pton(AF_INET, "239.1.2.4", &another.sin_addr);
    inet_pton(AF_INET6, "ff0e::5", &other.sin6_addr);
    id->state = CM_BOUND;
    CHECK(group_join(id, (uintptr_t)&number, 5, &other, sizeof other) == EINVAL); /* of the other IP version */
    CHECK(!group_join(id, (uintptr_t)&number, 5, &one, sizeof one) && posted->ucma.event == UCMA_MULTICAST_JOIN);
    CHECK(number && posted->ucma.uid == 5 && posted->ucma.id == number && posted->ucma.param.ud.qp_num == 0xFFFFFF);
    CHECK(group_join(id, (uintptr_t)&second, 6, &one, sizeof one) == EADDRINUSE);
    CHECK(!group_join(id, (uintptr_t)&second, 6, &another, sizeof another) && second != number);
    id->groups->next->events_reported = 1, id->groups->events_reported = 4;
    CHECK(group_leave(&other_file, number, &reported) == ENOENT && !moves); /* another file's */
    struct group *left = id->groups->next;
    CHECK(!group_leave(&file, number, &reported) && reported == 1 && id->groups->number == second);
    CHECK(moves == 1 && moved_owner == id && moved_group == left); /* its events, and no others */
    CHECK(group_leave(&file, number, &reported) == ENOENT);
    /* what subnet administration says of one */
    id->traffic_class = 7, id->place = &native;
    left = id->groups, port_now.sm_lid = 0; /* a group that cannot be asked for is none */
    CHECK(group_join(id, (uintptr_t)&number, 5, &one, sizeof one) == ENETDOWN && id->groups == left);
    for (uint32_t lid = 0xBFFE; lid <= 0xFFFF; lid += lid == 0xC000 ? 0x3FFD : 1) {
        found.lid = (uint16_t)lid;
        group_found(id, id->groups, 0, &found);
        CHECK(posted->ucma.event == (lid >= 0xC000 && lid <= 0xFFFE ? UCMA_MULTICAST_JOIN : UCMA_MULTICAST_ERROR));
        CHECK(posted->ucma.status == (lid >= 0xC000 && lid <= 0xFFFE ? 0 : (uint32_t)-EADDRNOTAVAIL));
    }
    found.lid = 0xC001;
    group_found(id, id->groups, 0, &found);
    way = &posted->ucma.param.ud.ah_attr;
    CHECK(way->hop_limit == 1 && way->traffic_class == 7 && way->flow_label == 0x12345 && way->sl == 3);
    CHECK(way->is_global && way->dlid == 0xC001 && posted->ucma.param.ud.qkey == 6 && way->dgid[1] == 0x12);
    found.hop_limit = 9;
    group_found(id, id->groups, 0, &found);
    CHECK(posted->ucma.param.ud.ah_attr.hop_limit == 9);
    group_found(id, id->groups, ETIMEDOUT, &found);
    CHECK(posted->ucma.event == UCMA_MULTICAST_ERROR && posted->ucma.status == (uint32_t)-ETIMEDOUT);
}

static void routes(void)
{
    struct identifier *stranger = new_one(TYPE_RC, &four, "10.0.0.9"), *id = new_one(TYPE_RC, &native, "10.0.0.9");
    struct place towards;
    uint8_t mad[SOFTHCA_MAD_BYTES];
    struct ip group;
    port_now.sm_lid = 0;
    CHECK(route_ask(id, 2000) == ENETDOWN); /* nobody to ask */
    port_now.sm_lid = 5, port_now.lid = 0;
    CHECK(route_ask(id, 2000) == ENETDOWN); /* nobody who could be answered */
    port_now.lid = 4, port_now.sm_sl = 3;
    ports[1].questions = QUESTIONS;
    CHECK(route_ask(id, 2000) == EAGAIN);
    ports[1].questions = QUESTIONS - 1, id->state = CM_RESOLVED;
    CHECK(!route_ask(id, 2000) && ports[1].questions == QUESTIONS && id->question);
    CHECK(told.send_mad.timeout_ms == 500 && told.send_mad.retries == 3 && told.send_mad.dlid == 5);
    CHECK(told.send_mad.sl == 3 && told.send_mad.agent == 7 && get(asked_mad + 8, 8) == id->question);
    CHECK(get(asked_mad + 16, 2) == PATH_RECORD && !memcmp(asked_mad + 64, id->peer_gid, 16));
    CHECK(!memcmp(asked_mad + 80, native.gid, 16) && asked_mad[105] == 0x81 && asked_mad[3] == METHOD_GET);
    stranger->question = id->question, stranger->state = CM_RESOLVED; /* of another port */
    for (int at = 0; at < 9; at++) {
        memset(mad, 0, sizeof mad);
        put(mad + 8, id->question, 8), put(mad + 16, PATH_RECORD, 2);
        put(mad + 96, at == 1 ? 0xC000 : at == 2 ? 0 : 0xBFFF, 2), put(mad + 106, at == 3 ? 0x7003 : 0x7001, 2);
        put(mad + 4, at == 4, 2), mad[109] = 0x5A, mad[110] = 0x80 | (at == 5 ? 6 : at == 6 ? 0 : 5);
        put(mad + 106, at == 7 ? 0 : (uint64_t)get(mad + 106, 2), 2);
        uint64_t question = id->question;
        answered(&ports[1], at == 8 ? ETIMEDOUT : 0, mad);
        CHECK(!id->question);
        CHECK(posted->owner == id && posted->ucma.event == (at ? UCMA_ROUTE_ERROR : UCMA_ROUTE_RESOLVED));
        CHECK(posted->ucma.status == (uint32_t)(at == 0 ? 0 : at == 8 ? -ETIMEDOUT : -EHOSTUNREACH));
        if (!at)
            CHECK(id->route.dlid == 0xBFFF && id->route.sl == 10 && id->route.mtu == 5 && id->route.pkey_index == 2);
        id->question = question, id->state = CM_RESOLVED;
    }
    id->question = 0, free(posted), posted = NULL;
    memset(mad, 0, sizeof mad), put(mad + 16, PATH_RECORD, 2);
    answered(&ports[1], 0, mad); /* of nobody */
    CHECK(!posted);
    /* the port of an address */
    id->state = CM_BOUND, ports[1].questions = 0;
    CHECK(!port_ask(id, 3) && told.send_mad.timeout_ms == 1);
    put(mad + 8, id->question, 8), put(mad + 16, SERVICE_RECORD, 2), memcpy(mad + 64, native.gid, 16);
    answered(&ports[1], 0, mad);
    CHECK(posted->ucma.event == UCMA_ADDR_RESOLVED && !memcmp(id->peer_gid, native.gid, 16));
    id->state = CM_BOUND, id->question = get(mad + 8, 8), put(mad + 4, 0x300, 2); /* there is no such record */
    answered(&ports[1], 0, mad);
    CHECK(posted->ucma.event == UCMA_ADDR_ERROR && posted->ucma.status == (uint32_t)-EHOSTUNREACH);
    CHECK(id->state == CM_BOUND);
    /* the own address: of the port's GID alone */
    towards = native, device.places = &towards, device.place_count = device.place_room = 1;
    for (int at = 0; at < 2; at++) {
        ports[1].address_question = 99, device.place_room = 1;
        device.places = calloc(1, sizeof towards), device.places[0] = towards, device.place_count = 1;
        memset(mad, 0, sizeof mad), put(mad + 8, 99, 8), memcpy(mad + 64, native.gid, 16);
        mad[79] ^= (uint8_t)(at == 0), memcpy(mad + DATA_AT + 12, (uint8_t[]){10, 1, 1, 1}, 4);
        answered(&ports[1], 0, mad);
        CHECK(device.place_count == 1 + (uint32_t)at && !ports[1].address_question && ports[1].address_known);
    }
    ports[1].address_question = 99;
    answered(&ports[1], ETIMEDOUT, mad); /* asked for again at the next time */
    CHECK(device.place_count == 2 && !ports[1].address_question && !ports[1].address_known);
    group = ip("10.1.1.1", 0);
    CHECK(!memcmp(device.places[1].address, group.gid, 16) && !memcmp(device.places[1].gid, native.gid, 16));
    ports[1].address_question = 99, group = ip("fd00::1:2", 0), device.place_count = 1;
    memcpy(mad + DATA_AT, group.gid, 16);
    answered(&ports[1], 0, mad);
    CHECK(device.place_count == 2 && !memcmp(device.places[1].address, group.gid, 16));
}

static void questions(void)
{
    static const uint8_t four_of[16] = {0xff, 0x12, 0x40, 0x01, 0x80, 0x02, 0, 0, 0, 0, 0, 0, 0x0f, 0xff, 1, 2};
    struct ip group = ip("239.255.1.2", 0), address_of = ip("10.2.3.4", 0);
    struct group joined_group = {0};
    uint8_t mad[SOFTHCA_MAD_BYTES], mgid[16];
    struct identifier *id = new_one(TYPE_UD, &native, "10.0.0.9");
    write_mgid(mgid, &group, 0x8002);
    CHECK(!memcmp(mgid, four_of, 16));
    group = ip("ff12:601b:1:2:3:4:5:6", 0);
    write_mgid(mgid, &group, 0x8002);
    CHECK(get(mgid, 4) == 0xff126001 && get(mgid + 4, 2) == 0x8002 && !memcmp(mgid + 6, group.gid + 6, 10));
    group = ip("ff15:a01b:1:2:3:4:5:6", 0); /* which subnet administration has given, of another scope */
    write_mgid(mgid, &group, 0x8002);
    CHECK(!memcmp(mgid, group.gid, 16));
    question_of_address(mad, &address_of);
    CHECK(!get(mad + DATA_AT, 8) && !get(mad + DATA_AT + 8, 4) && get(mad + DATA_AT + 12, 4) == 0x0a020304);
    address_of = ip("fd00::7", 0);
    question_of_address(mad, &address_of);
    CHECK(!memcmp(mad + DATA_AT, address_of.gid, 16));
    pkeys[0] = 0x1234; /* a limited member asks for the group of the full ones */
    CHECK(!group_ask(id, &joined_group, &group, 1000) && joined_group.question == get(asked_mad + 8, 8));
    CHECK(asked_mad[3] == METHOD_SET && get(asked_mad + 96, 2) == 0x9234 && get(asked_mad + 88, 4) == UDP_QKEY);
    CHECK(asked_mad[104] == FULL_MEMBER && !memcmp(asked_mad + 72, native.gid, 16));
    /* what a member's record says */
    memset(mad, 0, sizeof mad);
    joined_group.next = NULL, id->groups = calloc(1, sizeof joined_group), *id->groups = joined_group;
    put(mad + 8, joined_group.question, 8), put(mad + 88, 0x11223344, 4), put(mad + 92, 0xC007, 2);
    put(mad + 100, 0x5ABCDE09, 4);
    answered(&ports[1], 0, mad);
    CHECK(posted->ucma.event == UCMA_MULTICAST_JOIN && posted->ucma.param.ud.qkey == 0x11223344);
    CHECK(posted->ucma.param.ud.ah_attr.flow_label == 0xABCDE && posted->ucma.param.ud.ah_attr.sl == 5);
    CHECK(posted->ucma.param.ud.ah_attr.hop_limit == 9 && posted->ucma.param.ud.ah_attr.dlid == 0xC007);
    CHECK(!id->groups->question);
    put(mad + 4, 0x300, 2), id->groups->question = get(mad + 8, 8);
    answered(&ports[1], 0, mad);
    CHECK(posted->ucma.event == UCMA_MULTICAST_ERROR && posted->ucma.status == (uint32_t)-EADDRNOTAVAIL);
}

/* Own addresses are waited for, but for no answer to a question that could not be sent, and not for ever. */
static void own_addresses(void)
{
    struct device gone = device;
    port_now.sm_lid = 5, refuses = EIO;
    addresses_learn(&device);
    CHECK(!ports[1].address_question && !naps && !ports[1].questions);
    refuses = 0;
    addresses_learn(&device);
    CHECK(!ports[1].address_question && naps == 2 * ADDRESS_MS && ports[1].questions == 1);
    CHECK(get(asked_mad + 16, 2) == SERVICE_RECORD && told.send_mad.timeout_ms == ADDRESS_MS / 4);
    naps = 0, gone.gone = 1, ports[1].questions = 0;
    CHECK(attach(&gone) == EIO && !naps && !ports[1].questions); /* who has gone is asked nothing */
}

/* What comes in a port's rings: answers, which are counted, and messages, of which no more is taken than there is. */
static void taken(void)
{
    static struct softhca_ring control[2];
    static struct softhca_reference references[2][4];
    static unsigned char bodies[2][2048];
    struct identifier *id = met(TYPE_RC, &four);
    struct softhca_cm_header header = {.kind = SOFTHCA_CM_REJECTED, .id = 77, .private_bytes = UINT16_MAX};
    for (int at = 0; at < 2; at++) {
        uint64_t word = (uint64_t)(at ? ENTRY_BYTES : SOFTHCA_CM_ENTRY_BYTES) << 32;
        struct ring ring = {.control = &control[at], .references = references[at], .bodies = bodies[at],
                            .entries = 4, .body_bytes = 2048};
        memcpy(&references[at][0], &word, sizeof word);
        control[at].tail = 1;
        *(at ? &ports[0].answers : &ports[0].ring) = ring;
    }
    memcpy(bodies[0], &header, sizeof header);
    id->state = CM_CONNECTING;
    ports[0].asks = 1, ports[0].questions = 2, ports[1].open = 0;
    CHECK(take_all(&device) == 1 && ports[0].questions == 1 && id->state == CM_CLOSED);
    CHECK(posted->ucma.event == UCMA_REJECTED);
    CHECK(posted->ucma.param.conn.private_data_len == SOFTHCA_CM_PRIVATE_BYTES);
    CHECK(control[0].head == 1 && control[1].head == 1 && take_all(&device) == 1);
    ports[0].questions = 0;
    CHECK(take_all(&device) == 0);
}

static void ring_once(int number)
{
    (void)number;
}

/* A signal of the program's is no reason to believe that the device has gone. */
static void interrupted(void)
{
    struct sigaction action = {.sa_handler = ring_once};
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    device.events = eventfd(0, EFD_CLOEXEC), device.bell = eventfd(0, EFD_CLOEXEC);
    CHECK(device.events >= 0 && device.bell >= 0 && !sigaction(SIGALRM, &action, NULL));
    CHECK(!setitimer(ITIMER_REAL, &often, NULL));
    CHECK(wait_for_news(&device, 0));
    CHECK(!setitimer(ITIMER_REAL, &never, NULL));
}

/* Who is told that an adapter has gone: who is bound to it and whom the program knows. */
static void removal(void)
{
    struct identifier *id = met(TYPE_RC, &four), *unknown = met(TYPE_RC, &four), *unbound = met(TYPE_RC, &four);
    int sockets[2], cancel_state = 0;
    id->state = unknown->state = unbound->state = CM_CONNECTED;
    id->goodbye = unknown->goodbye = 1, unknown->uid = 0, unbound->place = NULL;
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) && !close(sockets[1]));
    device.events = sockets[0];
    cm_unlock(cancel_state);
    watch(&device);
    cm_lock(&cancel_state);
    CHECK(device.gone && posted->owner == id && posted->ucma.event == UCMA_DEVICE_REMOVAL);
    CHECK(id->state == CM_REMOVED && !id->goodbye);
    CHECK(unknown->state == CM_CONNECTED && unknown->goodbye && unbound->state == CM_CONNECTED);
}

/* Devices of the variable, their addresses, and which identifiers go with one. */
static void found_devices(void)
{
    struct device *each;
    struct place *found, **all;
    struct ip to = ip("127.0.0.1", 0);
    struct listening listens[2] = {{.port = &ports[0]}, {.port = &ports[0]}};
    struct identifier *id = new_one(TYPE_RC, &four, "10.0.0.9");
    char text[200], name[65] = {0};
    uint32_t count;
    memset(name, 'n', 64);
    snprintf(text, sizeof text, "a=udp:x,, =unix:y,none=unix:, first=unix:no,%s=unix:long,one=unix:place ,two=unix:@b",
             name);
    setenv("SOFTHCA_DEVICES", text, 1);
    CHECK(cm_serves());
    device_now.max_qp_rd_atom = 255, device_now.max_qp_init_rd_atom = 256, device_now.phys_port_cnt = 2;
    device_now.node_guid = 0x0102030405060708;
    port_now.gid_tbl_len = 4, port_now.link_layer = ETHERNET, port_now.active_mtu = 3;
    memcpy(gids[0], four.gid, 16), memcpy(gids[2], six.gid, 16);
    all = places_all(&count);
    each = listed();
    CHECK(!strcmp(each->name, "first") && !strcmp(each->next->name, "one") && !strcmp(each->next->socket, "place"));
    each = each->next;
    CHECK(!strcmp(each->next->name, "two") && !each->next->next);
    CHECK(count == 6 && all[0]->port->number == 1 && all[1]->port->number == 2); /* each port once */
    CHECK(each->place_count == 8 && each->most_resources == 254 && each->most_depth == 254);
    CHECK(each->place_room >= each->place_count + each->port_count); /* places do not move */
    CHECK(sigismember(&blocked_then, SIGUSR1) && sigismember(&blocked_then, SIGTERM));
    CHECK(each->guid == 0x0807060504030201 && !each->places[0].native && each->places[2].index == 2);
    CHECK(!is_used(&each->places[1]) && each->places[1].index == 1); /* empty, but an address may come */
    CHECK(place_at(&to, &found) == EADDRNOTAVAIL); /* no address of loopback here */
    struct ip comes = ip("10.7.7.7", 0), was;
    ip_of_gid(gids[0], 0, &was);
    CHECK(place_at(&comes, &found) == EADDRNOTAVAIL && !place_at(&was, &found) && found->index == 0);
    memcpy(gids[1], comes.gid, 16), memset(gids[0], 0, 16);
    CHECK(place_at(&was, &found) == EADDRNOTAVAIL); /* it has gone */
    CHECK(!place_at(&comes, &found) && found->index == 1);
    memcpy(gids[0], gids[1], 16), memset(gids[1], 0, 16);
    CHECK(place_of(each->ports, comes.gid, comes.gid)->index == 1); /* as it is known */
    CHECK(place_of(each->ports, comes.gid, native.address)->index == 1);
    CHECK(!place_at(&comes, &found) && found->index == 0); /* as it is */
    memcpy(gids[1], was.gid, 16);
    CHECK(place_of(each->ports, was.gid, was.gid)->index == 1);
    comes = ip("127.5.5.5", 0);
    memcpy(each->places[2].address, comes.gid, 16);
    CHECK(!place_at(&to, &found) && found == &each->places[2]);
    comes = ip("10.200.0.1", 0);
    CHECK(place_at(&comes, &found) == EADDRNOTAVAIL); /* only localhost is where loopback is */
    to = ip("::1", 0);
    CHECK(place_at(&to, &found) == EADDRNOTAVAIL); /* of the other IP version */
    memset(gids[2], 0, 16);
    to = ip("2001:db8::5", 0);
    CHECK(place_towards(&to, &found) == ENETUNREACH); /* an empty entry is no address of IPv6 */
    to = ip("::1", 0);
    /* of a native port the used entries alone: no addresses come there */
    struct device subnet = {.next = NULL};
    struct port alone = {.number = 1, .device = &subnet};
    port_now.link_layer = ETHERNET - 1;
    memset(gids, 0, sizeof gids), memcpy(gids[1], native.gid, 16);
    CHECK(!learn_places(&subnet, &alone) && subnet.place_count == 1 && subnet.places[0].index == 1);
    free(subnet.places), subnet.places = NULL, subnet.place_count = subnet.place_room = 0;
    port_now.gid_tbl_len = 300, port_now.link_layer = ETHERNET; /* an index has 8 bits */
    CHECK(!learn_places(&subnet, &alone) && subnet.place_count == 256);
    free(subnet.places), subnet.places = NULL, subnet.place_count = subnet.place_room = 0;
    port_now.gid_tbl_len = 4, device_now.max_qp_rd_atom = 7, device_now.max_qp_init_rd_atom = 9;
    CHECK(!learn(&subnet) && subnet.most_resources == 7 && subnet.most_depth == 9);
    free(subnet.places), free(subnet.ports), subnet.places = NULL, subnet.ports = NULL;
    memcpy(to.gid, native.gid, 16);
    CHECK(shares_subnet(&native, to.gid));
    to.gid[7] ^= 1;
    CHECK(!shares_subnet(&native, to.gid));
    refuses = ENOMEM;
    CHECK(port_open(each->ports) == ENOMEM && !each->ports[0].open && freed_rings == 1);
    refuses = 0;
    CHECK(!port_open(each->ports) && !port_open(each->ports) && each->ports[0].cm == 6);
    each->gone = 1;
    CHECK(port_open(each->ports) == EIO && attach(each) == EIO);
    CHECK(is_removed(id, &device));
    id->place = NULL;
    CHECK(!is_removed(id, &device));
    id->listening = listens, id->listening_count = 2, listens[1].port = each->ports;
    CHECK(!is_removed(id, &device)); /* it listens at one that is there */
    device.gone = 1;
    CHECK(is_removed(id, &device));
    /* the address that is asked for, of a port that has two of one GID */
    device.places = calloc(2, sizeof four), device.places[0] = native, device.places[1] = native, device.place_count = 2;
    address(&native, "10.1.1.1");
    memcpy(device.places[1].address, native.address, 16);
    CHECK(place_of(&ports[1], device.places[0].gid, native.address) == &device.places[1]);
    CHECK(place_of(&ports[1], device.places[0].gid, six.address) == &device.places[0]);
    CHECK(!place_of(&ports[0], device.places[0].gid, native.address));
    /* a native GID leads to its own subnet alone */
    struct wanted wanted = {.address = &to};
    CHECK(!leads_anywhere(&device.places[0], &wanted));
}

/* How many devices there may be, how long their sockets' names, and what becomes of them at the end. */
static void device_list(void)
{
    static char text[8192];
    struct device *each, *taken_ones;
    struct place *found;
    struct ip to = ip("10.0.0.1", 0);
    int count = 0, used = 0, bell, events;
    used = snprintf(text, sizeof text, "%s=unix:%0*d", "x", (int)sizeof each->socket, 0);
    for (int at = 0; at < MOST_DEVICES + 1; at++)
        used += snprintf(text + used, sizeof text - (size_t)used, ",d%d=unix:%0*d", at,
                         (int)sizeof each->socket - 1, at);
    setenv("SOFTHCA_DEVICES", text, 1);
    for (each = listed(); each; each = each->next)
        CHECK(each->name[0] == 'd' && strlen(each->socket) == sizeof each->socket - 1 && ++count <= MOST_DEVICES);
    CHECK(count == MOST_DEVICES);
    attach_error = ECONNREFUSED;
    CHECK(place_at(&to, &found) == ECONNREFUSED);
    attach_error = 0, device_now.phys_port_cnt = 1;
    CHECK(!attach(devices) && !attach(devices->next));
    bell = devices->bell, events = devices->events;
    taken_ones = devices;
    CHECK(devices_take() == taken_ones && taken_ones->closing && taken_ones->next->closing && !devices);
    shutdown(events, SHUT_RDWR), each = taken_ones->next;
    detach(taken_ones);
    CHECK(fcntl(bell, F_GETFD) == -1 && fcntl(events, F_GETFD) == -1);
    devices = each, bell = each->bell, events = each->events;
    devices_abandon(); /* in a forked child */
    CHECK(fcntl(bell, F_GETFD) == -1 && fcntl(events, F_GETFD) == -1 && !devices);
}

int main(int argc, char **argv)
{
    static const struct tried cases[] = {
        {"groups", groups}, {"routes", routes}, {"questions", questions}, {"devices", found_devices},
        {"removal", removal}, {"own-addresses", own_addresses}, {"taken", taken}, {"interrupted", interrupted},
        {"device-list", device_list},
    };
    return run(argc, argv, cases, sizeof cases / sizeof *cases);
}
