"""Events of a switched fabric: whatever the number of packets and hosts, nobody sends to itself."""

from random import Random

import fabric_events
import pytest

from softhca.fabric.generators import fat_tree


@pytest.mark.parametrize("lengths", [None, Random(1)])
@pytest.mark.parametrize("packets", [3, 16, 33])
def test_every_packet_arrives_also_where_there_are_more_of_them_than_hosts(packets, lengths):
    load = fabric_events.Load(fat_tree(4))
    events, spent_s = load.run(packets, lengths)
    assert load.arrived == packets * len(load.hosts) == packets * 16
    assert events > load.arrived
    assert spent_s > 0


def test_a_packet_that_is_lost_is_told(monkeypatch):
    load = fabric_events.Load(fat_tree(4))
    for table in load.tables.values():
        table[load.hosts[0][1]] = 255
    with pytest.raises(SystemExit, match="of 48 packets have arrived"):
        load.run(3)
