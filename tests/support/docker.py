"""A Docker engine of the tests' own, and images that stand in for a registry's.

The engine has its own data root and socket and leaves the host's network and any other engine alone. It needs root.
No image is pulled: the Python base is made by debootstrap (and kept for the next run), Prometheus' from the host's
programs.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prefix-router-tests"
PYTHON_IMAGE = "python:3.11-slim-bookworm"
DEBIAN_PACKAGES = "python3,python3-pip,python3-venv,libpython3-dev,ca-certificates"
BASE_SETTINGS = (
    "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PIP_CERT=/etc/ssl/certs/ca-certificates.crt",
    'CMD ["python3"]',
)
PROMETHEUS_DOCKERFILE = f"""\
FROM {PYTHON_IMAGE}
COPY prometheus promtool /bin/
RUN mkdir /prometheus && chown nobody:nogroup /prometheus
USER nobody
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
"""


class Engine:
    """A running dockerd; `home` holds everything it owns."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.socket = home / "docker.sock"
        (home / "client").mkdir()
        # Neither the user's own client settings nor BuildKit, which Debian's client may or may not have.
        self.environment = os.environ | {
            "DOCKER_HOST": f"unix://{self.socket}",
            "DOCKER_CONFIG": str(home / "client"),
            "DOCKER_BUILDKIT": "0",
            "COMPOSE_DOCKER_CLI_BUILD": "0",
        }

    def run(self, *command: str | Path, cwd: Path | None = None, limit: float = 300) -> str:
        """Run a program against this engine; its output, or an AssertionError that shows it."""
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit,
        )
        assert done.returncode == 0, f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout[-6000:]}"
        return done.stdout.strip()

    def docker(self, *arguments: str | Path, limit: float = 300) -> str:
        return self.run("docker", *arguments, limit=limit)

    def remove_everything(self) -> None:
        """Containers and networks first, so that no process, mount or link outlives the engine."""
        for container in self.docker("ps", "--all", "--quiet").split():
            self.docker("rm", "--force", "--volumes", container)
        self.docker("network", "prune", "--force")


@contextlib.contextmanager
def running_engine() -> Iterator[Engine]:
    """Start dockerd, yield it, and leave nothing behind. One at a time on this machine: a second caller waits."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "engine.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        home = Path(tempfile.mkdtemp(prefix="pr-", dir="/tmp"))  # a socket's path has room for 107 characters only
        links = set(os.listdir("/sys/class/net"))
        engine = Engine(home)
        daemon = start_daemon(engine)
        try:
            wait_until_it_answers(engine, daemon)
            yield engine
        finally:
            with contextlib.suppress(AssertionError, subprocess.SubprocessError):
                engine.remove_everything()
            stop_daemon(daemon)
            remove_links(links)
            remove_tree(home)


def start_daemon(engine: Engine) -> "subprocess.Popen[bytes]":
    home = engine.home
    command = ["dockerd", "--data-root", home / "root", "--exec-root", home / "exec", "--pidfile", home / "docker.pid"]
    command += ["--host", f"unix://{engine.socket}"]
    command += ["--iptables=false", "--ip-forward=false", "--ip-masq=false"]  # nothing on the host changes
    with open(home / "dockerd.log", "wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)


def wait_until_it_answers(engine: Engine, daemon: "subprocess.Popen[bytes]", limit: float = 60) -> None:
    end = time.monotonic() + limit
    while True:
        asked = subprocess.run(["docker", "version"], env=engine.environment, capture_output=True)
        if asked.returncode == 0:
            return
        log = (engine.home / "dockerd.log").read_text(errors="replace")
        assert daemon.poll() is None, f"dockerd ended with {daemon.returncode}\n{log[-4000:]}"
        assert time.monotonic() < end, f"dockerd does not answer\n{log[-4000:]}"
        time.sleep(0.2)


def stop_daemon(daemon: "subprocess.Popen[bytes]") -> None:
    daemon.terminate()
    try:
        daemon.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()


def remove_links(before: set[str]) -> None:
    """The engine leaves its bridges when it stops; those that were there before are somebody else's."""
    for link in set(os.listdir("/sys/class/net")) - before:
        if link == "docker0" or link.startswith("br-"):
            subprocess.run(["ip", "link", "delete", link], check=False, capture_output=True)


def remove_tree(home: Path) -> None:
    with open("/proc/self/mounts") as mounts:
        places = [line.split()[1] for line in mounts]
    for place in reversed(places):
        if place.startswith(f"{home}/"):
            subprocess.run(["umount", "--lazy", place], check=False, capture_output=True)
    shutil.rmtree(home, ignore_errors=True)


def add_python_image(engine: Engine) -> None:
    """The base image of the project's Dockerfile, from a tarball that is made once."""
    settings = [word for line in BASE_SETTINGS for word in ("--change", line)]
    engine.docker("import", *settings, base_tarball(), PYTHON_IMAGE)


def base_tarball() -> Path:
    """Debian with Python. It carries the host's CA bundle when that is a special one, so never ship it."""
    bundle = Path(os.environ.get("SSL_CERT_FILE", ""))
    certificates = bundle.read_bytes() if bundle.is_file() else b""
    recipe = hashlib.sha256(DEBIAN_PACKAGES.encode() + certificates).hexdigest()[:12]
    tarball = CACHE / f"bookworm-{recipe}.tar.gz"
    if tarball.exists():
        return tarball
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bookworm-", dir=CACHE) as folder:
        root, fresh = Path(folder) / "root", Path(folder) / "root.tar.gz"
        options = ("--variant=minbase", f"--include={DEBIAN_PACKAGES}")
        made = subprocess.run(["debootstrap", *options, "bookworm", root], capture_output=True, text=True, timeout=600)
        assert made.returncode == 0, f"debootstrap: exit {made.returncode}\n{made.stdout[-4000:]}{made.stderr[-2000:]}"
        prepare(root, certificates)
        subprocess.run(["tar", "-C", root, "--numeric-owner", "-czf", fresh, "."], check=True)
        fresh.rename(tarball)
    return tarball


def prepare(root: Path, certificates: bytes) -> None:
    """Make it small, and like the image it stands for: `python` and `pip install` work."""
    for folder in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(root / folder, ignore_errors=True)
    (root / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink(missing_ok=True)
    (root / "usr/bin/python").symlink_to("python3")
    if certificates:
        (root / "etc/ssl/certs/ca-certificates.crt").write_bytes(certificates)


def add_prometheus_image(engine: Engine, name: str) -> None:
    """The host's Prometheus under the name that the compose file asks for."""
    context = engine.home / "prometheus-image"
    context.mkdir()
    (context / "Dockerfile").write_text(PROMETHEUS_DOCKERFILE)
    for program in ("prometheus", "promtool"):
        path = shutil.which(program)
        assert path, f"needs {program}"
        shutil.copy(path, context / program)
    engine.docker("build", "--network", "host", "--tag", name, context)
    shutil.rmtree(context)
