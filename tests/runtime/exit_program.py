"""A program that leaves everything open when it ends: ``python exit_program.py HOW``."""

import contextlib
import sys
import threading

from softhca.driver import registry
from softhca.driver.errors import DriverError


def main(how):
    drivers = [registry.open_device(name) for name in registry.names()]
    for driver in drivers:
        driver.alloc_pd()
        driver.create_cq(10, "channel")
        threading.Thread(target=wait, args=(driver,), daemon=True).start()
    print(" ".join(driver.query_gid(1, 0).hex()[-8:] for driver in drivers), flush=True)
    if how == "exception":
        raise RuntimeError("left")
    if how == "status":
        sys.exit(3)


def wait(driver):
    with contextlib.suppress(DriverError):  # the end of the device ends the wait
        driver.wait_completion("channel")


if __name__ == "__main__":
    main(*sys.argv[1:])
