"""The exporters to Weights & Biases and trackio, with packages of the test's own that record the calls."""

import json
import unittest

from run_fixture import RUN_ID, ExporterTest

# The parts of the packages that the exporter uses. The W&B one drops steps that do not grow, as W&B's
# server does, and says at init where the run continues.
WANDB = '''
import json, os
CALLS = os.environ["CALLS"]
class CommError(Exception): pass
def record(*call):
    with open(CALLS, "a") as file: file.write(json.dumps(call) + "\\n")
def calls():
    return [json.loads(line) for line in open(CALLS)] if os.path.exists(CALLS) else []
class Run:
    offline = False
    def __init__(self):
        steps = [c[1] for c in calls() if c[0] == "log"]
        self.starting_step = max(steps, default=-1) + 1
    def log(self, metrics, step, commit): record("log", step, metrics)
    def finish(self, exit_code): record("finish", exit_code)
def init(**options):
    if sum(c[0] == "away" for c in calls()) < int(os.environ.get("AWAY", "0")):
        record("away")
        raise CommError("the network is unreachable")
    record("init", options)
    return Run()
'''
TRACKIO = '''
import json, os
def record(*call):
    with open(os.environ["CALLS"], "a") as file: file.write(json.dumps(call) + "\\n")
def init(**options): record("init", options)
def log(metrics, step): record("log", step, metrics)
def finish(): record("finish")
'''


class ClientTest(ExporterTest):
    def setUp(self):
        super().setUp()
        (self.folder / "site").mkdir()
        self.environment["PYTHONPATH"] = str(self.folder / "site")
        self.environment["CALLS"] = str(self.folder / "calls")

    def install(self, name, code):
        (self.folder / "site" / f"{name}.py").write_text(code)

    def calls(self, name):
        path = self.folder / "calls"
        calls = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [call[1:] for call in calls if call[0] == name]

    def steps(self):
        return [step for step, _ in self.calls("log")]

    def test_wandb_gets_each_step_once_over_a_resume(self):
        self.install("wandb", WANDB)
        self.run_folder.append(0, 1, 2, 3)
        self.assertEqual(self.export("--to", "wandb", "--once", "--project", "digits")[0], 0)
        self.run_folder.replace(0, 1)
        self.run_folder.append(2, 3, 4, 5, 6)

        self.assertEqual(self.export("--to", "wandb", "--once", "--project", "digits")[0], 0)

        self.assertEqual(self.steps(), [0, 1, 2, 3, 4, 5, 6])
        first, second = [options for options, in self.calls("init")]
        self.assertEqual(first["id"], RUN_ID)
        self.assertEqual(second["id"], RUN_ID)
        self.assertEqual((first["project"], first["name"], first["resume"]), ("digits", "run-0d3c4f54", "allow"))
        self.assertEqual(first["config"]["actor.optim.lr"], 3e-4)
        self.assertEqual(self.calls("log")[2][1]["val-core/exact_match/reward/mean@1"], 0.2)
        self.assertEqual(self.calls("finish"), [[1], [0]])  # the first ended before its last step

    def test_wandb_gets_again_what_its_client_had_not_sent(self):
        self.install("wandb", WANDB)
        self.run_folder.append(*range(7))
        self.assertEqual(self.export("--to", "wandb", "--once")[0], 0)
        calls = [c for c in (self.folder / "calls").read_text().splitlines() if not c.startswith('["log", 6')]
        (self.folder / "calls").write_text("\n".join(calls) + "\n")

        self.assertEqual(self.export("--to", "wandb", "--once")[0], 0)

        self.assertEqual(self.steps(), list(range(7)))

    def test_wandb_is_tried_again_while_it_is_away(self):
        self.install("wandb", WANDB)
        self.environment["AWAY"] = "2"
        self.run_folder.append(*range(7))

        code, messages = self.export("--to", "wandb", "--once")

        self.assertEqual(code, 0, messages)
        self.assertEqual(len(self.calls("away")), 2)
        self.assertEqual(self.steps(), list(range(7)))

    def test_trackio_gets_each_step_once_over_a_resume(self):
        self.install("trackio", TRACKIO)
        self.run_folder.append(0, 1, 2, 3)
        self.assertEqual(self.export("--to", "trackio", "--once")[0], 0)
        self.run_folder.replace(0, 1)
        self.run_folder.append(2, 3, 4, 5, 6)

        self.assertEqual(self.export("--to", "trackio", "--once")[0], 0)

        self.assertEqual(self.steps(), [0, 1, 2, 3, 4, 5, 6])
        first, second = [options for options, in self.calls("init")]
        self.assertEqual(first["name"], second["name"])
        self.assertEqual(first["resume"], "allow")
        self.assertEqual(first["config"]["trainer.total_steps"], 6)
        self.assertEqual(len(self.calls("finish")), 2)

    def test_a_position_of_another_project_does_not_count(self):
        self.install("trackio", TRACKIO)
        self.run_folder.append(0, 1)
        self.assertEqual(self.export("--to", "trackio", "--once")[0], 0)

        self.assertEqual(self.export("--to", "trackio", "--once", "--project", "other")[0], 0)

        self.assertEqual(self.steps(), [0, 1, 0, 1])

    def test_a_package_that_is_missing_is_named_with_its_cure(self):
        for name in ("wandb", "trackio"):
            # The machine may have the package.
            self.install(name, f"raise ModuleNotFoundError('no {name}', name='{name}')")
            code, messages = self.export("--to", name, "--once")
            self.assertEqual(code, 1)
            self.assertIn(f"pip install {name}", messages)
            self.assertNotIn("Traceback", messages)


if __name__ == "__main__":
    unittest.main()
