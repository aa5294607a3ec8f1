"""Two queue pairs of one adapter: one writes into the memory that the other granted."""
from softhca.verbs import addr, cq, device, enums, mr, pd, qp, wr

context = device.Context()
domain, completions = pd.PD(context), cq.CQ(context, 16)
rights = enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE
source, target = (mr.MR(domain, 4096, rights) for _ in range(2))
kind = qp.QPInitAttr(enums.IBV_QPT_RC, scq=completions, rcq=completions, cap=qp.QPCap())
writer, granter = (qp.QP(domain, kind) for _ in range(2))
here = addr.AHAttr(is_global=1, gr=addr.GlobalRoute(addr.GID(str(context.query_gid(1, 0)))))
for one, other in ((writer, granter), (granter, writer)):
    path = qp.QPAttr()
    path.dest_qp_num, path.ah_attr, path.qp_access_flags = other.qp_num, here, rights
    path.timeout, path.retry_cnt = 14, 7
    one.to_rts(path)

source.write(b"hello, remote memory", 20)
request = wr.SendWR(opcode=enums.IBV_WR_RDMA_WRITE, num_sge=1, sg=[wr.SGE(source.buf, 20, source.lkey)])
request.set_wr_rdma(target.rkey, target.buf)
writer.post_send(request)
while not completions.poll()[0]:
    pass
print(target.read(20, 0))
