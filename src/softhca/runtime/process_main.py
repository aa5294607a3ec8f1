"""Entry of an adapter process: ``python -P -m softhca.runtime.process_main DEVICE [options]``.

DEVICE is a word of ``SOFTHCA_DEVICES``.  ``--attach``: the socket of the application that started it, which
it serves first; its first word there is READY of `queues.handshake` (the addresses of its ports,
joined by ``+``), or a refusal.  ``--bound``: a socket that is bound to the name of ``--listen``.
The process ends when the last application has gone, with ``--stay`` at the end of its standard input, with
``--service`` when it gets SIGTERM (`adapter_service`).  Both say ``ready`` on standard output; with
``--service`` the addresses of the ports follow, and where ``--bound`` was given it keeps nothing more of
whoever started it.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import os
import signal
import socket
import sys
import threading

if __name__ == "__main__":  # else the collector of garbage looks at what is imported below again and again
    gc.set_threshold(50_000, *gc.get_threshold()[1:])

from softhca.queues.handshake import READY, encode_answer, encode_refusal
from softhca.runtime import messages
from softhca.runtime.assembly import assemble_ports, same_host_of
from softhca.runtime.server import AdapterServer
from softhca.runtime.specification import DeviceSpecificationError, parse_one


def main(arguments: list[str] | None = None) -> int:
    """Serve one adapter; the exit status."""
    options = _options(arguments)
    # Whoever started this process decides when it ends; a terminal's interrupt is meant for the application.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # else what it says to that terminal could stop it
    first = None
    if options.attach >= 0:
        first = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=options.attach)
        first.set_inheritable(False)
    try:
        door = _door(options)
        specification = parse_one(options.device)
        adapter, links = assemble_ports(specification)
        same_host = same_host_of(specification, adapter, links, packets_alone=True)
        stays = options.stay or options.service
        server = AdapterServer(adapter, links, first, options.listen, stays, same_host, door, _leave_starter)
    except (OSError, DeviceSpecificationError) as error:
        if first is None:
            print(f"softhca: {error}", file=sys.stderr)
        else:
            reason = getattr(error, "strerror", None) or str(error)
            code = getattr(error, "errno", None) or errno.EINVAL
            messages.send_packet(first, encode_refusal(READY, code, reason))
        return 1
    places = "+".join(link.address for link in links)
    if first is not None:
        messages.send_packet(first, encode_answer(READY, {"place": places.encode()}))
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    if options.service:
        print("ready", places, flush=True)
        if options.bound >= 0:  # whoever handed that over goes; a service manager reads on
            _leave_starter(1)
    if options.stay:
        print("ready", flush=True)
        threading.Thread(target=_stop_at_end_of_input, args=(server,), daemon=True).start()
    server.serve()
    return int(server.loop.dead)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="softhca.runtime.process_main", description="serve one adapter")
    parser.add_argument("device", help="NAME=KIND:PLACE")
    parser.add_argument("--attach", type=int, default=-1, metavar="FD", help="socket of the first one")
    parser.add_argument("--listen", default="", metavar="PATH", help="socket for further applications")
    parser.add_argument("--bound", type=int, default=-1, metavar="FD", help="socket that has PATH")
    parser.add_argument("--stay", action="store_true", help="serve until standard input ends")
    parser.add_argument("--service", action="store_true", help="serve until SIGTERM")
    return parser.parse_args(arguments)


def _door(options: argparse.Namespace) -> socket.socket | None:
    """The socket that was handed over to listen at."""
    if options.bound < 0:
        return None
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=options.bound)
    door.set_inheritable(False)
    door.setblocking(False)
    return door


def _leave_starter(*more: int) -> None:
    """Who started this process has gone, and others have not: keep nothing of it, neither its standard error
    (whoever reads that would wait for its end) and the descriptors ``more`` nor its folder.
    """
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (2, *more):
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
        os.chdir("/")


def _stop_at_end_of_input(server: AdapterServer) -> None:
    while os.read(0, 4096):
        pass
    server.stop()


if __name__ == "__main__":
    status = main()
    gc.freeze()  # what is here now ends with the process, whose end looks at it three times otherwise
    sys.exit(status)
