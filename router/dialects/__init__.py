"""The dialects: how each kind of API is spoken, one file each, found by its name.

A dialect turns a body into a `Prompt` and a refusal into bytes, and reads what a worker's answer says of its usage.
It knows field names and nothing of workers, policies or sockets. Names that begin with `_` are shared helpers.
"""
