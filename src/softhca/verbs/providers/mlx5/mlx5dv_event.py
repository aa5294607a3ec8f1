"""Classes of NVIDIA mlx5 (`softhca.verbs.providers`)."""

from softhca.verbs.absent import AbsentObject, absent_method, absent_property


class EventChannel(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    get_event = subscribe = absent_method
    fd = absent_property


class EventHeader(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    cookie = data = absent_property


class EventFD(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""

    fd = absent_property
