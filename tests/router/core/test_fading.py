"""What was sent recently is halved, in step."""

from router.core.fading import HALF_LIFE, Fading


def test_traffic_is_halved_in_whole_steps_that_do_not_depend_on_the_moments_between() -> None:
    one, other = Fading(), Fading()
    assert one.halvings(5.0) == other.halvings(5.0) == 0
    moments = [5.0 + at for at in range(0, 500, 7)] + [505.0]
    often = sum(one.halvings(moment) for moment in moments)
    assert often == other.halvings(505.0) == int(500 / HALF_LIFE)


def test_traffic_is_not_halved_backwards() -> None:
    fading = Fading()
    fading.halvings(100.0)
    assert fading.halvings(99.0) == 0
    assert fading.halvings(100.1 + HALF_LIFE) == 1
