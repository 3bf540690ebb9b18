"""What a request holds of its worker goes back exactly once."""

from router.core.load import Load


def test_a_charge_is_in_flight_until_released_and_waits_until_its_first_token() -> None:
    load = Load()
    lease = load.charge(100.0, 0.0, streaming=True)
    assert (load.in_flight, load.charged, load.wait(0.0)) == (1, 100.0, 100.0)
    lease.first_token(1.0)
    assert (load.in_flight, load.charged) == (1, 0.0)
    assert lease.release() is True
    assert (load.in_flight, load.charged) == (0, 0.0)


def test_a_release_without_a_first_token_gives_everything_back() -> None:
    load = Load()
    load.charge(100.0, 0.0, streaming=False).release()
    assert (load.in_flight, load.charged) == (0, 0.0)


def test_every_method_of_a_lease_may_be_called_again() -> None:
    load = Load()
    kept = load.charge(50.0, 0.0, streaming=True)
    lease = load.charge(100.0, 0.0, streaming=True)
    for _ in range(3):
        lease.first_token(1.0)
    assert [lease.release() for _ in range(3)] == [True, False, False]
    lease.first_token(2.0)
    assert (load.in_flight, load.charged) == (1, 50.0)
    kept.release()


def test_a_request_that_had_the_prefill_to_itself_teaches_the_pace() -> None:
    load = Load()
    lease = load.charge(1000.0, 0.0, streaming=True)
    assert lease.prefill_seconds is None
    lease.first_token(0.5)
    assert lease.prefill_seconds == 0.5
    load.learn_pace(lease.tokens, lease.prefill_seconds)
    assert load.pace == 2000.0


def test_a_request_that_waited_behind_another_teaches_nothing() -> None:
    load = Load()
    load.charge(1000.0, 0.0, streaming=True)
    lease = load.charge(1000.0, 0.0, streaming=True)
    lease.first_token(5.0)
    assert lease.prefill_seconds is None


def test_a_request_that_failed_before_its_first_token_teaches_nothing() -> None:
    """A worker that fails fast is not fast."""
    load = Load()
    lease = load.charge(1000.0, 0.0, streaming=True)
    lease.release()
    lease.first_token(0.5)
    assert lease.prefill_seconds is None


def test_a_request_that_does_not_stream_teaches_nothing() -> None:
    """Its first byte comes with its last token."""
    lease = Load().charge(1000.0, 0.0, streaming=False)
    lease.first_token(0.5)
    assert lease.prefill_seconds is None
