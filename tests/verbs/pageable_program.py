"""A process that shares pageable memory, for tests: ``python pageable_program.py DEVICE MODE ROLE SOCKET``.

It opens a device of its own and makes pageable memory (role ``owner``) or attaches the one whose descriptor
comes over the Unix socket ``SOCKET`` (role ``consumer``), registers it, makes a queue pair, and answers
requests, one JSON packet each, while it drives its device.
"""

import json
import os
import select
import socket
import sys

from softhca.driver import registry
from softhca.runtime import devices
from softhca.testing.verbs import ALL_ACCESS, attributes_of, make_end
from softhca.verbs import enums as e
from softhca.verbs.device import Context
from softhca.verbs.pageable import PageableMemory, PageableMR
from softhca.verbs.pyverbs_error import PyverbsRDMAError

LENGTH = 4 * 4096


class Process:
    """The process; a request's name is the method that answers it, its other fields are arguments."""

    def __init__(self, control: socket.socket, role: str, text: str, mode: str) -> None:
        registry.names()
        devices.add(text, mode)
        self.control = control
        self.end = make_end(Context(name=text.partition("=")[0]))
        if role == "owner":
            self.memory = PageableMemory(LENGTH, ALL_ACCESS | e.IBV_ACCESS_ON_DEMAND, pager=False)
            socket.send_fds(control, [b"{}"], [self.memory.fd])
        else:
            _, descriptors, _, _ = socket.recv_fds(control, 64, 1)
            self.memory = PageableMemory.attach(descriptors[0])
            os.close(descriptors[0])
        self.mr = PageableMR(self.end.pd, self.memory, ALL_ACCESS, 0)
        self.going = True

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self.control)
        while self.going:
            if poll.poll(0):
                packet = self.control.recv(4096)
                if not packet:
                    return
                request = json.loads(packet)
                try:
                    answer = getattr(self, request.pop("request"))(**request)
                except PyverbsRDMAError as error:
                    answer = {"error": error.error_code}
                self.control.send(json.dumps(answer).encode())
            self.end.context.progress()

    def where(self) -> dict[str, object]:
        """What a peer must know."""
        return {"gid": str(self.end.context.query_gid(1, 0)), "qpn": self.end.qp.qp_num, "rkey": self.mr.rkey}

    def join(self, gid: str, qpn: int) -> dict[str, object]:
        """Connect to a peer."""
        self.end.qp.to_rts(attributes_of(self.end.context, gid, qpn, 1, 1))
        return {}

    def fetch(self) -> dict[str, object]:
        return {"fetched": self.memory.fetch()}

    def read(self, length: int, offset: int) -> dict[str, object]:
        return {"data": self.memory.read(length, offset).hex()}

    def step(self, name: str) -> dict[str, object]:
        """Call a method of the memory that takes no arguments."""
        getattr(self.memory, name)()
        return {}


if __name__ == "__main__":
    device_text, device_mode, memory_role, descriptor = sys.argv[1:]
    with socket.socket(fileno=int(descriptor)) as channel:
        Process(channel, memory_role, device_text, device_mode).serve()
