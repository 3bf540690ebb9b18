"""Listening, not listening, and closing what is quiet: one HTTP/1.1 face on a TCP port.

`refuse` really refuses: the port stays bound, so nobody else can take it, but nobody listens and the kernel answers
every attempt with a reset. Connections in use live on; idle ones are closed, since a pool would otherwise never
notice.
"""

import asyncio
import socket

from backends.connection import BODY_LIMIT, App, Connection

BACKLOG = 2048


class Server:
    """`body_limit` in bytes: a larger request is a 413."""

    def __init__(self, app: App, host: str, port: int, body_limit: int = BODY_LIMIT) -> None:
        self.app = app
        self.body_limit = body_limit
        self.host = host
        self.port = port
        self.connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None
        self._holder: socket.socket | None = None
        self._left = False
        self._sweep: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "listening" if self._listener is not None else "refusing"
        return f"<Server {state} on {self.host}:{self.port}, {len(self.connections)} connections>"

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def listen(self) -> None:
        """Starts to accept; a second call does nothing. Port 0 becomes the port that the system chose."""
        if self._listener is not None or self._left:
            return
        sock, self._holder = self._holder or self._bound(), None
        sock.listen(BACKLOG)
        self.port = sock.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: Connection(self.app, self.connections, self.body_limit), sock=sock, backlog=BACKLOG
        )

    def refuse(self) -> None:
        """Stops to accept until `listen`."""
        if self._listener is None:
            return
        self._listener.close()
        self._listener = None
        self._holder = self._bound()
        self.close_idle(0.0)

    def close_idle(self, seconds: float) -> None:
        """Closes the connections on which nothing has happened for so long."""
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            if connection.idle and now - connection.quiet_since >= seconds:
                connection.close()

    def close_quiet(self, seconds: float | None) -> None:
        """From now on closes every connection that was quiet for so long; None ends it."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if seconds is not None:
            self.close_idle(seconds)
            wait = min(max(seconds / 8, 0.005), 0.1)
            self._sweep = asyncio.get_running_loop().call_later(wait, self.close_quiet, seconds)

    def leave(self) -> None:
        """Stops to accept for good and gives the port back. Connections live on."""
        self._left = True
        self.close_quiet(None)
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def stop(self) -> None:
        """Closes everything. Answers in progress are cut; what was written of others is still sent while the loop
        runs."""
        self.leave()
        for connection in list(self.connections):
            connection.close()

    async def empty(self) -> None:
        """Returns once the last connection is gone."""
        for connection in list(self.connections):
            await connection.lost.wait()

    def _bound(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self.host, self.port))
        except OSError:
            sock.close()
            raise
        sock.setblocking(False)
        return sock
