"""The Kubernetes API, for what discovery asks of it: a list of EndpointSlices, and the changes after it.

The official client (`kubernetes.aio`) reads credentials and sends. What comes is read here: its own watch goes on by
itself after errors that must be told. Credentials are read anew for each connection, since they rotate: a service
account's token lives for an hour.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from router import __version__
from router.discovery.slices import GONE, Trouble
from router.sections.discovery import Kubernetes

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # where every pod finds its service account
PATH = "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
MOST_WAIT = 60.0  # seconds, whatever Retry-After says
MOST_LINE = 4 << 20  # bytes; a slice has at most a thousand endpoints
WHY = {
    400: "it refuses the question: look at discovery.kubernetes.selector",
    401: "it refuses the credentials",
    403: "it forbids it: the service account needs get, list and watch of endpointslices there",
    404: "it has no discovery.k8s.io/v1",
    429: "it is asked too often",
}


class Pace(NamedTuple):
    """Seconds.

    connect, listing: for a connection, and for a whole list
    watch: after which the API ends a watch, so that credentials are read anew
    silence: without a byte, after which a connection counts as dead; the API sends a bookmark each minute
    first, most: the pause after a failure, and the longest that it grows to
    steady: a connection that lasted so long was no failure
    """

    connect: float = 10.0
    listing: float = 30.0
    watch: float = 300.0
    silence: float = 90.0
    first: float = 0.25
    most: float = 30.0
    steady: float = 10.0


class Watch:
    """A watch that the API has begun, until it ends it or is silent for too long."""

    def __init__(self, response: Any, aiohttp: Any) -> None:
        self._response = response
        self._failures = (aiohttp.ClientError, OSError)

    async def lines(self) -> AsyncGenerator[list[bytes], None]:
        """The lines that came together: what changed while a change was dealt with is dealt with in one go. Raises
        Trouble where the connection breaks; half a line is none."""
        half = b""
        try:
            async for data in self._response.content.iter_any():
                *lines, half = (half + data).split(b"\n")
                if len(half) > MOST_LINE:
                    raise Trouble("a change is too long to read", gone=True)
                if lines:
                    yield lines
        except TimeoutError:
            return
        except self._failures as wrong:
            raise Trouble(f"the watch broke off ({type(wrong).__name__})") from None
        finally:
            self._response.close()


class Api:
    """One client, with the credentials as they were when it was made. Every method raises Trouble."""

    def __init__(self, client: Any, namespace: str, aiohttp: Any, pace: Pace) -> None:
        self._client, self.namespace, self._aiohttp, self._pace = client, namespace, aiohttp, pace
        self._failures = (aiohttp.ClientError, OSError)

    async def listed(self, selector: str) -> bytes:
        pace = self._pace
        limits = self._aiohttp.ClientTimeout(total=pace.listing, sock_connect=pace.connect)
        response = await self._get({"labelSelector": selector}, limits)
        try:
            content: bytes = await response.read()
        except (*self._failures, TimeoutError) as wrong:
            raise Trouble(f"its list broke off ({type(wrong).__name__})") from None
        return content

    async def watch(self, selector: str, version: str) -> Watch:
        pace = self._pace
        query = {
            "labelSelector": selector, "watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(pace.watch)),
        }  # fmt: skip
        limits = self._aiohttp.ClientTimeout(total=None, sock_connect=pace.connect, sock_read=pace.silence)
        return Watch(await self._get(query, limits), self._aiohttp)

    async def _get(self, query: Mapping[str, str], limits: Any) -> Any:
        """The answer, whose body is still to be read."""
        client = self._client
        try:
            method, url, headers, _, _ = await client.param_serialize(
                "GET", PATH, {"namespace": self.namespace}, list(query.items()), {"Accept": "application/json"},
                auth_settings=["BearerToken"],
            )  # fmt: skip
            response = (await client.call_api(method, url, headers, _request_timeout=limits)).response
        except (*self._failures, TimeoutError, ValueError) as wrong:  # ValueError: a token that is none
            raise Trouble(f"it cannot be reached ({type(wrong).__name__})") from None
        if response.status == 200:
            return response
        response.close()
        raise _refusal(response.status, response.headers.get("Retry-After", ""))


def _refusal(status: int, retry_after: str) -> Trouble:
    if status == GONE:
        return Trouble("the state that was known is gone", gone=True)
    wait = min(float(retry_after), MOST_WAIT) if retry_after.isdecimal() else 0.0
    return Trouble(f"{WHY.get(status, 'it failed')} ({status})", wait=wait)


@asynccontextmanager
async def reached(settings: Kubernetes, pace: Pace, account: Path = ACCOUNT) -> AsyncIterator[Api]:
    """A client with the credentials as they are now. Raises Trouble."""
    library = await asyncio.to_thread(_library)  # a hundred files and more
    made = library.client.Configuration(client_session_kwargs={"trust_env": False})
    own = await (_from_kubeconfig(library, settings, made) if settings.kubeconfig else _of_pod(library, made, account))
    try:
        client = await asyncio.to_thread(library.client.ApiClient, made)  # which reads certificates
    except (OSError, ValueError):
        raise Trouble("its certificates cannot be used") from None
    client.user_agent = f"prefix-router/{__version__}"  # by which the cluster's audit log knows us
    try:
        yield Api(client, settings.namespace or own, library.aiohttp, pace)
    finally:
        await client.close()


class Library(NamedTuple):
    client: Any
    config: Any
    aiohttp: Any


def _library() -> Library:
    """Raises Trouble where it is not installed."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # it logs what a kubeconfig's program wrote
    try:
        return Library(*map(import_module, ("kubernetes.aio.client", "kubernetes.aio.config", "aiohttp")))
    except ImportError:
        raise Trouble("its library is not installed: pip install 'prefix-router[kubernetes]'") from None


async def _from_kubeconfig(library: Library, settings: Kubernetes, made: Any) -> str:
    """Fill in the configuration; the context's namespace. What is wrong with the file is not quoted: it has secrets."""
    try:
        loader = await library.config.load_kube_config(
            settings.kubeconfig, settings.context, client_configuration=made, persist_config=False
        )
        namespace: str = loader.current_context["context"].get("namespace") or "default"
    except Exception as wrong:  # it holds anything, and may start a program
        raise Trouble(f"discovery.kubernetes.kubeconfig cannot be used ({type(wrong).__name__})") from None
    return namespace


async def _of_pod(library: Library, made: Any, account: Path) -> str:
    """Fill in the configuration; the pod's namespace."""
    try:
        loader = library.config.incluster_config.InClusterConfigLoader(
            account / "token", account / "ca.crt", try_refresh_token=False
        )
        loader.load_and_set(made)
        made.api_key["BearerToken"] = made.api_key["BearerToken"].strip()
        return (account / "namespace").read_text("utf-8").strip()
    except (library.config.ConfigException, OSError) as wrong:
        why = getattr(wrong, "strerror", None) or str(wrong).rstrip(".")
        raise Trouble(
            f"this is no pod with a service account ({why}); set discovery.kubernetes.kubeconfig elsewhere"
        ) from None
