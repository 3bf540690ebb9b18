"""docker-compose.yml brought up by a real engine: it serves, Prometheus sees it, and a frozen worker is survived."""

import contextlib
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.deployment import COMPOSE_FILE, ROOT, alerts, compose, panel_queries
from tests.support.docker import Engine, add_prometheus_image, add_python_image, running_engine

pytestmark = [
    pytest.mark.system("dockerd", "docker", "docker-compose", "debootstrap", "prometheus", "promtool"),
    pytest.mark.timeout(900),  # the first run makes the base image
    pytest.mark.xdist_group("docker"),
]

TOKEN = "a-token-of-the-test"
SERVICES = compose()["services"]
STARTED = sorted(set(SERVICES) - {"grafana"})  # there is no image of Grafana where no registry is reached
# What a healthy fleet with room to spare has nothing to show for.
# What nothing happens to: no failures, no shadow, no engine that tells of its cache.
QUIET = {f"prefix-router: Spills, retries and failures {query}" for query in "ABC"} | {
    "prefix-router: Queue B",
    "prefix-router-affinity: The shadow policy differs A",
    "prefix-router-affinity: Shadow policy: how often it differs A",
    "prefix-router-affinity: Shadow policy: what it would have cost A",
    "prefix-router-affinity: Matches against KV events A",
}
REAL_MODEL = "prefix-router-decoding: "  # panels for workers with a real model; here there are mocks


def shows_something(title: str) -> bool:
    return title not in QUIET and not title.startswith(REAL_MODEL)


class Stack:
    """The services of the compose file, on ports of their own."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        ports = free_ports(2)
        self.gateway, self.prometheus = (f"http://127.0.0.1:{port}" for port in ports)
        engine.environment["GATEWAY_PORT"], engine.environment["PROMETHEUS_PORT"] = map(str, ports)
        engine.environment["PREFIX_ROUTER_ADMIN_TOKEN"] = TOKEN
        self.override = engine.home / "override.yml"
        context = str(copied_context(engine.home))
        built = [name for name, service in SERVICES.items() if "build" in service]
        # The engine may not change the host's firewall, so only the host's own network leads a build to its packages.
        builds = {name: {"build": {"network": "host", "context": context}} for name in built}
        self.override.write_text(yaml.safe_dump({"services": builds}))

    def compose(self, *arguments: str) -> str:
        files = ("--file", COMPOSE_FILE, "--file", self.override)
        return self.engine.run("docker-compose", "--project-name", "pr", *files, *arguments, limit=600)

    def up(self) -> None:
        try:
            self.compose("up", "--detach", "--build", *STARTED)
        except AssertionError as fault:
            with contextlib.suppress(AssertionError):
                fault.add_note(self.compose("logs", "--tail=50", "--no-color"))
            raise

    def container(self, service: str) -> str:
        return self.compose("ps", "--quiet", service)

    def execute(self, service: str, *command: str) -> str:
        return self.engine.docker("exec", self.container(service), *command)

    def chat(self, text: str, **fields: Any) -> httpx.Response:
        body = {"model": "mock-model", "max_tokens": 4, "messages": [{"role": "user", "content": text}], **fields}
        answer = httpx.post(f"{self.gateway}/v1/chat/completions", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer

    def admin(self, path: str) -> Any:
        answer = httpx.get(f"{self.gateway}/admin/{path}", headers={"authorization": f"Bearer {TOKEN}"}, timeout=10)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def state(self, worker: str) -> str:
        states = {found["id"]: found["state"] for found in self.admin("workers")["workers"]}
        return str(states[worker])

    def ask_prometheus(self, path: str, **parameters: str) -> Any:
        answer = httpx.get(f"{self.prometheus}/api/v1/{path}", params=parameters, timeout=10).json()
        assert answer["status"] == "success", f"{parameters}: {answer}"
        return answer["data"]


def copied_context(home: Path) -> Path:
    """What travels to the builder, as it is now: were a file edited between two builds, the next would compile anew."""
    context = home / "context"
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in [".dockerignore", "deploy/Dockerfile", *sent]:
        source, target = ROOT / name, context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return context


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_until(fact: Callable[[], object], limit: float = 60) -> None:
    end = time.monotonic() + limit
    while not fact():
        assert time.monotonic() < end, f"not so within {limit} seconds"
        time.sleep(0.5)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with running_engine() as engine:
        add_python_image(engine)
        add_prometheus_image(engine, SERVICES["prometheus"]["image"])
        stack = Stack(engine)
        stack.up()
        yield stack


@pytest.fixture(scope="module")
def traffic(stack: Stack) -> list[str]:
    """Conversations that share beginnings, some streamed; the workers that answered."""
    answered = []
    for turn in range(4):
        for topic in ("routing", "caching", "queueing"):
            text = f"Let us talk about {topic}. " * 60 + f"Question {turn}?"
            answered.append(stack.chat(text, stream=turn % 2 == 1).headers["x-router-worker"])
    return answered


def test_a_chat_through_the_published_port_is_answered_by_a_worker(stack: Stack) -> None:
    answer = stack.chat("Good morning.")
    assert answer.json()["choices"][0]["message"]["content"]
    assert answer.headers["x-router-worker"] in SERVICES


@pytest.mark.parametrize("service", ["gateway", "worker-1"])
def test_a_program_runs_without_rights_on_a_read_only_file_system(stack: Stack, service: str) -> None:
    assert stack.execute(service, "id", "-u") == "10001"
    assert stack.execute(service, "grep", "CapEff", "/proc/1/status").split()[1] == "0" * 16
    assert stack.execute(service, "grep", "NoNewPrivs", "/proc/1/status").split()[1] == "1"
    assert stack.engine.docker("inspect", "--format", "{{.HostConfig.PidsLimit}}", stack.container(service)) == "512"
    stack.execute(service, "touch", "/tmp/written")
    with pytest.raises(AssertionError, match="Read-only file system"):
        stack.execute(service, "touch", "/app/written")


def test_the_path_of_a_request_is_compiled_in_the_process_that_serves(stack: Stack) -> None:
    file = stack.execute("gateway", "python", "-c", "import router.journey; print(router.journey.__file__)")
    assert file.endswith(".so")
    assert file in stack.execute("gateway", "cat", "/proc/1/maps")
    assert stack.execute("gateway", "prefix-router", "--version").endswith("(compiled)")
    assert stack.chat("Good evening.").headers["x-router-worker"] in SERVICES


def test_no_compiler_is_in_the_image(stack: Stack) -> None:
    wanted = "import shutil; print([name for name in ('cc', 'gcc', 'as', 'ld', 'mypyc') if shutil.which(name)])"
    assert stack.execute("gateway", "python", "-c", wanted) == "[]"


def test_the_admin_api_asks_for_the_token_of_the_environment(stack: Stack) -> None:
    assert httpx.get(f"{stack.gateway}/admin/workers", timeout=10).status_code in {401, 403}
    wrong = {"authorization": "Bearer change-me"}
    assert httpx.get(f"{stack.gateway}/admin/workers", headers=wrong, timeout=10).status_code in {401, 403}
    assert {worker["id"] for worker in stack.admin("workers")["workers"]} == {"worker-1", "worker-2", "worker-3"}


def test_prometheus_scrapes_the_gateway_and_every_worker(stack: Stack) -> None:
    def healths() -> dict[str, str]:
        targets = stack.ask_prometheus("targets")["activeTargets"]
        return {target["labels"]["instance"]: target["health"] for target in targets}

    wanted = ["gateway:8080", "localhost:9090", "worker-1:9001", "worker-2:9001", "worker-3:9001"]
    wait_until(lambda: sorted(healths()) == wanted and set(healths().values()) == {"up"})


def test_prometheus_evaluates_every_alert_and_none_fires(stack: Stack, traffic: list[str]) -> None:
    def rules() -> list[dict[str, Any]]:
        return [rule for group in stack.ask_prometheus("rules")["groups"] for rule in group["rules"]]

    wait_until(lambda: {rule["health"] for rule in rules()} == {"ok"})
    assert len(rules()) == len(alerts())
    assert {rule["name"]: rule["state"] for rule in rules() if rule["state"] == "firing"} == {}


def test_every_panel_has_an_answer_once_requests_were_served(stack: Stack, traffic: list[str]) -> None:
    def without_data() -> list[str]:
        stack.chat("One more.", stream=True)
        queries = [(title, query) for title, query in panel_queries() if shows_something(title)]
        return [title for title, query in queries if not stack.ask_prometheus("query", query=query)["result"]]

    with contextlib.suppress(AssertionError):
        wait_until(lambda: not without_data(), limit=40)
    assert without_data() == []
    for title, query in panel_queries():
        assert stack.ask_prometheus("query", query=query)["resultType"] == "vector", title


def test_a_frozen_worker_is_passed_over_and_comes_back(stack: Stack, traffic: list[str]) -> None:
    frozen = traffic[0]
    container = stack.container(frozen)
    with ThreadPoolExecutor(8) as background:
        stack.engine.docker("pause", container)
        try:
            # These may have been sent to it before it was known to be frozen: they have to be answered all the same.
            early = [background.submit(stack.chat, f"Early question {n}. " * 20) for n in range(8)]
            wait_until(lambda: stack.state(frozen) == "down", limit=30)
            late = [stack.chat(f"Late question {n}. " * 20).headers["x-router-worker"] for n in range(12)]
            late.append(stack.chat("Let us talk about routing. " * 60 + "Question 9?").headers["x-router-worker"])
            assert frozen not in late
        finally:
            stack.engine.docker("unpause", container)
        assert [answer.result(60).status_code for answer in early] == [200] * 8
    wait_until(lambda: stack.state(frozen) == "ready", limit=30)
    wait_until(lambda: stack.chat(f"New question {time.monotonic_ns()}").headers["x-router-worker"] == frozen)


def test_the_gateway_ends_cleanly_when_the_engine_stops_it(stack: Stack) -> None:
    container = stack.container("gateway")
    stack.compose("stop", "gateway")
    assert stack.engine.docker("inspect", "--format", "{{.State.ExitCode}}", container) == "0"
