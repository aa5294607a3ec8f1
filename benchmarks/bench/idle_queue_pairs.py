"""``idle_queue_pairs.py N``: makes N connected RC queue pairs that nobody uses and prints what each takes.

One JSON document: ``bytes`` of this process's own memory a queue pair (application, driver and adapter are
all in it), ``ring_bytes`` of the memory that driver and adapter share, ``connected_per_s``.
"""

import gc
import json
import sys
import time

from softhca.verbs import addr, cq, device, enums, pd, qp

WARM_UP = 100
KINDS = {"RssAnon": "bytes", "RssShmem": "ring_bytes"}


def resident():
    """Resident memory by kind, in bytes."""
    found = {}
    with open("/proc/self/status") as status:
        for line in status:
            name, _, rest = line.partition(":")
            if name in KINDS:
                found[KINDS[name]] = int(rest.split()[0]) * 1024
    return found


def connect(domain, queue, path):
    """One RC queue pair in RTS, towards itself."""
    caps = qp.QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=1, max_recv_sge=1)
    made = qp.QP(domain, qp.QPInitAttr(enums.IBV_QPT_RC, scq=queue, rcq=queue, cap=caps))
    attributes = qp.QPAttr()
    attributes.dest_qp_num, attributes.ah_attr = made.qp_num, path
    attributes.timeout, attributes.retry_cnt = 14, 7
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 16
    made.to_rts(attributes)
    return made


def main():
    count = int(sys.argv[1])
    with device.Context() as context:
        domain, queue = pd.PD(context), cq.CQ(context, 16)
        path = addr.AHAttr(is_global=1, gr=addr.GlobalRoute(addr.GID(str(context.query_gid(1, 0)))))
        kept = [connect(domain, queue, path) for _ in range(WARM_UP)]
        gc.collect()
        before, start_s = resident(), time.perf_counter()
        kept += [connect(domain, queue, path) for _ in range(count)]
        elapsed_s = time.perf_counter() - start_s
        gc.collect()
        after = resident()
        found = {name: (after[name] - before[name]) / count for name in after}
        print(json.dumps({**found, "connected_per_s": count / elapsed_s, "queue_pairs": float(count)}))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
