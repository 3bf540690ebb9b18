"""gRPC's server side for short messages, on asyncio: HTTP/2 (RFC 9113) as far as gRPC uses it.

A general server spends more on each message than the whole decision costs. Here a stream is an object with callbacks:
no task, no queue and no thread. frames: the bytes · heads: requests' headers · stream: one call · connection: what
all calls of a peer share · keepalive: whether it is there · complaints: what it did wrong, in the log. Nothing that a
peer does may cost more memory or time than it is allowed.
"""
