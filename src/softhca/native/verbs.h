/* What programs that were compiled against libibverbs reach directly: the public structures, as facts of the
   binary interface of rdma-core 44 … 65 on 64-bit little-endian machines.  Sizes and offsets are asserted;
   where releases differ, the newest and largest form stands here. */
#ifndef SOFTHCA_VERBS_H
#define SOFTHCA_VERBS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define PLACED(type, field, offset) _Static_assert(offsetof(struct type, field) == (offset), #type "." #field)
#define SIZED(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
/* An offset behind a mutex, which takes 40 bytes on x86-64 and 48 on aarch64. */
#define AFTER_MUTEX(offset) ((offset) + sizeof(pthread_mutex_t) - 40)

struct ibv_context;
struct ibv_qp;
struct ibv_cq;
struct ibv_cq_ex;
struct ibv_srq;
struct ibv_mw;
struct ibv_mw_bind;
struct ibv_pd;
struct ibv_send_wr;
struct ibv_recv_wr;
struct ibv_wc;

typedef void (*unused_op)(void);

union ibv_gid {
    uint8_t raw[16];
    uint64_t words[2];
};

struct ibv_device {
    unused_op dead[2];
    int node_type;
    int transport_type;
    char name[64];
    char dev_name[64];
    char dev_path[256];
    char ibdev_path[256];
};
SIZED(ibv_device, 664);

struct ibv_port_attr {
    int state;
    int max_mtu;
    int active_mtu;
    int gid_tbl_len;
    uint32_t port_cap_flags;
    uint32_t max_msg_sz;
    uint32_t bad_pkey_cntr;
    uint32_t qkey_viol_cntr;
    uint16_t pkey_tbl_len;
    uint16_t lid;
    uint16_t sm_lid;
    uint8_t lmc;
    uint8_t max_vl_num;
    uint8_t sm_sl;
    uint8_t subnet_timeout;
    uint8_t init_type_reply;
    uint8_t active_width;
    uint8_t active_speed;
    uint8_t phys_state;
    uint8_t link_layer;
    uint8_t flags;
    uint16_t port_cap_flags2;
    uint32_t active_speed_ex; /* since 49 */
};
SIZED(ibv_port_attr, 56);
PLACED(ibv_port_attr, link_layer, 46);

struct ibv_device_attr {
    char fw_ver[64];
    uint64_t node_guid;
    uint64_t sys_image_guid;
    uint64_t max_mr_size;
    uint64_t page_size_cap;
    uint32_t vendor_id;
    uint32_t vendor_part_id;
    uint32_t hw_ver;
    int max_qp;
    int max_qp_wr;
    unsigned device_cap_flags;
    int max_sge;
    int max_sge_rd;
    int max_cq;
    int max_cqe;
    int max_mr;
    int max_pd;
    int max_qp_rd_atom;
    int max_ee_rd_atom;
    int max_res_rd_atom;
    int max_qp_init_rd_atom;
    int max_ee_init_rd_atom;
    int atomic_cap;
    int max_ee;
    int max_rdd;
    int max_mw;
    int max_raw_ipv6_qp;
    int max_raw_ethy_qp;
    int max_mcast_grp;
    int max_mcast_qp_attach;
    int max_total_mcast_qp_attach;
    int max_ah;
    int max_fmr;
    int max_map_per_fmr;
    int max_srq;
    int max_srq_wr;
    int max_srq_sge;
    uint16_t max_pkeys;
    uint8_t local_ca_ack_delay;
    uint8_t phys_port_cnt;
};
SIZED(ibv_device_attr, 232);
PLACED(ibv_device_attr, max_srq, 212);

struct ibv_packet_pacing_caps {
    uint32_t qp_rate_limit_min;
    uint32_t qp_rate_limit_max;
    uint32_t supported_qpts;
};

struct ibv_qp_rate_limit_attr {
    uint32_t rate_limit;
    uint32_t max_burst_sz;
    uint16_t typical_pkt_sz;
    uint32_t comp_mask;
};
SIZED(ibv_qp_rate_limit_attr, 16);

struct ibv_rss_caps {
    uint32_t supported_qpts;
    uint32_t max_rwq_indirection_tables;
    uint32_t max_rwq_indirection_table_size;
    uint64_t rx_hash_fields_mask;
    uint8_t rx_hash_function;
};
SIZED(ibv_rss_caps, 32);

struct ibv_device_attr_ex {
    struct ibv_device_attr orig_attr;
    uint32_t comp_mask;
    uint64_t odp_general_caps;
    uint32_t rc_odp_caps;
    uint32_t uc_odp_caps;
    uint32_t ud_odp_caps;
    uint64_t completion_timestamp_mask;
    uint64_t hca_core_clock;
    uint64_t device_cap_flags_ex;
    uint8_t tso_caps[8];
    struct ibv_rss_caps rss_caps;
    uint32_t max_wq_type_rq;
    struct ibv_packet_pacing_caps packet_pacing_caps;
    uint32_t raw_packet_caps;
    uint8_t tm_caps[20];
    uint16_t max_cq_count;
    uint16_t max_cq_period;
    uint64_t max_dm_size;
    uint8_t pci_atomic_caps[6];
    uint32_t xrc_odp_caps;
    uint32_t phys_port_cnt_ex;
};
SIZED(ibv_device_attr_ex, 400);
PLACED(ibv_device_attr_ex, completion_timestamp_mask, 264);
PLACED(ibv_device_attr_ex, rss_caps, 296);
PLACED(ibv_device_attr_ex, packet_pacing_caps, 332);
PLACED(ibv_device_attr_ex, max_cq_count, 368);
PLACED(ibv_device_attr_ex, xrc_odp_caps, 392);

struct ibv_gid_entry {
    union ibv_gid gid;
    uint32_t gid_index;
    uint32_t port_num;
    uint32_t gid_type;
    uint32_t ndev_ifindex;
};
SIZED(ibv_gid_entry, 32);

struct ibv_global_route {
    union ibv_gid dgid;
    uint32_t flow_label;
    uint8_t sgid_index;
    uint8_t hop_limit;
    uint8_t traffic_class;
};

struct ibv_ah_attr {
    struct ibv_global_route grh;
    uint16_t dlid;
    uint8_t sl;
    uint8_t src_path_bits;
    uint8_t static_rate;
    uint8_t is_global;
    uint8_t port_num;
};
SIZED(ibv_ah_attr, 32);
PLACED(ibv_ah_attr, dlid, 24);

struct ibv_grh {
    uint32_t version_tclass_flow;
    uint16_t paylen;
    uint8_t next_hdr;
    uint8_t hop_limit;
    union ibv_gid sgid;
    union ibv_gid dgid;
};
SIZED(ibv_grh, 40);

struct ibv_pd {
    struct ibv_context *context;
    uint32_t handle;
};

struct ibv_td {
    struct ibv_context *context;
};

struct ibv_xrcd {
    struct ibv_context *context;
};

struct ibv_mr {
    struct ibv_context *context;
    struct ibv_pd *pd;
    void *addr;
    size_t length;
    uint32_t handle;
    uint32_t lkey;
    uint32_t rkey;
};
SIZED(ibv_mr, 48);

struct ibv_buf;

struct ibv_dmah {
    struct ibv_context *context;
};

struct ibv_dmah_init_attr {
    uint32_t comp_mask;
    uint32_t cpu_id;
    uint8_t ph;
    uint8_t tph_mem_type;
};
SIZED(ibv_dmah_init_attr, 12);

struct ibv_mr_init_attr {
    size_t length;
    int access;
    uint64_t comp_mask;
    uint64_t iova;
    void *addr;
    int fd;
    uint64_t fd_offset;
    struct ibv_dmah *dmah;
    struct ibv_buf *buf; /* since release 65 */
};
SIZED(ibv_mr_init_attr, 72);

struct ibv_mw_bind_info {
    struct ibv_mr *mr;
    uint64_t addr;
    uint64_t length;
    unsigned mw_access_flags;
};

struct ibv_mw {
    struct ibv_context *context;
    struct ibv_pd *pd;
    uint32_t rkey;
    uint32_t handle;
    int type;
};
SIZED(ibv_mw, 32);

struct ibv_mw_bind {
    uint64_t wr_id;
    unsigned send_flags;
    struct ibv_mw_bind_info bind_info;
};
SIZED(ibv_mw_bind, 48);

struct ibv_ah {
    struct ibv_context *context;
    struct ibv_pd *pd;
    uint32_t handle;
};

struct ibv_sge {
    uint64_t addr;
    uint32_t length;
    uint32_t lkey;
};

struct ibv_recv_wr {
    uint64_t wr_id;
    struct ibv_recv_wr *next;
    struct ibv_sge *sg_list;
    int num_sge;
};
SIZED(ibv_recv_wr, 32);

struct ibv_send_wr {
    uint64_t wr_id;
    struct ibv_send_wr *next;
    struct ibv_sge *sg_list;
    int num_sge;
    int opcode;
    unsigned send_flags;
    uint32_t imm_or_key;
    union {
        struct {
            uint64_t remote_addr;
            uint32_t rkey;
        } rdma;
        struct {
            uint64_t remote_addr;
            uint64_t compare_add;
            uint64_t swap;
            uint32_t rkey;
        } atomic;
        struct {
            struct ibv_ah *ah;
            uint32_t remote_qpn;
            uint32_t remote_qkey;
        } ud;
    } wr;
    uint32_t remote_srqn;
    union {
        struct {
            struct ibv_mw *mw;
            uint32_t rkey;
            struct ibv_mw_bind_info bind_info;
        } bind_mw;
        struct {
            void *hdr;
            uint16_t hdr_sz;
            uint16_t mss;
        } tso;
    };
};
SIZED(ibv_send_wr, 128);
PLACED(ibv_send_wr, wr, 40);
PLACED(ibv_send_wr, remote_srqn, 72);
PLACED(ibv_send_wr, bind_mw.bind_info, 96);

struct ibv_wc {
    uint64_t wr_id;
    int status;
    int opcode;
    uint32_t vendor_err;
    uint32_t byte_len;
    uint32_t imm_or_key;
    uint32_t qp_num;
    uint32_t src_qp;
    unsigned wc_flags;
    uint16_t pkey_index;
    uint16_t slid;
    uint8_t sl;
    uint8_t dlid_path_bits;
};
SIZED(ibv_wc, 48);

struct ibv_context_ops {
    int (*query_device)(struct ibv_context *, struct ibv_device_attr *);
    int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
    unused_op dead_a[5];
    struct ibv_mw *(*alloc_mw)(struct ibv_pd *, int);
    int (*bind_mw)(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
    int (*dealloc_mw)(struct ibv_mw *);
    unused_op dead_b[1];
    int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
    int (*req_notify_cq)(struct ibv_cq *, int);
    unused_op dead_c[7];
    int (*post_srq_recv)(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **);
    unused_op dead_d[4];
    int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
    int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
    unused_op dead_e[5];
};
SIZED(ibv_context_ops, 256);

struct ibv_context {
    struct ibv_device *device;
    struct ibv_context_ops ops;
    int cmd_fd;
    int async_fd;
    int num_comp_vectors;
    pthread_mutex_t mutex;
    uintptr_t abi_compat;
};
SIZED(ibv_context, AFTER_MUTEX(328));
PLACED(ibv_context, ops.alloc_mw, 64);
PLACED(ibv_context, ops.poll_cq, 96);
PLACED(ibv_context, ops.post_srq_recv, 168);
PLACED(ibv_context, ops.post_send, 208);
PLACED(ibv_context, cmd_fd, 264);
PLACED(ibv_context, mutex, 280);
PLACED(ibv_context, abi_compat, AFTER_MUTEX(320));

struct ibv_comp_channel {
    struct ibv_context *context;
    int fd;
    int refcnt;
};

struct ibv_cq {
    struct ibv_context *context;
    struct ibv_comp_channel *channel;
    void *cq_context;
    uint32_t handle;
    int cqe;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t comp_events_completed;
    uint32_t async_events_completed;
};
SIZED(ibv_cq, AFTER_MUTEX(128));

struct ibv_poll_cq_attr {
    uint32_t comp_mask;
};

struct ibv_cq_ex {
    struct ibv_cq base;
    uint32_t comp_mask;
    int status;
    uint64_t wr_id;
    int (*start_poll)(struct ibv_cq_ex *, struct ibv_poll_cq_attr *);
    int (*next_poll)(struct ibv_cq_ex *);
    void (*end_poll)(struct ibv_cq_ex *);
    int (*read_opcode)(struct ibv_cq_ex *);
    uint32_t (*read_vendor_err)(struct ibv_cq_ex *);
    uint32_t (*read_byte_len)(struct ibv_cq_ex *);
    uint32_t (*read_imm_data)(struct ibv_cq_ex *);
    uint32_t (*read_qp_num)(struct ibv_cq_ex *);
    uint32_t (*read_src_qp)(struct ibv_cq_ex *);
    unsigned (*read_wc_flags)(struct ibv_cq_ex *);
    uint32_t (*read_slid)(struct ibv_cq_ex *);
    uint8_t (*read_sl)(struct ibv_cq_ex *);
    uint8_t (*read_dlid_path_bits)(struct ibv_cq_ex *);
    uint64_t (*read_completion_ts)(struct ibv_cq_ex *);
    uint16_t (*read_cvlan)(struct ibv_cq_ex *);
    uint32_t (*read_flow_tag)(struct ibv_cq_ex *);
    void (*read_tm_info)(struct ibv_cq_ex *, void *);
    uint64_t (*read_completion_wallclock_ns)(struct ibv_cq_ex *);
};
SIZED(ibv_cq_ex, AFTER_MUTEX(288));
PLACED(ibv_cq_ex, wr_id, AFTER_MUTEX(136));
PLACED(ibv_cq_ex, read_completion_ts, AFTER_MUTEX(248));

struct ibv_cq_init_attr_ex {
    uint32_t cqe;
    void *cq_context;
    struct ibv_comp_channel *channel;
    uint32_t comp_vector;
    uint64_t wc_flags;
    uint32_t comp_mask;
    uint32_t flags;
    struct ibv_pd *parent_domain;
};
SIZED(ibv_cq_init_attr_ex, 56);

struct ibv_srq {
    struct ibv_context *context;
    void *srq_context;
    struct ibv_pd *pd;
    uint32_t handle;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t events_completed;
};
SIZED(ibv_srq, AFTER_MUTEX(128));

struct ibv_srq_attr {
    uint32_t max_wr;
    uint32_t max_sge;
    uint32_t srq_limit;
};

struct ibv_srq_init_attr {
    void *srq_context;
    struct ibv_srq_attr attr;
};

struct ibv_srq_init_attr_ex {
    void *srq_context;
    struct ibv_srq_attr attr;
    uint32_t comp_mask;
    int srq_type;
    struct ibv_pd *pd;
    struct ibv_xrcd *xrcd;
    struct ibv_cq *cq;
    uint8_t tm_cap[8];
};
SIZED(ibv_srq_init_attr_ex, 64);

struct ibv_qp {
    struct ibv_context *context;
    void *qp_context;
    struct ibv_pd *pd;
    struct ibv_cq *send_cq;
    struct ibv_cq *recv_cq;
    struct ibv_srq *srq;
    uint32_t handle;
    uint32_t qp_num;
    int state;
    int qp_type;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t events_completed;
};
SIZED(ibv_qp, AFTER_MUTEX(160));
PLACED(ibv_qp, qp_num, 52);

struct ibv_data_buf {
    void *addr;
    size_t length;
};

struct ibv_qp_ex {
    struct ibv_qp base;
    uint64_t comp_mask;
    uint64_t wr_id;
    unsigned wr_flags;
    void (*atomic_cmp_swp)(struct ibv_qp_ex *, uint32_t, uint64_t, uint64_t, uint64_t);
    void (*atomic_fetch_add)(struct ibv_qp_ex *, uint32_t, uint64_t, uint64_t);
    void (*bind_mw)(struct ibv_qp_ex *, struct ibv_mw *, uint32_t, const struct ibv_mw_bind_info *);
    void (*local_inv)(struct ibv_qp_ex *, uint32_t);
    void (*rdma_read)(struct ibv_qp_ex *, uint32_t, uint64_t);
    void (*rdma_write)(struct ibv_qp_ex *, uint32_t, uint64_t);
    void (*rdma_write_imm)(struct ibv_qp_ex *, uint32_t, uint64_t, uint32_t);
    void (*send)(struct ibv_qp_ex *);
    void (*send_imm)(struct ibv_qp_ex *, uint32_t);
    void (*send_inv)(struct ibv_qp_ex *, uint32_t);
    void (*send_tso)(struct ibv_qp_ex *, void *, uint16_t, uint16_t);
    void (*set_ud_addr)(struct ibv_qp_ex *, struct ibv_ah *, uint32_t, uint32_t);
    void (*set_xrc_srqn)(struct ibv_qp_ex *, uint32_t);
    void (*set_inline_data)(struct ibv_qp_ex *, void *, size_t);
    void (*set_inline_data_list)(struct ibv_qp_ex *, size_t, const struct ibv_data_buf *);
    void (*set_sge)(struct ibv_qp_ex *, uint32_t, uint64_t, uint32_t);
    void (*set_sge_list)(struct ibv_qp_ex *, size_t, const struct ibv_sge *);
    void (*start)(struct ibv_qp_ex *);
    int (*complete)(struct ibv_qp_ex *);
    void (*abort)(struct ibv_qp_ex *);
    void (*atomic_write)(struct ibv_qp_ex *, uint32_t, uint64_t, const void *);
    void (*flush)(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t, uint8_t); /* since 45 */
};
SIZED(ibv_qp_ex, AFTER_MUTEX(360));
PLACED(ibv_qp_ex, atomic_cmp_swp, AFTER_MUTEX(184));
PLACED(ibv_qp_ex, start, AFTER_MUTEX(320));

struct ibv_qp_cap {
    uint32_t max_send_wr;
    uint32_t max_recv_wr;
    uint32_t max_send_sge;
    uint32_t max_recv_sge;
    uint32_t max_inline_data;
};

struct ibv_qp_init_attr {
    void *qp_context;
    struct ibv_cq *send_cq;
    struct ibv_cq *recv_cq;
    struct ibv_srq *srq;
    struct ibv_qp_cap cap;
    int qp_type;
    int sq_sig_all;
};
SIZED(ibv_qp_init_attr, 64);

struct ibv_wq {
    struct ibv_context *context;
    void *wq_context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    uint32_t wq_num;
    uint32_t handle;
    int state;
    int wq_type;
    int (*post_recv)(struct ibv_wq *, struct ibv_recv_wr *, struct ibv_recv_wr **);
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t events_completed;
};
SIZED(ibv_wq, AFTER_MUTEX(152));
PLACED(ibv_wq, post_recv, 48);
PLACED(ibv_wq, events_completed, AFTER_MUTEX(144));

struct ibv_wq_init_attr {
    void *wq_context;
    int wq_type;
    uint32_t max_wr;
    uint32_t max_sge;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    uint32_t comp_mask;
    uint32_t create_flags;
};
SIZED(ibv_wq_init_attr, 48);

struct ibv_wq_attr {
    uint32_t attr_mask;
    int wq_state;
    int curr_wq_state;
    uint32_t flags;
    uint32_t flags_mask;
};
SIZED(ibv_wq_attr, 20);

struct ibv_rwq_ind_table {
    struct ibv_context *context;
    int ind_tbl_handle;
    int ind_tbl_num;
    uint32_t comp_mask;
};
SIZED(ibv_rwq_ind_table, 24);

struct ibv_rwq_ind_table_init_attr {
    uint32_t log_ind_tbl_size;
    struct ibv_wq **ind_tbl;
    uint32_t comp_mask;
};
SIZED(ibv_rwq_ind_table_init_attr, 24);

struct ibv_rx_hash_conf {
    uint8_t rx_hash_function;
    uint8_t rx_hash_key_len;
    uint8_t *rx_hash_key;
    uint64_t rx_hash_fields_mask;
};
SIZED(ibv_rx_hash_conf, 24);

struct ibv_qp_init_attr_ex {
    void *qp_context;
    struct ibv_cq *send_cq;
    struct ibv_cq *recv_cq;
    struct ibv_srq *srq;
    struct ibv_qp_cap cap;
    int qp_type;
    int sq_sig_all;
    uint32_t comp_mask;
    struct ibv_pd *pd;
    struct ibv_xrcd *xrcd;
    uint32_t create_flags;
    uint16_t max_tso_header;
    struct ibv_rwq_ind_table *rwq_ind_tbl;
    struct ibv_rx_hash_conf rx_hash_conf;
    uint32_t source_qpn;
    uint64_t send_ops_flags;
};
SIZED(ibv_qp_init_attr_ex, 136);
PLACED(ibv_qp_init_attr_ex, pd, 64);
PLACED(ibv_qp_init_attr_ex, rwq_ind_tbl, 88);
PLACED(ibv_qp_init_attr_ex, source_qpn, 120);

struct ibv_qp_attr {
    int qp_state;
    int cur_qp_state;
    int path_mtu;
    int path_mig_state;
    uint32_t qkey;
    uint32_t rq_psn;
    uint32_t sq_psn;
    uint32_t dest_qp_num;
    unsigned qp_access_flags;
    struct ibv_qp_cap cap;
    struct ibv_ah_attr ah_attr;
    struct ibv_ah_attr alt_ah_attr;
    uint16_t pkey_index;
    uint16_t alt_pkey_index;
    uint8_t en_sqd_async_notify;
    uint8_t sq_draining;
    uint8_t max_rd_atomic;
    uint8_t max_dest_rd_atomic;
    uint8_t min_rnr_timer;
    uint8_t port_num;
    uint8_t timeout;
    uint8_t retry_cnt;
    uint8_t rnr_retry;
    uint8_t alt_port_num;
    uint8_t alt_timeout;
    uint32_t rate_limit;
};
SIZED(ibv_qp_attr, 144);
PLACED(ibv_qp_attr, ah_attr, 56);
PLACED(ibv_qp_attr, pkey_index, 120);
PLACED(ibv_qp_attr, rate_limit, 136);

struct ibv_async_event {
    union {
        struct ibv_cq *cq;
        struct ibv_qp *qp;
        struct ibv_srq *srq;
        struct ibv_wq *wq;
        int port_num;
    } element;
    int event_type;
};
SIZED(ibv_async_event, 16);

struct ibv_parent_domain_init_attr {
    struct ibv_pd *pd;
    struct ibv_td *td;
    uint32_t comp_mask;
    void *alloc;
    void *free;
    void *pd_context;
};
SIZED(ibv_parent_domain_init_attr, 48);

struct ibv_alloc_dm_attr {
    size_t length;
    uint32_t log_align_req;
    uint32_t comp_mask;
};
SIZED(ibv_alloc_dm_attr, 16);

struct ibv_dm {
    struct ibv_context *context;
    int (*memcpy_to_dm)(struct ibv_dm *, uint64_t, const void *, size_t);
    int (*memcpy_from_dm)(void *, struct ibv_dm *, uint64_t, size_t);
    uint32_t comp_mask;
    uint32_t handle;
};
SIZED(ibv_dm, 32);

struct ibv_xrcd_init_attr {
    uint32_t comp_mask;
    int fd;
    int oflags;
};

struct ibv_qp_open_attr {
    uint32_t comp_mask;
    uint32_t qp_num;
    struct ibv_xrcd *xrcd;
    void *qp_context;
    int qp_type;
};

struct ibv_values_ex {
    uint32_t comp_mask;
    int64_t seconds;
    int64_t nanoseconds;
};
SIZED(ibv_values_ex, 24);

struct ibv_ece {
    uint32_t vendor_id;
    uint32_t options;
    uint32_t comp_mask;
};

struct ibv_flow {
    uint32_t comp_mask;
    struct ibv_context *context;
    uint32_t handle;
};
SIZED(ibv_flow, 24);

/* A rule; `num_of_specs` specifications follow, each with its own size. */
struct ibv_flow_attr {
    uint32_t comp_mask, type;
    uint16_t size, priority;
    uint8_t num_of_specs, port;
    uint32_t flags;
};
SIZED(ibv_flow_attr, 20);

struct flow_spec {
    uint32_t type;
    uint16_t size;
};

/* What stands in front of an ibv_context: only the distance of an operation to it is stable. */
struct verbs_front {
    unused_op free_buf, alloc_buf;              /* since 64 */
    unused_op dm_export_dmabuf_fd;              /* since 62 */
    unused_op reg_mr_ex, dealloc_dmah, alloc_dmah; /* since 59 */
    int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *, size_t);
    int (*advise_mr)(struct ibv_pd *, int, uint32_t, struct ibv_sge *, uint32_t);
    struct ibv_mr *(*alloc_null_mr)(struct ibv_pd *);
    unused_op read_counters, attach_counters, create_counters, destroy_counters;
    struct ibv_mr *(*reg_dm_mr)(struct ibv_pd *, struct ibv_dm *, uint64_t, size_t, unsigned);
    struct ibv_dm *(*alloc_dm)(struct ibv_context *, struct ibv_alloc_dm_attr *);
    int (*free_dm)(struct ibv_dm *);
    unused_op modify_flow_action, destroy_flow_action, create_flow_action;
    int (*modify_qp_rate_limit)(struct ibv_qp *, struct ibv_qp_rate_limit_attr *);
    struct ibv_pd *(*alloc_parent_domain)(struct ibv_context *, struct ibv_parent_domain_init_attr *);
    int (*dealloc_td)(struct ibv_td *);
    struct ibv_td *(*alloc_td)(struct ibv_context *, void *);
    unused_op modify_cq;
    unused_op post_srq_ops;
    int (*destroy_rwq_ind_table)(struct ibv_rwq_ind_table *);
    struct ibv_rwq_ind_table *(*create_rwq_ind_table)(struct ibv_context *, struct ibv_rwq_ind_table_init_attr *);
    int (*destroy_wq)(struct ibv_wq *);
    int (*modify_wq)(struct ibv_wq *, struct ibv_wq_attr *);
    struct ibv_wq *(*create_wq)(struct ibv_context *, struct ibv_wq_init_attr *);
    int (*query_rt_values)(struct ibv_context *, struct ibv_values_ex *);
    struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *, struct ibv_cq_init_attr_ex *);
    void *priv;
    int (*query_device_ex)(struct ibv_context *, const void *, struct ibv_device_attr_ex *, size_t);
    int (*destroy_flow)(struct ibv_flow *);
    unused_op placeholder_destroy_flow;
    struct ibv_flow *(*create_flow)(struct ibv_qp *, struct ibv_flow_attr *);
    unused_op placeholder_create_flow;
    struct ibv_qp *(*open_qp)(struct ibv_context *, struct ibv_qp_open_attr *);
    struct ibv_qp *(*create_qp_ex)(struct ibv_context *, struct ibv_qp_init_attr_ex *);
    int (*get_srq_num)(struct ibv_srq *, uint32_t *);
    struct ibv_srq *(*create_srq_ex)(struct ibv_context *, struct ibv_srq_init_attr_ex *);
    struct ibv_xrcd *(*open_xrcd)(struct ibv_context *, struct ibv_xrcd_init_attr *);
    int (*close_xrcd)(struct ibv_xrcd *);
    uint64_t zero;
    size_t sz;
};
SIZED(verbs_front, 368);
#define IN_FRONT(op, distance) \
    _Static_assert(sizeof(struct verbs_front) - offsetof(struct verbs_front, op) == (distance), #op)
IN_FRONT(sz, 8);
IN_FRONT(close_xrcd, 24);
IN_FRONT(create_qp_ex, 56);
IN_FRONT(open_qp, 64);
IN_FRONT(query_device_ex, 104);
IN_FRONT(destroy_flow, 96);
IN_FRONT(create_flow, 80);
IN_FRONT(create_cq_ex, 120);
IN_FRONT(create_wq, 136);
IN_FRONT(modify_wq, 144);
IN_FRONT(destroy_wq, 152);
IN_FRONT(create_rwq_ind_table, 160);
IN_FRONT(destroy_rwq_ind_table, 168);
IN_FRONT(modify_cq, 184);
IN_FRONT(alloc_td, 192);
IN_FRONT(modify_qp_rate_limit, 216);
IN_FRONT(free_dm, 248);
IN_FRONT(alloc_dm, 256);
IN_FRONT(reg_dm_mr, 264);
IN_FRONT(advise_mr, 312);
IN_FRONT(alloc_null_mr, 304);
IN_FRONT(query_port, 320);
IN_FRONT(alloc_dmah, 328);
IN_FRONT(free_buf, 368);

/* Numbers that programs and this library share. */
enum {
    NODE_CA = 1,
    TRANSPORT_IB = 0,
    GID_ROCE_V2 = 2,
    QP_STATE_BIT = 1,
    QPT_UD = 4,
    QPT_XRC_SEND = 9,
    QPT_XRC_RECV = 10,
    SEND_FENCE = 1,
    SEND_SIGNALED = 2,
    SEND_SOLICITED = 4,
    SEND_INLINE = 8,
    REREG_TRANSLATION = 1,
    REREG_PD = 2,
    REREG_ACCESS = 4,
    REG_IOVA = 1, /* of ibv_reg_mr_ex */
    REG_ADDR = 2,
    REG_FD = 4,
    REG_FD_OFFSET = 8,
    REG_DMAH = 16,
    REG_BUF = 32,
    DMAH_CPU = 1,
    DMAH_HINT = 2,
    DMAH_MEMORY = 4
};

#endif
