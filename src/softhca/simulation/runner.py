"""Run one world: build it from (scenario, seed), let it come to rest, ask the oracles."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

from softhca.links.decisions import Script
from softhca.links.faults import FOREVER_NS, Crash, Faults, FaultsError
from softhca.simulation import conversation_setting, disk_setting
from softhca.simulation.conversation_setting import ConversationSetting
from softhca.simulation.datagram_setting import DatagramSetting
from softhca.simulation.datagram_socket_setting import DatagramSocketSetting
from softhca.simulation.disk_setting import DiskSetting
from softhca.simulation.exchange_setting import ExchangeSetting
from softhca.simulation.failover import FailoverSetting
from softhca.simulation.mailbox_setting import MailboxSetting
from softhca.simulation.oracle import Violation
from softhca.simulation.path_proposals import ProposalSetting
from softhca.simulation.scenarios import SCENARIOS, Scenario, dice_of, faults_of
from softhca.simulation.setting import Setting
from softhca.simulation.stream_setting import StreamSetting
from softhca.simulation.trace import Trace
from softhca.simulation.world import START_NS, Tap, World

MAX_EVENTS = 50_000
PATIENCE = 20
"""Under faults that somebody has asked for a world may have so many times as many events."""
LIMIT_NS = 5_000_000_000
MTUS = (1, 2, 3, 3, 4, 5)
"""ibv_mtu"""
ABRUPT = 0.3
"""In so many worlds hosts leave without destroying anything: adapters have to clean up themselves."""


class ScenarioError(ValueError):
    """A scenario that does not exist; the message is one line that names the good ones."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a world.  ``digest`` covers the whole trace and all packets."""

    scenario: str
    seed: int
    digest: str
    duration_ns: int
    packets: int
    faults: str
    violations: tuple[Violation, ...]

    def document(self) -> dict[str, Any]:
        """The same as JSON values."""
        document = {name: getattr(self, name) for name in self.__slots__}
        document["violations"] = [
            {"time_ns": found.time_ns, "rule": found.rule, "text": found.text} for found in self.violations
        ]
        return document


def find_scenario(name: str) -> Scenario:
    """The scenario of that name; ScenarioError when there is none, or it needs what is not installed."""
    try:
        scenario = SCENARIOS[name]
    except KeyError:
        raise ScenarioError(f"unknown scenario {name!r}: expected one of {', '.join(SCENARIOS)}") from None
    absent = missing(scenario)
    if absent:
        needs = f"{' and '.join(absent)}: pip install 'softhca[{scenario.extra}]'"
        raise ScenarioError(f"scenario {name!r} needs {needs}")
    return scenario


def missing(scenario: Scenario) -> list[str]:
    """The modules that a scenario needs and that are not installed."""
    return [name for name in scenario.modules if importlib.util.find_spec(name) is None]


def run_world(
    name: str,
    seed: int,
    faults: str = "",
    trace: Trace | None = None,
    tap: Tap | None = None,
    script: Script | None = None,
) -> Outcome:
    """Run scenario ``name`` with ``seed``; ``faults`` (a text for `Faults.parse`) change its own ones.

    ``script`` takes down what befalls single packets, or decides it in place of the dice.
    ScenarioError, FaultsError.
    """
    scenario = find_scenario(name)
    suffered = Faults.parse(faults, faults_of(scenario, seed))
    if suffered.crashes and scenario.gates:
        raise FaultsError(f"crash: an adapter of {name} is in gates, and none of its adapters dies")
    for crash in suffered.crashes:
        if crash.adapter > scenario.adapters:
            raise FaultsError(f"crash: {name} has the adapters 1…{scenario.adapters}, not {crash.adapter}")
    trace = trace or Trace()
    world = World(f"{name}/{seed}", suffered, trace, tap, scenario.link, script)
    world.patience = PATIENCE if faults else 1
    try:
        _live(world, scenario, seed)
    finally:
        world.close()
    duration_ns = world.now - START_NS
    violations = tuple(world.report.violations)
    return Outcome(name, seed, trace.digest, duration_ns, trace.packets, str(suffered), violations)


def _live(world: World, scenario: Scenario, seed: int) -> None:
    """Everything that happens in a world."""
    mtu = dice_of(scenario, seed, "mtu").choice(MTUS)
    world.limit_windows(scenario.window_bytes)
    world.uniform = scenario.uniform
    ethernet = None
    if scenario.ethernet:
        ethernet = world.wire_up(scenario.ethernet, dice_of(scenario, seed, "switches"))
    for number in range(1, scenario.adapters + 1):
        node = world.add(number, mtu, scenario.ports)
        world.trace.add(world.now, "start", number, scenario=scenario.name, seed=seed, gid=node.gid.hex())
    paths = None
    if scenario.switches:
        paths = world.switch(scenario.switches, dice_of(scenario, seed, "switches"))
    if scenario.forged:
        world.forge(scenario.forged, withdraws=scenario.races > 0)
    if scenario.tampered:
        world.tamper(scenario.tampered)
    if scenario.echoes:
        world.echo()
    if scenario.holds:
        world.hold()
    settings: list[Any] = [_setting(world, scenario, seed, 1)]
    settings[0].start()
    for crash in world.faults.crashes:
        _plan_crash(world, scenario, seed, settings, crash)
    if scenario.gates:
        settings[0].play()
    elif scenario.disks:
        world.run(disk_setting.MAX_EVENTS, disk_setting.LIMIT_NS)
    elif scenario.conversations or scenario.proposes:
        world.run(conversation_setting.MAX_EVENTS, conversation_setting.LIMIT_NS)
    else:
        world.run(MAX_EVENTS, LIMIT_NS)
    for setting in settings:
        setting.finish()
    if paths is not None:
        paths.finish()
    if ethernet is not None:
        ethernet.finish()
    if dice_of(scenario, seed, "end").random() < ABRUPT:
        for node in world.nodes.values():
            node.close()
    else:
        for setting in settings:
            setting.destroy()
    settings[-1].check_resources()
    for node in world.nodes.values():
        world.trace.add(world.now, "end", node.number, **node.drops())


def _setting(world: World, scenario: Scenario, seed: int, generation: int) -> Any:
    """What a scenario's programs are."""
    if scenario.gates:
        from softhca.simulation.gates_setting import GatesSetting  # Amaranth need not be there

        return GatesSetting(world, scenario, seed, generation)
    if scenario.conversations:
        return ConversationSetting(world, scenario, seed, generation)
    if scenario.datagrams:
        return DatagramSetting(world, scenario, seed, generation)
    if scenario.sockets:
        return DatagramSocketSetting(world, scenario, seed, generation)
    if scenario.disks:
        return DiskSetting(world, scenario, seed, generation)
    if scenario.streams:
        return StreamSetting(world, scenario, seed, generation)
    if scenario.lines:
        return ExchangeSetting(world, scenario, seed, generation)
    if scenario.proposes:
        return ProposalSetting(world, scenario, seed, generation)
    if scenario.failures:
        return FailoverSetting(world, scenario, seed, generation)
    return (MailboxSetting if scenario.mailbox else Setting)(world, scenario, seed, generation)


def _plan_crash(world: World, scenario: Scenario, seed: int, settings: list[Any], crash: Crash) -> None:
    """An adapter dies while programs talk; when it has started again, all hosts start new ones."""
    node = world.nodes[crash.adapter]

    def die(_: object) -> None:
        for setting in settings:
            setting.adapter_crashed(crash.adapter)
        node.crash()

    def restart(_: object) -> None:
        node.restart()
        settings.append(_setting(world, scenario, seed, len(settings) + 1))
        settings[-1].start()

    world.at(crash.start_ns, die)
    if crash.end_ns < FOREVER_NS:
        world.at(crash.end_ns, restart)
