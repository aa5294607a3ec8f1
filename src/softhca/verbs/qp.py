"""Queue pairs: everything that pyverbs has in its module ``qp``, gathered."""

from softhca.verbs.qp_attributes import QPAttr, QPCap, QPInitAttr, QPInitAttrEx
from softhca.verbs.qp_ex import DataBuffer, QPEx
from softhca.verbs.queue_pair import QP

__all__ = ["QP", "DataBuffer", "QPAttr", "QPCap", "QPEx", "QPInitAttr", "QPInitAttrEx"]
