"""Two devices with an IPv4 and an IPv6 address each, whose interface loses and gets addresses meanwhile.

``python changing_addresses_program.py MODE FIRST SECOND FIRST SECOND`` says ``ready`` and then does what each
line of its input says, and says by JSON what has come of it: ``connect INDEX`` (a pair of queue pairs between
these entries), ``send INDEX`` (one message over the last of these: the completion's status, and the message).
"""

import json
import sys

from two_versions_program import NAMES, End, connect

from softhca.driver import registry
from softhca.runtime import devices
from softhca.verbs.device import Context


def status_of(one, other):
    """One message; the sender's status, and what the receiver has of it."""
    one.mr.write(b"hello", 5)
    other.mr.write(b"empty", 5)
    other.receive()
    one.send(5)
    while True:
        count, found = one.cq.poll()
        if count:
            break
    if found[0].status == 0:
        other.completion()
    return [int(found[0].status), other.mr.read(5, 0).decode()]


def main(mode, *addresses):
    places = addresses[:2], addresses[2:]
    devices.add(
        ",".join(
            f"{name}=udp:{first}?addresses={more}&same_host=0"
            for name, (first, more) in zip(NAMES, places, strict=True)
        ),
        mode,
    )
    kept = [registry.open_device(name) for name in NAMES]
    contexts = [Context(name=name) for name in NAMES]
    made, pairs = [], {}
    print("ready", flush=True)
    for line in sys.stdin:
        what, index = line.split()
        if what == "connect":
            pairs[index] = [End(context) for context in contexts]
            made += pairs[index]
            connect(*pairs[index], [each[int(index)] for each in places], int(index))
            print(json.dumps("connected"), flush=True)
        else:
            print(json.dumps(status_of(*pairs[index])), flush=True)
    for each in (*made, *contexts, *kept):
        each.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
