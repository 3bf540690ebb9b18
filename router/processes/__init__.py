"""The gateway as several processes that look like one: one parent, which serves nothing, and N children, which are
whole gateways each.

The parent (`supervisor`) holds the listening sockets, starts the children, replaces those that die and ends them. Its
`hub` is where they meet: an admin's change goes to all in one order, a scrape is the sum of all, and the news of what
was sent where are passed on. A child (`child`) is a gateway whose `crew` asks the hub; alone, the crew is the process
itself. What is in flight at each worker is shared without the parent, in memory (`signals/load_table.py`).
"""
