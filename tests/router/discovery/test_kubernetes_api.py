"""How the API is reached: as a pod, or by a kubeconfig; with credentials that are read anew each time."""

import logging
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from router import __version__
from router.discovery import kubernetes_api
from router.discovery.kubernetes_api import Pace, reached
from router.discovery.slices import Trouble
from router.sections.discovery import Kubernetes
from tests.support.certificates import certificates
from tests.support.kube_api import NAMESPACE, kube_api, kubeconfig, pod, slice_of

PACE = Pace(connect=5.0, listing=5.0, silence=5.0)
SELECTOR = "kubernetes.io/service-name=vllm"


async def listed(account: Path | None = None, pace: Pace = PACE, **options: Any) -> bytes:
    settings = Kubernetes.model_validate({"service": "vllm", **options})
    async with reached(settings, pace, *([account] if account else [])) as api:
        return await api.listed(SELECTOR)


async def trouble(*given: Any, **options: Any) -> str:
    with pytest.raises(Trouble) as told:
        await listed(*given, **options)
    return str(told.value)


# As a pod.


@pytest.fixture
def account(tmp_path: Path) -> Path:
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("of-the-pod\n")
    (folder / "ca.crt").write_text(Path(certificates().file("ca.pem")).read_text())
    (folder / "namespace").write_text(NAMESPACE)
    return folder


def inside(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))


async def test_a_pod_shows_its_token_to_the_api_that_its_authority_vouches_for(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kube_api(certificates().server()) as api:
        inside(monkeypatch, api.port)
        api.tokens = {"of-the-pod"}
        api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
        assert b"10.0.0.1" in await listed(account)
        assert api.agents == {f"prefix-router/{__version__}"}
        (account / "token").write_text("rotated")
        api.tokens = {"rotated"}
        assert b"10.0.0.1" in await listed(account)


async def test_a_new_authority_counts_for_the_next_connection(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kube_api(certificates().server("strange-server")) as api:
        inside(monkeypatch, api.port)
        assert (await trouble(account)).startswith("it cannot be reached (ClientConnectorCertificateError")
        assert api.shown == [], "no token goes to a stranger"
        (account / "ca.crt").write_text(Path(certificates().file("strange-ca.pem")).read_text())
        assert b"EndpointSliceList" in await listed(account)


async def test_the_namespace_is_the_pods_own_unless_it_is_set(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kube_api(certificates().server()) as api:
        inside(monkeypatch, api.port)
        (account / "namespace").write_text("elsewhere\n")
        assert "(404)" in await trouble(account)
        assert b"EndpointSliceList" in await listed(account, namespace=NAMESPACE)


async def test_outside_of_a_cluster_the_setting_that_helps_is_named(
    account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert "set discovery.kubernetes.kubeconfig" in await trouble(account)
    inside(monkeypatch, 1)
    assert "Service token file does not exist" in await trouble(tmp_path)
    (account / "namespace").unlink()
    assert "No such file or directory" in await trouble(account)
    (account / "ca.crt").write_text("s3cret, no certificate")
    (account / "namespace").write_text(NAMESPACE)
    assert await trouble(account) == "its certificates cannot be used"


# By a kubeconfig.


async def test_a_kubeconfig_leads_to_the_api_its_context_to_another(tmp_path: Path) -> None:
    with kube_api() as api:
        path = str(kubeconfig(tmp_path, api.url, {"token": "mine"}))
        api.tokens = {"mine"}
        assert b"EndpointSliceList" in await listed(kubeconfig=path)
        assert "it cannot be reached (ClientConnectorError)" in await trouble(kubeconfig=path, context="elsewhere")
        assert "kubeconfig cannot be used (ConfigException)" in await trouble(kubeconfig=path, context="never")


async def test_without_a_namespace_in_the_context_it_is_the_default_one(tmp_path: Path) -> None:
    settings = Kubernetes(service="vllm", kubeconfig=str(kubeconfig(tmp_path, "http://127.0.0.1:9", namespace=None)))
    async with reached(settings, PACE) as api:
        assert api.namespace == "default"


@pytest.mark.parametrize("content", ["", "s3cret: [", "7", "contexts: s3cret", "\x00s3cret"])
async def test_a_kubeconfig_that_is_none_is_told_without_a_word_of_it(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    said = await trouble(kubeconfig=str(path))
    assert said.startswith("discovery.kubernetes.kubeconfig cannot be used (")
    assert "s3cret" not in said


async def test_a_program_named_there_gives_the_token_and_what_it_writes_is_logged_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    program = tmp_path / "program.py"
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": [str(program)],
            "interactiveMode": "Never",
        }
    }  # fmt: skip
    with kube_api() as api:
        path = str(kubeconfig(tmp_path, api.url, user))
        api.tokens = {"made"}
        program.write_text(
            "import json; print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', "
            "'kind': 'ExecCredential', 'status': {'token': 'made'}}))"
        )
        assert b"EndpointSliceList" in await listed(kubeconfig=path)
        program.write_text("import sys; print('s3cret', file=sys.stderr); sys.exit(1)")
        assert "it refuses the credentials" in await trouble(kubeconfig=path)
    assert "s3cret" not in caplog.text
    assert "made" not in caplog.text


async def test_no_proxy_of_the_environment_stands_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with kube_api() as api:
        assert b"EndpointSliceList" in await listed(kubeconfig=str(kubeconfig(tmp_path, api.url)))


async def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(kubernetes_api, "import_module", missing)
    assert "pip install 'prefix-router[kubernetes]'" in await trouble()


# What it answers.


@pytest.fixture
def config(tmp_path: Path) -> Any:
    return lambda api: str(kubeconfig(tmp_path, api.url))


@pytest.mark.parametrize(
    ("status", "words"),
    [(400, "discovery.kubernetes.selector"), (401, "it refuses the credentials (401)"),
     (403, "the service account needs get, list and watch of endpointslices there (403)"),
     (404, "it has no discovery.k8s.io/v1 (404)"), (429, "it is asked too often (429)"), (503, "it failed (503)")],
)  # fmt: skip
async def test_a_refusal_is_told_with_what_helps(config: Any, status: int, words: str) -> None:
    with kube_api() as api:
        api.refusal = (status, {})
        assert words in await trouble(kubeconfig=config(api))


@pytest.mark.parametrize(("said", "wait"), [("7", 7.0), ("100000", 60.0), ("soon", 0.0), ("-1", 0.0), ("", 0.0)])
async def test_it_says_how_long_to_wait(config: Any, said: str, wait: float) -> None:
    with kube_api() as api:
        api.refusal = (429, {"Retry_After": said})
        with pytest.raises(Trouble) as told:
            await listed(kubeconfig=config(api))
        assert told.value.wait == wait


async def test_a_state_that_is_gone_is_no_other_refusal(config: Any) -> None:
    with kube_api() as api:
        api.refusal = (410, {})
        with pytest.raises(Trouble) as told:
            await listed(kubeconfig=config(api))
        assert told.value.gone


async def test_a_list_that_takes_too_long_is_given_up(config: Any) -> None:
    with kube_api() as api:
        api.slow = 1.0
        said = await trouble(kubeconfig=config(api), pace=PACE._replace(listing=0.2))
        assert said.startswith("it cannot be reached (")


async def test_a_watch_is_its_lines_until_the_api_ends_it(config: Any) -> None:
    with kube_api() as api:
        settings = Kubernetes(service="vllm", kubeconfig=config(api))
        async with reached(settings, PACE) as reach:
            await reach.listed(SELECTOR)
            watch = await reach.watch(SELECTOR, str(api._version))
            api.put(slice_of("a", pod("vllm-0", "10.0.0.1")), slice_of("b", pod("vllm-1", "10.0.0.2")))
            lines: list[bytes] = []
            async for more in watch.lines():
                lines += more
                if len(lines) == 2:
                    api.end_watches()
        assert [b'"vllm-0"' in line for line in lines] == [True, False]


async def test_changes_that_came_together_are_read_together(config: Any) -> None:
    with kube_api() as api:
        settings = Kubernetes(service="vllm", kubeconfig=config(api))
        async with reached(settings, PACE) as reach:
            await reach.listed(SELECTOR)
            watch = await reach.watch(SELECTOR, str(api._version))
            lines = watch.lines()
            api.put(slice_of("first", pod("vllm-0", "10.0.0.1")))
            assert len(await anext(lines)) == 1
            api.put(*(slice_of(f"s{at}", pod(f"vllm-{at}", "10.0.0.1")) for at in range(200)))
            time.sleep(0.5)  # the loop is busy, as with what the first change brought
            batches: list[int] = []
            while sum(batches) < 200:
                batches.append(len(await anext(lines)))
            assert len(batches) < 50, "a batch is much more than a line"


async def test_a_line_that_breaks_off_is_none(config: Any) -> None:
    with kube_api() as api:
        settings = Kubernetes(service="vllm", kubeconfig=config(api))
        async with reached(settings, PACE) as reach:
            await reach.listed(SELECTOR)
            watch = await reach.watch(SELECTOR, str(api._version))
            api.put(slice_of("a", pod("vllm-0", "10.0.0.1")))
            api.end_watches("cut")
            lines = watch.lines()
            assert [b'"vllm-0"' in line for line in await anext(lines)] == [True]
            with pytest.raises(Trouble, match="the watch broke off"):
                await anext(lines)


async def test_a_line_without_end_is_not_read_for_ever(config: Any) -> None:
    with kube_api() as api:
        settings = Kubernetes(service="vllm", kubeconfig=config(api))
        async with reached(settings, PACE) as reach:
            await reach.listed(SELECTOR)
            watch = await reach.watch(SELECTOR, str(api._version))
            api.put(slice_of("a", *(pod(f"vllm-{at}", "10.0.0.1") for at in range(50_000))))
            with pytest.raises(Trouble, match="too long") as told:
                await anext(watch.lines())
            assert told.value.gone


async def test_silence_ends_a_watch(config: Any) -> None:
    with kube_api() as api:
        settings = Kubernetes(service="vllm", kubeconfig=config(api))
        async with reached(settings, PACE._replace(silence=0.3)) as reach:
            await reach.listed(SELECTOR)
            watch = await reach.watch(SELECTOR, str(api._version))
            assert [line async for line in watch.lines()] == []
