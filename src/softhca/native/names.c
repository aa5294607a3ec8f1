/* Texts, rates, conversions from the kernel's structures, and what a software adapter need not do. */
#include "library.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define TEXT(table, index) \
    ((unsigned)(index) < sizeof(table) / sizeof *(table) && (table)[index] ? (table)[index] : "unknown")

EXPORT const char *ibv_wc_status_str(int status)
{
    static const char *const texts[] = {"success", "local length error", "local QP operation error",
        "local EE context operation error", "local protection error", "Work Request Flushed Error",
        "memory management operation error", "bad response error", "local access error",
        "remote invalid request error", "remote access error", "remote operation error",
        "transport retry counter exceeded", "RNR retry counter exceeded", "local RDD violation error",
        "remote invalid RD request", "aborted error", "invalid EE context number", "invalid EE context state",
        "fatal error", "response timeout error", "general error", "TM error", "TM software rendezvous"};
    return TEXT(texts, status);
}

EXPORT const char *ibv_event_type_str(int event)
{
    static const char *const texts[] = {"CQ error", "local work queue catastrophic error",
        "invalid request local work queue error", "local access violation work queue error",
        "communication established", "send queue drained", "path migrated", "path migration request error",
        "local catastrophic error", "port active", "port error", "LID change", "P_Key change", "SM change",
        "SRQ catastrophic error", "SRQ limit reached", "last WQE reached", "client reregistration",
        "GID table change", "WQ fatal", "device speed change"};
    return TEXT(texts, event);
}

EXPORT const char *ibv_node_type_str(int type)
{
    static const char *const texts[] = {NULL, "InfiniBand channel adapter", "InfiniBand switch",
        "InfiniBand router", "iWARP NIC", "usNIC", "usNIC UDP", "unspecified"};
    return TEXT(texts, type);
}

EXPORT const char *ibv_port_state_str(int state)
{
    static const char *const texts[] = {"no state change (NOP)", "down", "init", "armed", "active",
        "active defer"};
    return TEXT(texts, state);
}

/* ibv_rate: number, multiple of 2.5 Gb/s, Mb/s */
static const struct {
    int rate, mult, mbps;
} rates[] = {{2, 1, 2500}, {5, 2, 5000}, {3, 4, 10000}, {6, 8, 20000}, {4, 12, 30000}, {7, 16, 40000},
             {8, 24, 60000}, {9, 32, 80000}, {10, 48, 120000}, {11, -1, 14062}, {12, -1, 56250},
             {13, -1, 112500},
             {14, -1, 168750}, {15, -1, 25781}, {16, -1, 103125}, {17, -1, 206250}, {18, -1, 309375},
             {19, -1, 28125}, {20, -1, 50000}, {21, -1, 400000}, {22, -1, 600000}, {23, -1, 800000},
             {24, -1, 1200000}};
#define RATES (sizeof rates / sizeof *rates)

EXPORT int ibv_rate_to_mult(int rate)
{
    for (size_t i = 0; i < RATES; i++)
        if (rates[i].rate == rate)
            return rates[i].mult;
    return -1;
}

EXPORT int mult_to_ibv_rate(int mult)
{
    for (size_t i = 0; i < RATES && mult > 0; i++)
        if (rates[i].mult == mult)
            return rates[i].rate;
    return 0;
}

EXPORT int ibv_rate_to_mbps(int rate)
{
    for (size_t i = 0; i < RATES; i++)
        if (rates[i].rate == rate)
            return rates[i].mbps;
    return -1;
}

EXPORT int mbps_to_ibv_rate(int mbps)
{
    for (size_t i = 0; i < RATES; i++)
        if (rates[i].mbps == mbps)
            return rates[i].rate;
    return 0;
}

EXPORT const char *ibv_get_sysfs_path(void)
{
    const char *path = getenv("SYSFS_PATH");
    return path ? path : "/sys";
}

EXPORT int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t room)
{
    char path[512];
    ssize_t got;
    int descriptor;
    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path)
        return -1;
    descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return -1;
    got = read(descriptor, text, room);
    close(descriptor);
    if (got > 0 && text[got - 1] == '\n')
        text[--got] = 0;
    else if (got >= 0 && (size_t)got < room)
        text[got] = 0;
    return got < 0 || (size_t)got >= room ? -1 : (int)got;
}

static int read_ibdev_sysfs_file(char *text, size_t room, void *device, const char *format, ...)
{
    (void)text, (void)room, (void)device, (void)format;
    errno = ENOENT;
    return -1;
}
IN_ALL_NODES(ibv_read_ibdev_sysfs_file, read_ibdev_sysfs_file)

EXPORT int ibv_fork_init(void)
{
    return 0; /* the adapter reads memory of the process by its number: a fork parts nothing */
}

EXPORT int ibv_is_fork_initialized(void)
{
    return 2; /* not needed */
}

EXPORT int ibv_dontfork_range(void *begin, size_t bytes)
{
    (void)begin, (void)bytes;
    return 0;
}

EXPORT int ibv_dofork_range(void *begin, size_t bytes)
{
    (void)begin, (void)bytes;
    return 0;
}

EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    (void)qp;
    memset(ece, 0, sizeof *ece);
    return said(EOPNOTSUPP);
}

EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    (void)qp;
    return ece->vendor_id ? said(EOPNOTSUPP) : 0;
}

EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, int opcode, uint32_t flags)
{
    (void)qp, (void)opcode, (void)flags;
    return 0;
}

EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *base, struct ibv_ah_attr *attr, uint8_t *mac,
                                       uint16_t *vid)
{
    (void)base, (void)attr, (void)mac, (void)vid;
    return -EOPNOTSUPP;
}

/* From the kernel's structures, as librdmacm has them. */

struct kernel_ah_attr {
    struct ibv_global_route_kernel {
        uint8_t dgid[16];
        uint32_t flow_label;
        uint8_t sgid_index, hop_limit, traffic_class, reserved;
    } grh;
    uint16_t dlid;
    uint8_t sl, src_path_bits, static_rate, is_global, port_num, reserved;
};
SIZED(kernel_ah_attr, 32);

EXPORT void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *to, const struct kernel_ah_attr *from)
{
    memset(to, 0, sizeof *to);
    memcpy(&to->grh.dgid, from->grh.dgid, 16);
    to->grh.flow_label = from->grh.flow_label;
    to->grh.sgid_index = from->grh.sgid_index;
    to->grh.hop_limit = from->grh.hop_limit;
    to->grh.traffic_class = from->grh.traffic_class;
    to->dlid = from->dlid;
    to->sl = from->sl;
    to->src_path_bits = from->src_path_bits;
    to->static_rate = from->static_rate;
    to->is_global = from->is_global;
    to->port_num = from->port_num;
}

struct kernel_qp_attr {
    uint32_t qp_attr_mask, qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn,
        dest_qp_num;
    uint32_t qp_access_flags;
    struct kernel_ah_attr ah_attr, alt_ah_attr;
    uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
    uint16_t pkey_index, alt_pkey_index;
    uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num,
        timeout;
    uint8_t retry_cnt, rnr_retry, alt_port_num, alt_timeout, reserved[5];
};
SIZED(kernel_qp_attr, 144);

EXPORT void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *to, const struct kernel_qp_attr *from)
{
    memset(to, 0, sizeof *to);
    to->qp_state = (int)from->qp_state;
    to->cur_qp_state = (int)from->cur_qp_state;
    to->path_mtu = (int)from->path_mtu;
    to->path_mig_state = (int)from->path_mig_state;
    to->qkey = from->qkey;
    to->rq_psn = from->rq_psn;
    to->sq_psn = from->sq_psn;
    to->dest_qp_num = from->dest_qp_num;
    to->qp_access_flags = from->qp_access_flags;
    to->cap = (struct ibv_qp_cap){from->max_send_wr, from->max_recv_wr, from->max_send_sge,
        from->max_recv_sge,
                                  from->max_inline_data};
    ibv_copy_ah_attr_from_kern(&to->ah_attr, &from->ah_attr);
    ibv_copy_ah_attr_from_kern(&to->alt_ah_attr, &from->alt_ah_attr);
    to->pkey_index = from->pkey_index;
    to->alt_pkey_index = from->alt_pkey_index;
    to->en_sqd_async_notify = from->en_sqd_async_notify;
    to->sq_draining = from->sq_draining;
    to->max_rd_atomic = from->max_rd_atomic;
    to->max_dest_rd_atomic = from->max_dest_rd_atomic;
    to->min_rnr_timer = from->min_rnr_timer;
    to->port_num = from->port_num;
    to->timeout = from->timeout;
    to->retry_cnt = from->retry_cnt;
    to->rnr_retry = from->rnr_retry;
    to->alt_port_num = from->alt_port_num;
    to->alt_timeout = from->alt_timeout;
}

struct kernel_path_rec {
    uint8_t dgid[16], sgid[16];
    uint16_t dlid, slid;
    uint32_t raw_traffic, flow_label, reversible, mtu;
    uint16_t pkey;
    uint8_t hop_limit, traffic_class, numb_path, sl, mtu_selector, rate_selector, rate;
    uint8_t packet_life_time_selector, packet_life_time, preference;
};

struct ibv_sa_path_rec {
    uint8_t dgid[16], sgid[16];
    uint16_t dlid, slid;
    int raw_traffic;
    uint32_t flow_label;
    uint8_t hop_limit, traffic_class;
    int reversible;
    uint8_t numb_path;
    uint16_t pkey;
    uint8_t sl, mtu_selector, mtu, rate_selector, rate, packet_life_time_selector, packet_life_time,
        preference;
};
SIZED(ibv_sa_path_rec, 64);

#define EACH_OF_PATH(each)                                                                                   \
    each(dlid) each(slid) each(flow_label) each(hop_limit) each(traffic_class) each(numb_path) each(pkey)    \
    each(sl) each(mtu_selector) each(rate_selector) each(rate) each(packet_life_time_selector)               \
    each(packet_life_time) each(preference)

EXPORT void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *to, const struct kernel_path_rec *from)
{
    memset(to, 0, sizeof *to);
    memcpy(to->dgid, from->dgid, 16);
    memcpy(to->sgid, from->sgid, 16);
    to->raw_traffic = (int)from->raw_traffic;
    to->reversible = (int)from->reversible;
    to->mtu = (uint8_t)from->mtu;
#define TAKE(name) to->name = from->name;
    EACH_OF_PATH(TAKE)
}

EXPORT void ibv_copy_path_rec_to_kern(struct kernel_path_rec *to, const struct ibv_sa_path_rec *from)
{
    memset(to, 0, sizeof *to);
    memcpy(to->dgid, from->dgid, 16);
    memcpy(to->sgid, from->sgid, 16);
    to->raw_traffic = (uint32_t)from->raw_traffic;
    to->reversible = (uint32_t)from->reversible;
    to->mtu = from->mtu;
    EACH_OF_PATH(TAKE)
#undef TAKE
}
