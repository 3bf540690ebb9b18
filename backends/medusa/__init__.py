"""A worker with a real small model: continuous batching, a prefix KV cache and parallel decoding.

Needs the extra `medusa` (torch). The rooms: `model` is the network, `weights` and `vocabulary` its files, `kv` where
keys and values lie; `heads`, `lookup`, `tree`, `candidates` and `budget` decide what to try, `decoding` is one request,
`batch` is one step over all of them. `prefix` keeps blocks for the next request, `running` says who waits and who runs,
`engine` gives it a thread and stands behind the HTTP face; `plan`, `loading` and `assembly` put a worker together.
"""
