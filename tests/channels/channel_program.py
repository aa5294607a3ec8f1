"""A program for tests of channels between processes: ``channel_program.py WHAT ADDRESS``."""

from __future__ import annotations

import signal
import sys

from softhca import Channel, ChannelOptions

OPTIONS = ChannelOptions(keepalive_s=0.2, ack_timeout=13)


def main(what: str, address: str) -> None:
    channel = Channel.connect(address, options=OPTIONS, timeout=None)
    if what == "echo":
        with channel:
            for message in channel:
                channel.send(message)
        return
    box = bytearray(8)
    channel.share("box", box, "rwa")
    channel.send(b"ready")
    if what == "stays":
        signal.pause()
    elif what == "fork":
        import os

        child = os.fork()
        if not child:
            try:
                channel.send(b"from the child")
            except OSError:
                os._exit(0)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        channel.send(b"child ended with %d" % status)
        channel.close()
    # "leaves": the program ends without a word


main(*sys.argv[1:])
