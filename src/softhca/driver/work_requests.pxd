cdef class WorkRequest:
    cdef public object wr_id, sges, following
    cdef public object _all


cdef class SendRequest(WorkRequest):
    cdef public object opcode, send_flags, imm_data, ah
    cdef public object remote_addr, remote_rkey, compare_add, swap, remote_qpn, remote_qkey


cdef class ReceiveRequest(WorkRequest):
    pass


cdef class Completion:
    cdef public unsigned long long wr_id, timestamp_ns
    cdef public unsigned int status, opcode, wc_flags, qp_num, byte_len, imm_data, src_qp, vendor_err
    cdef public unsigned int pkey_index, sl, dlid_path_bits, slid
