"""A host reads and writes a disk over RDMA, and goes on when its adapter's port goes down.

An I/O unit with a file as its disk, and a host with two adapters, in virtual time (`softhca.testing`), so
that there is a port to take down.  In a program of your own the devices are real ones: `IoUnit.start` has
threads serve, and nothing else changes.
"""
import os
import random
import tempfile

from softhca.driver.adapters import HostAdapters
from softhca.storage import BlockDevice, FileDisk, IoUnit, Route, UnitAddress, UnitConfig, find_controllers
from softhca.testing import Network

with Network() as network, tempfile.TemporaryDirectory() as folder:
    host = [network.add(name=f"host{number}") for number in (0, 1)]
    target = network.add(ports=2)
    for each in host:
        each.offer()

    # the I/O unit: a file of 1 MiB, offered at both ports of its adapter
    disk = FileDisk.create(os.path.join(folder, "disk"), 1 << 20)
    device = target.open()
    unit = IoUnit([(device, 1), (device, 2)], [disk], UnitConfig(guid=0x0002_C903_0000_0001))
    network.tasks.append(unit.serve)

    # the host: who is there, and what does it offer?
    adapters = HostAdapters()
    ports = [UnitAddress(target.adapter.ports[number].gid_table[0]) for number in (0, 1)]
    asking = adapters.acquire("host0")
    for found in find_controllers(asking, 1, ports[0]):
        names = ", ".join(service.name for service in found.services)
        print(f"slot {found.slot}: {found.profile.name!r}, {names}")
    adapters.release(asking)

    routes = [Route("host0", 1, ports[0]), Route("host1", 1, ports[1])]
    with BlockDevice(adapters, routes) as blocks:
        size = blocks.capacity
        print(f"{size.blocks} blocks of {size.block_bytes} bytes, by {blocks.route.adapter}")
        data = random.Random(1).randbytes(1 << 19)
        blocks.write(0, data)
        blocks.flush()
        print("half of it is written; the port goes down")
        host[0].adapter.set_link(1, False)
        blocks.write(1024, data)
        blocks.flush()
        print(f"the other half by {blocks.route.adapter}")
        whole = blocks.read(0, 2048)
        print("read back:", "as written" if whole == 2 * data else "different")
    unit.close()
    disk.close()
    with open(os.path.join(folder, "disk"), "rb") as file:
        print("the file:", "as written" if file.read() == 2 * data else "different")
