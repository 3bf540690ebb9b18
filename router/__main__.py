"""Where the program begins: a SIGTERM is heeded from its first moment, though what it imports takes a while."""

import os
import signal
import sys


def main() -> int:
    if sys.argv[1:2] == ["serve"]:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # nothing is there to be ended yet
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    from router.cli import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
