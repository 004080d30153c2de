"""A run folder that a test writes as a driver does, and the exporter as a process."""

import fcntl
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(os.environ.get("TANDEM_SOURCE") or pathlib.Path(__file__).resolve().parents[3])
RUN_ID = "0d3c4f54-52ac-4b8e-9f6e-6d3bb6d4f9a1"
DEADLINE_SECONDS = 60
CONFIG = """model:
  path: "/models/tiny"
data:
  prompt_suffix: "a \\"quote\\", a \\\\x41 and \\x07"
  train_files: ["a.jsonl", "b.jsonl"]
trainer:
  total_steps: {steps}
  mode: sync
actor:
  optim:
    lr: 3e-04
    betas: [0.9, 0.999]
reward:
  rewards: [{{name: gsm8k, weight: 0.5}}]
run_dir: ""
"""


class RunFolder:
    """Writes the files that a driver writes."""

    def __init__(self, path, steps=6, run_id=RUN_ID):
        self.path = pathlib.Path(path)
        self.path.mkdir(exist_ok=True)
        self.lock = None
        self.begin(steps, run_id)

    def begin(self, steps, run_id):
        (self.path / "config.yaml").write_text(CONFIG.format(steps=steps))
        (self.path / "metrics.jsonl").write_text("")
        (self.path / "run_id").write_text(run_id + "\n")

    def hold(self):
        """As FolderLock does."""
        self.lock = open(self.path / "run.lock", "wb")
        fcntl.fcntl(self.lock, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))

    def release(self):
        os.unlink(self.path / "run.lock")
        self.lock.close()

    @staticmethod
    def line(step, **metrics):
        values = {"training/global_step": step, "actor/loss": step + 0.5, "broken": None, **metrics}
        if step % 2 == 0:
            values["val-core/exact_match/reward/mean@1"] = step / 10
        return json.dumps(values) + "\n"

    def append(self, *steps, **metrics):
        with open(self.path / "metrics.jsonl", "a") as file:
            for step in steps:
                file.write(self.line(step, **metrics))

    def replace(self, *steps):
        """As --resume does: a new file, renamed into place."""
        (self.path / "metrics.tmp").write_text("".join(self.line(step) for step in steps))
        os.replace(self.path / "metrics.tmp", self.path / "metrics.jsonl")


class ExporterTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.run_folder = RunFolder(self.folder / "run")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW", "WANDB", "TRACKIO"))}

    def start(self, *args):
        exporter = subprocess.Popen(
            [sys.executable, "-B", str(ROOT / "tools/export_metrics"), str(self.run_folder.path), "--poll", "0.05",
             "--linger", "0.5", *args], stderr=subprocess.PIPE, text=True, env=self.environment)
        self.addCleanup(exporter.stderr.close)
        self.addCleanup(exporter.wait)
        self.addCleanup(exporter.kill)
        return exporter

    def export(self, *args):
        """Exit code and messages of an exporter that ends by itself."""
        exporter = self.start(*args)
        _, messages = exporter.communicate(timeout=DEADLINE_SECONDS)
        return exporter.returncode, messages

    def wait_for(self, what):
        limit = time.monotonic() + DEADLINE_SECONDS
        while not what():
            self.assertLess(time.monotonic(), limit, "the exporter did not send what the test waits for")
            time.sleep(0.02)
