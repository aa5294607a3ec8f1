"""One end in a process of its own, for tests of same-host paths.

``python same_host_program.py DEVICES KIND``: ``KIND`` is where its memory stands, ``arena`` (host memory that
neighbours map) or ``own`` (a bytearray).  It says by JSON lines where it can be reached, reads the same of
its peer, and then obeys, one line an order: ``poll`` (drive the adapter for so many rounds), ``read`` (bytes
of the memory), ``deregister`` and ``modify`` (and what stands in the memory then), ``operations`` (that its
executor has done), ``write`` (one RDMA WRITE of 8 bytes; its status).
"""

import json
import sys

import runtime_pair

from softhca.driver import registry
from softhca.driver.services import Path, Reliability, connect
from softhca.machine import primitives
from softhca.runtime import devices

SIZE = 1 << 20


class SharedEnd(runtime_pair.End):
    """An end whose memory stands in the arena that neighbours map."""

    def __init__(self, driver, length_bytes):
        super().__init__(driver, 64)
        self.driver.dereg_mr(self.key.handle)
        self.host = driver.alloc_host_memory(length_bytes, runtime_pair.REMOTE_EVERYTHING)
        self.address = self.host.address
        self.key = driver.reg_mr(self.pd, self.address, length_bytes, runtime_pair.REMOTE_EVERYTHING)


def make_end(driver, kind, length_bytes=SIZE):
    """An end with its memory in the arena or in the process's own memory."""
    return SharedEnd(driver, length_bytes) if kind == "arena" else runtime_pair.End(driver, length_bytes)


def say(**words):
    print(json.dumps(words), flush=True)


def hear():
    return json.loads(sys.stdin.readline() or "{}")


def main(text, kind):
    registry.names()
    devices.add(text, "embedded")
    driver = registry.open_device("target")
    end = make_end(driver, kind)
    say(gid=driver.query_gid(1, 0).hex(), qpn=end.qp.number, address=end.address, rkey=end.key.rkey)
    peer = hear()
    connect(end.qp, Path(bytes.fromhex(peer["gid"]), mtu=peer["mtu"]), peer["qpn"], 1, 1,
            runtime_pair.REMOTE_EVERYTHING, Reliability())
    say(ready=True)
    while order := hear():
        say(**obey(driver, end, peer, order))
    driver.close()


def obey(driver, end, peer, order):
    """Do one order; what is to be said of it."""
    match order["do"]:
        case "poll":
            for _ in range(order["rounds"]):
                driver.progress()
            return {}
        case "read":
            return {"bytes": primitives.bytes_at(end.address + order["offset"], order["length"]).hex()}
        case "deregister":
            driver.dereg_mr(end.key.handle)
            return {"bytes": primitives.bytes_at(end.address, order["length"]).hex()}
        case "modify":
            end.qp.modify({"qp_state": order["state"]})
            return {"bytes": primitives.bytes_at(end.address, order["length"]).hex()}
        case "operations":
            (queue_pair,) = devices.find("target").engine.adapter.queue_pairs.values()
            return {"operations": queue_pair.executor.operations if queue_pair.executor else -1}
        case "write":
            end.qp.post_send(0, 2, 0, 1, peer["address"], peer["rkey"], 0, 0, 0, 0, 0, end.element(8), None)
            end.qp.ring()
            return {"status": runtime_pair.take(end.cq, 1)[0].status}
    raise ValueError(order)


if __name__ == "__main__":
    main(*sys.argv[1:])
