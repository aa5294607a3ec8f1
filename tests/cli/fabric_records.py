"""A host of a fabric that sets and deletes GUIDInfoRecords of its port by subnet administration: each answer
is a line of JSON.  Word: the GUID of another port."""

import json
import sys
import time

from softhca.management import administration_attributes as a
from softhca.management import administration_tables as t
from softhca.verbs.device import Context
from softhca.verbs.mad import Mad, MadAddress, MadAgent, MadHeader

SET, DELETE = 2, 0x15
FRONT_BYTES = 232
OTHER = int(sys.argv[1], 16)
numbers = iter(range(1, 1000))


def guids(method, places, wanted=None, block=0, **values):
    table = b"".join(values.get(f"at{each}", 0).to_bytes(8, "big") for each in range(8))
    named = 3 if wanted is None else wanted
    named |= sum(1 << 4 + each for each in places)
    front = a.AdministrationHeader(component_mask=named)
    header = MadHeader(management_class=3, class_version=2, method=method, transaction_id=next(numbers),
                       attribute_id=t.ATTRIBUTE_GUID_INFO_RECORD)  # fmt: skip
    record = t.GuidInfoRecord(port.lid, block, table=table)
    question = Mad(header, (front.encode() + record.encode()).ljust(FRONT_BYTES, b"\0"))
    answer = agent.ask(question, MadAddress(dlid=port.sm_lid), timeout_ms=10_000, retries=3)
    status = answer.header.status
    found = t.GuidInfoRecord.decode(answer.data).table if status == 0 else b""
    return status, [int.from_bytes(found[at : at + 8], "big") for at in range(0, len(found), 8)]


with Context(name="softhca0") as context:
    port = context.query_port(1)
    while port.state != 4:  # ACTIVE
        time.sleep(0.05)
        port = context.query_port(1)
    with MadAgent(context, port=1, management_class=3, class_version=2) as agent:
        for answer in (
            ("set", guids(SET, [1, 3], at1=0xAB, at3=0xCD)),
            ("own", guids(SET, [0], at0=0x77)),
            ("other's", guids(SET, [2], at2=OTHER)),
            ("again", guids(SET, [1], at1=0xAC)),
            ("delete", guids(DELETE, [3])),
            ("block", guids(SET, [1], block=200, at1=5)),
            ("no block", guids(SET, [1], wanted=1, at1=5)),
        ):
            print(json.dumps(answer), flush=True)
