"""The policies: each puts workers in order, each is one file, and its file name is its name in the settings.

A policy knows what `contracts.Ask` and `contracts.Candidate` say and nothing else. It neither picks nor counts nor
writes, so it can be swapped, shadowed and replayed. A module has `Options` (a frozen model) and
`build(options, tools) -> Policy`.
"""
