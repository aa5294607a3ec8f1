"""Block storage over RDMA: an I/O unit with a controller that is a disk, and the host that reads and writes
it (SCSI over the SCSI RDMA Protocol, T10 SRP).

*Formats*: ``srp``, ``descriptors``, ``scsi``.  *Target*: ``disk``, ``logical_unit``, ``task_states``,
``session`` (one initiator's channel, without a queue pair), ``target_channel``, ``io_unit``.  *Host*:
``discovery``, ``initiator`` (one channel's requests and credits, without a queue pair),
``initiator_channel``, ``block_device`` (the channel driver).

``docs/storage.md`` is the guide.
"""

from softhca.storage.block_device import BlockDevice, Route
from softhca.storage.discovery import Controller, UnitAddress, find_controllers
from softhca.storage.disk import Disk, FileDisk, MemoryDisk
from softhca.storage.errors import StorageError
from softhca.storage.io_unit import IoUnit, UnitConfig

__all__ = [
    "BlockDevice",
    "Controller",
    "Disk",
    "FileDisk",
    "IoUnit",
    "MemoryDisk",
    "Route",
    "StorageError",
    "UnitAddress",
    "UnitConfig",
    "find_controllers",
]
