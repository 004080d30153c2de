"""Where an export got to, kept in the run folder so that the next exporter continues there."""

import fcntl
import json
import os
import pathlib

from run_folder import Refused, open_file, read_text

FOLDER = "export"
POSITION_BYTES = 1 << 16


class Position:
    """The last step that the tracker has taken, -1 before the first. One file for each run and tracker."""

    def __init__(self, folder, tracker, run_id, destination):
        self.path = pathlib.Path(folder) / FOLDER / f"{tracker}-{run_id}.json"
        self.kept = {"destination": destination, "step": -1}
        try:
            kept = json.loads(read_text(self.path, POSITION_BYTES))
            if kept["destination"] == destination:
                self.kept["step"] = int(kept["step"])
        except FileNotFoundError:
            pass
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise Refused(f"{self.path}: expected destination and step, as the exporter writes them; restore the "
                          "file, or delete it to send the run's steps again") from error

    @property
    def step(self):
        return self.kept["step"]

    def move_to(self, step):
        self.kept["step"] = step
        unfinished = self.path.with_suffix(".tmp")
        with open(unfinished, "w", encoding="utf-8") as file:
            json.dump(self.kept, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, self.path)


def keep_others_out(folder, tracker):
    """Returns the file whose lock keeps a second exporter to the same tracker out until this process ends."""
    path = pathlib.Path(folder) / FOLDER / f"{tracker}.lock"
    path.parent.mkdir(exist_ok=True)
    file = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Refused(f"{folder}: another exporter sends this run to {tracker} already ({path} is locked)") from error
    return file
