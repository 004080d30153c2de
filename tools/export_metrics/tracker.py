"""What the exporter and its trackers share."""

import collections

# name: how people find the run; config: {"trainer.total_steps": 100}; is_live: a driver holds the folder.
Run = collections.namedtuple("Run", "id name config is_live")


class Away(Exception):
    """The tracker cannot be reached now; the same call may succeed later."""
