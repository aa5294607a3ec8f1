"""Memory that leaves and moves under a running adapter: swap, migration, rights, pages on demand.

One device talks to itself over its loopback; every write lands, wherever the pages are meanwhile.
"""
from softhca.verbs import addr, cq, device, enums, mr, pd, qp, wr
from softhca.verbs.pageable import PageableMemory, PageableMR

PAGES, PAGE = 64, 4096
context = device.Context()
domain, completions = pd.PD(context), cq.CQ(context, 16)
rights = (enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE | enums.IBV_ACCESS_REMOTE_READ)
kind = qp.QPInitAttr(enums.IBV_QPT_RC, scq=completions, rcq=completions, cap=qp.QPCap())
here = addr.AHAttr(is_global=1, gr=addr.GlobalRoute(addr.GID(str(context.query_gid(1, 0)))))


def connected() -> qp.QP:
    """A queue pair that writes to another one of this device."""
    writer, target = (qp.QP(domain, kind) for _ in range(2))
    for one, other in ((writer, target), (target, writer)):
        path = qp.QPAttr()
        path.dest_qp_num, path.ah_attr, path.qp_access_flags = other.qp_num, here, rights
        path.timeout, path.retry_cnt, path.rnr_retry, path.min_rnr_timer = 14, 7, 7, 12
        one.to_rts(path)
    others.append(target)
    return writer


def write(writer: qp.QP, region: PageableMR, text: bytes, page: int) -> None:
    """Post an RDMA WRITE of ``text`` to the beginning of a page."""
    source.write(text, len(text))
    request = wr.SendWR(opcode=enums.IBV_WR_RDMA_WRITE, num_sge=1,
                        sg=[wr.SGE(source.buf, len(text), source.lkey)])
    request.set_wr_rdma(region.rkey, region.buf + page * PAGE)
    writer.post_send(request)


def outcome() -> str:
    """How the last request has ended."""
    while not (found := completions.poll()[1]):
        pass
    return enums.ibv_wc_status(found[0].status).name


others: list[qp.QP] = []
source = mr.MR(domain, PAGE, rights)
memory = PageableMemory(PAGES * PAGE)
region = PageableMR(domain, memory, rights)
writer = connected()
for page in range(PAGES):
    write(writer, region, b"page %d" % page, page)
    outcome()
print("resident:", memory.resident_bytes)

memory.swap_out()
print("swapped out, resident:", memory.resident_bytes, "in the swap file:", memory.swapped_bytes)
write(writer, region, b"written while it was out", 7)
context.progress()
print("completed meanwhile:", completions.poll()[0])
memory.swap_in()
print("swapped in:", outcome(), region.read(24, 7 * PAGE), region.read(6, 5 * PAGE))

write(writer, region, b"written while it moved", 9)
print("moved pages:", memory.migrate(), outcome(), region.read(22, 9 * PAGE))

with PageableMemory(1 << 30, int(rights) | enums.IBV_ACCESS_ON_DEMAND) as lazy:
    wanted = PageableMR(domain, lazy, rights)
    write(writer, wanted, b"brought when it was touched", 200_000)
    print("of", lazy.length, "bytes:", outcome(), lazy.read(27, 200_000 * PAGE), "take", lazy.resident_bytes)
    wanted.close()

memory.set_rights(enums.IBV_ACCESS_REMOTE_READ)
write(writer, region, b"not allowed any more", 0)
print("after the change of rights:", outcome(), region.read(6, 0))
