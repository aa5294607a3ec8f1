/* What vendors' libraries bind when they are loaded, and public functions that a software adapter has not.

   Releases of rdma-core whose private functions have changed name another version node for all of them: 33
   (Debian 11's), 34 (releases 34 … 56), 57, 59, 64, 65.  None of these functions is ever called, since no
   device is a vendor's. */
#include "library.h"

#define REFUSAL          \
    {                    \
        errno = EOPNOTSUPP; \
        return EOPNOTSUPP; \
    }
#define REFUSE(name)       \
    EXPORT int name(void); \
    EXPORT int name(void)  \
        REFUSAL
#define REFUSE_OBJECT(name)  \
    EXPORT void *name(void); \
    EXPORT void *name(void)  \
    {                        \
        return failed(EOPNOTSUPP); \
    }
#define NOTHING(name)       \
    EXPORT void name(void); \
    EXPORT void name(void)  \
    {                       \
    }

static int refuse(void)
    REFUSAL

static void *refuse_object(void)
{
    return failed(EOPNOTSUPP);
}

static void do_nothing(void)
{
}

#define PRIVATE(name) IN_ALL_NODES(name, refuse)
#define PRIVATE_OBJECT(name) IN_ALL_NODES(name, refuse_object)
#define PRIVATE_NOTHING(name) IN_ALL_NODES(name, do_nothing)
/* A name that the first node has not. */
#define PRIVATE_SINCE(name) IN_LATER_NODES(name, refuse) IN_NODE(name, refuse, "@@", 65)

static unsigned char allow_disassociate_destroy;
IN_ALL_NODES(verbs_allow_disassociate_destroy, allow_disassociate_destroy)

NOTHING(ibv_register_driver)
NOTHING(verbs_register_driver_33)
NOTHING(verbs_register_driver_34)
NOTHING(verbs_register_driver_57)
NOTHING(verbs_register_driver_59)
NOTHING(verbs_register_driver_64)
NOTHING(verbs_register_driver_65)
PRIVATE_NOTHING(__verbs_log)
PRIVATE_NOTHING(verbs_set_ops)
PRIVATE_NOTHING(verbs_uninit_context)
PRIVATE(verbs_init_cq)
PRIVATE(execute_ioctl)
PRIVATE(__ioctl_final_num_attrs)
PRIVATE_OBJECT(verbs_open_device)
PRIVATE_OBJECT(_verbs_init_and_alloc_context)

REFUSE_OBJECT(ibv_reg_dmabuf_mr)
REFUSE(ibv_dm_export_dmabuf_fd)

REFUSE(_ibv_query_comp_cntr_caps)
REFUSE_OBJECT(ibv_create_comp_cntr)
REFUSE(ibv_destroy_comp_cntr)
REFUSE(ibv_set_comp_cntr)
REFUSE(ibv_set_err_comp_cntr)
REFUSE(ibv_inc_comp_cntr)
REFUSE(ibv_inc_err_comp_cntr)
REFUSE(ibv_read_comp_cntr)
REFUSE(ibv_read_err_comp_cntr)
REFUSE(ibv_qp_attach_comp_cntr)

PRIVATE(ibv_cmd_advise_mr)
PRIVATE(ibv_cmd_alloc_dm)
PRIVATE(ibv_cmd_alloc_mw)
PRIVATE(ibv_cmd_alloc_pd)
PRIVATE(ibv_cmd_attach_mcast)
PRIVATE(ibv_cmd_close_xrcd)
PRIVATE(ibv_cmd_create_ah)
PRIVATE(ibv_cmd_create_counters)
PRIVATE(ibv_cmd_create_cq)
PRIVATE(ibv_cmd_create_cq_ex)
PRIVATE(ibv_cmd_create_flow)
PRIVATE(ibv_cmd_create_flow_action_esp)
PRIVATE(ibv_cmd_create_qp)
PRIVATE(ibv_cmd_create_qp_ex)
PRIVATE(ibv_cmd_create_qp_ex2)
PRIVATE(ibv_cmd_create_rwq_ind_table)
PRIVATE(ibv_cmd_create_srq)
PRIVATE(ibv_cmd_create_srq_ex)
PRIVATE(ibv_cmd_create_wq)
PRIVATE(ibv_cmd_dealloc_mw)
PRIVATE(ibv_cmd_dealloc_pd)
PRIVATE(ibv_cmd_dereg_mr)
PRIVATE(ibv_cmd_destroy_ah)
PRIVATE(ibv_cmd_destroy_counters)
PRIVATE(ibv_cmd_destroy_cq)
PRIVATE(ibv_cmd_destroy_flow)
PRIVATE(ibv_cmd_destroy_flow_action)
PRIVATE(ibv_cmd_destroy_qp)
PRIVATE(ibv_cmd_destroy_rwq_ind_table)
PRIVATE(ibv_cmd_destroy_srq)
PRIVATE(ibv_cmd_destroy_wq)
PRIVATE(ibv_cmd_detach_mcast)
PRIVATE(ibv_cmd_free_dm)
PRIVATE(ibv_cmd_get_context)
PRIVATE(ibv_cmd_modify_cq)
PRIVATE(ibv_cmd_modify_flow_action_esp)
PRIVATE(ibv_cmd_modify_qp)
PRIVATE(ibv_cmd_modify_qp_ex)
PRIVATE(ibv_cmd_modify_srq)
PRIVATE(ibv_cmd_modify_wq)
PRIVATE(ibv_cmd_open_qp)
PRIVATE(ibv_cmd_open_xrcd)
PRIVATE(ibv_cmd_poll_cq)
PRIVATE(ibv_cmd_post_recv)
PRIVATE(ibv_cmd_post_send)
PRIVATE(ibv_cmd_post_srq_recv)
PRIVATE(ibv_cmd_query_context)
PRIVATE(ibv_cmd_query_device_any)
PRIVATE(ibv_cmd_query_mr)
PRIVATE(ibv_cmd_query_port)
PRIVATE(ibv_cmd_query_qp)
PRIVATE(ibv_cmd_query_srq)
PRIVATE(ibv_cmd_read_counters)
PRIVATE(ibv_cmd_reg_dm_mr)
PRIVATE(ibv_cmd_reg_dmabuf_mr)
PRIVATE(ibv_cmd_reg_mr)
PRIVATE(ibv_cmd_req_notify_cq)
PRIVATE(ibv_cmd_rereg_mr)
PRIVATE(ibv_cmd_resize_cq)

PRIVATE_SINCE(ibv_cmd_alloc_dmah)
PRIVATE_SINCE(ibv_cmd_create_comp_cntr)
PRIVATE_SINCE(ibv_cmd_create_cq_ex2)
PRIVATE_SINCE(ibv_cmd_destroy_comp_cntr)
PRIVATE_SINCE(ibv_cmd_export_dmabuf_fd)
PRIVATE_SINCE(ibv_cmd_free_dmah)
PRIVATE_SINCE(ibv_cmd_inc_comp_cntr)
PRIVATE_SINCE(ibv_cmd_inc_err_comp_cntr)
PRIVATE_SINCE(ibv_cmd_qp_attach_comp_cntr)
PRIVATE_SINCE(ibv_cmd_query_comp_cntr_caps)
PRIVATE_SINCE(ibv_cmd_query_port_speed)
PRIVATE_SINCE(ibv_cmd_read_comp_cntr)
PRIVATE_SINCE(ibv_cmd_read_err_comp_cntr)
PRIVATE_SINCE(ibv_cmd_reg_mr_ex)
PRIVATE_SINCE(ibv_cmd_set_comp_cntr)
PRIVATE_SINCE(ibv_cmd_set_err_comp_cntr)
PRIVATE_SINCE(ibv_dmabuf_heap_alloc)
PRIVATE_SINCE(ibv_dmabuf_heap_cc_shared_init)
PRIVATE_SINCE(ibv_dmabuf_heap_destroy)
PRIVATE_SINCE(ibv_dmabuf_heap_free)
PRIVATE_SINCE(ibv_wr_opcode_str)
