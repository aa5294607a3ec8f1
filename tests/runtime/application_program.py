"""An application in a process of its own, for tests: ``python application_program.py DEVICES MODE``.

It opens device ``app``, makes one of everything, binds windows of both types, says what, and waits until its
standard input ends.
"""

import json
import sys

import runtime_pair

from softhca.driver import registry
from softhca.driver.services import Reliability, connect, path_to
from softhca.memory.regions import LOCAL_WRITE, MW_BIND, REMOTE_WRITE
from softhca.queues.wqe import BIND_MW
from softhca.runtime import devices


def main(text, mode):
    registry.names()
    devices.add(text, mode)
    driver = registry.open_device("app")
    end = runtime_pair.End(driver, 1 << 16)
    srq = driver.create_srq(end.pd, 16, 2)
    handle = driver.create_ah(end.pd, {"dgid": driver.query_gid(1, 0), "is_global": 1, "port_num": 1})
    buffer = driver.alloc_host_memory(1 << 16)
    key = driver.reg_mr(end.pd, buffer.address, buffer.length, runtime_pair.REMOTE_EVERYTHING)
    driver.alloc_fast_mr(end.pd, 4)
    path = path_to(driver, driver.query_gid(1, 0))
    connect(end.qp, path, end.qp.number, 1, 1, runtime_pair.REMOTE_EVERYTHING, Reliability())
    bindable = driver.reg_mr(end.pd, buffer.address, buffer.length, LOCAL_WRITE | MW_BIND)
    for kind in (1, 2):
        number, rkey = driver.alloc_mw(end.pd, kind)
        end.qp.post_send(
            BIND_MW, 2, rkey + 1, kind, buffer.address, number, 64, REMOTE_WRITE << 32 | bindable.lkey,
            0, 0, 0, [], None,
        )  # fmt: skip
        end.qp.ring()
        assert [done.status for done in runtime_pair.take(end.cq, 1)] == [0]
    print(json.dumps({"srq": srq.number, "ah": handle, "lkey": key.lkey}), flush=True)
    sys.stdin.read()
    driver.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
