"""What browsers are shown: the live page and the list of routes, with headers that keep other pages out.

Nothing is loaded from anywhere else; of scripts and styles only those that stand in the page itself are run.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

Page = tuple[str, dict[str, str]]
"""HTML and the headers it goes with."""

INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)
PLAIN: tuple[tuple[bytes, bytes], ...] = ((b"x-content-type-options", b"nosniff"),)
PRIVATE = (
    *PLAIN,
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
STYLE = """
  :root { color-scheme: light dark; } body { margin: 1rem auto; max-width: 60rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }
  h1 { font-size: 1.3rem; } table { border-collapse: collapse; width: 100%; } td { border-top: 1px solid #8884; padding: .3rem .9rem .3rem 0; vertical-align: top; }
  code { white-space: nowrap; }
"""  # noqa: E501


def headers_for(path: str) -> tuple[tuple[bytes, bytes], ...]:
    """What each answer of the gateway's own carries: those of the admin routes are neither kept nor framed."""
    return PRIVATE if path.startswith("/admin") else PLAIN


def shown(html: str) -> Page:
    """A page with a policy that admits what stands in it, questions to this gateway, and nothing else."""
    allowed: dict[str, list[str]] = {"script": [], "style": []}
    for kind, text in INLINE.findall(html):
        allowed[kind].append(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'")
    sources = [f"{kind}-src {' '.join(hashes)}" for kind, hashes in allowed.items() if hashes]
    policy = [
        "default-src 'none'", *sources, "connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'",
        "frame-ancestors 'none'",
    ]  # fmt: skip
    return html, {
        "content-security-policy": "; ".join(policy), "x-frame-options": "DENY", "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin", "cache-control": "no-store",
    }  # fmt: skip


def live_page() -> Page:
    return shown(files("router").joinpath("page/index.html").read_text("utf-8"))


def api_page(described: dict[str, Any], proxied: list[str]) -> Page:
    """Every route: those that are described in `/openapi.json`, and the paths that go to workers."""
    rows = [
        (method.upper(), path, route.get("description") or route.get("summary") or "")
        for path, methods in described["paths"].items()
        for method, route in methods.items()
    ]
    rows += [("POST", path, "goes to a worker") for path in proxied]
    lines = "\n".join(
        f"<tr><td>{escape(method)}</td><td><code>{escape(path)}</code></td><td>{escape(about)}</td></tr>"
        for method, path, about in sorted(rows, key=lambda row: (row[1], row[0]))
    )
    title = escape(f"{described['info']['title']} {described['info']['version']}")
    return shown(
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        '<p>The same for programs: <a href="/openapi.json">openapi.json</a></p>\n'
        f"<table>\n{lines}\n</table>\n</body>\n</html>\n"
    )
