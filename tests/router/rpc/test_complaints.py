"""However much a peer does wrong, the log has a line now and then."""

import pytest

from router.rpc.complaints import EVERY, Complaints


def test_one_line_is_told_at_once_and_the_others_as_a_number_later(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    complaints = Complaints(lambda: now)
    for _ in range(100):
        complaints.say("a peer did wrong")
    assert caplog.messages == ["a peer did wrong"]
    now = EVERY
    complaints.say("a peer did wrong")
    assert caplog.messages[1:] == ["a peer did wrong (99 more like it were not told)"]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_a_fault_of_ours_is_told_with_its_traceback_whatever_peers_do(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints(lambda: 0.0)
    complaints.say("a peer did wrong")
    for _ in range(3):
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            complaints.say("a fault", fault=True)
    [_, fault] = caplog.records
    assert (fault.message, fault.levelname) == ("a fault", "ERROR")
    assert fault.exc_info
