"""One of several processes that share a device: ``python sharing_program.py DEVICES MODE``.

Each line of its standard input is a call of one of the functions below with these words, and each line that
it prints is what that gave.
"""

import json
import sys

import runtime_pair

from softhca.driver import registry
from softhca.driver.errors import DriverError
from softhca.driver.services import Reliability, connect, path_to
from softhca.runtime import devices

LENGTH = 4096


class Member:
    """The device ``app``, and one queue pair with a buffer."""

    def __init__(self, text, mode):
        registry.names()
        devices.add(text, mode)
        self.driver = self.end = None

    def open(self):
        """Open it, unless it is open; where its adapter lives, and the number of a new queue pair."""
        try:
            self.driver = self.driver or registry.open_device("app")
        except DriverError as error:
            return {"errno": error.errno, "text": str(error)}
        self.end = runtime_pair.End(self.driver, LENGTH)
        process = devices.find("app").process
        return {
            "adapter": 0 if process is None else self.driver.session.channel.resources()["pid"],
            "started": 0 if process is None else process.pid,
            "guid": self.driver.guid,
            "qp": self.end.qp.number,
        }

    def connect(self, qp):
        """Connect to the queue pair ``qp`` of the same device, and take one message of it."""
        path = path_to(self.driver, self.driver.query_gid(1, 0))
        connect(self.end.qp, path, qp, 1, 1, runtime_pair.REMOTE_EVERYTHING, Reliability())
        return True

    def receive(self):
        """Have room for one message."""
        self.end.qp.post_recv(1, self.end.element(LENGTH))
        return True

    def send(self, text):
        """Send ``text`` to the connected queue pair; the completion's status."""
        data = text.encode()
        self.end.memory[: len(data)] = data
        element = self.end.element(len(data))
        self.end.qp.post_send(2, 2, 0, 2, 0, 0, 0, 0, 0, 0, 0, element, None)
        self.end.qp.ring()
        return runtime_pair.take(self.end.cq, 1)[0].status

    def received(self):
        """The message that has come."""
        done = runtime_pair.take(self.end.cq, 1)[0]
        return [done.status, bytes(self.end.memory[: done.byte_len]).decode()]

    def event(self):
        """Sleep until the device tells something."""
        return list(self.driver.next_event(None))

    def close(self):
        """Close it."""
        self.driver.close()
        return True


def main(text, mode):
    member = Member(text, mode)
    for line in sys.stdin:
        words = json.loads(line)
        print(json.dumps(getattr(member, words.pop("call"))(**words)), flush=True)
    if member.driver is not None:
        member.driver.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
