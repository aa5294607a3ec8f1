"""Why an arriving packet was dropped: small integers, because the engine's loop counts them and never raises.

``DROP_NONE`` (0) means "not dropped".  The first group is found by looking at the packet alone, the second
needs the receiving port and queue pair.  ``NAMES[reason]`` is the counter's name.
"""

DROP_NONE = 0

# the packet alone
DROP_TRUNCATED = 1  # shorter than its headers
DROP_LENGTH = 2  # not whole words, beyond its buffer, or a payload where the opcode allows none
DROP_OPCODE = 3  # reserved opcode
DROP_VERSION = 4  # transport header version other than 0
DROP_PAD = 5  # pad count larger than the payload
DROP_ICRC = 6
DROP_VCRC = 7
DROP_LINK_HEADER = 8  # LRH or GRH with a field that no packet has, or that contradicts the packet
DROP_RAW_TRANSPORT = 24  # a raw datagram whose IPv6 header says that IBA transport follows (C9-208)

# the packet at this port and queue pair
DROP_UNKNOWN_QP = 9
DROP_PKEY = 10
DROP_QKEY = 11
DROP_SERVICE = 12  # opcode of another service than the queue pair's
DROP_STATE = 13  # queue pair not ready to receive
DROP_SOURCE = 14  # not from the connected peer
DROP_DESTINATION = 15  # not addressed to this port
DROP_SEQUENCE = 16  # out of order where the service does not acknowledge
DROP_NO_RECEIVE = 17  # no receive work request where the service does not acknowledge
DROP_RECEIVE_LENGTH = 18  # longer than the receive work request, likewise
DROP_PROTECTION = 19  # key, range, right or domain, likewise
DROP_UNEXPECTED_RESPONSE = 20  # response that answers nothing outstanding
DROP_RESOURCES = 21  # a bounded resource of the receiver was used up
DROP_RAW = 22  # a raw datagram (LNH 0 or 1) of a service that no queue pair receives
DROP_LANE = 23  # management on a data lane, or data on management's
DROP_FRAME = 25  # no VXLAN datagram of this segment, or a frame on a native port
DROP_NO_RULE = 26  # an Ethernet frame that no rule of a raw packet queue pair takes

NAMES: tuple[str, ...] = (
    "none",
    "truncated",
    "length",
    "opcode",
    "version",
    "pad",
    "icrc",
    "vcrc",
    "link_header",
    "unknown_qp",
    "pkey",
    "qkey",
    "service",
    "state",
    "source",
    "destination",
    "sequence",
    "no_receive",
    "receive_length",
    "protection",
    "unexpected_response",
    "resources",
    "raw",
    "lane",
    "raw_transport",
    "frame",
    "no_rule",
)
COUNT = len(NAMES)
