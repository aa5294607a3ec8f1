"""Classes of NVIDIA mlx5 (`softhca.verbs.providers`)."""

from softhca.verbs.absent import AbsentObject, absent_method


class DrMatcher(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    set_layout = absent_method
