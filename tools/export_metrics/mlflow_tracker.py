"""Sends a run to an MLflow tracking server through its REST API, with Python's standard library alone.

A step is complete on the server when it has training/global_step, which is sent as a step's last metric:
the API keeps the order of metrics within a call. So the server itself says where an interrupted export
continues."""

import base64
import http.client
import itertools
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request

from run_folder import Refused, STEP
from tracker import Away

# Limits of the API.
METRICS_PER_CALL = 1000
PARAMS_PER_CALL = 100
VALUE_CHARACTERS = 500
KEY_CHARACTERS = 250
CALL_SECONDS = 30
# Of answers: a run's newest metrics and parameters take far less.
ANSWER_BYTES = 16 << 20
ERROR_BYTES = 1000

RUN_TAG = "tandem.run_id"


def metric_name(name):
    """A name that MLflow accepts: letters, digits and _ - . / and space. "@" becomes "_at_", as in verl."""
    return re.sub(r"[^\w/.\- ]", "_", name.replace("@", "_at_"), flags=re.ASCII)[:KEY_CHARACTERS]


def param_value(value):
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= VALUE_CHARACTERS else text[:VALUE_CHARACTERS - 3] + "..."


def slices(items, size):
    items = iter(items)
    return iter(lambda: list(itertools.islice(items, size)), [])


class MlflowTracker:
    name = "mlflow"

    def __init__(self, options):
        self.server = (options.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI", "")).rstrip("/")
        if urllib.parse.urlsplit(self.server).scheme not in ("http", "https"):
            raise Refused("mlflow: expected the server's address, http://HOST:PORT, in --tracking-uri or "
                          f"MLFLOW_TRACKING_URI, found {self.server!r}; `mlflow server` starts one")
        self.experiment = options.project
        self.destination = f"{self.server} {self.experiment}"
        self.run = None

    def open(self, run):
        """Finds the run on the server, or creates it. Returns the last complete step there, -1 if there is
        none."""
        try:
            known = self._find_run(run) or self._create_run(run)
            self.run = known["info"]["run_id"]
            data = known.get("data", {})
            params = {p["key"]: p["value"] for p in data.get("params", [])}
            steps = [int(m.get("step", 0)) for m in data.get("metrics", []) if m["key"] == STEP]
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise Refused(f"{self.server}: expected an answer of MLflow's API, found another ({error!r}); is "
                          "--tracking-uri an MLflow server?") from error
        self._send_config(run.config, params)
        if run.is_live:
            self._post("runs/update", {"run_id": self.run, "status": "RUNNING"})
        return max(steps, default=-1)

    def send(self, rows):
        metrics = []
        for row in rows:
            names = sorted(row.metrics, key=lambda name: name == STEP)
            metrics += [{"key": metric_name(name), "value": row.metrics[name], "timestamp": row.time_ms,
                         "step": row.step} for name in names]
        for part in slices(metrics, METRICS_PER_CALL):
            self._post("runs/log-batch", {"run_id": self.run, "metrics": part})

    def close(self, end):
        """`end` is True if the run took all its steps, False if it ended before, None if it goes on."""
        if end is not None:
            self._post("runs/update", {"run_id": self.run, "status": "FINISHED" if end else "KILLED",
                                       "end_time": int(time.time() * 1000)})

    def _find_run(self, run):
        found = self._post("runs/search", {
            "experiment_ids": [self._experiment_id()], "max_results": 1,
            "filter": f"tags.`{RUN_TAG}` = '{run.id}'"}).get("runs", [])
        return found[0] if found else None

    def _create_run(self, run):
        return self._post("runs/create", {
            "experiment_id": self._experiment_id(), "run_name": run.name, "start_time": int(time.time() * 1000),
            "tags": [{"key": RUN_TAG, "value": run.id}, {"key": "mlflow.runName", "value": run.name}]})["run"]

    def _experiment_id(self):
        name = urllib.parse.quote(self.experiment, safe="")
        try:
            return self._call("GET", f"experiments/get-by-name?experiment_name={name}")["experiment"]["experiment_id"]
        except NotThere:
            return self._post("experiments/create", {"name": self.experiment})["experiment_id"]

    def _send_config(self, config, known):
        """Parameters cannot be changed on the server: what a resumed run changed becomes a tag."""
        values = {key: param_value(value) for key, value in config.items()}
        new = [{"key": key, "value": value} for key, value in values.items() if key not in known]
        changed = [{"key": key, "value": value} for key, value in values.items()
                   if key in known and known[key] != value]
        for kind, entries in (("params", new), ("tags", changed)):
            for part in slices(entries, PARAMS_PER_CALL):
                self._post("runs/log-batch", {"run_id": self.run, kind: part})

    def _post(self, call, body):
        return self._call("POST", call, body)

    def _call(self, method, call, body=None):
        url = f"{self.server}/api/2.0/mlflow/{call}"
        request = urllib.request.Request(url, method=method, headers=_authorization(),
                                         data=None if body is None else json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=CALL_SECONDS) as response:
                answer = json.loads(_read(response, ANSWER_BYTES + 1) or b"{}")
                if not isinstance(answer, dict):
                    raise ValueError("expected a JSON object")
                return answer
        except urllib.error.HTTPError as error:
            text = _read(error, ERROR_BYTES).decode(errors="replace")
            if error.code == 404 and "RESOURCE_DOES_NOT_EXIST" in text:
                raise NotThere(f"{url}: {text}") from error
            if error.code == 429 or error.code >= 500:
                raise Away(f"{url} returned {error.code}: {text}") from error
            raise Refused(f"{url} returned {error.code}: {text}") from error
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise Away(f"{url}: {error}") from error


def _read(response, limit):
    """Up to `limit` bytes of a body. An answer that is longer than any is no answer of MLflow's, and one that
    goes on for longer than a call may take counts as none: a socket's timeout starts again with each byte."""
    data, end = bytearray(), time.monotonic() + CALL_SECONDS
    while len(data) < limit and (part := response.read1(min(limit - len(data), 1 << 16))):
        data += part
        if time.monotonic() > end:
            raise TimeoutError(f"expected an answer within {CALL_SECONDS} s, found one that goes on")
    if len(data) > ANSWER_BYTES:
        raise Refused(f"{response.url}: expected an answer of at most {ANSWER_BYTES} bytes, found a longer one; is "
                      "--tracking-uri an MLflow server?")
    return bytes(data)


class NotThere(Refused):
    """The server has no such experiment or run."""


def _authorization():
    """What MLflow's own client reads from the environment."""
    if token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
        return {"Authorization": f"Bearer {token}"}
    if user := os.environ.get("MLFLOW_TRACKING_USERNAME"):
        pair = f"{user}:{os.environ.get('MLFLOW_TRACKING_PASSWORD', '')}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}
