"""Classes of NVIDIA mlx5 (`softhca.verbs.providers`)."""

from softhca.verbs.absent import AbsentObject


class DrRule(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""
