"""The hands that move requests and answers: sockets to clients and to workers.

Two sinks take the client's side: `protocol.py` inside uvicorn's HTTP protocol class (the fast lane, no task and no
event per request) and `asgi.py` behind any ASGI server, its twin. `upstream.py` is the workers' side. Nothing here
decides where a request goes; a journey does, and these files only know its shape (`contracts.Story`).
"""
