"""Amaranth's simulator made quick computes what it computes as it comes, in every clock."""

import pytest

pytest.importorskip("amaranth")

from amaranth.sim import Simulator, _pyrtl

from softhca.hardware import quick_simulator as quick
from softhca.hardware import trace
from softhca.hardware.tops import build
from softhca.hardware.vectors import play_random

CLOCKS = 400


@pytest.mark.parametrize("name", ["remote_key_manager", "micro_engine", "receive_fifo", "work_scheduler"])
def test_every_port_of_every_clock_is_the_same(name, monkeypatch):
    found = play_random(build(name), CLOCKS, name).clocks
    monkeypatch.setattr(trace, "quick_simulator", Simulator)
    wanted = play_random(build(name), CLOCKS, name).clocks
    assert len(set(wanted)) > CLOCKS // 2
    assert found == wanted


def test_what_amaranth_writes_is_what_is_made_quick(monkeypatch):
    """No call goes without a look, and no state is searched for in a list."""
    made = []
    monkeypatch.setattr(quick, "quick", lambda text, real=quick.quick: made.append(real(text)) or made[-1])
    quick.quick_simulator(build("receive_fifo"))
    runs = [text for text in made if text.startswith("def run(")]
    calls = [line.strip() for text in runs for line in text.splitlines() if ".update(" in line]
    assert len(calls) > 20
    assert all(call.startswith("if next_") for call in calls)
    assert not [text for text in runs if "slots[" in text.partition(":\n")[2]]


def test_a_process_looks_before_it_calls():
    text = quick.quick(
        "def run():\n    next_3 = slots[3].next\n    next_4 = 0\n    next_4 = 1 & slots[12].curr\n"
        "    slots[3].update(next_3)\n    slots[4].update(next_4, -1)\n    slots[5].write(slots[4].curr)\n"
    )
    assert text == (
        "def run(slot_3=slots[3], slot_4=slots[4], slot_5=slots[5], slot_12=slots[12]):\n"
        "    next_3 = slot_3.next\n    next_4 = 0\n    next_4 = 1 & slot_12.curr\n"
        "    if next_3 != slot_3.next: slot_3.update(next_3)\n"
        "    if next_4 != slot_4.next: slot_4.update(next_4, -1)\n"
        "    slot_5.write(slot_4.curr)\n"
    )


def test_other_text_stays_and_amaranth_gets_its_own_back():
    other = "slots[3].update(next_3)\n"
    assert quick.quick(other) == other
    with pytest.raises(Exception):  # noqa: B017, PT011    (whatever Amaranth says)
        quick.quick_simulator(5)
    assert _pyrtl._PythonEmitter is not quick._Emitter
