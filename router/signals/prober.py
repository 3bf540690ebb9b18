"""Active probes: one task a worker asks its health, and now and then its models.

Probes have connections of their own, so that they never wait behind streams, carry the worker's own credentials, and
heed no proxy variables. A worker is asked at once when it joins; its models are known before it is called ready. When
its name leads elsewhere the connection to the old address is closed, lest it speak for the new one.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

import httpx
import msgspec

from router.core.fleet import Seat
from router.core.health import PROBE_FAILED, PROBE_OK, Signal
from router.proxy.resolve import Name

log = logging.getLogger("router")

HEALTH_PATHS = {"auto": "/health", "openai": "/health", "anthropic": "/health", "ollama": "/", "sagemaker": "/ping"}
MODELS_EVERY = 10  # good probes
MOST_MODELS = 1000
ABSENT = frozenset((404, 405, 501))


class ModelList(msgspec.Struct):
    data: list[dict[str, Any]] = []


_read_models = msgspec.json.Decoder(ModelList).decode


class Prober:
    """Probes one worker until it is stopped; exactly one a worker."""

    def __init__(
        self,
        seat: Seat,
        tell: Callable[[Seat, Signal, str], None],
        learn: Callable[[Seat, list[dict[str, Any]]], None],
        *,
        interval: float,
        timeout: float,
        path: str | None,
        tls: ssl.SSLContext,
        clock: Callable[[], float],
        name: Name | None = None,
    ) -> None:
        self.seat = seat
        self._tell = tell
        self._learn = learn
        self._interval = interval
        self._timeout = timeout
        self._path = path or HEALTH_PATHS.get(seat.worker.dialect, "/health")
        self._fixed = path is not None
        self._tls = tls
        self._clock = clock
        self._name = name
        self._good = 0
        self._told_unauthorised = False
        self._told_causes: set[str] = set()
        self._task = asyncio.create_task(self._run(), name=f"probe {seat.id}")

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            version = self._version()
            async with self._client() as client:
                while version == self._version():
                    began = self._clock()
                    await self._probe(client)
                    await asyncio.sleep(max(0.0, self._interval - (self._clock() - began)))

    def _version(self) -> int:
        return 0 if self._name is None else self._name.version

    def _client(self) -> httpx.AsyncClient:
        address, key = self.seat.worker.address, self.seat.worker.api_key
        auth: tuple[str, str] | None = None
        if address.credentials and not key:
            name, _, secret = address.credentials.partition(":")
            auth = (name, secret)
        return httpx.AsyncClient(
            base_url=address.url,
            headers={"authorization": f"Bearer {key}"} if key else {},
            auth=auth,
            timeout=self._timeout,
            trust_env=False,
            follow_redirects=False,
            verify=self._tls,
            limits=httpx.Limits(max_connections=2),
        )

    async def _probe(self, client: httpx.AsyncClient) -> None:
        try:
            status = await self._status(client)
        except (httpx.HTTPError, TimeoutError, OSError, ValueError) as wrong:
            if self._name is not None:
                self._name.look_up()
            self._failed(type(wrong).__name__, f"{wrong}{self._hint(wrong)}")
            return
        if status in (401, 403) and not self._told_unauthorised:
            self._told_unauthorised = True
            log.error("worker %s answers its probe with %d: set workers[].api_key to its key", self.seat.id, status)
        if not 200 <= status < 300:
            self._failed(f"status {status}", f"at {self._path}")
            return
        self._told_unauthorised = False
        if self._good % MODELS_EVERY == 0:
            await self._models(client)
        self._good += 1
        self._tell(self.seat, PROBE_OK, "probe")

    def _hint(self, wrong: Exception) -> str:
        """One that asks for a certificate hangs up after the handshake, and says no more."""
        hung_up = isinstance(wrong, httpx.RemoteProtocolError | httpx.ReadError)
        asks = hung_up and self.seat.worker.address.scheme == "https"
        return " It may ask for a client certificate: workers[].tls has one." if asks else ""

    def _failed(self, cause: str, detail: str) -> None:
        """Tell; of one that was never well, or is trusted no more, also say why, once a cause: nothing else would."""
        self._good = 0
        if cause not in self._told_causes and (not self.seat.health.was_ready or "certificate" in detail):
            self._told_causes.add(cause)
            log.warning("worker %s is not ready: its probe failed (%s %s)", self.seat.id, cause, detail)
        self._tell(self.seat, PROBE_FAILED, f"probe: {cause}")

    async def _status(self, client: httpx.AsyncClient) -> int:
        async with asyncio.timeout(self._timeout):
            answer = await client.get(self._path)
            if answer.status_code in ABSENT and not self._fixed:
                self._path = "/v1/models"  # an API without a health path is well when it lists its models
                answer = await client.get(self._path)
        return answer.status_code

    async def _models(self, client: httpx.AsyncClient) -> None:
        """The models it publishes; a worker that publishes none serves any."""
        try:
            async with asyncio.timeout(self._timeout):
                answer = await client.get("/v1/models")
            if answer.status_code == 200:
                listed = [entry for entry in _read_models(answer.content).data if _is_name(entry.get("id"))]
                self._learn(self.seat, listed[:MOST_MODELS])
        except (httpx.HTTPError, TimeoutError, OSError, msgspec.DecodeError, msgspec.ValidationError):
            return


def _is_name(name: Any) -> bool:
    """Names go into logs, metrics and pages: one that ends lines or speaks to terminals is none."""
    return isinstance(name, str) and name.isprintable()
