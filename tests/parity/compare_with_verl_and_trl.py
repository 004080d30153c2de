"""Compares the golden files that our tests are checked against with the functions of verl and TRL
themselves, in float64: every advantage estimator, policy loss and preference loss of the same name.

usage: python tests/parity/compare_with_verl_and_trl.py

Needs torch, and verl, trl or both (`pip install verl trl`); a package that is not installed is
skipped. Prints the largest difference of each function, and exits 1 if one is above its tolerance.
"""
import json
import math
import sys
import types
from collections import defaultdict
from pathlib import Path

import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
ALGORITHM = Path(__file__).resolve().parents[1] / "services/trainer/algorithm"
TOLERANCE = 1e-7
# verl reads the parts of several rewards as float32.
FLOAT32_TOLERANCE = 1e-5
# verl adds 1e-8 to the length of a sequence before it divides by it.
LENGTH_TOLERANCE = 1e-6


class Report:
    def __init__(self):
        self.failed = False

    def compare(self, name, found, expected, tolerance=TOLERANCE):
        found, expected = torch.as_tensor(found).detach(), torch.tensor(expected)
        # Losses of the golden files reach 1e8, beyond the clamps.
        difference = ((found - expected).abs() / expected.abs().clamp(min=1.0)).max().item()
        is_equal = difference <= tolerance
        self.failed = self.failed or not is_equal
        print(f"{'ok  ' if is_equal else 'FAIL'} {name}: {difference:.1e}")

    def call(self, name, function):
        """What the function returns; None, and a failure, if it raises: another version's interface."""
        try:
            return function()
        except Exception as error:  # pylint: disable=broad-except
            self.failed = True
            print(f"FAIL {name}: {type(error).__name__}: {error}")
            return None


class Batch:
    """The golden batch, padded to [sequences, longest]."""

    def __init__(self, golden):
        self.lengths = golden["lengths"]
        self.mask = (torch.arange(max(self.lengths))[None, :]
                     < torch.tensor(self.lengths)[:, None]).double()

    def padded(self, tokens):
        matrix = torch.zeros_like(self.mask)
        matrix[self.mask.bool()] = torch.tensor(tokens)
        return matrix

    def tokens(self, matrix):
        return matrix[self.mask.bool()]

    def at_last(self, values):
        matrix = torch.zeros_like(self.mask)
        for i, value in enumerate(values):
            matrix[i, self.lengths[i] - 1] = value
        return matrix


def verl_advantages(golden, batch, report):
    import numpy as np
    from omegaconf import OmegaConf
    from verl.trainer.ppo import core_algos

    index = np.array(golden["groups"])
    of = golden["advantages"]
    parts = golden["reward_parts"]
    prompts = torch.zeros(len(index), 1)

    def compare(what, rewards, expected):
        common = {"token_level_rewards": rewards, "response_mask": batch.mask}
        config = OmegaConf.create({
            "gamma": expected["gamma"], "gdpo_reward_keys": [part["name"] for part in parts],
            "gdpo_reward_weights": [part["weight"] for part in parts]})
        several = {"config": config,
                   "non_tensor_batch": {part["name"]: np.array(part["values"]) for part in parts},
                   "batch": {"prompts": prompts,
                             "attention_mask": torch.cat([prompts + 1, batch.mask], 1).long()}}
        tokens = {"old_log_probs": batch.padded(of["old"]),
                  "sum_pi_squared": batch.padded(of["sum_pi_squared"])}
        cases = {
            "grpo": ("grpo", {"index": index}),
            "dr_grpo": ("grpo", {"index": index, "norm_adv_by_std_in_grpo": False}),
            "rloo": ("rloo", {"index": index}),
            "opo": ("opo", {"index": index}),
            "gpg": ("gpg", {"index": index}),
            "grpo_passk": ("grpo_passk", {
                "index": index, "config": {"norm_adv_by_std_in_grpo": True}}),
            "grpo_passk_centred": ("grpo_passk", {
                "index": index, "norm_adv_by_std_in_grpo": False,
                "config": {"norm_adv_by_std_in_grpo": False}}),
            "reinforce_plus_plus_baseline": ("reinforce_plus_plus_baseline", {"index": index}),
            "gdpo": ("gdpo", {"index": index, **several}),
            "gdpo_centred": ("gdpo", {"index": index, "norm_adv_by_std_in_grpo": False, **several}),
            "remax": ("remax", {"reward_baselines": torch.tensor(golden["baselines"])}),
            "optimal_token_baseline": ("optimal_token_baseline", {"index": index, **tokens}),
            "reinforce_plus_plus": ("reinforce_plus_plus", {"config": config}),
            "gae": ("gae", {"values": batch.padded(of["values"]), "gamma": expected["gamma"],
                            "lam": expected["lam"]}),
        }
        for name, (estimator, arguments) in cases.items():
            if name not in expected:
                continue
            inputs = {key: value.clone() if torch.is_tensor(value) else value
                      for key, value in {**common, **arguments}.items()}
            keep = torch.ones(len(index), dtype=torch.bool)
            if estimator == "grpo_passk":  # verl's refuses groups of one, whose advantage is 0
                keep = torch.from_numpy(np.isin(index, np.flatnonzero(np.bincount(index) > 1)))
                inputs.update(token_level_rewards=rewards[keep], response_mask=batch.mask[keep],
                              index=index[keep.numpy()])
            place = f"verl advantages {name}, {what}"
            result = report.call(
                place, lambda f=core_algos.get_adv_estimator_fn(estimator), i=inputs: f(**i))
            if result is None:
                continue
            advantages, returns = torch.zeros_like(rewards), result[1]
            advantages[keep] = result[0].double()
            tolerance = FLOAT32_TOLERANCE if name.startswith("gdpo") else TOLERANCE
            report.compare(place, batch.tokens(advantages), expected[name], tolerance)
            if name == "gae":
                report.compare(f"verl returns gae, {what}", batch.tokens(returns),
                               expected["gae_returns"])

    rewards = batch.at_last(golden["rewards"])
    compare("without KL", rewards, of["without_kl"])
    for kind, expected in of["with_kl"].items():
        kl = core_algos.kl_penalty(batch.padded(of["old"]), batch.padded(of["ref"]), kind)
        penalized = rewards - of["coefficient"] * kl * batch.mask
        report.compare(f"verl kl_penalty {kind}", batch.tokens(penalized), expected["token_rewards"])
        compare(f"KL {kind}", penalized, expected["advantages"])


def verl_losses(golden, batch, report):
    from verl.trainer.ppo import core_algos
    from verl.workers.config import ActorConfig
    from verl.workers.config.actor import PolicyLossConfig

    of = golden["losses"]
    def actor(name):
        # The dual clip's bound; in dppo it is the bound of the ratio.
        bound = 20.0 if name.startswith("dppo") else of["dual"]
        return ActorConfig(
            strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio=of["low"],
            clip_ratio_low=of["low"], clip_ratio_high=of["high"], clip_ratio_c=bound,
            tau_pos=of["tau_pos"], tau_neg=of["tau_neg"],
            global_batch_info={"loss_scale_factor": of["scale"]},
            policy_loss=PolicyLossConfig(
                loss_mode=name, dro_beta=of["dro_beta"]))

    def loss_of(name, aggregation, weights):
        leaf = batch.padded(of["logprobs"]).requires_grad_(True)
        inputs = {"log_prob": leaf, "advantages": batch.padded(of["advantages"]),
                  "response_mask": batch.mask, "loss_agg_mode": aggregation, "config": actor(name),
                  "rollout_is_weights": weights}
        old = batch.padded(of["old"])
        if name == "reinforce":
            value, _ = core_algos.compute_policy_loss_reinforce(rollout_log_prob=old, **inputs)
        else:
            value, _ = core_algos.get_policy_loss_fn(name)(old_log_prob=old, **inputs)
        (gradient,) = torch.autograd.grad(value, leaf)
        return value, batch.tokens(gradient)

    # Where verl's losses bound the ratio as ours do: dppo's has no gradient beyond 20 here, and gmpo's
    # holds log-ratios within 20.
    log_ratio = batch.padded(of["logprobs"]) - batch.padded(of["old"])
    bounded = (log_ratio.abs() <= 20).all(-1, keepdim=True).expand_as(log_ratio)
    below = batch.tokens(log_ratio) <= math.log(20.0)
    ordinary = {"gmpo": batch.tokens(bounded), "dppo_tv": below, "dppo_kl": below}

    for mode in ("vanilla", "gspo", "cispo", "sapo", "gmpo", "gpg", "dppo_tv", "dppo_kl", "dro",
                 "reinforce"):
        for case, expected in of["modes"][mode]["cases"].items():
            aggregation, weighted = case.removesuffix("_weighted"), case.endswith("_weighted")
            # verl's caller asks gspo for this; gmpo has its own mean of the weights there.
            if mode == "gspo":
                aggregation = "seq_mean_token_mean"
            if mode == "gmpo" and weighted:
                continue
            result = report.call(f"verl loss {mode}, {case}", lambda m=mode, a=aggregation, w=weighted: (
                loss_of({"gmpo": "geo_mean"}.get(m, m), a.replace("_", "-"),
                        batch.padded(of["weights"]) if w else None)))
            if result is None:
                continue
            value, gradient = result
            by_length = mode in ("gspo", "sapo", "gmpo") or aggregation == "seq_mean_token_mean"
            tolerance = LENGTH_TOLERANCE if by_length else TOLERANCE
            if not mode.startswith("dppo"):  # verl's value is another with the same gradient
                report.compare(f"verl loss {mode}, {case}", value, expected["value"], tolerance)
            keep = ordinary[mode] if mode in ordinary else torch.ones_like(gradient).bool()
            report.compare(f"verl gradient {mode}, {case}", gradient[keep],
                           torch.tensor(expected["grad"])[keep].tolist(), tolerance)
    print("not compared: kl_cov, whose covariance verl takes from the current log-probs and we from "
          "those at the step's start")


def trl_losses(cases, report):
    from trl import DPOTrainer

    for case in cases:
        name = case["name"]
        if name.startswith("sigmoid") and case["label_smoothing"] > 0:
            continue  # TRL's has none
        chosen, rejected = (torch.tensor(case[key]).requires_grad_(True)
                            for key in ("chosen", "rejected"))
        # Completions of one token, whose mean is their sum, after a prompt of one.
        ones = torch.ones(2 * len(chosen), 1)
        logprobs = torch.cat([chosen, rejected])[:, None]
        outputs = types.SimpleNamespace(
            log_probs=logprobs, entropy=torch.zeros_like(logprobs),
            mean_logits=torch.zeros_like(logprobs), is_top1=ones.bool(), aux_loss=None)
        accelerator = types.SimpleNamespace(device="cpu", gather=lambda x: x,
                                            gather_for_metrics=lambda x: x)
        trainer = types.SimpleNamespace(
            model=types.SimpleNamespace(training=False), accelerator=accelerator,
            aux_loss_enabled=False, ld_alpha=None, precompute_ref_logps=True,
            f_divergence_type="reverse_kl", loss_types=[name], loss_weights=[float(len(chosen))],
            beta=case["beta"], label_smoothing=case["label_smoothing"], use_weighting=False,
            _metrics=defaultdict(lambda: defaultdict(list)), _total_train_tokens=0)
        inputs = {"input_ids": torch.cat([ones, ones], 1).long(),
                  "completion_mask": torch.cat([0 * ones, ones], 1).long(),
                  "ref_chosen_logps": torch.tensor(case["ref_chosen"]),
                  "ref_rejected_logps": torch.tensor(case["ref_rejected"])}
        # pylint: disable=protected-access
        value = DPOTrainer._compute_loss(trainer, lambda **_: outputs, inputs, False)
        gradients = torch.autograd.grad(value, (chosen, rejected))
        what = f"{name}, beta {case['beta']}, label smoothing {case['label_smoothing']}"
        report.compare(f"TRL loss {what}", value, sum(case["loss"]))
        for key, gradient in zip(("chosen", "rejected"), gradients):
            report.compare(f"TRL gradient {what}, {key}", gradient, case[f"{key}_grad"])


def main():
    report = Report()
    golden = json.loads((ALGORITHM / "batch_golden.json").read_text())
    preferences = json.loads((ALGORITHM / "preference_golden.json").read_text())["preference_loss"]
    batch = Batch(golden)
    num_compared = 0
    for package, comparisons in (
            ("verl", (lambda: verl_advantages(golden, batch, report),
                      lambda: verl_losses(golden, batch, report))),
            ("trl", (lambda: trl_losses(preferences, report),))):
        try:
            __import__(package)
        except ImportError as error:
            print(f"skipped {package}: {error}")
            continue
        for comparison in comparisons:
            comparison()
        num_compared += 1
    if num_compared == 0:
        sys.exit("neither verl nor trl is installed: nothing was compared; pip install verl trl")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
