"""The tables."""

from bench.path.figures import gather
from bench.path.table import table
from tests.bench.path.conftest import Made


def test_only_what_was_measured_has_a_column(run: Made) -> None:
    text = table(gather([run(case="sse", cpu_us=7.25)], "ours"), "ours")
    assert "SSE event" in text
    assert "JSON 2K" not in text
    assert "7.2" in text


def test_a_row_for_each_and_a_dash_for_what_it_lacks(run: Made) -> None:
    lines = table(gather([run("direct", cpu_us=None, resident=None), run()], "ours"), "ours").splitlines()
    direct, ours = lines[2:4]
    assert direct.split() == ["direct", "-", "500", "0.40", "0.90", "-"]
    assert ours.split() == ["ours", "50.0", "500", "0.40", "0.90", "50"]


def test_ratios_stand_with_their_range_and_the_number_of_rounds(run: Made) -> None:
    runs = [run("ours", turn=turn) for turn in range(3)]
    runs += [run("nginx", turn=turn, cpu_us=cpu) for turn, cpu in enumerate([25.0, 50.0, 100.0])]
    text = table(gather(runs, "ours"), "ours")
    assert "times what ours takes, in the same round: median of 3 (smallest-largest)" in text
    assert text.splitlines()[-1].split(maxsplit=1) == ["nginx", "1.00 (0.50-2.00)"]


def test_one_alone_is_compared_with_nothing(run: Made) -> None:
    assert "times what" not in table(gather([run()], "ours"), "ours")
