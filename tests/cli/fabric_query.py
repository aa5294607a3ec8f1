"""A program on a fabric that asks subnet administration for its path to the manager, by datagram."""

import json
import os
import socket
import sys
import time

from softhca.management import administration_attributes as a
from softhca.management import administration_tables as t
from softhca.verbs.device import Context
from softhca.verbs.mad import Mad, MadAddress, MadAgent, MadHeader

FRONT_BYTES = 232

with Context(name="softhca0") as context:
    port = context.query_port(1)
    while port.state != 4:  # ACTIVE
        time.sleep(0.05)
        port = context.query_port(1)
    wanted = a.PathRecord(slid=port.lid, dlid=port.sm_lid)
    mask = t.component(a.PathRecord, "slid") | t.component(a.PathRecord, "dlid")
    body = a.AdministrationHeader(component_mask=mask).encode() + wanted.encode()
    header = MadHeader(
        management_class=3,
        class_version=2,
        method=1,
        transaction_id=5,
        attribute_id=a.ATTRIBUTE_PATH_RECORD,
    )
    with MadAgent(context, port=1, management_class=3, class_version=2) as agent:
        question = Mad(header, body.ljust(FRONT_BYTES, b"\0"))
        answer = agent.ask(question, MadAddress(dlid=port.sm_lid), timeout_ms=10_000, retries=3)
    found = a.PathRecord.decode(answer.data)
    path = {name: getattr(found, name) for name in ("slid", "dlid", "mtu", "rate")}
    pkeys = [socket.ntohs(context.query_pkey(1, index)) for index in range(2)]
    rank = os.environ["SOFTHCA_RANK"]
    told = {"rank": rank, "status": answer.header.status, "lid": port.lid, "path": path, "pkeys": pkeys}
    sys.stdout.write(json.dumps(told) + "\n")  # in one piece: all copies write into one pipe
