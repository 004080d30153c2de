"""The exporter with files and a server that mean harm, or are damaged: it says what is wrong, on lines that
are safe for a terminal, and ends."""

import http.server
import os
import threading
import unittest

from mlflow_server import MlflowServer
from run_fixture import ExporterTest

STEP = "training/global_step"


class RawServer:
    """Answers every call with `code` and the bytes of `body`, for as long as the client reads them."""

    def __init__(self, code, body):
        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def do_GET(self):
                self.send_response(code)
                self.end_headers()
                try:
                    for part in body():
                        self.wfile.write(part)
                except OSError:
                    pass  # the client has enough

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever)
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


class HostileTest(ExporterTest):
    def refusal(self, *args):
        """The message of an exporter that refuses, without a traceback."""
        code, messages = self.export("--to", "mlflow", "--once", *args)
        self.assertEqual(code, 1, messages)
        self.assertNotIn("Traceback", messages)
        return messages

    def refusal_by_server(self, code, body, *args):
        server = RawServer(code, body)
        self.addCleanup(server.close)
        return self.refusal("--tracking-uri", f"http://127.0.0.1:{server.http.server_address[1]}", *args)

    def test_an_answer_cannot_steer_the_terminal(self):
        self.run_folder.append(0)
        messages = self.refusal_by_server(401, lambda: [b"\x1b]0;owned\x07\x1b[2J\nexport_metrics: done \xe2\x80\xae"])
        self.assertEqual(messages.count("\n"), 1)
        self.assertIn(r"\u001b]0;owned\u0007\u001b[2J\u000aexport_metrics: done \u202e", messages)

    def test_an_answer_without_end_is_refused(self):
        def endless():
            while True:
                yield b"x" * 65536
        self.run_folder.append(0)
        self.assertIn("expected an answer of at most", self.refusal_by_server(200, endless))
        self.assertIn("returned 400: xxxx", self.refusal_by_server(400, endless))

    def test_an_answer_of_another_server_is_refused(self):
        self.run_folder.append(0)
        for body in (b'{"experiment": []}', b'{"experiment": {"experiment_id": "1"}, "runs": [7]}'):
            self.assertIn("is --tracking-uri an MLflow server?", self.refusal_by_server(200, lambda body=body: [body]))
        for body in (b"[]", b"[" * 100000):
            self.assertIn("away", self.refusal_by_server(200, lambda body=body: [body], "--retry-seconds", "0"))

    def test_a_file_that_is_no_regular_one_is_named(self):
        server = MlflowServer()
        self.addCleanup(server.close)
        args = ["--tracking-uri", server.address]
        self.run_folder.append(0)
        for name in ("metrics.jsonl", "config.yaml", "run_id", "run.lock"):
            path = self.run_folder.path / name
            kept = path.read_text() if path.exists() else None
            path.unlink(missing_ok=True)
            os.mkfifo(path)
            self.assertIn(f"{path}: expected a regular file", self.refusal(*args))
            path.unlink()
            if kept is not None:
                path.write_text(kept)

    def test_lines_that_no_driver_writes_are_refused(self):
        server = MlflowServer()
        self.addCleanup(server.close)
        for line in ('{"%s": 1, "loss": %s}' % (STEP, "9" * 401), "[" * 100000, '{"%s": "1"}' % STEP,
                     '{"%s": null}' % STEP, '{"%s": [1]}' % STEP, '{"%s": 1.5}' % STEP, '{"%s": -1}' % STEP,
                     '{"%s": NaN}' % STEP, "7", "{"):
            (self.run_folder.path / "metrics.jsonl").write_text(line + "\n")
            messages = self.refusal("--tracking-uri", server.address)
            self.assertIn(f"metrics.jsonl, byte 0: expected a JSON object of finite numbers with {STEP}", messages)
        self.assertEqual(server.steps(), [])

    def test_files_of_another_size_are_refused(self):
        server = MlflowServer()
        self.addCleanup(server.close)
        self.run_folder.append(0)
        for name, size in (("metrics.jsonl", 3 << 30), ("config.yaml", 2 << 20), ("run_id", 1 << 20)):
            path = self.run_folder.path / name
            kept = path.read_text()
            os.truncate(path, size)
            self.assertIn("at most", self.refusal("--tracking-uri", server.address))
            path.write_text(kept)

    def test_an_id_cannot_name_another_file(self):
        self.run_folder.append(0)
        (self.run_folder.path / "run_id").write_text("../../x")
        self.assertIn("expected the run's id", self.refusal("--tracking-uri", "http://127.0.0.1:1"))

    def test_a_configuration_may_hold_anything_in_its_values(self):
        server = MlflowServer()
        self.addCleanup(server.close)
        self.run_folder.append(0)
        with open(self.run_folder.path / "config.yaml", "a") as file:
            file.write("deep: " + "[" * 100000 + "\n")
        code, messages = self.export("--to", "mlflow", "--once", "--tracking-uri", server.address)
        self.assertEqual(code, 0, messages)
        self.assertEqual(server.the_run()["params"]["deep"][:3], "[[[")


if __name__ == "__main__":
    unittest.main()
