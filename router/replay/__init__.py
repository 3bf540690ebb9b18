"""Replay: a trace, simulated workers, simulated time, and the gateway's own core deciding.

    trace, textual, logged   lines of a file -> rows; `words` and `item`: what a row looks like to a router and a cache
    synthetic                a made trace of shared prefixes
    arrivals                 rows -> requests with their times
    workers                  the model of a worker: one prefill at a time, decodes, a cache of prefix blocks
    routing, reference       who decides: the core with a policy, an all-knowing yardstick; `peers`: others' rules
    simulate                 events in the order of their times
    calibrate, figures       the arrival rate that makes a load; what came out

Pure like all of this floor: lines, dice and a progress callback are handed in. The model compares policies; it does not
predict milliseconds. It leaves out: memory for running requests (none ever waits for it), reuse of what decoding
computed, network time, and attention whose cost grows with the context.
"""
