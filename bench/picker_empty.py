"""What grpcio's asyncio server costs by itself: it answers Envoy with one worker, always the same, and decides nothing.

As quick as it gets: uvloop, answers made beforehand, no pings for throughput.
"""

from __future__ import annotations

import sys
from typing import Any

import grpc
import uvloop
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

from router.picker.messages import GO_ON, Order, picked

ANSWERS = {"request_headers": GO_ON["request_headers"], "response_headers": GO_ON["response_headers"]}


class Handler(grpc.GenericRpcHandler):
    def __init__(self, endpoint: str) -> None:
        self.answers = {**ANSWERS, "request_body": picked(Order(endpoint), in_body=True)}
        self.handler = grpc.stream_stream_rpc_method_handler(self.process, ProcessingRequest.FromString, None)

        self.checked = grpc.unary_unary_rpc_method_handler(self.check, None, None)

    def service(self, handler_call_details: Any) -> Any:
        return self.checked if handler_call_details.method.endswith("/Check") else self.handler

    async def check(self, _: bytes, __: Any) -> bytes:
        return b"\x08\x01"  # serving, for Envoy's health check

    async def process(self, _: Any, context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            await context.write(self.answers[message.WhichOneof("request")])


async def main(port: str, endpoint: str) -> None:
    server = grpc.aio.server(options=[("grpc.http2.bdp_probe", 0)])
    server.add_generic_rpc_handlers((Handler(endpoint),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
