"""Buffers of graphics devices, which this device cannot reach."""

from softhca.verbs.absent import AbsentObject, absent_property


class DmaBuf(AbsentObject):
    """A buffer of ``size`` bytes on a graphics device; refused with ``EOPNOTSUPP``."""

    __slots__ = ()

    def __init__(self, size: int, gpu: int = 0, gtt: int = 0) -> None:
        super().__init__(size, gpu, gtt)

    drm_fd = handle = fd = size = map_offset = absent_property
