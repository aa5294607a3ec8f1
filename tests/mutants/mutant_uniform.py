"""Bugs of RDMA WRITEs and READs that go in packets of one length."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

UNIFORM_RULES = "transport/uniform.py"
REQUESTER = "transport/requester.py"
REQUEST = "transport/request.py"
SEGMENTS = "transport/segmentation.py"
ANSWERS = "transport/acknowledgement.py"

ON_UNIFORM = "transport/test_transport_uniform.py"

UNIFORM: tuple[tuple[Mutant, str], ...] = (
    (m("uniform-all-at-the-first-address", SEGMENTS, "(request.work.remote_va + offset) & _MASK64, request.work.rkey, n\n            )\n        elif", "request.work.remote_va, request.work.rkey, n\n            )\n        elif",
       "every packet of a WRITE overwrites the first"), ON_UNIFORM),
    (m("uniform-each-of-the-whole-length", SEGMENTS, "request.work.rkey, n\n            )\n        elif", "request.work.rkey, request.length_bytes\n            )\n        elif",
       "the responder refuses what is shorter than it says"), ON_UNIFORM),
    (m("uniform-for-ever", REQUEST, "        self.separate = False\n        if self.status", "        if self.status",
       "a SEND goes as so many messages where a WRITE was before"), ON_UNIFORM),
    (m("uniform-one-message", REQUESTER, "            request.separate = True\n            messages = request.packets\n", "            request.separate = True\n",
       "SENDs behind go beyond the credits of the peer"), ON_UNIFORM),
    (m("uniform-with-immediate", UNIFORM_RULES, "most = 0 if request.limited else self.write_packets", "most = self.write_packets",
       "a receive is completed for each packet"), ON_UNIFORM),
    (m("uniform-without-end", UNIFORM_RULES, "1 < request.packets <= most and", "1 < request.packets and most and",
       "long messages carry a RETH a packet for nothing"), ON_UNIFORM),
    (m("uniform-reads-of-one-packet", UNIFORM_RULES, "READ_PACKETS = 2\n", "READ_PACKETS = 1\n",
       "twice as many requests as needed"), ON_UNIFORM),
    (m("uniform-reads-under-way-for-ever", ANSWERS, "request.received % request.slice_packets == 0\n        ):\n            self.rd_outstanding -= 1", "request.received % self.slice_packets == 0\n        ):\n            self.rd_outstanding -= 1",
       "a READ stops when max_rd_atomic of its requests are answered"), ON_UNIFORM),
    (m("uniform-reads-however-few", UNIFORM_RULES, ">= rules.reads_under_way_bytes", ">= 0",
       "a READ of a connection with one at a time waits for each 8 KiB"), ON_UNIFORM),
    (m("uniform-on-native-links", UNIFORM_RULES, " or route.framing == NATIVE", "",
       "native links carry more headers for nothing"), ON_UNIFORM),
    (m("uniform-of-every-service", UNIFORM_RULES, " or connection.service != RC", "",
       "XRC and RD, whose headers are others, go so"), ON_UNIFORM),
    (m("uniform-where-nothing-is-proven", UNIFORM_RULES, "        if found is None:\n            return False\n", "        if found is None:\n            return True\n",
       "a refused WRITE has written its first packets"), ON_UNIFORM),
    (m("uniform-beyond-what-is-proven", UNIFORM_RULES, "            and request.length_bytes - 1 <= last - request.work.remote_va\n", "",
       "a WRITE beyond its region has written its first packets"), ON_UNIFORM),
    (m("uniform-one-byte-beyond", UNIFORM_RULES, "last = first + (request.length_bytes - 1)", "last = first + request.length_bytes",
       "a WRITE one byte beyond its region has written its first packets"), ON_UNIFORM),
    (m("uniform-before-what-is-proven", UNIFORM_RULES, "first <= request.work.remote_va <= last", "request.work.remote_va <= last",
       "a WRITE before its range has written packets"), ON_UNIFORM),
    (m("uniform-one-right-for-both", UNIFORM_RULES, "key << 1 | (request.kind == _READ)", "key << 1",
       "a READ goes so where only WRITEs are known to be granted"), ON_UNIFORM),
    (m("uniform-of-the-peer-before", REQUESTER, "        self.uniform.forget()\n", "",
       "a key of another peer is taken for proven"), ON_UNIFORM),
    (m("uniform-keys-without-end", UNIFORM_RULES, "elif len(self._proven) >= _MOST:\n            self._proven.clear()\n        self", "self",
       "a program that registers for each message makes its connection grow for ever"), ON_UNIFORM),
)
