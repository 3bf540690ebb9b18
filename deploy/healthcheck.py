"""The container's health check: exit 0 when the address answers 200, else 1 with the reason in one line."""

import sys
import urllib.request

GATEWAY = "http://127.0.0.1:8080/healthz"


def main(address: str) -> int:
    try:
        with urllib.request.urlopen(address, timeout=2) as answer:  # noqa: S310 - the address is the image's own
            status = answer.status
    except OSError as fault:  # refused, timed out, or answered with an error status
        sys.stderr.write(f"{address}: {fault}\n")
        return 1
    sys.stdout.write(f"{address}: {status}\n")
    return 0 if status == 200 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else GATEWAY))
