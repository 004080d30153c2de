"""The exporter to MLflow: no step is lost, none comes twice."""

import unittest

from mlflow_server import MlflowServer
from run_fixture import ExporterTest, RunFolder


class MlflowTest(ExporterTest):
    def setUp(self):
        super().setUp()
        self.server = MlflowServer()
        self.addCleanup(lambda: self.server.close())
        self.args = ["--to", "mlflow", "--tracking-uri", self.server.address]

    def check_steps(self, *steps):
        self.assertEqual(self.server.steps(), list(steps))
        self.assertEqual(self.server.steps("training/global_step"), list(steps))
        self.assertEqual(self.server.problems, [])

    def test_sends_metrics_evaluations_configuration_and_name_of_a_finished_run(self):
        self.run_folder.append(0, 1, 2, 3, 4, 5, 6)

        code, messages = self.export(*self.args, "--once", "--project", "digits", "--name", "first")

        self.assertEqual(code, 0, messages)
        self.check_steps(0, 1, 2, 3, 4, 5, 6)
        self.assertEqual(self.server.steps("val-core/exact_match/reward/mean_at_1"), [0, 2, 4, 6])
        self.assertEqual(self.server.steps("broken"), [])
        run = self.server.the_run()
        self.assertEqual((run["name"], run["status"]), ("first", "FINISHED"))
        self.assertEqual(list(self.server.experiments), ["digits"])
        self.assertEqual(run["params"], {
            "model.path": "/models/tiny", "data.prompt_suffix": 'a "quote", a \\x41 and \x07',
            "data.train_files": '["a.jsonl", "b.jsonl"]', "trainer.total_steps": "6", "trainer.mode": "sync",
            "actor.optim.lr": "0.0003", "actor.optim.betas": "[0.9, 0.999]",
            "reward.rewards": "[{name: gsm8k, weight: 0.5}]", "run_dir": ""})

    def test_follows_a_live_run_until_no_driver_holds_its_folder(self):
        self.run_folder.hold()
        exporter = self.start(*self.args)
        for step in range(7):
            self.run_folder.append(step)
            self.wait_for(lambda: step in self.server.steps("training/global_step"))
        self.assertEqual(self.server.the_run()["status"], "RUNNING")
        self.assertIsNone(exporter.poll())

        self.run_folder.release()

        self.assertEqual(exporter.wait(timeout=60), 0)
        self.assertEqual(self.server.the_run()["status"], "FINISHED")
        self.check_steps(*range(7))

    def test_a_line_that_is_being_written_is_sent_when_it_is_complete(self):
        self.run_folder.hold()
        exporter = self.start(*self.args)
        line = RunFolder.line(1)
        with open(self.run_folder.path / "metrics.jsonl", "a") as file:
            file.write(RunFolder.line(0) + line[:20])
            file.flush()
            self.wait_for(lambda: self.server.steps("training/global_step") == [0])
            file.write(line[20:])
        self.wait_for(lambda: self.server.steps("training/global_step") == [0, 1])
        self.run_folder.release()

        self.assertEqual(exporter.wait(timeout=60), 0)
        # It ended before trainer.total_steps.
        self.assertEqual(self.server.the_run()["status"], "KILLED")

    def test_steps_that_a_resumed_run_repeats_are_sent_once(self):
        self.run_folder.hold()
        exporter = self.start(*self.args)
        self.run_folder.append(0, 1, 2, 3)
        self.wait_for(lambda: 3 in self.server.steps("training/global_step"))

        self.run_folder.replace(0, 1)
        self.run_folder.append(2, 3, 4)
        self.wait_for(lambda: 4 in self.server.steps("training/global_step"))
        self.run_folder.release()

        self.assertEqual(exporter.wait(timeout=60), 0)
        self.check_steps(0, 1, 2, 3, 4)

    def test_a_file_that_was_cut_in_place_and_grew_again_is_read_again(self):
        self.run_folder.hold()
        exporter = self.start(*self.args)
        self.run_folder.append(0, 1, 2)
        self.wait_for(lambda: 2 in self.server.steps("training/global_step"))

        with open(self.run_folder.path / "metrics.jsonl", "r+") as file:
            file.truncate(len(RunFolder.line(0)))
            file.seek(0, 2)
            for step in (1, 2, 3, 4, 5):
                file.write(RunFolder.line(step, more=1))
        self.wait_for(lambda: 5 in self.server.steps("training/global_step"))
        self.run_folder.release()

        self.assertEqual(exporter.wait(timeout=60), 0)
        self.check_steps(0, 1, 2, 3, 4, 5)

    def test_the_next_exporter_continues_the_run(self):
        self.run_folder.append(0, 1, 2)
        self.assertEqual(self.export(*self.args, "--once")[0], 0)
        # The run is resumed with other settings.
        config = (self.run_folder.path / "config.yaml").read_text()
        (self.run_folder.path / "config.yaml").write_text(config.replace("mode: sync", "mode: async"))
        self.run_folder.replace(0, 1)
        self.run_folder.append(2, 3, 4, 5, 6)

        self.assertEqual(self.export(*self.args, "--once")[0], 0)

        self.check_steps(0, 1, 2, 3, 4, 5, 6)
        run = self.server.the_run()
        self.assertEqual((run["params"]["trainer.mode"], run["tags"]["trainer.mode"]), ("sync", "async"))
        self.assertEqual(run["status"], "FINISHED")

    def test_a_lost_answer_and_a_call_that_is_half_done_double_nothing(self):
        self.run_folder.append(*range(7))
        self.server.faults.extend(["forget", "refuse"])

        code, messages = self.export(*self.args, "--once")

        self.assertEqual(code, 0, messages)
        self.check_steps(0, 1, 2, 3, 4, 5, 6)
        self.run_folder.append(*range(7, 12))
        self.server.faults.extend(["half"])
        self.assertEqual(self.export(*self.args, "--once")[0], 0)
        self.check_steps(*range(12))

    def test_an_exporter_that_was_killed_after_its_call_doubles_nothing(self):
        self.run_folder.append(*range(7))
        self.server.faults.extend(["forget"] + ["refuse"] * 100)
        exporter = self.start(*self.args)
        self.wait_for(lambda: 6 in self.server.steps("training/global_step"))
        exporter.kill()
        exporter.wait()
        self.server.faults.clear()

        self.assertEqual(self.export(*self.args, "--once")[0], 0)

        self.check_steps(*range(7))

    def test_a_server_that_is_away_gets_everything_when_it_is_back(self):
        port = self.server.port
        self.run_folder.hold()
        exporter = self.start(*self.args)
        self.run_folder.append(0, 1)
        self.wait_for(lambda: 1 in self.server.steps("training/global_step"))
        kept = self.server
        self.server.close()
        self.run_folder.append(2, 3)
        self.assertIn("tries again", self.line_with(exporter, "tries again"))

        self.server = MlflowServer(port)
        self.server.experiments, self.server.runs = kept.experiments, kept.runs
        self.run_folder.append(4)
        self.run_folder.release()

        self.assertEqual(exporter.wait(timeout=60), 0)
        self.check_steps(0, 1, 2, 3, 4)

    def test_gives_up_after_the_deadline_and_the_next_exporter_sends_the_rest(self):
        self.run_folder.append(*range(30))
        self.server.faults.extend([None] + ["refuse"] * 100)

        code, messages = self.export(*self.args, "--once", "--retry-seconds", "0.2")

        self.assertEqual(code, 1)
        self.assertIn("mlflow was away for 0.2 s", messages)
        self.check_steps(*range(20))
        self.server.faults.clear()
        self.assertEqual(self.export(*self.args, "--once")[0], 0)
        self.check_steps(*range(30))

    def test_a_call_holds_at_most_1000_metrics_and_100_parameters(self):
        self.run_folder.append(0, 1, **{f"timing_s/rank.{i}/step": i for i in range(1200)})
        with open(self.run_folder.path / "config.yaml", "a") as file:
            file.writelines(f"key{i}: {i}\n" for i in range(250))
            file.write(f'long: "{"x" * 600}"\n')

        code, messages = self.export(*self.args, "--once")

        self.assertEqual(code, 0, messages)
        self.check_steps(0, 1)
        self.assertEqual(self.server.steps("timing_s/rank.1199/step"), [0, 1])
        self.assertEqual(len(self.server.the_run()["params"]), 9 + 250 + 1)
        self.assertEqual(self.server.the_run()["params"]["long"], "x" * 497 + "...")

    def test_a_new_run_in_the_same_folder_is_another_run_on_the_server(self):
        self.run_folder.hold()
        exporter = self.start(*self.args)
        self.run_folder.append(*range(7))
        self.wait_for(lambda: 6 in self.server.steps("training/global_step"))
        previous = self.run_folder.path / "previous-1"
        previous.mkdir()
        for name in ("run_id", "metrics.jsonl", "config.yaml"):
            (self.run_folder.path / name).rename(previous / name)
        self.run_folder.begin(2, "11111111-52ac-4b8e-9f6e-6d3bb6d4f9a1")
        self.run_folder.append(0, 1, 2)
        self.run_folder.release()

        self.assertEqual(exporter.wait(timeout=60), 0)
        self.assertEqual([run["status"] for run in self.server.runs.values()], ["FINISHED", "FINISHED"])
        self.assertEqual(self.server.steps(), [*range(7), 0, 1, 2])

    def test_credentials_come_from_the_environment(self):
        self.run_folder.append(0)
        self.environment["MLFLOW_TRACKING_USERNAME"] = "user"
        self.environment["MLFLOW_TRACKING_PASSWORD"] = "pass"

        self.assertEqual(self.export(*self.args, "--once")[0], 0)

        self.assertEqual(self.server.authorization, "Basic dXNlcjpwYXNz")

    def test_refuses_what_it_cannot_do(self):
        code, messages = self.export("--to", "mlflow", "--once")
        self.assertEqual(code, 1)
        self.assertIn("MLFLOW_TRACKING_URI", messages)
        (self.run_folder.path / "run_id").unlink()
        code, messages = self.export(*self.args, "--once")
        self.assertEqual(code, 1)
        self.assertIn("expected a run folder with run_id", messages)

    def test_refuses_to_send_a_run_twice_at_once(self):
        self.run_folder.hold()
        self.run_folder.append(0)
        first = self.start(*self.args)
        self.wait_for(lambda: self.server.steps("training/global_step") == [0])

        code, messages = self.export(*self.args, "--once")

        self.assertEqual(code, 1)
        self.assertIn("another exporter", messages)
        self.run_folder.release()
        self.assertEqual(first.wait(timeout=60), 0)

    def line_with(self, exporter, words):
        for line in exporter.stderr:
            if words in line:
                return line
        return ""


if __name__ == "__main__":
    unittest.main()
