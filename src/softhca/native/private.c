/* What vendors' libraries bind when they are loaded, and public functions that a software adapter has not. */
#include "library.h"

#define REFUSE(name)       \
    EXPORT int name(void); \
    EXPORT int name(void)  \
    {                      \
        errno = EOPNOTSUPP; \
        return EOPNOTSUPP; \
    }
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

EXPORT unsigned char verbs_allow_disassociate_destroy;

NOTHING(verbs_register_driver_34)
NOTHING(ibv_register_driver)
NOTHING(__verbs_log)
NOTHING(verbs_set_ops)
NOTHING(verbs_uninit_context)
REFUSE(verbs_init_cq)
REFUSE(execute_ioctl)
REFUSE(__ioctl_final_num_attrs)
REFUSE_OBJECT(verbs_open_device)
REFUSE_OBJECT(_verbs_init_and_alloc_context)

REFUSE_OBJECT(ibv_reg_dmabuf_mr)
REFUSE_OBJECT(ibv_alloc_dmah)
REFUSE(ibv_dealloc_dmah)
REFUSE_OBJECT(ibv_reg_mr_ex)
REFUSE(ibv_dm_export_dmabuf_fd)

REFUSE(ibv_cmd_advise_mr)
REFUSE(ibv_cmd_alloc_dm)
REFUSE(ibv_cmd_alloc_mw)
REFUSE(ibv_cmd_alloc_pd)
REFUSE(ibv_cmd_attach_mcast)
REFUSE(ibv_cmd_close_xrcd)
REFUSE(ibv_cmd_create_ah)
REFUSE(ibv_cmd_create_counters)
REFUSE(ibv_cmd_create_cq)
REFUSE(ibv_cmd_create_cq_ex)
REFUSE(ibv_cmd_create_flow)
REFUSE(ibv_cmd_create_flow_action_esp)
REFUSE(ibv_cmd_create_qp)
REFUSE(ibv_cmd_create_qp_ex)
REFUSE(ibv_cmd_create_qp_ex2)
REFUSE(ibv_cmd_create_rwq_ind_table)
REFUSE(ibv_cmd_create_srq)
REFUSE(ibv_cmd_create_srq_ex)
REFUSE(ibv_cmd_create_wq)
REFUSE(ibv_cmd_dealloc_mw)
REFUSE(ibv_cmd_dealloc_pd)
REFUSE(ibv_cmd_dereg_mr)
REFUSE(ibv_cmd_destroy_ah)
REFUSE(ibv_cmd_destroy_counters)
REFUSE(ibv_cmd_destroy_cq)
REFUSE(ibv_cmd_destroy_flow)
REFUSE(ibv_cmd_destroy_flow_action)
REFUSE(ibv_cmd_destroy_qp)
REFUSE(ibv_cmd_destroy_rwq_ind_table)
REFUSE(ibv_cmd_destroy_srq)
REFUSE(ibv_cmd_destroy_wq)
REFUSE(ibv_cmd_detach_mcast)
REFUSE(ibv_cmd_free_dm)
REFUSE(ibv_cmd_get_context)
REFUSE(ibv_cmd_modify_cq)
REFUSE(ibv_cmd_modify_flow_action_esp)
REFUSE(ibv_cmd_modify_qp)
REFUSE(ibv_cmd_modify_qp_ex)
REFUSE(ibv_cmd_modify_srq)
REFUSE(ibv_cmd_modify_wq)
REFUSE(ibv_cmd_open_qp)
REFUSE(ibv_cmd_open_xrcd)
REFUSE(ibv_cmd_poll_cq)
REFUSE(ibv_cmd_post_recv)
REFUSE(ibv_cmd_post_send)
REFUSE(ibv_cmd_post_srq_recv)
REFUSE(ibv_cmd_query_context)
REFUSE(ibv_cmd_query_device_any)
REFUSE(ibv_cmd_query_mr)
REFUSE(ibv_cmd_query_port)
REFUSE(ibv_cmd_query_qp)
REFUSE(ibv_cmd_query_srq)
REFUSE(ibv_cmd_read_counters)
REFUSE(ibv_cmd_reg_dm_mr)
REFUSE(ibv_cmd_reg_dmabuf_mr)
REFUSE(ibv_cmd_reg_mr)
REFUSE(ibv_cmd_req_notify_cq)
REFUSE(ibv_cmd_rereg_mr)
REFUSE(ibv_cmd_resize_cq)
