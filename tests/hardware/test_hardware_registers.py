"""The map of the micro-registers: every number once, none of the engine's own, and one map an engine."""

import pytest

pytest.importorskip("amaranth")

from softhca.hardware.micro_registers import (
    GENERAL_COUNT,
    REGISTER_COUNT,
    REGISTERS,
    EngineBus,
    number_of,
    register_map,
)


def test_numbers_and_names_are_unique_and_beyond_the_general_registers():
    numbers = [register.number for register in REGISTERS]
    assert len(set(numbers)) == len(numbers) == len({register.name for register in REGISTERS})
    assert all(GENERAL_COUNT <= number < REGISTER_COUNT for number in numbers)
    assert numbers == sorted(numbers)


def test_every_register_has_a_reader_or_writer_an_engine_and_a_meaning():
    for register in REGISTERS:
        assert register.access in ("r", "w", "rw")
        assert register.engines in ("SQ", "RQ", "SQ RQ")
        assert register.block
        assert register.meaning
        assert number_of(register.name) == register.number


def test_an_engine_has_its_own_side_of_the_remote_key_manager():
    sq, rq = register_map("SQ"), register_map("RQ")
    assert {"RMB_START", "RMB_DONE"} == {"RMB_START", "RMB_DONE", "RQ_KEY_DATA"} & set(sq)
    assert {"RQ_KEY_DATA"} == {"RMB_START", "RMB_DONE", "RQ_KEY_DATA"} & set(rq)
    assert sq["HOST_STATUS"] == rq["HOST_STATUS"]


def test_an_sq_engine_alone_has_the_key_memory_and_no_manager():
    sq, alone = register_map("SQ"), register_map("SQ-ALONE")
    assert set(alone) - set(sq) == {"RQ_KEY_ADDRESS", "RQ_KEY_DATA", "RQ_KEY_BUSY"}
    assert set(sq) - set(alone) == {"RMB_PD", "RMB_KEY", "RMB_START", "RMB_DONE"}


@pytest.mark.parametrize("engine", ["", "sq", "SQ RQ"])
def test_another_engine_is_refused(engine):
    with pytest.raises(ValueError, match="SQ, RQ or SQ-ALONE"):
        register_map(engine)


def test_the_bus_is_seen_the_other_way_round_by_the_blocks():
    bus = EngineBus()
    assert bus.members["write_data"].flow == bus.flip().members["write_data"].flow.flip()
    assert bus.members["read_address_a"].shape == bus.members["read_address_b"].shape == 6
