"""An OTLP receiver on the official protobuf definitions: writes every point and log record it is sent as a line of JSON.

It knows nothing of trainmon. A line is in the file before the request is answered. SIGTERM ends it in good order: what
is being answered is answered. `--mode` makes it misbehave.
"""

import argparse
import gzip
import json
import os
import signal
import ssl
import threading
import time
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import zstandard
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc


def plain(any_value):
    kind = any_value.WhichOneof("value")
    return None if kind is None else getattr(any_value, kind)


def attributes(pairs):
    found = {pair.key: plain(pair.value) for pair in pairs}
    assert len(found) == len(pairs), "an attribute is there twice"
    return found


class Receiver:
    def __init__(self, arguments):
        self.arguments = arguments
        self.lock = threading.Lock()
        self.log = open(arguments.log, "a", encoding="utf-8")
        self.left_to_put_off = int(arguments.mode.partition(":")[2] or 0) if arguments.mode.startswith("later") else 0

    def write(self, lines):
        with self.lock:
            for line in lines:
                self.log.write(json.dumps(line) + "\n")
            self.log.flush()

    def verdict(self):
        """What is done with the next request: take, put off, refuse or reject one."""
        mode = self.arguments.mode
        if mode == "hang":
            time.sleep(3600)
        if mode.startswith("later"):
            with self.lock:
                if self.left_to_put_off > 0:
                    self.left_to_put_off -= 1
                    return "later"
            return "take"
        return mode

    def take(self, request, how):
        lines = [{"request": how}]
        if isinstance(request, metrics_service_pb2.ExportMetricsServiceRequest):
            for resource_metrics in request.resource_metrics:
                resource = attributes(resource_metrics.resource.attributes)
                for scope_metrics in resource_metrics.scope_metrics:
                    for metric in scope_metrics.metrics:
                        lines.extend(self.points(metric, resource, scope_metrics.scope.name))
        else:
            for resource_logs in request.resource_logs:
                resource = attributes(resource_logs.resource.attributes)
                for scope_logs in resource_logs.scope_logs:
                    lines.extend({"log": MessageToDict(record), "resource": resource} for record in scope_logs.log_records)
        self.write(lines)

    @staticmethod
    def points(metric, resource, scope):
        kind = metric.WhichOneof("data")
        data = getattr(metric, kind)
        for point in data.data_points:
            line = {
                "metric": metric.name,
                "unit": metric.unit,
                "kind": kind,
                "scope": scope,
                "resource": resource,
                "attributes": attributes(point.attributes),
                "time": point.time_unix_nano,
                "start": point.start_time_unix_nano,
            }
            if kind == "histogram":
                assert sum(point.bucket_counts) == point.count
                line |= {"count": point.count, "sum": point.sum, "buckets": list(point.bucket_counts)}
            else:
                value = getattr(point, point.WhichOneof("value"))
                # JSON has no NaN and no infinity.
                line["value"] = value if isinstance(value, int) else repr(value)
            if kind != "gauge":
                line["temporality"] = data.aggregation_temporality
            yield line


class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    response = metrics_service_pb2.ExportMetricsServiceResponse

    def __init__(self, receiver):
        self.receiver = receiver

    def Export(self, request, context):
        wanted = self.receiver.arguments.require_header
        metadata = {key: value for key, value in context.invocation_metadata()}
        if wanted and metadata.get(wanted.split("=")[0]) != wanted.split("=", 1)[1]:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no such key")
        verdict = self.receiver.verdict()
        if verdict == "later":
            context.abort(grpc.StatusCode.UNAVAILABLE, "starting up")
        if verdict == "refuse":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "these points are no good")
        # The library unpacks by itself and does not tell.
        self.receiver.take(request, "grpc")
        response = self.response()
        if verdict == "partial":
            response.partial_success.error_message = "one is too old"
            response.partial_success.rejected_data_points = 1
        return response


class Logs(logs_service_pb2_grpc.LogsServiceServicer):
    def __init__(self, receiver):
        self.receiver = receiver

    def Export(self, request, context):
        self.receiver.take(request, "logs")
        return logs_service_pb2.ExportLogsServiceResponse()


def serve_grpc(receiver, arguments):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Metrics(receiver), server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(Logs(receiver), server)
    address = f"127.0.0.1:{arguments.port}"
    if arguments.certificate:
        pem = [open(path, "rb").read() for path in (arguments.key, arguments.certificate)]
        trusted = open(arguments.client_ca, "rb").read() if arguments.client_ca else None
        credentials = grpc.ssl_server_credentials([tuple(pem)], trusted, trusted is not None)
        port = server.add_secure_port(address, credentials)
    else:
        port = server.add_insecure_port(address)
    server.start()
    # After its grace nothing is being answered any more, whether or not its own threads have heard of it.
    grace = 0 if arguments.mode == "hang" else 30
    return port, lambda: server.stop(grace or None).wait(grace + 5)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    receiver = None

    def log_message(self, *_):
        pass

    def answer(self, status, message=None, headers=()):
        body = message.SerializeToString() if message else b"no"
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf" if message else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        encoding = self.headers.get("Content-Encoding", "identity")
        body = {"identity": bytes, "gzip": gzip.decompress, "zstd": self.unpack}[encoding](body)
        wanted = self.receiver.arguments.require_header
        if wanted and self.headers.get(wanted.split("=")[0]) != wanted.split("=", 1)[1]:
            return self.answer(401)
        assert self.headers["Content-Type"] == "application/x-protobuf"
        if self.path == "/v1/metrics":
            request, response = (
                metrics_service_pb2.ExportMetricsServiceRequest(),
                metrics_service_pb2.ExportMetricsServiceResponse(),
            )
        elif self.path == "/v1/logs":
            request, response = logs_service_pb2.ExportLogsServiceRequest(), logs_service_pb2.ExportLogsServiceResponse()
        else:
            return self.answer(404)
        request.ParseFromString(body)
        verdict = self.receiver.verdict() if self.path == "/v1/metrics" else "take"
        if verdict == "later":
            return self.answer(503, headers=[("Retry-After", "1")])
        if verdict == "refuse":
            return self.answer(400)
        self.receiver.take(request, encoding if self.path == "/v1/metrics" else "logs")
        if verdict == "partial":
            response.partial_success.error_message = "one is too old"
            response.partial_success.rejected_data_points = 1
        return self.answer(200, response)

    @staticmethod
    def unpack(body):
        return zstandard.ZstdDecompressor().decompressobj().decompress(body)


class Server(ThreadingHTTPServer):
    # In good order: answers that are under way are waited for. A request that hangs is not.
    daemon_threads = False
    block_on_close = True


def serve_http(receiver, arguments):
    Handler.receiver = receiver
    Handler.timeout = 2
    Server.daemon_threads = arguments.mode == "hang"
    Server.block_on_close = not Server.daemon_threads
    server = Server(("127.0.0.1", arguments.port), Handler)
    if arguments.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(arguments.certificate, arguments.key)
        if arguments.client_ca:
            context.load_verify_locations(arguments.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def stop():
        server.shutdown()
        server.server_close()

    return server.server_address[1], stop


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=["grpc", "http/protobuf"], required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", required=True)
    parser.add_argument("--mode", default="take", help="take, hang, refuse, partial, later:N")
    parser.add_argument("--require-header", help="name=value")
    parser.add_argument("--certificate")
    parser.add_argument("--key")
    parser.add_argument("--client-ca")
    arguments = parser.parse_args()
    # Waited for below: a handler could run while this thread holds the lock that it needs. Threads to come inherit it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    receiver = Receiver(arguments)
    serve = serve_grpc if arguments.protocol == "grpc" else serve_http
    port, stop = serve(receiver, arguments)
    print(f"ready {port}", flush=True)
    signal.sigwait([signal.SIGTERM])
    stop()
    # Every line is in the file: the threads of a server in the middle of its end are waited for by nobody.
    os._exit(0)


if __name__ == "__main__":
    main()
