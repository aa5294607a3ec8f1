/* Devices of SOFTHCA_DEVICES that are adapter processes, contexts, and what is asked of ports. */
#include "buffers.h"
#include "library.h"

#include <stdio.h>
#include <unistd.h>
#include <arpa/inet.h>

#define MOST_DEVICES 64
#define SPEED_NDR 128

static struct device *devices[MOST_DEVICES];
static int device_count;
static struct device *imported[MOST_DEVICES]; /* known by descriptors of other programs alone */
static int imported_count;
static struct context *contexts;
static pthread_mutex_t all = PTHREAD_MUTEX_INITIALIZER;

static uint64_t big_endian(uint64_t value)
{
    return __builtin_bswap64(value);
}

/* NULL where there is no memory, or name or place are too long. */
static struct device *make_device(const char *name, size_t name_bytes, const char *place, size_t place_bytes)
{
    struct device *device = name_bytes < sizeof device->device.name && place_bytes < sizeof device->socket
                                ? calloc(1, sizeof *device)
                                : NULL;
    if (!device)
        return NULL;
    memcpy(device->device.name, name, name_bytes);
    memcpy(device->socket, place, place_bytes);
    device->device.node_type = NODE_CA;
    device->device.transport_type = TRANSPORT_IB;
    snprintf(device->device.dev_name, sizeof device->device.dev_name, "uverbs%d", device_count);
    snprintf(device->device.dev_path, sizeof device->device.dev_path, "/sys/class/infiniband_verbs/uverbs%d",
             device_count);
    snprintf(device->device.ibdev_path, sizeof device->device.ibdev_path, "/sys/class/infiniband/%s",
             device->device.name);
    return device;
}

/* One word of SOFTHCA_DEVICES, NAME=unix:PLACE. */
static void add_device(const char *word, size_t length)
{
    const char *equals = memchr(word, '=', length);
    size_t name = equals ? (size_t)(equals - word) : 0, place = name + 6;
    if (!name || length <= place || memcmp(equals, "=unix:", 6) || device_count == MOST_DEVICES)
        return;
    struct device *device = make_device(word, name, word + place, length - place);
    if (device)
        devices[device_count++] = device;
}

static void fork_child(void)
{
    for (struct context *each = contexts; each; each = each->next)
        host_abandon(each->host);
    pthread_mutex_unlock(&all);
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&all);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&all);
}

static void read_devices(void)
{
    const char *text = getenv("SOFTHCA_DEVICES");
    pthread_atfork(fork_prepare, fork_parent, fork_child);
    while (text && *text) {
        size_t length = strcspn(text, ",");
        while (length && *text == ' ')
            text++, length--;
        size_t kept = length;
        while (kept && text[kept - 1] == ' ')
            kept--;
        add_device(text, kept);
        text += length + (text[length] == ',');
    }
}

/* The GUID of a device, from its adapter; errno. */
static int ask_guid(struct device *device)
{
    struct softhca_query_device_reply reply;
    struct host *host = host_attach(device->socket);
    int error;
    if (!host) {
        if (getenv("SOFTHCA_DEBUG"))
            fprintf(stderr, "softhca: %s at %s: %s\n", device->device.name, device->socket, strerror(errno));
        return errno;
    }
    GET(host, error, query_device, &reply);
    if (!error)
        device->guid = big_endian(reply.node_guid);
    host_detach(host);
    return error;
}

static pthread_once_t devices_read = PTHREAD_ONCE_INIT;

struct device *device_at(const char *name, const char *place)
{
    struct device *found = NULL;
    pthread_once(&devices_read, read_devices);
    pthread_mutex_lock(&all);
    for (int i = 0; !found && i < device_count; i++)
        if (!strcmp(devices[i]->socket, place))
            found = devices[i];
    for (int i = 0; !found && i < imported_count; i++)
        if (!strcmp(imported[i]->socket, place))
            found = imported[i];
    if (!found && imported_count < MOST_DEVICES && (found = make_device(name, strlen(name), place, strlen(place))))
        imported[imported_count++] = found;
    pthread_mutex_unlock(&all);
    return found ? found : failed(ENOMEM);
}

EXPORT struct ibv_device **ibv_get_device_list(int *count)
{
    static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
    struct ibv_device **list;
    int found = 0;
    pthread_once(&devices_read, read_devices);
    list = calloc((size_t)device_count + 1, sizeof *list);
    if (!list)
        return failed(ENOMEM);
    pthread_mutex_lock(&asking);
    for (int i = 0; i < device_count; i++)
        if (devices[i]->guid || !ask_guid(devices[i]))
            list[found++] = &devices[i]->device;
    pthread_mutex_unlock(&asking);
    if (count)
        *count = found;
    return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

EXPORT uint64_t ibv_get_device_guid(struct ibv_device *device)
{
    return OF(device, struct device, device)->guid;
}

EXPORT int ibv_get_device_index(struct ibv_device *device)
{
    (void)device;
    return -1;
}

/* Contexts */

static void learn_port(struct context *context)
{
    static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    struct softhca_query_gid query = {.port_num = 1};
    struct softhca_query_gid_reply gid;
    struct softhca_query_port port = {.port_num = 1};
    struct softhca_query_port_reply attributes;
    int error;
    CALL(context->host, error, query_port, &port, &attributes);
    if (error || attributes.link_layer != 2)
        return;
    CALL(context->host, error, query_gid, &query, &gid);
    if (!error)
        context->roce_sl = memcmp(gid.gid, mapped, sizeof mapped) ? 1 : 2;
}

static int learn_device(struct context *context);
static int query_device(struct ibv_context *base, struct ibv_device_attr *attr);
EXPORT int ibv_query_port_speed(struct ibv_context *base, uint32_t port, uint64_t *speed)
{
    static const struct {
        uint16_t code, figure; /* ibv_port_attr's; lanes, or units of 100 Mb/s a lane */
    } widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}},
      speeds[] = {{1, 25}, {2, 50}, {4, 100}, {8, 100}, {16, 140}, {32, 250}, {64, 500}, {128, 1000}, {256, 2000}};
    struct ibv_port_attr attr;
    uint64_t lanes = 1, each = 0;
    int error = port > UINT8_MAX ? said(EINVAL) : query_port_attr(base, (uint8_t)port, &attr, sizeof attr);
    if (error)
        return error;
    for (size_t index = 0; index < sizeof widths / sizeof *widths; index++)
        lanes = widths[index].code == attr.active_width ? widths[index].figure : lanes;
    for (size_t index = 0; index < sizeof speeds / sizeof *speeds; index++)
        each = speeds[index].code == attr.active_speed_ex ? speeds[index].figure : each;
    *speed = lanes * each;
    return 0;
}

static int query_port_op(struct ibv_context *base, uint8_t port, struct ibv_port_attr *attr);

static void set_ops(struct context *context)
{
    struct ibv_context_ops *ops = &context->context.ops;
    ops->query_device = query_device;
    ops->query_port = query_port_op;
    ops->alloc_mw = alloc_mw;
    ops->bind_mw = bind_mw;
    ops->dealloc_mw = dealloc_mw;
    ops->poll_cq = poll_cq;
    ops->req_notify_cq = req_notify_cq;
    ops->post_srq_recv = post_srq_recv;
    ops->post_send = post_send;
    ops->post_recv = post_recv;
    context->front.sz = sizeof context->front + sizeof context->context;
    context->front.query_port = query_port_attr;
    set_extended_ops(&context->front);
    set_memory_ops(&context->front);
    context->context.abi_compat = UINTPTR_MAX;
}

struct ibv_context *open_context(struct device *device)
{
    struct context *context = calloc(1, sizeof *context);
    if (!context)
        return failed(ENOMEM);
    context->device = device;
    context->context.device = &device->device;
    context->context.cmd_fd = -1;
    context->context.num_comp_vectors = (int)sysconf(_SC_NPROCESSORS_CONF); /* programs name a processor's */
    context->context.async_fd = -1;
    pthread_mutex_init(&context->context.mutex, NULL);
    pthread_mutex_init(&context->objects, NULL);
    context->host = host_attach(device->socket);
    int error = context->host ? learn_device(context) : errno;
    if (!error)
        error = events_open(context);
    if (error) {
        if (context->host)
            host_detach(context->host);
        free(context);
        return failed(error);
    }
    set_ops(context);
    learn_port(context);
    if (softhca_buffers_open)
        softhca_buffers_open();
    pthread_mutex_lock(&all);
    context->next = contexts;
    contexts = context;
    pthread_mutex_unlock(&all);
    return &context->context;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *base)
{
    struct ibv_context *opened = open_context(OF(base, struct device, device));
    int error = opened ? export_context(CONTEXT(opened)) : 0;
    if (error) {
        ibv_close_device(opened);
        return failed(error);
    }
    return opened;
}

EXPORT int ibv_close_device(struct ibv_context *base)
{
    struct context *context = CONTEXT(base), **each;
    pthread_mutex_lock(&all);
    for (each = &contexts; *each && *each != context; each = &(*each)->next)
        ;
    if (*each)
        *each = context->next;
    pthread_mutex_unlock(&all);
    host_detach(context->host);
    if (base->async_fd >= 0)
        close(base->async_fd);
    if (base->cmd_fd >= 0)
        close(base->cmd_fd);
    pthread_mutex_destroy(&context->objects);
    free(context);
    return 0;
}

/* Queries */

#define EACH_DEVICE_ATTRIBUTE(each)                                                                         \
    each(max_mr_size) each(page_size_cap) each(vendor_id) each(vendor_part_id) each(hw_ver) each(max_qp)    \
    each(max_qp_wr) each(device_cap_flags) each(max_sge) each(max_sge_rd) each(max_cq) each(max_cqe)        \
    each(max_mr) each(max_pd) each(max_qp_rd_atom) each(max_ee_rd_atom) each(max_res_rd_atom)               \
    each(max_qp_init_rd_atom) each(max_ee_init_rd_atom) each(max_ee) each(max_rdd) each(max_mw)             \
    each(max_raw_ipv6_qp) each(max_raw_ethy_qp) each(max_mcast_grp) each(max_mcast_qp_attach)               \
    each(max_total_mcast_qp_attach) each(max_ah) each(max_fmr) each(max_map_per_fmr) each(max_srq)          \
    each(max_srq_wr) each(max_srq_sge) each(max_pkeys) each(local_ca_ack_delay) each(phys_port_cnt)         \
    each(atomic_cap)

static void fill_device(const struct softhca_query_device_reply *from, struct ibv_device_attr *to)
{
    uint32_t length = from->fw_ver_bytes < 63 ? from->fw_ver_bytes : 63;
    memset(to, 0, sizeof *to);
    memcpy(to->fw_ver, from->fw_ver, length);
    to->node_guid = big_endian(from->node_guid);
    to->sys_image_guid = big_endian(from->sys_image_guid);
#define TAKE(name) to->name = (__typeof__(to->name))from->name;
    EACH_DEVICE_ATTRIBUTE(TAKE)
#undef TAKE
}

/* Ask the adapter for the attributes, at the opening; errno.  Text of a reply stands in the buffer that the next
   command takes. */
static int learn_device(struct context *context)
{
    struct softhca_query_device_reply reply;
    struct ibv_device_attr_ex *attr = &context->attributes;
    struct host *host = context->host;
    int error, cancel_state;
    lock_commands(host, &cancel_state);
    error = host_exchange(host, softhca_encode_query_device(host->out, sizeof host->out, host->tag + 1));
    if (!error)
        error = decoded(softhca_decode_query_device_reply(host->in, host->in_bytes, &reply));
    if (!error)
        fill_device(&reply, &attr->orig_attr);
    unlock_commands(host, cancel_state);
    if (error)
        return error;
    attr->odp_general_caps = reply.odp_general_caps;
    attr->rc_odp_caps = reply.rc_odp_caps;
    attr->uc_odp_caps = reply.uc_odp_caps;
    attr->ud_odp_caps = reply.ud_odp_caps;
    attr->xrc_odp_caps = reply.xrc_odp_caps;
    attr->packet_pacing_caps.qp_rate_limit_min = reply.qp_rate_limit_min;
    attr->packet_pacing_caps.qp_rate_limit_max = reply.qp_rate_limit_max;
    attr->packet_pacing_caps.supported_qpts = reply.qp_rate_limit_qpts;
    attr->rss_caps.supported_qpts = reply.rss_qpts;
    attr->rss_caps.max_rwq_indirection_tables = reply.max_rwq_indirection_tables;
    attr->rss_caps.max_rwq_indirection_table_size = reply.max_rwq_indirection_table_size;
    attr->rss_caps.rx_hash_fields_mask = reply.rx_hash_fields_mask;
    attr->rss_caps.rx_hash_function = (uint8_t)reply.rx_hash_function;
    attr->max_wq_type_rq = reply.max_wq_type_rq;
    attr->device_cap_flags_ex = reply.device_cap_flags_ex | reply.device_cap_flags;
    attr->completion_timestamp_mask = UINT64_MAX; /* nanoseconds of CLOCK_MONOTONIC */
    attr->hca_core_clock = 1000000;               /* kHz */
    attr->max_dm_size = MAX_DM_BYTES;
    attr->phys_port_cnt_ex = attr->orig_attr.phys_port_cnt;
    return 0;
}

static int query_device(struct ibv_context *base, struct ibv_device_attr *attr)
{
    *attr = CONTEXT(base)->attributes.orig_attr;
    return 0;
}

EXPORT int ibv_query_device(struct ibv_context *base, struct ibv_device_attr *attr)
{
    return query_device(base, attr);
}

int query_device_ex(struct ibv_context *base, const void *input, struct ibv_device_attr_ex *attr,
                    size_t bytes)
{
    const struct ibv_device_attr_ex *whole = &CONTEXT(base)->attributes;
    (void)input;
    memcpy(attr, whole, bytes < sizeof *whole ? bytes : sizeof *whole);
    if (bytes > sizeof *whole)
        memset((char *)attr + sizeof *whole, 0, bytes - sizeof *whole);
    return 0;
}

static int filled_gids(struct ibv_context *base, uint8_t port, int limit)
{
    struct softhca_query_gid_reply reply;
    static const uint8_t none[16];
    int filled = 0;
    for (int index = 0; index < limit; index++) {
        struct softhca_query_gid query = {.port_num = port, .index = (uint32_t)index};
        int error;
        CALL(HOST(base), error, query_gid, &query, &reply);
        if (!error && memcmp(reply.gid, none, sizeof none))
            filled = index + 1;
    }
    return filled ? filled : 1;
}

/* Programs ask for every entry of a table, one at a time: its length is that of the filled part. */
int query_port_attr(struct ibv_context *base, uint8_t port, struct ibv_port_attr *attr, size_t bytes)
{
    struct softhca_query_port query = {.port_num = port};
    struct softhca_query_port_reply reply;
    struct ibv_port_attr whole;
    int error;
    CALL(HOST(base), error, query_port, &query, &reply);
    if (error)
        return said(error);
    memset(&whole, 0, sizeof whole);
#define TAKE(name) whole.name = (__typeof__(whole.name))reply.name
    TAKE(state), TAKE(max_mtu), TAKE(active_mtu), TAKE(port_cap_flags), TAKE(max_msg_sz), TAKE(bad_pkey_cntr);
    TAKE(qkey_viol_cntr), TAKE(lid), TAKE(sm_lid), TAKE(lmc), TAKE(max_vl_num), TAKE(sm_sl);
    TAKE(subnet_timeout), TAKE(init_type_reply), TAKE(active_width), TAKE(active_speed), TAKE(phys_state);
    TAKE(link_layer), TAKE(flags), TAKE(port_cap_flags2);
#undef TAKE
    whole.active_speed_ex = reply.active_speed;
    if (reply.active_speed > UINT8_MAX) /* XDR is told by the wider field alone */
        whole.active_speed = SPEED_NDR;
    whole.gid_tbl_len = filled_gids(base, port, reply.gid_tbl_len < MOST_GIDS ? (int)reply.gid_tbl_len : MOST_GIDS);
    whole.pkey_tbl_len = reply.pkey_tbl_len ? 1 : 0;
    memcpy(attr, &whole, bytes < sizeof whole ? bytes : sizeof whole);
    if (bytes > sizeof whole)
        memset((char *)attr + sizeof whole, 0, bytes - sizeof whole);
    return 0;
}

static int query_port_op(struct ibv_context *base, uint8_t port, struct ibv_port_attr *attr)
{
    return query_port_attr(base, port, attr, 48);
}

EXPORT int ibv_query_port(struct ibv_context *base, uint8_t port, struct ibv_port_attr *attr)
{
    return query_port_attr(base, port, attr, 48);
}

static int ask_gid(struct ibv_context *base, uint32_t port, uint32_t index,
                   struct softhca_query_gid_reply *reply)
{
    struct softhca_query_gid query = {.port_num = (uint8_t)port, .index = index};
    int error;
    if (port > 255)
        return EINVAL;
    CALL(HOST(base), error, query_gid, &query, reply);
    return error;
}

EXPORT int ibv_query_gid(struct ibv_context *base, uint8_t port, int index, union ibv_gid *gid)
{
    struct softhca_query_gid_reply reply;
    if (said(ask_gid(base, port, (uint32_t)index, &reply)))
        return -1;
    memcpy(gid, reply.gid, sizeof *gid);
    return 0;
}

static int query_gid_type(struct ibv_context *base, uint8_t port, unsigned index, int *type)
{
    struct softhca_query_gid_reply reply;
    if (said(ask_gid(base, port, index, &reply)))
        return -1;
    *type = reply.gid_type == GID_ROCE_V2; /* in this call: 0 InfiniBand or RoCE v1, 1 RoCE v2 */
    return 0;
}
IN_ALL_NODES(ibv_query_gid_type, query_gid_type)

static int fill_entry(struct ibv_context *base, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                      size_t bytes)
{
    static const uint8_t none[16];
    struct softhca_query_gid_reply reply;
    struct ibv_gid_entry whole;
    int error = ask_gid(base, port, index, &reply);
    if (error)
        return error;
    if (!memcmp(reply.gid, none, sizeof none))
        return ENODATA;
    memset(&whole, 0, sizeof whole);
    memcpy(&whole.gid, reply.gid, sizeof whole.gid);
    whole.gid_index = index;
    whole.port_num = port;
    whole.gid_type = reply.gid_type;
    memcpy(entry, &whole, bytes < sizeof whole ? bytes : sizeof whole);
    return 0;
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *base, uint32_t port, uint32_t index,
                             struct ibv_gid_entry *entry,
                             uint32_t flags, size_t bytes)
{
    return said(flags ? EOPNOTSUPP : fill_entry(base, port, index, entry, bytes));
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *base, struct ibv_gid_entry *entries, size_t room,
                                    uint32_t flags, size_t bytes)
{
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    size_t count = 0;
    if (flags)
        return -EOPNOTSUPP;
    if (bytes < sizeof *entries)
        return -EINVAL;
    query_device(base, &device);
    for (unsigned number = 1; number <= device.phys_port_cnt; number++) {
        if (query_port_attr(base, (uint8_t)number, &port, sizeof port))
            return -errno;
        for (uint32_t index = 0; index < (uint32_t)port.gid_tbl_len; index++) {
            struct ibv_gid_entry entry;
            if (fill_entry(base, number, index, &entry, sizeof entry))
                continue;
            if (count == room)
                return -EINVAL;
            memset((char *)entries + count * bytes, 0, bytes);
            memcpy((char *)entries + count++ * bytes, &entry, sizeof entry);
        }
    }
    return (ssize_t)count;
}

EXPORT int ibv_query_pkey(struct ibv_context *base, uint8_t port, int index, uint16_t *pkey)
{
    struct softhca_query_pkey query = {.port_num = port, .index = (uint32_t)index};
    struct softhca_query_pkey_reply reply;
    int error;
    CALL(HOST(base), error, query_pkey, &query, &reply);
    if (said(error))
        return -1;
    *pkey = htons(reply.pkey);
    return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *base, uint8_t port, uint16_t pkey)
{
    uint16_t found;
    for (int index = 0; index < 65536 && !ibv_query_pkey(base, port, index, &found); index++)
        if (found == pkey)
            return index;
    return -1;
}
