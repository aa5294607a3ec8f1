"""Classes of NVIDIA mlx5 (`softhca.verbs.providers`)."""

from softhca.verbs.absent import AbsentAttributes, AbsentObject, absent_method


class Mlx5VfioContext(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    get_events_fd = process_events = absent_method


class Mlx5VfioAttr(AbsentAttributes):
    """Attributes; nothing reads them."""
