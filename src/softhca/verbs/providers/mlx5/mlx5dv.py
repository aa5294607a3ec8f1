"""Classes of NVIDIA mlx5 (`softhca.verbs.providers`)."""

from softhca.verbs.absent import (
    AbsentAttributes,
    AbsentObject,
    OtherVendorDevice,
    absent_function,
    absent_method,
)


class Mlx5Context(OtherVendorDevice):
    """Refused with `PyverbsUserError`."""

    crypto_login = crypto_logout = device_timestamp_to_ns = devx_general_cmd = absent_method
    devx_query_eqn = query_login_state = query_mlx5_device = query_mlx5_port = absent_method
    reserved_qpn_alloc = reserved_qpn_dealloc = absent_method


class Mlx5DVContextAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5DVContext(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5DVPortAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5DCIStreamInitAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5DVDCInitAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5DVQPInitAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5QP(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    cancel_posted_send_wrs = map_ah_to_qp = modify_dci_stream_channel_id = modify_lag_port = absent_method
    modify_qp_sched_elem = modify_udp_sport = query_lag_port = wr_memcpy = wr_mkey_configure = absent_method
    wr_mr_interleaved = wr_mr_list = wr_raw_wqe = wr_set_dc_addr = wr_set_dc_addr_stream = absent_method
    wr_set_mkey_access_flags = wr_set_mkey_crypto = wr_set_mkey_layout_interleaved = absent_method
    wr_set_mkey_layout_list = wr_set_mkey_sig_block = absent_method


class Mlx5DVCQInitAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5CQ(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""


class Mlx5VAR(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    comp_mask = length = mmap_off = page_id = absent_method


class Mlx5PP(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    index = absent_method


class Mlx5UAR(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    base_addr = comp_mask = mmap_off = page_id = reg_addr = uar = absent_method


class Mlx5DmOpAddr(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    addr = read = unmap = write = absent_method


class WqeSeg(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    sizeof = absent_method


class WqeCtrlSeg(WqeSeg):
    """Refused, as its base is."""

    addr = fm_ce_se = imm = opmod_idx_opcode = qpn_ds = set_ctrl_seg = signature = sizeof = absent_method


class WqeDataSeg(WqeSeg):
    """Refused, as its base is."""

    addr = byte_count = lkey = set_data_seg = sizeof = absent_method


class Wqe(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    address = absent_method


class Mlx5UMEM(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    umem_addr = umem_id = absent_method


class Mlx5DevxObj(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    modify = obj = out_view = query = absent_method


class Mlx5DevxCmdComp(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    get_async_cmd_comp = absent_method


class Mlx5Cqe64(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5VfioAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5DevxMsiVector(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    fd = vector = absent_method


class Mlx5DevxEq(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    out_view = vaddr = absent_method


qpts_to_str = absent_function
bitmask_to_str = absent_function
context_comp_mask_to_str = absent_function
context_flags_to_str = absent_function
swp_to_str = absent_function
cqe_comp_to_str = absent_function
tunnel_offloads_to_str = absent_function
dc_type_to_str = absent_function
qp_comp_mask_to_str = absent_function
qp_create_flags_to_str = absent_function
send_ops_flags_to_str = absent_function
