"""What is open when the interpreter ends, and is finalized after all modules were cleared, says nothing."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from machine_speed import limit_s

OBJECTS = {
    "verbs": """
        from softhca.verbs import enums as e
        from softhca.verbs.cq import CQ, CompChannel
        from softhca.verbs.device import Context
        from softhca.verbs.mr import MR
        from softhca.verbs.pd import PD
        from softhca.verbs.qp import QP, QPCap, QPInitAttr
        from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr
        context = Context(name="a")
        channel, domain = CompChannel(context), PD(context)
        queue = CQ(context, 10, None, channel)
        region = MR(domain, 4096, e.IBV_ACCESS_LOCAL_WRITE)
        shared = SRQ(domain, SrqInitAttr(SrqAttr(max_wr=4)))
        pair = QP(domain, QPInitAttr(e.IBV_QPT_RC, scq=queue, rcq=queue, cap=QPCap(4, 4, 1, 1)))
        keep(context, channel, domain, queue, region, shared, pair)
    """,
    "cm": """
        from softhca.verbs.cmid import CMID, AddrInfo
        identifier = CMID(creator=AddrInfo(src="127.0.0.1", src_service="0", flags=1))
        identifier.listen()
        keep(identifier)
    """,
    "channels": """
        import contextlib, threading
        import softhca
        from softhca.channels.errors import ChannelError
        listener = softhca.Channel.listen("127.0.0.1:0")
        ends = []

        def goes_on():  # when the interpreter ends, and so it keeps what its functions use
            with contextlib.suppress(ChannelError):
                while True:
                    ends.append(listener.accept())

        threading.Thread(target=goes_on, daemon=True).start()
        one = softhca.Channel.connect(listener.address, patient=True)
        keep(listener, one, ends)
    """,
    "mailbox": """
        from softhca.mailbox import Mailbox, Terms
        from softhca.verbs.device import Context
        context, terms = Context(name="a"), Terms(slots=8, slot_bytes=96)
        here, there = Mailbox(context, terms), Mailbox(context, terms)
        here.join(there.offer)
        there.join(here.offer)
        here.send(b"hello")
        keep(context, here, there)
    """,
    "sockets": """
        from softhca import sockets
        server = sockets.create_server(("127.0.0.1", 0))
        one = sockets.create_connection(server.getsockname())
        other = server.accept()[0]
        datagrams = sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM)
        datagrams.bind(("127.0.0.1", 0))
        assert one.stream and datagrams.datagrams
        buffer = sockets.PageBuffer(1 << 16)
        keep(server, one, other, datagrams, buffer)
    """,
}

PROGRAM = """
import os, sys, types
sys.modules["holder"] = holder = types.ModuleType("holder")  # cleared behind what is imported after it

class Last:
    def __del__(self, write=os.write):
        write(1, b"ended")

def keep(*things):
    holder.kept = [*things, Last()]
    sys.living = list(sys.modules.values())  # modules that live when the interpreter ends are cleared
"""


@pytest.mark.parametrize("kind", OBJECTS)
def test_what_is_left_open_ends_in_silence(kind: str, loopback_address: Callable[[], str]) -> None:
    program = PROGRAM + "".join(line[8:] for line in OBJECTS[kind].splitlines(keepends=True))
    arguments = [sys.executable, "-W", "ignore::ResourceWarning", "-c", program]
    environment = {**os.environ, "SOFTHCA_DEVICES": f"a=udp:{loopback_address()},b=udp:{loopback_address()}"}
    ran = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=limit_s(60))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "ended", "")
