"""Classes of NVIDIA mlx5 (`softhca.verbs.providers`)."""

from softhca.verbs.absent import AbsentAttributes, AbsentObject, absent_method


class Mlx5dvSchedAttr(AbsentAttributes):
    """Attributes; nothing reads them."""


class Mlx5dvSchedNode(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    bw_share = comp_mask = flags = max_avg_bw = modify = sched_attr = absent_method


class Mlx5dvSchedLeaf(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    bw_share = comp_mask = flags = max_avg_bw = modify = sched_attr = absent_method
