"""Prefix Router: an HTTP gateway that sends requests with the same beginning to the same warm KV cache.

The house has six floors, and imports go down only:

    floor 5  the door     cli, top, demo, demo_client, demo_fleet, demo_load, demo_table, show, picker_command, __main__
    floor 5  the watch    top_watch, top_screen, top_view, top_samples
    floor 5  the replay   replay_command, replay_policies, replay_run, replay_table, replay_plot
    floor 4  the wiring   wiring, outside, app, explain, plugins, reload, server, processes     settings -> a house
    floor 4  the envoy    picking     gRPC for Envoy, which then carries the bytes
    floor 4  the desk     admin, admin_guard, pages, described     who administers, and what browsers are shown
    floor 3  the story    house, journey, admission, sending, attempt, elsewhere     one request's life
    floor 3  the pick     picker     the same life when Envoy carries the bytes
    floor 3  the turns    waiting, watching, resuming, ending, shadowing, accounting, deadline, large
    floor 2  the hands    proxy, rpc, discovery, signals, observe, clock     all I/O
    floor 1  the mind     core, policies, dialects, replay, settings, sections, layers     pure and synchronous
    floor 0  the words    types, prompt, asks, events, errors, contracts, address

Nothing on floors 0 and 1 knows the time, the network, the log or the meter: what they need is handed in.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("prefix-router")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
