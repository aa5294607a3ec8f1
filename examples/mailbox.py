"""Messages that prove themselves: softhca run -n 2 -- python examples/mailbox.py

Rank 0 writes orders into rank 1's memory by RDMA WRITE; each carries its hash, and rank 1 takes what
verifies. Before the orders rank 0 asks for a bill, once: when the order that says 'last' was processed, or
one of more than 900 pieces.
"""

import os
import socket
import struct

from softhca.mailbox import Mailbox, Terms, all_of, any_of, exchange_offers, field, reached
from softhca.verbs.device import Context

ORDERS = [(b"nails", 100), (b"screws", 250), (b"bolts", 80), (b"last", 1)]
ORDER = struct.Struct("<H8s")  # pieces, article

rank, meeting = int(os.environ["SOFTHCA_RANK"]), (os.environ["SOFTHCA_PEERS"].split(",")[0], 7472)
tcp = socket.socket() if rank else socket.create_server(meeting).accept()[0]
while rank and tcp.connect_ex(meeting):
    pass  # rank 0 does not listen yet

with Context() as context, Mailbox(context, Terms(slots=8, slot_bytes=96)) as box:
    exchange_offers(box, tcp)
    if rank == 0:
        enough = any_of(field(0, "u16", ">", 900), field(2, "bytes", "==", b"last"))
        bill = box.request("bill", b"no. 17", all_of(reached(2), enough), deadline_s=60)
        for article, pieces in ORDERS:
            box.send(ORDER.pack(pieces, article))
        while (outcome := box.outcome(bill)) is None:
            box.try_receive()
        print(f"request {outcome.number} is {outcome.status}: {outcome.result.decode()}")
        tcp.sendall(b".")
    else:
        total = 0
        box.actions["bill"] = lambda number: b"bill %s: %d pieces" % (number, total)
        for _ in ORDERS:
            pieces, article = ORDER.unpack(box.receive())
            total += pieces
        tcp.setblocking(False)
        while True:
            box.poll()  # the last order is processed; requests and outcomes go on
            try:
                if tcp.recv(1):
                    break
            except BlockingIOError:
                continue
