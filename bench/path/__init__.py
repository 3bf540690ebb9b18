"""What the gateway costs per request, beside other proxies on the same machine at the same time.

cases.py                        what is asked: the size of bodies, connections, streams
requests.py                     the requests as they go over the wire
upstream.c load.c answer.h      the upstream and the load generator
programs.py                     how they are built
machine.py child.py             cores, CPU time, memory; a process with its children
peer.py peers/ roster.py        what is measured: how each is found, configured and started
install.py                      the peers from the package index, each in an environment of its own
runner.py run.py                one run; starting all, and the rounds
figures.py table.py picture.py  what comes of it
report.py command.py            what is printed, and the flags
"""
