"""Queue pairs: everything that pyverbs has in its module ``qp``, gathered."""

from softhca.verbs.qp_attributes import QPAttr, QPCap, QPInitAttr, QPInitAttrEx
from softhca.verbs.qp_ex import DataBuffer, QPEx
from softhca.verbs.qp_parts import ECE, QPAttachCompCntrAttr, QPRateLimitAttr
from softhca.verbs.queue_pair import QP

__all__ = [
    "ECE",
    "QP",
    "DataBuffer",
    "QPAttachCompCntrAttr",
    "QPAttr",
    "QPCap",
    "QPEx",
    "QPInitAttr",
    "QPInitAttrEx",
    "QPRateLimitAttr",
]
