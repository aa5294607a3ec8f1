"""Classes of NVIDIA mlx5 (`softhca.verbs.providers`)."""

from softhca.verbs.absent import AbsentObject, absent_function, absent_method


class DrAction(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""


class DrActionQp(DrAction):
    """Refused, as its base is."""


class DrActionModify(DrAction):
    """Refused, as its base is."""


class DrActionFlowCounter(DrAction):
    """Refused, as its base is."""


class DrActionDrop(DrAction):
    """Refused, as its base is."""


class DrActionTag(DrAction):
    """Refused, as its base is."""


class DrActionDestTable(DrAction):
    """Refused, as its base is."""


class DrActionPushVLan(DrAction):
    """Refused, as its base is."""


class DrActionPopVLan(DrAction):
    """Refused, as its base is."""


class DrActionDestAttr(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""


class DrActionDestArray(DrAction):
    """Refused, as its base is."""


class DrActionDefMiss(DrAction):
    """Refused, as its base is."""


class DrActionVPort(DrAction):
    """Refused, as its base is."""


class DrActionIBPort(DrAction):
    """Refused, as its base is."""


class DrActionDestTir(DrAction):
    """Refused, as its base is."""


class DrActionPacketReformat(DrAction):
    """Refused, as its base is."""


class DrFlowSamplerAttr(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""


class DrActionFlowSample(DrAction):
    """Refused, as its base is."""


class DrFlowMeterAttr(AbsentObject):
    """Refused with ``EOPNOTSUPP``."""


class DrActionFlowMeter(DrAction):
    """Refused, as its base is."""

    modify = absent_method


be64toh = absent_function
