"""What the exporter reads in a run folder: its id, its configuration, its metrics, and whether a driver
still writes there."""

import collections
import fcntl
import json
import math
import os
import pathlib
import re
import stat
import struct
import time

STEP = "training/global_step"
# Steps never begin below 0, the evaluation before training.
BEFORE_FIRST = -1
MAX_STEP = 1 << 53
# struct flock on 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid.
FLOCK = "hhqqi4x"

# Far above what a driver writes. More is a damaged file, which memory may not hold.
RUN_ID_BYTES, CONFIG_BYTES, LINE_BYTES = 4096, 1 << 20, 64 << 20

Row = collections.namedtuple("Row", "step time_ms metrics")


class Refused(Exception):
    """What the user has to change."""


def open_file(path, flags=os.O_RDONLY):
    """Opens a regular file in binary. Never waits for the other end of a FIFO, or for a device."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Refused(f"{path}: cannot open: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Refused(f"{path}: expected a regular file, found a folder, FIFO or device")
    return os.fdopen(descriptor, "rb" if flags == os.O_RDONLY else "r+b")


def read_text(path, limit):
    """The text of a file of at most `limit` bytes."""
    with open_file(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise Refused(f"{path}: expected at most {limit} bytes, found more")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Refused(f"{path}: expected UTF-8, found other bytes at byte {error.start}") from error


def read_run_id(folder):
    """The run's id; None before the run has begun to write, and while an earlier run is moved aside."""
    path = pathlib.Path(folder) / "run_id"
    try:
        run_id = read_text(path, RUN_ID_BYTES).strip()
    except FileNotFoundError:
        return None
    # It becomes part of a file's name and of a query.
    if re.fullmatch(r"[\w-]{0,100}", run_id, flags=re.ASCII) is None:
        raise Refused(f"{path}: expected the run's id, a UUID, found {run_id[:100]!r}")
    return run_id or None


def read_config(folder):
    """config.yaml as {"trainer.total_steps": 100, ...}. Reads what a run writes, not all of YAML: one key a
    line, nested by two spaces, text in double quotes."""
    path = pathlib.Path(folder) / "config.yaml"
    values, sections = {}, []
    try:
        text = read_text(path, CONFIG_BYTES)
    except FileNotFoundError as error:
        raise Refused(f"{path}: expected the run's configuration, found no file") from error
    for number, line in enumerate(text.splitlines(), 1):
        match = re.fullmatch(r"((?:  )*)(\w+):(?: (.*))?", line)
        if match is None or len(match[1]) // 2 > len(sections):
            raise Refused(f"{path}:{number}: expected a line 'key: value', as a run writes it, found "
                          f"{line[:80]!r}")
        del sections[len(match[1]) // 2:]
        sections.append(match[2])
        if match[3] is not None:
            values[".".join(sections)] = _value(match[3])
    return values


def _value(text):
    # JSON but for \xNN in text; words, and lists of sections, stay as they are written.
    as_json = re.sub(r"\\(.)", lambda m: "\\u00" if m[1] == "x" else m[0], text)
    try:
        return json.loads(as_json)
    except (ValueError, RecursionError):
        return text


class MetricsFile:
    """Follows metrics.jsonl. A resumed run replaces the file by a shorter one; then, and when the file has
    been cut, reading starts over, so a step may be read more than once."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "metrics.jsonl"
        self.file = None
        self.last_line = b""

    def read(self):
        """The rows of the complete lines since the last call."""
        try:
            if self.file is not None and not self._is_same():
                self.file.close()
                self.file = None
            if self.file is None:
                self.file = open_file(self.path)
                self.last_line = b""
        except FileNotFoundError:
            return []
        rows = []
        while True:
            start = self.file.tell()
            line = self.file.readline(LINE_BYTES)
            if not line.endswith(b"\n"):
                if len(line) == LINE_BYTES:
                    raise Refused(f"{self.path}, byte {start}: expected a line of at most {LINE_BYTES} bytes, found "
                                  "a longer one")
                self.file.seek(start)  # its writer is not done with it, or died
                return rows
            self.last_line = line
            if line.strip():
                rows.append(self._row(line, start))

    def _is_same(self):
        # The open file keeps its inode from being used again.
        held, found = os.fstat(self.file.fileno()), os.stat(self.path)
        position = self.file.tell()
        if (held.st_dev, held.st_ino) != (found.st_dev, found.st_ino) or found.st_size < position:
            return False
        # It may have been cut and have grown again.
        return os.pread(self.file.fileno(), len(self.last_line), position - len(self.last_line)) == self.last_line

    def _row(self, line, start):
        place = f"{self.path}, byte {start}"
        try:
            values = json.loads(line)
            step = int(values[STEP])
            if isinstance(values[STEP], (str, bool)) or step != values[STEP] or not BEFORE_FIRST < step < MAX_STEP:
                raise ValueError(f"{STEP} is no step")
            # Numbers that are not finite are null in the file. OverflowError: an integer beyond all floats.
            metrics = {name: value for name, value in values.items()
                       if isinstance(value, (int, float)) and math.isfinite(value)}
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise Refused(f"{place}: expected a JSON object of finite numbers with {STEP}, found "
                          f"{line[:80]!r}") from error
        return Row(step, int(time.time() * 1000), metrics)


class RunLock:
    """Sees whether a driver holds the run folder: it keeps a kernel lock on run.lock, and renews the file's
    time every five seconds, which shows where the file system does not pass locks on."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "run.lock"
        self.renewed = None

    def is_held(self):
        """Whether a driver holds the folder now, or has renewed its lock since the last call."""
        try:
            with open_file(self.path) as file:
                renewed = os.fstat(file.fileno()).st_mtime_ns
                moved = self.renewed is not None and renewed != self.renewed
                self.renewed = renewed
                return moved or _is_locked(file)
        except FileNotFoundError:
            return False


def _is_locked(file):
    try:
        lock = fcntl.fcntl(file, fcntl.F_OFD_GETLK, struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return False  # a file system without locks
    return struct.unpack(FLOCK, lock)[0] != fcntl.F_UNLCK
