"""Sends a run's metrics and configuration to Weights & Biases, MLflow or trackio, during the run or after it:

    python3 tools/export_metrics RUN_DIR --to mlflow --tracking-uri http://127.0.0.1:5000
    python3 tools/export_metrics RUN_DIR --to wandb --project my_project
    python3 tools/export_metrics RUN_DIR --to trackio --once

README.md says how it follows a run and when it ends."""

import argparse
import pathlib
import re
import signal
import sys
import threading
import time

from client_trackers import TrackioTracker, WandbTracker
from mlflow_tracker import MlflowTracker
from position import Position, keep_others_out
from run_folder import BEFORE_FIRST, MetricsFile, Refused, RunLock, read_config, read_run_id
from tracker import Away, Run

TRACKERS = {tracker.name: tracker for tracker in (WandbTracker, MlflowTracker, TrackioTracker)}
# Rows between two notes of the position.
ROWS_PER_SEND = 20
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
# Characters that move the cursor, change colors or reorder the display, and ends of lines.
STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Interrupted(Exception):
    """SIGINT or SIGTERM."""


class Stop:
    """Set by SIGINT and SIGTERM; every wait ends with it."""

    def __init__(self):
        self.event = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self.event.set())

    def sleep(self, seconds):
        if self.event.wait(seconds):
            raise Interrupted


def note(text):
    """One line, safe for a terminal whatever a server or a file put into it."""
    safe = STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", str(text))
    print(f"export_metrics: {safe}", file=sys.stderr, flush=True)


class Export:
    """One run, from its first step to its end, to one tracker."""

    def __init__(self, options, stop, tracker, run):
        self.options, self.stop, self.tracker, self.run = options, stop, tracker, run
        self.position = Position(options.run_dir, tracker.name, run.id, tracker.destination)
        self.newest = BEFORE_FIRST
        self._retry(self._open)
        note(f"sends run {run.name} to {tracker.name} ({tracker.destination}), from the step after "
             f"{self.position.step}")

    def deliver(self, rows):
        """Sends the rows that the tracker does not have. Returns when it has taken them."""
        self.newest = max([self.newest] + [row.step for row in rows])
        # A resumed run repeats steps: the first values of a step stay.
        new, last = [], self.position.step
        for row in rows:
            if row.step > last:
                new.append(row)
                last = row.step
        while new:
            part = new[:ROWS_PER_SEND]
            self._retry(lambda: self._send(part))
            new = [row for row in new[ROWS_PER_SEND:] if row.step > self.position.step]

    def end(self, goes_on):
        """Tells the tracker how the run ended."""
        total = self.run.config.get("trainer.total_steps", 0)
        took_all = isinstance(total, int) and self.newest >= total
        self._retry(lambda: self.tracker.close(None if goes_on else took_all))
        note(f"{self.tracker.name} has the run up to step {self.position.step}")

    def _open(self):
        there = self.tracker.open(self.run)
        if there is not None:
            self.position.move_to(there)

    def _send(self, rows):
        rest = [row for row in rows if row.step > self.position.step]
        if rest:
            self.tracker.send(rest)
            self.position.move_to(rest[-1].step)

    def _retry(self, action):
        """Repeats `action` while the tracker is away, for --retry-seconds. What a call that failed has left
        there is unknown, so the tracker is asked again."""
        limit = time.monotonic() + self.options.retry_seconds
        pause, ask = FIRST_PAUSE, False
        while True:
            try:
                if ask and action != self._open:
                    self._open()
                return action()
            except Away as error:
                left = limit - time.monotonic()
                if left <= 0:
                    raise Refused(f"{self.tracker.name} was away for {self.options.retry_seconds:g} s: {error}. "
                                  f"It has the run up to step {self.position.step}; run the exporter again to "
                                  "send the rest") from error
                note(f"{error}; tries again")
                ask = True
                self.stop.sleep(min(pause, left))
                pause = min(2 * pause, LONGEST_PAUSE)


class Follower:
    """The runs of a folder, one after another, until no driver holds it any more."""

    def __init__(self, options, stop):
        self.options, self.stop = options, stop
        self.lock = RunLock(options.run_dir)
        self.held_at = time.monotonic()
        self.export = None
        self.metrics = None

    def follow(self):
        try:
            self._follow()
        except Interrupted:
            if self.export is not None:
                self.export.tracker.close(None)
            raise

    def _follow(self):
        while True:
            # Before reading: nothing is written after the lock is gone.
            is_held = self.lock.is_held()
            over = not is_held and time.monotonic() - self.held_at >= self.options.linger
            is_complete = self._send_new_rows(is_held)
            if is_held:
                self.held_at = time.monotonic()
            if is_complete and (self.options.once or over):
                break
            self.stop.sleep(self.options.poll)
        if self.export is None:
            raise Refused(f"{self.options.run_dir}: expected a run folder with run_id, config.yaml and "
                          "metrics.jsonl, found none; name the run_dir of a run that has begun")
        self.export.end(goes_on=self.options.once and is_held)

    def _send_new_rows(self, is_held):
        """False if the folder changed meanwhile and has to be read again."""
        run_id = read_run_id(self.options.run_dir)
        if self.export is not None and run_id not in (None, self.export.run.id):
            # A new run has moved the files of this one aside, so its last rows have been read.
            self.export.end(goes_on=False)
            self.export = None
        if self.export is None:
            self.metrics = MetricsFile(self.options.run_dir)
        rows = self.metrics.read()
        if read_run_id(self.options.run_dir) != run_id:
            self.metrics = MetricsFile(self.options.run_dir)
            return False
        if run_id is None or (self.export is None and not rows):
            return True
        if self.export is None:
            self.export = self._begin(run_id, is_held)
        self.export.deliver(rows)
        return True

    def _begin(self, run_id, is_held):
        name = self.options.name or f"{self.options.run_dir.name}-{run_id[:8]}"
        run = Run(run_id, name, read_config(self.options.run_dir), is_held)
        return Export(self.options, self.stop, TRACKERS[self.options.to](self.options), run)


def parse(args):
    parser = argparse.ArgumentParser(
        prog="export_metrics", formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        description="Sends a run's metrics and configuration to Weights & Biases, MLflow or trackio.")
    parser.add_argument("run_dir", type=lambda path: pathlib.Path(path).resolve(), help="the run's folder")
    parser.add_argument("--to", required=True, choices=sorted(TRACKERS), help="the tracker")
    parser.add_argument("--project", default="tandem", help="project of W&B or trackio, experiment of MLflow")
    parser.add_argument("--name", help="name of the run; without it, that of the folder and the begin of its id")
    parser.add_argument("--tracking-uri", help="MLflow's server; without it, MLFLOW_TRACKING_URI")
    parser.add_argument("--once", action="store_true", help="sends what is there and ends")
    parser.add_argument("--poll", type=float, default=2.0, help="seconds between two looks at the run folder")
    parser.add_argument("--linger", type=float, default=30.0,
                        help="ends when no driver has held the run folder for so many seconds")
    parser.add_argument("--retry-seconds", type=float, default=600.0,
                        help="how long a tracker may be away before the exporter gives up")
    return parser.parse_args(args)


def main():
    options = parse(sys.argv[1:])
    stop = Stop()
    try:
        if not options.run_dir.is_dir():
            raise Refused(f"{options.run_dir}: expected the folder of a run (run_dir)")
        TRACKERS[options.to](options)  # a mistake in the options shows at once, not when the run begins
        with keep_others_out(options.run_dir, options.to):
            Follower(options, stop).follow()
    except Refused as error:
        note(error)
        return 1
    except Interrupted:
        note("interrupted; run it again to send the rest")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
