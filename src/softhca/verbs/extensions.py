"""Numbers that softhca has beyond libibverbs; a program that uses them runs on softhca only.

``SOFTHCA_QP_CREATE_TELLS_LOSSES`` is a creation flag of UC queue pairs (``QPInitAttrEx.create_flags``): the
queue pair then reports ``SOFTHCA_EVENT_MESSAGES_LOST`` when a packet does not have the PSN that is expected
(IBTA vol. 1, o9-131), once until a packet has it again.  What is missing may be messages, or come later.

``SOFTHCA_EVENT_PAGE_FAULT`` reports that its device waits for pages of a memory that another process
owns (`pageable.PageableMemory.attach`); its element is the region's key.

``SOFTHCA_RAW_IPV6`` and ``SOFTHCA_RAW_ALL`` are raw services beside EtherTypes (`QP.attach_raw`,
`SendWR.set_wr_raw`): IPv6 packets right behind the LRH, and, to receive, all that no other QP does.

``SOFTHCA_QPT_RD`` is the type of reliable datagram queue pairs (`QPInitAttr.rdd`, `eec.EEC`).

``SOFTHCA_WR_REG_MR`` is the work request of fast registration (`SendWR.set_reg_wr`,
`fast_registration.FastMR`), ``SOFTHCA_WC_REG_MR`` its completion's opcode.
"""

from softhca.queues.control_fields import CREATE_TELLS_LOSSES, EVENT_MESSAGES_LOST, EVENT_PAGE_FAULT, QPT_RD
from softhca.queues.layout import REG_MR, WC_DRIVER1
from softhca.wire.raw import ALL_RAW, RAW_IPV6

SOFTHCA_QP_CREATE_TELLS_LOSSES: int = CREATE_TELLS_LOSSES
SOFTHCA_EVENT_MESSAGES_LOST: int = EVENT_MESSAGES_LOST
SOFTHCA_EVENT_PAGE_FAULT: int = EVENT_PAGE_FAULT
SOFTHCA_QPT_RD: int = QPT_RD
SOFTHCA_RAW_IPV6: int = RAW_IPV6
SOFTHCA_RAW_ALL: int = ALL_RAW
SOFTHCA_WR_REG_MR: int = REG_MR
SOFTHCA_WC_REG_MR: int = WC_DRIVER1
