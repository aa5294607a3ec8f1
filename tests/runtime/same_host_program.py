"""One end in a process of its own, for tests of same-host paths.

``python same_host_program.py DEVICES KIND``: ``KIND`` is where its memory stands, ``arena`` (host memory that
peers map) or ``own`` (a bytearray).  It says by JSON lines where it can be reached, reads the same of
its peer, and then obeys, one line an order: ``poll`` (drive the adapter for so many rounds), ``read`` (bytes
of the memory), ``deregister`` and ``modify`` (and what stands in the memory then), ``operations`` (that its
executor has done), ``write`` (one RDMA WRITE of 8 bytes; its status), ``hold`` (be about to write to the
peer's memory by the path, stop, and go on with it when it is continued; whether that counts), ``flood`` (RDMA
WRITEs of numbers, each of which is told as it completes, until there is another order), ``fork`` (a child
without Python's notice, which waits for a signal; its number).
"""

import ctypes
import json
import os
import select
import signal
import sys

import runtime_pair

from softhca.driver import registry
from softhca.driver.services import Path, Reliability, connect
from softhca.machine import primitives
from softhca.runtime import devices

SIZE = 1 << 20


class SharedEnd(runtime_pair.End):
    """An end whose memory stands in the arena that peers map."""

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


def has_path(engine):
    (queue_pair,) = engine.adapter.queue_pairs.values()
    executor = queue_pair.executor
    return executor is not None and executor.path.alive and bool(executor.path.arenas)


def hold(driver, engine, peer, order):
    """What the executor does for a WRITE of ``order["bytes"]``, stopped between the claim and the copy."""
    data = bytearray.fromhex(order["bytes"])
    while not has_path(engine):
        driver.progress()
    with engine.loop.lock:
        (queue_pair,) = engine.adapter.queue_pairs.values()
        path = queue_pair.executor.path
        assert path.enter()
        domain = path.queue_pair(queue_pair.dest_qp, queue_pair.number) >> 32
        place = path.place(peer["rkey"], domain, peer["address"], len(data), 2)
        target = path.aim(place, len(data)) if path.foreign else 0
        assert place
        assert path.claim(place, len(data))
        os.kill(os.getpid(), signal.SIGSTOP)
        if target:
            moved = primitives.write_process_at(path.pid, target, primitives.address_of(data), len(data))
        else:
            primitives.copy(place, primitives.address_of(data), len(data))
            moved = len(data)
        kept = path.unchanged_for(2)
        path.leave()
    return {"kept": kept, "moved": moved}


def flood(driver, end, peer, length):
    """Number after number into the peer's memory, ``length`` bytes full of each; the statuses but 0."""
    number = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        number += 1
        data = bytearray(number.to_bytes(8, "little") * (length // 8))
        primitives.copy(end.address, primitives.address_of(data), length)
        end.qp.post_send(int(runtime_pair.RemoteOperation.WRITE), 2, 0, number, peer["address"], peer["rkey"],
                         0, 0, 0, 0, 0, end.element(length), None)
        end.qp.ring()
        done = runtime_pair.take(end.cq, 1)[0]
        if done.status:
            return {"status": done.status, "number": number}
        say(number=number)
    return {"status": 0, "number": number}


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
        case "hold":
            return hold(driver, devices.find("target").engine, peer, order)
        case "flood":
            return flood(driver, end, peer, order["length"])
        case "fork":
            child = ctypes.PyDLL(None).fork()
            while child == 0:
                signal.pause()
            return {"child": child}
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
