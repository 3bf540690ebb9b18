"""What a client may ask of the sampling, checked: a value out of its range is a 400 that names the range."""

from collections.abc import Sequence

from backends.wire import ApiError

MOST_CHOICES = 16
MOST_STOPS = 4
SEEDS = 2**64


def check_sampling(temperature: float | None, top_p: float | None) -> None:
    if temperature is not None and not 0 <= temperature <= 2:
        raise out_of_range("temperature", "a number of 0 to 2", temperature)
    if top_p is not None and not 0 < top_p <= 1:
        raise out_of_range("top_p", "a number above 0 and at most 1", top_p)


def check_whole(field: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise out_of_range(field, f"a whole number of {low} to {high}", value)
    return value


def stop_strings(given: str | Sequence[str] | None, field: str, most: int = MOST_STOPS) -> tuple[str, ...]:
    """One string or several; none of them empty."""
    strings = (given,) if isinstance(given, str) else tuple(given or ())
    if len(strings) > most or not all(strings):
        message = f"`{field}` must be at most {most} strings, none of them empty."
        raise ApiError(400, message, param=field)
    return strings


def seeds(seed: int | None, count: int) -> list[int | None]:
    """One for each choice: the given one, then the numbers after it, as signed 64-bit integers."""
    if seed is None:
        return [None] * count
    half = SEEDS // 2
    check_whole("seed", seed, -half, half - 1)
    return [(seed + place + half) % SEEDS - half for place in range(count)]


def out_of_range(field: str, wanted: str, value: float) -> ApiError:
    return ApiError(400, f"`{field}` must be {wanted}, got {value}.", param=field)
