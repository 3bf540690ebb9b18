"""Under what the figures were measured."""

from backends.bench_decoding.measured import Setting

SAID = {
    "model": "tiny.gguf", "dtype": "float32", "device": "cpu", "threads": 1, "clock": "cpu", "prompts": 20,
    "tokens": 128, "rounds": 3,
}  # fmt: skip


def test_its_line_says_what_decides_the_figures() -> None:
    assert Setting(SAID).line == (
        "tiny.gguf, float32, 1 thread; 20 prompts a set, answers of up to 128 tokens, 3 rounds"
    )
    assert "2 threads" in Setting(SAID | {"threads": 2}).line
    assert "cuda" in Setting(SAID | {"device": "cuda"}).line
    assert Setting(SAID | {"rounds": 1}).line.endswith("1 round")


def test_it_knows_which_clock_counted() -> None:
    assert Setting(SAID).by_cpu
    assert not Setting(SAID | {"clock": "wall"}).by_cpu
