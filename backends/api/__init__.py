"""The APIs that a worker speaks, one module each, found by their presence: `ROUTES` is all that a module must have.

A module turns JSON into jobs and tokens into JSON. It knows the API's shapes, not the engine, not the sockets, not
the time.
"""
