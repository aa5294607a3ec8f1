"""Comparing digests of two trees: equal worlds are counted, others named, violations never hidden."""

from pathlib import Path

import compare_digests
from compare_digests import World, compare, worlds_of

import softhca
from softhca.simulation.runner import run_world

TREE = Path(softhca.__file__).parent.parent


def test_worlds_of_a_tree_are_those_that_it_runs():
    assert list(worlds_of(TREE, 1, 2, ["rc-mix", "of another tree"])) == [
        World("rc-mix", seed, run_world("rc-mix", seed).digest, 0) for seed in (1, 2)
    ]


def test_what_differs_is_named_with_its_seeds():
    old = [World("a", 1, "x", 0), World("a", 2, "x", 0), World("b", 1, "y", 0), World("gone", 1, "z", 0)]
    new = [World("a", 1, "x", 0), World("a", 2, "other", 0), World("b", 1, "y", 3), World("new", 1, "z", 0)]
    lines, common, equal = compare(iter(old), iter(new))
    assert lines == ["b 1: 3 violations", "a: 1 differ: 2", "gone: in one tree only", "new: in one tree only"]
    assert (common, equal) == (3, 2)


def test_status_says_whether_all_are_equal(monkeypatch, capsys):
    made = {"old": [World("a", 1, "x", 0)], "new": [World("a", 1, "y", 0)]}
    monkeypatch.setattr(compare_digests, "worlds_of", lambda tree, *_: iter(made[tree.name]))
    monkeypatch.setattr("sys.argv", ["compare", "old", "new"])
    assert compare_digests.main() == 1
    made["new"] = made["old"]
    assert compare_digests.main() == 0
    assert capsys.readouterr().out.endswith("1 of 1 worlds have the same digest\n")
