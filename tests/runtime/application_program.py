"""An application in a process of its own, for tests: ``python application_program.py DEVICES MODE``.

It opens device ``app``, makes one of everything, says what, and waits until its standard input ends.
"""

import json
import sys

import runtime_pair

from softhca.driver import registry
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
    print(json.dumps({"srq": srq.number, "ah": handle, "lkey": key.lkey}), flush=True)
    sys.stdin.read()
    driver.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
