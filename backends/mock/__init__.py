"""The mock worker: a real cache, a real scheduler and invented words.

It knows what a GPU worker *does* (who waits, what is computed, what is cached, how long it takes) and refuses to know
what a model says: the answer's text is a pure function of seed and prompt. Nothing outside this folder knows about
faults.
"""
