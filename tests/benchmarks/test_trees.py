"""The processor time of a process and its descendants."""

from __future__ import annotations

from benchmarks.trees import TICKS, parse_times, sum_tree


def test_times_of_a_process_include_those_of_children_that_have_ended() -> None:
    fields = ["S", "41", *["0"] * 9, "100", "20", "3", "1", *["7"] * 20]
    assert parse_times(f"42 (a (strange) name) {' '.join(fields)}") == (41, 124 / TICKS)


def test_a_tree_has_all_descendants_and_nothing_else() -> None:
    processes = {1: (0, 1.0), 2: (1, 2.0), 3: (2, 4.0), 4: (2, 8.0), 5: (1, 16.0)}
    assert sum_tree(2, processes) == 14.0
    assert sum_tree(5, processes) == 16.0
    assert sum_tree(99, processes) == 0.0
