"""The parts together."""

from backends.contract import Engine
from backends.mock.assembly import MockWorker, Plan
from backends.mock.engine import Shape


async def test_a_worker_is_put_together_without_listening() -> None:
    worker = MockWorker(Plan(shape=Shape(models=("m",)), control_port=1))
    engine: Engine = worker.engine
    assert engine.models == ("m",)
    assert [repr(server).split()[1] for server in worker.servers] == ["refusing", "refusing"]
    assert worker.control.server is worker.server
    worker.close()
    worker.close()
