/* The rdma_cm device in the client: files, identifiers, devices.  All of it is guarded by one lock. */
#ifndef SOFTHCA_CM_H
#define SOFTHCA_CM_H

#include "../host.h"
#include "cm_states.h"
#include "ucma.h"

#define SPACE_TCP 0x0106
#define SPACE_UDP 0x0111
#define SPACE_IB 0x013F
#define TYPE_RC 2U
#define TYPE_UC 3U
#define TYPE_UD 4U
#define TYPE_XRC_SEND 9U
#define TYPE_XRC_RECV 10U
#define UDP_QKEY 0x01234567U

struct identifier;

/* An address as a GID (IPv4 ones are mapped), a port number in host order, and the interface of a link-local
   address.  `version` 0: none. */
struct ip {
    uint8_t gid[16];
    uint16_t port;
    uint8_t version;
    uint32_t scope;
};

/* A port of a device, with its channel of connections where that is `open`, and its agent for questions to
   subnet administration where it `asks`; so many `questions` are under way.  `address_question`: the one for its
   IP address, which has been answered where that is `address_known`. */
struct port {
    struct device *device;
    uint8_t number, open, asks, address_known;
    uint32_t cm, agent, questions;
    uint64_t address_question;
    struct ring ring, answers;
};

/* An address of a port, in the form of a GID, with its GID: entry `index` of the table.  `native`: it is
   InfiniBand's, where a GID is an IPv6 address of its own subnet alone, and another address is one that subnet
   administration knows. */
struct place {
    struct port *port;
    uint8_t index, mtu, native, gid[16], address[16];
};

struct device {
    struct device *next;
    char name[64], socket[108];
    struct host *host;         /* NULL: not attached */
    int events;                /* the event channel */
    int bell;                  /* an eventfd: there are questions to wait for */
    uint32_t channel;
    pthread_t thread;
    int closing, gone;
    uint64_t guid;             /* in network order */
    uint8_t most_resources, most_depth;
    uint32_t port_count, place_count, place_room; /* identifiers refer to places, which do not move */
    struct port *ports;
    struct place *places;
};

struct group {
    struct group *next;
    uint32_t number, events_reported;
    uint64_t uid, question;    /* to subnet administration; 0: none is under way */
    uint8_t gid[16];           /* its address */
};

/* In a group, as subnet administration says. */
struct membership {
    uint8_t mgid[16], sl, hop_limit;
    uint16_t lid;
    uint32_t qkey, flow_label;
};

/* One side of a connection, as REQ and REP carry it. */
struct end {
    uint32_t qp_num, psn;
    uint8_t responder_resources, initiator_depth, retry_cnt, rnr_retry, srq, flow_control, known;
};

struct path {
    uint8_t gid[16], traffic_class, sl, hop_limit, mtu, ack_timeout, known;
    uint16_t lid;
    uint32_t flow_label;
};

/* The way on native links, as subnet administration or a request tells it. */
struct route {
    uint16_t dlid, pkey, pkey_index;
    uint8_t sl, mtu, known;
};

struct listening {
    struct port *port;
    uint32_t number;
};

struct identifier {
    struct file *file;
    uint64_t uid;
    uint32_t handle, events_reported;
    uint16_t space;
    uint8_t qp_type; /* what queue pairs are connected; that of a listener is its peers' other side */
    uint8_t state, bound, listens, reuse, traffic_class, goodbye, active;
    int ack_timeout, family_only;  /* -1: not said */
    uint32_t qkey, psn;
    struct ip source, destination;
    uint8_t peer_gid[16];      /* that of the destination */
    struct place *place;
    struct route route;
    uint64_t question;         /* to subnet administration, of a port or of the route; 0: none is under way */
    /* the connection: its number among those of `port`, where that is set */
    struct port *port;
    uint32_t number;
    struct end own, peer;
    struct path path;
    struct listening *listening;
    uint32_t listening_count;
    struct event *request;     /* that tells of it: until the program has taken it, it does not know of this one */
    struct group *groups;
};

struct event {
    struct event *next;
    struct identifier *owner;
    struct group *group;
    struct identifier *child;  /* that asks for a connection of `owner` */
    struct ucma_event ucma;
};

/* One open of the device.  One byte in its socket says that events wait.  `descriptor` is the program's, -1: it was
   closed; `inner` is another one of the same socket, which who waits for events reads; `dead`: it is the
   parent's of this forked process; `users` wait for events; `ended`: it stands for no open. */
struct file {
    int descriptor, inner, other, token, dead, ended;
    _Atomic int users;
    uint64_t inode, other_inode;
    pid_t pid;
    struct file *next;
    struct event *first, **last;
};

#define MOST_FILES 65536

void cm_lock(int *cancel_state);
void cm_unlock(int cancel_state);
#define LOCKED(statement)                  \
    do {                                   \
        int cancel_state_;                 \
        cm_lock(&cancel_state_);           \
        statement;                         \
        cm_unlock(cancel_state_);          \
    } while (0)

/* Files: what the preloaded functions call.  `cm_open` and `cm_close` are as open(2) and close(2). */
int cm_serves(void);
int cm_open(int flags);
struct file *cm_find(int descriptor);
int cm_close(struct file *file, int descriptor);
ssize_t cm_write(struct file *file, int descriptor, const void *data, size_t bytes);
/* A command, its fields behind the header checked for their length alone; errno. */
int cm_command(struct file *file, const struct ucma_header *header, const void *data);
struct file *file_of(int descriptor);
void file_post(struct file *file, struct event *event);
/* The events of an identifier (of a group of it) are another file's from now on, nobody's where that is NULL;
   how many those were. */
void file_move(struct file *from, struct file *to, struct identifier *owner, struct group *group);
/* An event that waits is none any more. */
void file_drop(struct file *file, struct event *event);

/* Devices */
/* Attach to all that can be attached to.  It takes milliseconds, which a program that has told its peers a port
   number is not to spend in front of listening. */
void devices_attach(void);
int place_at(const struct ip *address, struct place **found);
int place_towards(const struct ip *destination, struct place **found);
/* All ports, each by its first address; NULL where there is none. */
struct place **places_all(uint32_t *count);
/* The place of a port with a GID, and that address where it has it; else some other of the port's. */
struct place *place_of(struct port *port, const uint8_t *gid, const uint8_t *address);
int place_add(struct device *device, const struct place *place);
/* Whether a GID is one of a native place's subnet. */
int shares_subnet(const struct place *place, const uint8_t *gid);
int port_open(struct port *port);
struct device *devices_take(void);
void devices_free(struct device *list);
void devices_abandon(void);

/* Routes */

/* Ask for the port that has the destination's IP address, or for the route of an identifier whose peer's GID
   is known: an event tells of the answer, or that there is none within `timeout_ms`; errno. */
int port_ask(struct identifier *id, uint32_t timeout_ms);
int route_ask(struct identifier *id, uint32_t timeout_ms);
int group_ask(struct identifier *id, struct group *group, const struct ip *address, uint32_t timeout_ms);
int routes_take(struct device *device);
/* Learn the IP addresses of native ports, where subnet administration can tell them. */
void addresses_learn(struct device *device);
/* Where a port has a partition's key, as a full member or a limited one; errno. */
int pkey_index(const struct port *port, uint16_t pkey, uint16_t *found);

/* Addresses */
int ip_parse(const void *address, size_t bytes, struct ip *found);
void ip_write(const struct ip *ip, void *address);
int ip_is_any(const struct ip *ip);
int ip_is_group(const struct ip *ip);
int ip_is_localhost(const struct ip *ip);
int gid_is_loopback(const uint8_t *gid);
void ip_of_gid(const uint8_t *gid, uint16_t port, struct ip *found);

/* Identifiers */
int identifier_new(struct file *file, uint16_t space, uint8_t qp_type, uint64_t uid,
                   struct identifier **found);
static inline int connects(const struct identifier *id) /* else queue pairs of datagrams are resolved */
{
    return id->qp_type != TYPE_UD;
}
int identifier_find(struct file *file, uint32_t handle, struct identifier **found);
struct identifier *identifier_next(uint32_t *handle);
void identifier_free(struct identifier *id);
void identifiers_forget(void);
int identifier_bind(struct identifier *id, const struct ip *address);
int identifier_listen_port(struct identifier *id);
int state_after(const struct identifier *id, int input, uint8_t *state);
struct event *event_new(struct identifier *owner, uint32_t kind);
int queue_event(struct identifier *id, uint32_t kind, int status);

/* Groups */
int group_join(struct identifier *id, uint64_t response, uint64_t uid, const void *address, size_t bytes);
int group_leave(struct file *file, uint32_t number, uint32_t *reported);
/* What subnet administration has answered. */
void group_found(struct identifier *id, struct group *group, int error, const struct membership *found);

/* Connections */

#define HEADER_BYTES 36U
/* The header of requests (IBTA annex A11.4.2): IPv4 addresses stand in the last four bytes. */

struct ip_header {
    uint8_t versions, ip;
    uint16_t port;
    uint8_t source[16], destination[16];
};
_Static_assert(sizeof(struct ip_header) == HEADER_BYTES, "ip_header");

static inline void read_address(uint8_t *gid, const uint8_t *from, int version)
{
    memcpy(gid, from, 16);
    if (version == 4) {
        memset(gid, 0, 12);
        gid[10] = gid[11] = 0xff;
    }
}

static inline uint64_t service_id(uint16_t space, uint16_t port)
{
    return (uint64_t)space << 16 | port;
}

static inline struct host *host_of(const struct port *port)
{
    return port->device->host;
}

int cm_connect(struct identifier *id, const struct ucma_conn_param *parameters);
int cm_listen(struct identifier *id, uint32_t backlog);
void cm_stop_listening(struct identifier *id);
/* Who takes a request that came to a listener of `port`; NULL: nobody. */
struct identifier *cm_listener(const struct port *port, const struct softhca_cm_header *entry,
                               const struct ip_header *header);
int cm_accept(struct identifier *id, const struct ucma_conn_param *parameters, uint64_t uid);
int cm_reject(struct identifier *id, const struct ucma_reject *reject);
int cm_disconnect(struct identifier *id);
int cm_notify(struct identifier *id);
int cm_attributes(const struct identifier *id, uint32_t state, struct ucma_qp_attr *attributes);
void cm_end(struct port *port, uint32_t number);
void cm_vector(const struct identifier *id, const uint8_t *gid, struct ucma_ah_attr *vector);
/* An entry of a port's channel. */
void cm_entry(struct port *port, const struct softhca_cm_header *entry, const uint8_t *private_data);

#endif
