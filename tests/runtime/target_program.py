"""A target in a process of its own, for tests: ``python target_program.py DEVICES MODE BEHAVIOUR``.

It opens device ``target``, says by one JSON line where it can be reached and reads the same of its peer.
Then its application behaves: ``idle`` (polls its completion queue), ``busy`` (computes in Python), ``asleep``
(blocks in a read).  It ends with its standard input.
"""

import json
import sys
import threading

import runtime_pair

from softhca.driver import registry
from softhca.driver.services import Path, Reliability, connect
from softhca.runtime import devices


def main(text, mode, behaviour):
    registry.names()
    devices.add(text, mode)
    driver = registry.open_device("target")
    end = runtime_pair.End(driver, 1 << 16)
    end.memory[:] = bytes(range(256)) * 256
    say(gid=driver.query_gid(1, 0).hex(), qpn=end.qp.number, address=end.address, rkey=end.key.rkey)
    peer = json.loads(sys.stdin.readline())
    connect(end.qp, Path(bytes.fromhex(peer["gid"]), mtu=peer["mtu"]), peer["qpn"], 1, 1,
            runtime_pair.REMOTE_EVERYTHING, Reliability())
    say(ready=True)
    ended = threading.Event()
    threading.Thread(target=wait_for_end, args=(ended,), daemon=True).start()
    if behaviour == "asleep":
        ended.wait()
    elif behaviour == "idle":
        while not ended.is_set():
            end.cq.poll(1)
    else:
        x = 0
        while not ended.is_set():
            x += 1
    driver.close()


def wait_for_end(ended):
    sys.stdin.read()
    ended.set()


def say(**words):
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
