/* The commands of the kernel's rdma_cm device (its user ABI, version 4), as librdmacm writes them. */
#ifndef SOFTHCA_UCMA_H
#define SOFTHCA_UCMA_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define UCMA_SIZED(name, bytes) _Static_assert(sizeof(struct name) == (bytes), #name)
#define UCMA_PRIVATE_BYTES 256

enum ucma_command {
    UCMA_CREATE_ID, UCMA_DESTROY_ID, UCMA_BIND_IP, UCMA_RESOLVE_IP, UCMA_RESOLVE_ROUTE, UCMA_QUERY_ROUTE,
    UCMA_CONNECT, UCMA_LISTEN, UCMA_ACCEPT, UCMA_REJECT, UCMA_DISCONNECT, UCMA_INIT_QP_ATTR, UCMA_GET_EVENT,
    UCMA_GET_OPTION, UCMA_SET_OPTION, UCMA_NOTIFY, UCMA_JOIN_IP_MCAST, UCMA_LEAVE_MCAST, UCMA_MIGRATE_ID,
    UCMA_QUERY, UCMA_BIND, UCMA_RESOLVE_ADDR, UCMA_JOIN_MCAST, UCMA_RESOLVE_IB_SERVICE, UCMA_WRITE_CM_EVENT,
    UCMA_COMMANDS
};

enum ucma_event_kind {
    UCMA_ADDR_RESOLVED, UCMA_ADDR_ERROR, UCMA_ROUTE_RESOLVED, UCMA_ROUTE_ERROR, UCMA_CONNECT_REQUEST,
    UCMA_CONNECT_RESPONSE, UCMA_CONNECT_ERROR, UCMA_UNREACHABLE, UCMA_REJECTED, UCMA_ESTABLISHED,
    UCMA_DISCONNECTED, UCMA_DEVICE_REMOVAL, UCMA_MULTICAST_JOIN, UCMA_MULTICAST_ERROR, UCMA_ADDR_CHANGE,
    UCMA_TIMEWAIT_EXIT, UCMA_ADDRINFO_RESOLVED, UCMA_ADDRINFO_ERROR, UCMA_USER, UCMA_INTERNAL
};

enum { UCMA_OPTION_ID, UCMA_OPTION_IB };
enum { UCMA_OPTION_TOS, UCMA_OPTION_REUSEADDR, UCMA_OPTION_AFONLY, UCMA_OPTION_ACK_TIMEOUT };
enum { UCMA_OPTION_IB_PATH = 1 };
enum { UCMA_QUERY_ADDR, UCMA_QUERY_PATH, UCMA_QUERY_GID };

/* In front of every command: `in` bytes follow it, the answer has room for `out`. */
struct ucma_header {
    uint32_t command;
    uint16_t in, out;
};
UCMA_SIZED(ucma_header, 8);

struct ucma_create_id {
    uint64_t uid, response;
    uint16_t ps;
    uint8_t qp_type, reserved[5];
};
UCMA_SIZED(ucma_create_id, 24);

/* DESTROY_ID and LEAVE_MCAST; of QUERY_ROUTE, QUERY and INIT_QP_ATTR too, with what is asked for. */
struct ucma_query {
    uint64_t response;
    uint32_t id, option;
};
UCMA_SIZED(ucma_query, 16);

struct ucma_bind_ip {
    uint64_t response;
    struct sockaddr_in6 addr;
    uint32_t id;
};
UCMA_SIZED(ucma_bind_ip, 40);

struct ucma_bind {
    uint32_t id;
    uint16_t addr_size, reserved;
    struct sockaddr_storage addr;
};
UCMA_SIZED(ucma_bind, 136);

struct ucma_resolve_ip {
    struct sockaddr_in6 src_addr, dst_addr;
    uint32_t id, timeout_ms;
};
UCMA_SIZED(ucma_resolve_ip, 64);

struct ucma_resolve_addr {
    uint32_t id, timeout_ms;
    uint16_t src_size, dst_size;
    uint32_t reserved;
    struct sockaddr_storage src_addr, dst_addr;
};
UCMA_SIZED(ucma_resolve_addr, 272);

/* RESOLVE_ROUTE, LISTEN and NOTIFY: the number is a time-out, a backlog, an event. */
struct ucma_number {
    uint32_t id, number;
};
UCMA_SIZED(ucma_number, 8);

struct ucma_path {
    uint8_t dgid[16], sgid[16];
    uint16_t dlid, slid;
    uint32_t raw_traffic, flow_label, reversible, mtu;
    uint16_t pkey;
    uint8_t hop_limit, traffic_class, numb_path, sl, mtu_selector, rate_selector, rate;
    uint8_t packet_life_time_selector, packet_life_time, preference;
};
UCMA_SIZED(ucma_path, 64);

struct ucma_route {
    uint64_t node_guid;
    struct ucma_path ib_route[2];
    struct sockaddr_in6 src_addr, dst_addr;
    uint32_t num_paths;
    uint8_t port_num, reserved[3];
    uint32_t ibdev_index, reserved1;
};
UCMA_SIZED(ucma_route, 208);

struct ucma_addresses {
    uint64_t node_guid;
    uint8_t port_num, reserved;
    uint16_t pkey, src_size, dst_size;
    struct sockaddr_storage src_addr, dst_addr;
    uint32_t ibdev_index, reserved1;
};
UCMA_SIZED(ucma_addresses, 280);

struct ucma_conn_param {
    uint32_t qp_num, qkey;
    uint8_t private_data[UCMA_PRIVATE_BYTES], private_data_len, srq, responder_resources, initiator_depth;
    uint8_t flow_control, retry_count, rnr_retry_count, valid;
};
UCMA_SIZED(ucma_conn_param, 272);

struct ucma_ah_attr {
    uint8_t dgid[16];
    uint32_t flow_label;
    uint8_t sgid_index, hop_limit, traffic_class, reserved;
    uint16_t dlid;
    uint8_t sl, src_path_bits, static_rate, is_global, port_num, reserved1;
};
UCMA_SIZED(ucma_ah_attr, 32);

struct ucma_ud_param {
    uint32_t qp_num, qkey;
    struct ucma_ah_attr ah_attr;
    uint8_t private_data[UCMA_PRIVATE_BYTES], private_data_len, reserved[7];
};
UCMA_SIZED(ucma_ud_param, 304);

struct ucma_ece {
    uint32_t vendor_id, attr_mod;
};

struct ucma_connect {
    struct ucma_conn_param conn_param;
    uint32_t id, reserved;
    struct ucma_ece ece;
};
UCMA_SIZED(ucma_connect, 288);

struct ucma_accept {
    uint64_t uid;
    struct ucma_conn_param conn_param;
    uint32_t id, reserved;
    struct ucma_ece ece;
};
UCMA_SIZED(ucma_accept, 296);

struct ucma_reject {
    uint32_t id;
    uint8_t private_data_len, reason, reserved[2], private_data[UCMA_PRIVATE_BYTES];
};
UCMA_SIZED(ucma_reject, 264);

struct ucma_qp_attr {
    uint32_t qp_attr_mask, qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num;
    uint32_t qp_access_flags;
    struct ucma_ah_attr ah_attr, alt_ah_attr;
    uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
    uint16_t pkey_index, alt_pkey_index;
    uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num;
    uint8_t timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, reserved[5];
};
UCMA_SIZED(ucma_qp_attr, 144);

struct ucma_join_ip_mcast {
    uint64_t response, uid;
    struct sockaddr_in6 addr;
    uint32_t id;
};
UCMA_SIZED(ucma_join_ip_mcast, 48);

struct ucma_join_mcast {
    uint64_t response, uid;
    uint32_t id;
    uint16_t addr_size, join_flags;
    struct sockaddr_storage addr;
};
UCMA_SIZED(ucma_join_mcast, 152);

struct ucma_event {
    uint64_t uid;
    uint32_t id, event, status;
    union {
        struct ucma_conn_param conn;
        struct ucma_ud_param ud;
        uint32_t arg[2];
    } param;
    uint32_t reserved;
    struct ucma_ece ece;
};
UCMA_SIZED(ucma_event, 336);

/* Its end; conn and ud are as long as the kernel's union, and nobody writes them. */
struct ucma_write_event {
    uint32_t id, reserved, event, status, arg[2];
};
_Static_assert(sizeof(struct ucma_write_event) == 24, "no more than what is read of it");

struct ucma_set_option {
    uint64_t optval;
    uint32_t id, level, optname, optlen;
};
UCMA_SIZED(ucma_set_option, 24);

struct ucma_migrate_id {
    uint64_t response;
    uint32_t id, fd;
};
UCMA_SIZED(ucma_migrate_id, 16);

#endif
