"""The picker: what Envoy's ext_proc filter is told of a request, and what is made of what it tells.

messages: bytes to facts and facts to bytes, nothing decided · talk: the state of one stream, which is one request ·
pick: its story, the gateway's own but for the bytes, which Envoy carries · orders: where it goes and what is changed
about it · outcome: how Envoy says it went. gRPC itself is in `router/picking.py`, above.
"""
