"""Serves metrics by Python's prometheus_client as engines do: server.py vllm|mounted|multiprocess

vllm: a handler of its own at /metrics writes everything; the client's application answers below it.
mounted: the client's application answers at /metrics.
multiprocess: the same, merging the files of several processes, as SGLang does and vLLM with several API servers.

GET /appear registers vllm:lora_requests_info. Prints its port when it serves, and ends with its input.
"""
import os
import re
import socket
import sys
import tempfile
import threading

mode = sys.argv[1]
if mode == "multiprocess":
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp()

import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, REGISTRY, generate_latest, make_asgi_app, multiprocess
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

labels = {"engine": "0", "model_name": "tiny"}
many = {"multiprocess_mode": "mostrecent"} if mode == "multiprocess" else {}


def gauge(name, value):
    Gauge(name, "of the engine", labels, **many).labels(**labels).set(value)


gauge("vllm:num_requests_running", 3)
gauge("vllm:num_requests_waiting", 2)
gauge("vllm:kv_cache_usage_perc", 0.25)
for name in ("vllm:prefix_cache_queries", "vllm:prefix_cache_hits", "vllm:num_preemptions"):
    Counter(name, "of the engine", labels).labels(**labels).inc(10)
for i in range(20):
    Histogram(f"vllm:request_part_{i}_seconds", "what nobody asks for", labels).labels(**labels).observe(1)

registry = REGISTRY
if mode == "multiprocess":
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)


def whole(request):
    return Response(generate_latest(registry), media_type="text/plain")


def appear(request):
    gauge("vllm:lora_requests_info", 1)
    return Response("ok")


mount = Mount("/metrics", make_asgi_app(registry=registry))
mount.path_regex = re.compile("^/metrics(?P<path>.*)$")  # both engines do so
routes = [Route("/appear", appear)] + ([Route("/metrics", whole)] if mode == "vllm" else []) + [mount]
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="error"))
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
print(listener.getsockname()[1], flush=True)
server.run(sockets=[listener])
