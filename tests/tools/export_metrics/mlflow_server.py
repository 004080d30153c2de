"""An MLflow tracking server as far as the exporter needs one. It refuses what the API refuses, and can fail
on demand."""

import collections
import http.server
import json
import re
import threading
import urllib.parse

LIMITS = {"metrics": 1000, "params": 100, "tags": 100}


class MlflowServer:
    def __init__(self, port=0):
        self.experiments, self.runs, self.calls, self.problems = {}, {}, [], []
        # What happens to the next calls of log-batch with metrics: "refuse", "forget" (takes them, answers
        # nothing), "half" (takes half, answers 500).
        self.faults = collections.deque()
        self.authorization = None
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def do_GET(self):
                server.handle(self, {})

            def do_POST(self):
                server.handle(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.http.server_address[1]
        self.thread = threading.Thread(target=self.http.serve_forever)
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    def handle(self, request, body):
        url = urllib.parse.urlsplit(request.path)
        call = url.path.removeprefix("/api/2.0/mlflow/")
        self.calls.append(call)
        self.authorization = request.headers.get("Authorization")
        fault = self.faults.popleft() if self.faults and "metrics" in body else None
        if fault == "refuse":
            return self._answer(request, 503, {"error_code": "TEMPORARILY_UNAVAILABLE"})
        if fault == "half":
            body = {**body, "metrics": body["metrics"][:len(body["metrics"]) // 2]}
        code, answer = self._execute(call, {**dict(urllib.parse.parse_qsl(url.query)), **body})
        if fault == "half":
            code, answer = 500, {"error_code": "INTERNAL_ERROR"}
        if fault == "forget":
            request.close_connection = True
            return None
        return self._answer(request, code, answer)

    @staticmethod
    def _answer(request, code, answer):
        text = json.dumps(answer).encode()
        request.send_response(code)
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)

    def _execute(self, call, body):
        if call == "experiments/get-by-name":
            known = self.experiments.get(body["experiment_name"])
            return (200, {"experiment": {"experiment_id": known}}) if known else self._missing()
        if call == "experiments/create":
            self.experiments[body["name"]] = str(len(self.experiments) + 1)
            return 200, {"experiment_id": self.experiments[body["name"]]}
        if call == "runs/search":
            tag = re.fullmatch(r"tags\.`([\w.]+)` = '([\w-]+)'", body["filter"])
            found = [run for run in self.runs.values() if run["tags"].get(tag[1]) == tag[2]]
            return 200, {"runs": [self._describe(run) for run in found]} if found else {}
        if call == "runs/create":
            run = {"id": f"run{len(self.runs)}", "name": body["run_name"], "status": "RUNNING", "metrics": [],
                   "params": {}, "tags": {t["key"]: t["value"] for t in body["tags"]}}
            self.runs[run["id"]] = run
            return 200, {"run": self._describe(run)}
        if call == "runs/update":
            self.runs[body["run_id"]]["status"] = body["status"]
            return 200, {}
        if call == "runs/log-batch":
            return self._log(self.runs[body["run_id"]], body)
        return self._problem(f"unknown call {call}")

    def _log(self, run, body):
        for kind, limit in LIMITS.items():
            if len(body.get(kind, [])) > limit:
                return self._problem(f"{len(body[kind])} {kind} in one call")
        for entry in body.get("metrics", []):
            if not re.fullmatch(r"[/\w.\- ]{1,250}", entry["key"], flags=re.ASCII):
                return self._problem(f"a metric is called {entry['key']}")
            # The server keeps one of several equal entries.
            if entry not in run["metrics"]:
                run["metrics"].append(entry)
        for entry in body.get("params", []):
            if len(entry["value"]) > 500 or run["params"].get(entry["key"], entry["value"]) != entry["value"]:
                return self._problem(f"the parameter {entry['key']} is too long, or changes")
            run["params"][entry["key"]] = entry["value"]
        run["tags"].update({entry["key"]: entry["value"] for entry in body.get("tags", [])})
        return 200, {}

    def _describe(self, run):
        latest = {}
        for entry in run["metrics"]:
            if entry["key"] not in latest or entry["step"] >= latest[entry["key"]]["step"]:
                latest[entry["key"]] = entry
        return {"info": {"run_id": run["id"], "status": run["status"]},
                "data": {"metrics": list(latest.values()),
                         "params": [{"key": k, "value": v} for k, v in run["params"].items()]}}

    @staticmethod
    def _missing():
        return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST"}

    def _problem(self, text):
        self.problems.append(text)
        return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": text}

    def the_run(self):
        (run,) = self.runs.values()
        return run

    def steps(self, key="actor/loss"):
        """The steps of a metric in the order in which they came."""
        return [entry["step"] for run in self.runs.values() for entry in run["metrics"] if entry["key"] == key]
