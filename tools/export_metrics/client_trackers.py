"""Sends a run through the client packages of Weights & Biases and trackio, which are imported here only."""

import importlib
import os

from run_folder import Refused
from tracker import Away

# Errors of the clients' own that mean an unreachable server, by name: their classes have no common base.
UNREACHABLE = {"CommError", "TransportError"}


def import_client(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if error.name not in (None, name):
            raise  # the package is there and lacks another
        raise Refused(f"--to {name} needs the package {name}: pip install {name}") from error


def away_or(error):
    """The error to raise for a client's: Away if the same call may succeed later."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return Away(str(error)) if isinstance(error, OSError) or names & UNREACHABLE else error


class WandbTracker:
    """The run's id is W&B's too, so a resumed run continues there. W&B's client sends from a process of its
    own, and says at the next start which steps have reached the server."""
    name = "wandb"

    def __init__(self, options):
        self.wandb = import_client("wandb")
        self.project = options.project
        self.destination = f"{os.environ.get('WANDB_ENTITY', '')}/{self.project}"
        self.folder = options.run_dir
        self.run = None

    def open(self, run):
        if self.run is not None:
            return None
        try:
            self.run = self.wandb.init(project=self.project, id=run.id, name=run.name, config=dict(run.config),
                                       resume="allow", allow_val_change=True, dir=str(self.folder))
        except Exception as error:
            raise away_or(error) from error
        if getattr(self.run, "offline", False):
            return None
        # A server that has lost steps, which an exporter that was killed left behind, gets them again.
        return self.run.starting_step - 1

    def send(self, rows):
        for row in rows:
            self.run.log(row.metrics, step=row.step, commit=True)

    def close(self, end):
        self.run.finish(exit_code=1 if end is False else 0)


class TrackioTracker:
    name = "trackio"

    def __init__(self, options):
        self.trackio = import_client("trackio")
        self.project = options.project
        self.destination = f"{os.environ.get('TRACKIO_SPACE_ID', '')}/{self.project}"
        self.run = None

    def open(self, run):
        if self.run is not None:
            return None
        try:
            self.run = self.trackio.init(project=self.project, name=run.name, config=dict(run.config),
                                         resume="allow")
        except Exception as error:
            raise away_or(error) from error
        return None

    def send(self, rows):
        for row in rows:
            self.trackio.log(row.metrics, step=row.step)

    def close(self, end):
        del end  # trackio keeps no state of a run
        self.trackio.finish()
