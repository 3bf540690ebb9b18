"""Workers that serve tokens, for Prefix Router to route to: one HTTP face, any engine behind it.

`contract` says what an engine is. The face (`server`, `connection`, `face`, `api`) speaks what a vLLM server speaks
and knows no engine; an engine (`mock`, and whatever folder joins it) turns ids into tokens and knows no HTTP. A
folder with a module `command` is a subcommand of `prefix-worker`; a module in `api` with `ROUTES` is an API.

This package knows nothing of routing: it never imports `router`, and they meet over HTTP only.
"""
