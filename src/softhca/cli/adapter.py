"""``softhca adapter start|status|stop``: an adapter process that many programs share.

It outlives them, and the command that starts it.  Programs reach it as ``unix:@NAME``, which ``start`` says.
"""

from __future__ import annotations

import argparse
import dataclasses
import errno
import os

from softhca.cli.errors import CommandError, UsageError
from softhca.cli.output import add_json_option, bytes_text, print_json, print_table
from softhca.runtime import adapter_service
from softhca.runtime.adapter_service import AdapterService
from softhca.runtime.specification import DeviceSpecification, DeviceSpecificationError, parse


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``adapter`` takes to its ``parser``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    start = actions.add_parser("start", help="start an adapter process that stays until it is stopped")
    start.add_argument(
        "device", nargs="?", default="", metavar="NAME=KIND:PLACE",
        help="a device as in SOFTHCA_DEVICES (default: the first of that variable, else softhca0=udp:*)",
    )  # fmt: skip
    start.add_argument(
        "--at", default="", metavar="@NAME", help="listen there (default: made of the device's addresses)"
    )
    start.add_argument(
        "--foreground", action="store_true", help="become the adapter process, for a service manager"
    )
    status = actions.add_parser("status", help="the adapter processes of this user")
    add_json_option(status)
    stop = actions.add_parser("stop", help="stop an adapter process")
    stop.add_argument(
        "which", nargs="?", default="", metavar="NAME", help="a device, @NAME or process number"
    )
    stop.add_argument("--all", action="store_true", help="all that serve no program")
    stop.add_argument(
        "--force", action="store_true", help="also one that serves programs, which lose their adapter"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; CommandError, UsageError."""
    if args.action == "start":
        return _start(_device(args.device), args.at, args.foreground)
    if args.action == "status":
        return _status(args.json)
    return _stop(args.which, args.all, args.force)


def _device(text: str) -> DeviceSpecification:
    try:
        device = parse(text or os.environ.get("SOFTHCA_DEVICES", ""))[0]
    except DeviceSpecificationError as error:
        raise UsageError(str(error)) from None
    if device.kind == "unix":
        raise UsageError(
            f"{device.name} is an adapter process already: name what it is to serve, as udp:eth0"
        )
    return device


def _start(device: DeviceSpecification, at: str, foreground: bool) -> int:
    try:
        name = at or adapter_service.name_for(device)
    except DeviceSpecificationError as error:
        raise UsageError(str(error)) from None
    if not name.startswith("@") or not 1 < len(name.encode()) <= 107:
        raise UsageError(f"--at {name}: a name has an @ and 1 to 106 bytes behind it")
    if foreground:
        command = adapter_service.command_of(device, name)
        os.execve(command[0], command, adapter_service.environment_of())
    try:
        pid, places = adapter_service.start(device, name)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CommandError(
                f"something listens at {name} already",
                "softhca adapter status shows it; --at chooses another name",
            ) from None
        raise CommandError(
            error.strerror or str(error), "softhca doctor shows what this machine lacks"
        ) from None
    print(f"{device.name}: process {pid} serves {places} at {name}")
    print(f"SOFTHCA_DEVICES={device.name}=unix:{name} softhca run -- PROGRAM")
    return 0


def _status(as_json: bool) -> int:
    found = adapter_service.running()
    if as_json:
        print_json([dataclasses.asdict(each) for each in found])
    elif not found:
        print("no adapter process runs")
    else:
        rows = [
            (
                each.device, each.name, each.pid, each.programs,
                "until it is stopped" if each.service else "until its programs end",
                _age(each.up_s), bytes_text(each.memory_bytes),
            )
            for each in found
        ]  # fmt: skip
        columns = "device", "listens at", "process", "programs", "stays", "up", "memory"
        print_table("adapter processes", columns, rows)
    return 0


def _age(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _stop(which: str, everything: bool, force: bool) -> int:
    if bool(which) == everything:
        raise UsageError("name an adapter process, or say --all; softhca adapter status shows them")
    found = adapter_service.running()
    if everything:
        chosen = [each for each in found if force or not each.programs]
    else:
        chosen = [_only([each for each in found if which in _names(each)], which)]
        if chosen[0].programs and not force:
            raise CommandError(
                f"{chosen[0].device_name} (process {chosen[0].pid}) serves {chosen[0].programs} programs",
                "--force: they lose their adapter",
            )
    for each in chosen:
        if not adapter_service.stop(each, force):
            raise CommandError(f"process {each.pid} does not end", "--force ends it all the same")
        print(f"{each.device_name}: process {each.pid} has ended")
    if not chosen:
        print("no adapter process to stop")
    return 0


def _names(service: AdapterService) -> tuple[str, ...]:
    return service.device_name, service.device, service.name, str(service.pid)


def _only(found: list[AdapterService], which: str) -> AdapterService:
    if not found:
        raise CommandError(f"no adapter process {which}", "softhca adapter status shows those that run")
    if len(found) > 1:
        numbers = ", ".join(str(each.pid) for each in found)
        raise UsageError(
            f"{which} is the device of several adapter processes: {numbers}; name one by its number"
        )
    return found[0]
