"""Memory windows: a right to some bytes is given, moved and taken back, without registering anything anew.

Two queue pairs of one adapter.  The granter binds windows to parts of its region and tells the user keys.
"""
from softhca.verbs import addr, cq, device, enums, mr, pd, qp, wr
from softhca.verbs.pyverbs_error import PyverbsRDMAError

context = device.Context()
domain, completions = pd.PD(context), cq.CQ(context, 16)
kind = qp.QPInitAttr(enums.IBV_QPT_RC, scq=completions, rcq=completions, cap=qp.QPCap())
rights = enums.IBV_ACCESS_REMOTE_WRITE | enums.IBV_ACCESS_REMOTE_READ
here = addr.AHAttr(is_global=1, gr=addr.GlobalRoute(addr.GID(str(context.query_gid(1, 0)))))
# peers have no right to the region itself, only to what windows give
memory = mr.MR(domain, 4096, enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_MW_BIND)
source = mr.MR(domain, 4096, enums.IBV_ACCESS_LOCAL_WRITE)


def connect():
    """A granter's queue pair and a user's."""
    granter, user = (qp.QP(domain, kind) for _ in range(2))
    for one, other in ((granter, user), (user, granter)):
        path = qp.QPAttr()
        path.dest_qp_num, path.ah_attr, path.qp_access_flags = other.qp_num, here, rights
        path.timeout, path.retry_cnt, path.max_rd_atomic, path.max_dest_rd_atomic = 14, 7, 1, 1
        one.to_rts(path)
    return granter, user


def completed():
    """The next completion."""
    while True:
        count, found = completions.poll()
        if count:
            return found[0]


def write(user, key, address, text):
    """Write through a key; what became of it."""
    source.write(text, len(text))
    element = wr.SGE(source.buf, len(text), source.lkey)
    request = wr.SendWR(opcode=enums.IBV_WR_RDMA_WRITE, num_sge=1, sg=[element])
    request.set_wr_rdma(key, address)
    user.post_send(request)
    return cq.cqe_status_to_str(completed().status)


granter, user = connect()

# Type 1: the bind verb gives a new key each time; binding again moves the window.
window = mr.MW(domain, enums.IBV_MW_TYPE_1)
granter.bind_mw(window, mr.MWBind(mr.MWBindInfo(memory, memory.buf, 64, rights)))
print("bind:", cq.cqe_status_to_str(completed().status))
print("write:", write(user, window.rkey, memory.buf, "through a window"), memory.read(16, 0))
granter.bind_mw(window, mr.MWBind(mr.MWBindInfo(memory, memory.buf + 1024, 64, rights)))
print("move:", cq.cqe_status_to_str(completed().status))
print("write:", write(user, window.rkey, memory.buf + 1024, "elsewhere"), memory.read(9, 1024))
try:
    memory.close()
except PyverbsRDMAError as refused:
    print("the region is in use:", refused)
granter.bind_mw(window, mr.MWBind(mr.MWBindInfo(memory, 0, 0, 0)))
print("unbind:", cq.cqe_status_to_str(completed().status))
window.close()

# Type 2: for the queue pair that binds it; its user gives it back with a message.
window = mr.MW(domain, enums.IBV_MW_TYPE_2)
bind = wr.SendWR(opcode=enums.IBV_WR_BIND_MW)
bind.set_bind_wr(window, mr.MWBindInfo(memory, memory.buf + 2048, 64, rights | enums.IBV_ACCESS_ZERO_BASED))
granter.post_send(bind)
print("bind:", cq.cqe_status_to_str(completed().status))
print("write:", write(user, bind.rkey, 8, "zero-based"), memory.read(10, 2056))
granter.post_recv(wr.RecvWR(num_sge=1, sg=[wr.SGE(memory.buf + 3072, 64, memory.lkey)]))
source.write("done", 4)
farewell = wr.SGE(source.buf, 4, source.lkey)
user.post_send(wr.SendWR(opcode=enums.IBV_WR_SEND_WITH_INV, imm_data=bind.rkey, num_sge=1, sg=[farewell]))
for done in (completed(), completed()):
    if done.wc_flags & enums.IBV_WC_WITH_INV:
        print("received:", memory.read(4, 3072), "and the key is dead:", done.imm_data == bind.rkey)
print("write:", write(user, bind.rkey, 8, "too late"))
