"""The mind's tools: what decides where a request goes.

Knows: prompts as hashes, workers as numbers, the order of a ring. Refuses to know: the time (it is handed in as
`now`, in seconds of a monotonic clock), chance, HTTP, dialects and the names of policies. Everything here is
synchronous, every table is bounded, and nothing needs a lock. Called by the journey and the wiring.
"""
