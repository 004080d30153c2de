"""Compares Tandem with transformers on any model folder, as a user can before a long run:

    python tests/parity/compare_with_transformers.py MODEL_DIR [...] [--tandem build/bin/tandem] [--ranks 2]

  score      log-probs of random tokens, in the trainer and in the rollout, float32
  exact      both sides again with --numerics exact: the same bits
  parallel   the rollout with two tensor-parallel ranks
  chunks     the rollout with prompts computed in pieces
  greedy     the tokens of a greedy continuation
  train      four AdamW steps: gradient norms, and the weights that the run exports
  load       transformers opens the exported folder

Prints a line for each folder and ends with 1 if any differs; beside log-probs that differ, how far they move when
the weights do by the rounding of float32: a model may be as sensitive as that. Needs torch, transformers and safetensors."""

import argparse
import copy
import json
import math
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

LENGTHS = (2, 3, 17, 40, 64, 129, 200)
STEPS, ROWS = 4, 6
LOG_PROB_TOLERANCE = 1e-4
NORM_TOLERANCE = 5e-4
# Learning rate, Adam's eps, and how far a weight may be off. Adam divides by the gradient's own size, so the
# rounding of the smallest gradients shows in a weight; of those that are rounding alone, as of the bias of keys,
# it makes whole steps.
USUAL = (1e-3, 1e-8, 0.02 * 1e-3 * STEPS)
# With an eps above all gradients its steps are in proportion to them.
SMOOTH = (0.05, 1.0, 1e-6)
ROUNDING = 1e-5


class Different(Exception):
    """The two programs do not agree, or one of them failed."""


class Comparison:
    def __init__(self, folder, arguments):
        self.folder = os.path.abspath(folder)
        self.arguments = arguments
        self.learning_rate, self.eps, self.weight_tolerance = SMOOTH if arguments.smooth else USUAL
        # Falcon's eager attention adds ALiBi twice, once in the mask.
        config = json.load(open(os.path.join(folder, "config.json")))
        attention = "sdpa" if config.get("alibi") is True else "eager"
        self.model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation=attention,
            experts_implementation="eager").eval()
        self.config = self.model.config
        self.longest = next((getattr(self.config, key) for key in ("max_seq_len", "max_position_embeddings")
                             if getattr(self.config, key, None)), 200)
        torch.manual_seed(arguments.seed)
        self.sequences = [self.draw(n) for n in LENGTHS if n <= self.longest]

    def draw(self, length):
        return torch.randint(3, self.config.vocab_size, (length,)).tolist()

    def run(self, *command, stdin=None):
        done = subprocess.run([self.arguments.tandem, *command], input=stdin, text=True,
                              capture_output=True, check=False)
        if done.returncode != 0:
            raise Different(f"{' '.join(command[:2])}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def rows(self, text):
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def forget_lengths(self):
        """A dynamic rope keeps the frequencies of the longest sequence before."""
        for module in self.model.modules():
            if getattr(module, "rope_type", None) == "dynamic":
                module.max_seq_len_cached = module.original_max_seq_len
                module.inv_freq = module.original_inv_freq.clone()

    def logprobs(self, ids, model=None):
        self.forget_lengths()
        logits = (model or self.model)(torch.tensor([ids]), use_cache=False).logits[0, :-1]
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return logits.log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]

    def score(self, side, *options):
        stdin = "".join(json.dumps({"ids": ids}) + "\n" for ids in self.sequences)
        out = self.rows(self.run("score", "--model", self.folder, "--side", side, "--input", "/dev/stdin",
                                 *options, stdin=stdin))
        return [row["logprobs"] for row in out]

    def check_scores(self):
        with torch.no_grad():
            expected = [self.logprobs(ids).tolist() for ids in self.sequences]
        found = {
            "trainer": self.score("trainer"),
            "rollout": self.score("rollout"),
            "chunks": self.score("rollout", "--set", "rollout.max_num_batched_tokens=16"),
        }
        if self.arguments.ranks > 1:
            found["parallel"] = self.score(
                "rollout", "--set", f"rollout.tensor_model_parallel_size={self.arguments.ranks}")
        worst = {}
        for name, rows in found.items():
            worst[name] = max(abs(a - b) for ours, theirs in zip(rows, expected)
                              for a, b in zip([x for x in ours if x is not None], theirs))
            if not worst[name] <= LOG_PROB_TOLERANCE:
                raise Different(f"log-probs of {name} differ by {worst[name]:.2e}; the rounding of weights to float32 "
                                f"moves transformers' own by {self.sensitivity():.2e}")
        exact = [self.score(side, "--numerics", "exact") for side in ("trainer", "rollout")]
        if exact[0] != exact[1]:
            raise Different("with --numerics exact the two sides have other bits")
        return "score " + " ".join(f"{name} {value:.0e}" for name, value in worst.items())

    def sensitivity(self):
        """The most that a log-prob in float64 moves when each weight does by up to half a unit of its last place
        in float32; of three draws."""
        moved = []
        with torch.no_grad():
            model = copy.deepcopy(self.model).double()
            expected = torch.cat([self.logprobs(ids, model) for ids in self.sequences])
            for _ in range(3):
                model = copy.deepcopy(self.model).double()
                for parameter in model.parameters():
                    parameter.mul_(1 + (torch.rand(parameter.shape, dtype=torch.float64) - 0.5) * 2.0**-23)
                found = torch.cat([self.logprobs(ids, model) for ids in self.sequences])
                moved.append(float((found - expected).abs().max()))
        return max(moved)

    def check_greedy(self):
        prompt = self.sequences[2][:8]
        count = min(16, self.longest - len(prompt))
        out = self.rows(self.run("generate", "--model", self.folder, "--input", "/dev/stdin", "--json",
                                 "--temperature", "0", "--ignore-eos", "--max-tokens", str(count),
                                 stdin=json.dumps({"ids": prompt}) + "\n"))
        found = next(row[key] for row in out for key in ("response_ids", "ids", "token_ids") if key in row)
        ids = list(prompt)
        with torch.no_grad():
            for token in found:
                self.forget_lengths()
                logits = self.model(torch.tensor([ids]), use_cache=False).logits[0, -1]
                if logits.max() - logits[token] > 1e-4:
                    raise Different(f"greedy: token {len(ids) - len(prompt)} is {token}, expected "
                                    f"{int(logits.argmax())}")
                ids.append(token)
        return f"greedy {len(found)}"

    def check_training(self, folder):
        batches = [[self.draw(min(12, self.longest)) for _ in range(ROWS)] for _ in range(STEPS)]
        advantages = [[math.sin(1.0 + r + s) for r in range(ROWS)] for s in range(STEPS)]
        samples = os.path.join(folder, "samples.jsonl")
        with open(samples, "w") as file:
            for step, batch in enumerate(batches):
                for row, ids in enumerate(batch):
                    file.write(json.dumps({
                        "step": step + 1, "group": f"{step}/{row}", "prompt_ids": ids[:4],
                        "response_ids": ids[4:], "advantages": advantages[step][row]}) + "\n")
        config = os.path.join(folder, "run.yaml")
        with open(config, "w") as file:
            file.write(f"""
model: {{path: {json.dumps(self.folder)}, dtype: float32}}
data: {{train_batch_size: {ROWS}}}
rollout: {{n: 1}}
trainer: {{ranks: {self.arguments.ranks}, total_steps: {STEPS}, test_freq: 0, save_freq: 0}}
actor: {{optim: {{lr: {self.learning_rate}, eps: {self.eps}, weight_decay: 0, grad_clip: 1.0}}}}
run_dir: {json.dumps(os.path.join(folder, "run"))}
""")
        self.run("replay", "--local", "--config", config, "--input", samples)
        with open(os.path.join(folder, "run", "metrics.jsonl")) as file:
            norms = [row["actor/grad_norm"] for row in map(json.loads, file)
                     if row["training/global_step"] > 0]

        parameters = list(self.model.parameters())
        decided_by_rounding = {name: torch.zeros_like(p, dtype=torch.bool)
                               for name, p in self.model.named_parameters()}
        optimizer = torch.optim.AdamW(parameters, lr=self.learning_rate, eps=self.eps, weight_decay=0)
        for step, batch in enumerate(batches):
            optimizer.zero_grad()
            # The policy is the one that sampled: the ratio is 1, its gradient that of the log-prob.
            num_tokens = sum(len(ids) - 4 for ids in batch)
            loss = -sum(advantages[step][row] * self.logprobs(ids)[3:].sum() for row, ids in enumerate(batch))
            (loss / num_tokens).backward()
            for name, parameter in self.model.named_parameters():
                if parameter.grad is not None:
                    size = parameter.grad.abs()
                    decided_by_rounding[name] |= (size > 0) & (size < ROUNDING)
            norm = float(torch.nn.utils.clip_grad_norm_(parameters, 1.0))
            if abs(norm - norms[step]) > NORM_TOLERANCE * max(1.0, norm):
                raise Different(f"step {step + 1}: gradient norm {norms[step]:.6f}, expected {norm:.6f}")
            optimizer.step()
        exported = os.path.join(folder, "run", "model")
        expected = os.path.join(folder, "expected")
        self.model.save_pretrained(expected)
        ours, theirs = (load_file(os.path.join(path, "model.safetensors")) for path in (exported, expected))
        buffers = {name for name, _ in self.model.named_buffers()}  # constants, which no export has
        if missing := set(theirs) - set(ours) - buffers:
            raise Different(f"export lacks {sorted(missing)[:3]}")

        def difference(name):
            apart = (ours[name].float() - theirs[name].float()).abs()
            skipped = decided_by_rounding.get(name)
            return float(apart.max() if skipped is None else apart.masked_fill(skipped, 0.0).max())

        worst, place = max((difference(name), name) for name in theirs if name in ours)
        if not worst <= self.weight_tolerance:
            raise Different(f"{place} after {STEPS} steps differs by {worst:.2e}")
        loaded, info = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32,
                                                            output_loading_info=True)
        if missing := set(info["missing_keys"]) - buffers | set(info["mismatched_keys"]):
            raise Different(f"transformers misses {sorted(missing)[:3]} in the export")
        del loaded
        return f"norms {norms[0]:.3f}..{norms[-1]:.3f}, weights {worst:.0e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="MODEL_DIR")
    parser.add_argument("--tandem", default="build/bin/tandem")
    parser.add_argument("--ranks", type=int, default=2, help="trainer ranks, and tensor-parallel ranks of the rollout")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--smooth", action="store_true",
                        help="steps in proportion to gradients, for models with many small ones")
    arguments = parser.parse_args()
    failed = 0
    for folder in arguments.folders:
        name = os.path.basename(folder.rstrip("/"))
        try:
            comparison = Comparison(folder, arguments)
            results = [comparison.check_scores(), comparison.check_greedy()]
            with tempfile.TemporaryDirectory() as scratch:
                results.append(comparison.check_training(scratch))
            print(f"{name}: ok: {'; '.join(results)}", flush=True)
        except Different as error:
            failed += 1
            print(f"{name}: DIFFERENT: {error}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
