"""The listeners: they are told of events and turn them into metrics, log lines and a page's rows.

Each may be left out and nothing else changes. They know events and read the fleet; nobody knows them.
"""
