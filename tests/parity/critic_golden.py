"""Writes tests/services/trainer/algorithm/critic_golden.json: the value loss and the loss of direct
preference optimisation with their gradients, in float64; and whole steps of a critic (values, GAE,
clipped updates) and of preference optimisation of the model in tests/services/trainer/golden, as
transformers, autograd and torch.optim.AdamW do them in float32.

usage: python tests/parity/critic_golden.py tests/services/trainer/golden > tests/services/trainer/algorithm/critic_golden.json
"""
import json
import sys

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(977)
ADAMW = dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)


def randn(*shape):
    """Numbers that a float32 holds exactly, in float64."""
    return torch.randn(*shape, generator=generator).double()


def value_loss():
    values, old, returns = randn(20), randn(20), randn(20)
    values[:6] = (old[:6] + 0.1 * randn(6)).float().double()  # within the clip
    values.requires_grad_(True)
    clipped = torch.clamp(values, old - 0.5, old + 0.5)
    loss = 0.5 * torch.maximum((values - returns) ** 2, (clipped - returns) ** 2)
    worse = (clipped - returns) ** 2 > (values - returns) ** 2
    (grad,) = torch.autograd.grad(loss.sum(), values)
    return {"cliprange": 0.5, "values": values.tolist(), "old": old.tolist(),
            "returns": returns.tolist(), "loss": loss.tolist(), "clipped": worse.double().tolist(),
            "grad": grad.tolist()}


def preference_loss():
    cases = []
    for beta, smoothing in ((0.1, 0.0), (0.5, 0.0), (0.3, 0.2)):
        chosen, rejected, ref_chosen, ref_rejected = (-20 + 6 * randn(7) for _ in range(4))
        chosen.requires_grad_(True)
        rejected.requires_grad_(True)
        logits = (chosen - rejected) - (ref_chosen - ref_rejected)
        loss = (-F.logsigmoid(beta * logits) * (1 - smoothing)
                - F.logsigmoid(-beta * logits) * smoothing)
        grads = torch.autograd.grad(loss.sum(), (chosen, rejected))
        cases.append({
            "beta": beta, "label_smoothing": smoothing, "chosen": chosen.tolist(),
            "rejected": rejected.tolist(), "ref_chosen": ref_chosen.tolist(),
            "ref_rejected": ref_rejected.tolist(), "loss": loss.tolist(),
            "chosen_rewards": (beta * (chosen - ref_chosen)).tolist(),
            "rejected_rewards": (beta * (rejected - ref_rejected)).tolist(),
            "chosen_grad": grads[0].tolist(), "rejected_grad": grads[1].tolist()})
    return cases


def sequences(count):
    """Prompts of 1 to 4 tokens and completions of 1 to 9."""
    out = []
    for _ in range(count):
        prompt = int(torch.randint(1, 5, [1], generator=generator))
        response = int(torch.randint(1, 10, [1], generator=generator))
        # Not the padding id 0: transformers gives its embedding no gradient.
        ids = torch.randint(1, 67, [prompt + response], generator=generator)
        out.append({"token_ids": ids.tolist(), "prompt": prompt})
    return out


def critic(folder):
    model = AutoModelForTokenClassification.from_pretrained(
        folder, num_labels=1, dtype=torch.float32, attn_implementation="eager").eval()
    hidden = model.config.hidden_size
    with torch.no_grad():
        model.score.weight.copy_((torch.arange(hidden) % 7 - 3)[None] * 0.05)
        model.score.bias.fill_(0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, **ADAMW)
    gamma, lam, cliprange, epochs, groups_each = 0.97, 0.9, 0.05, 2, 2
    samples = sequences(8)
    rewards = torch.randint(0, 5, [8], generator=generator).double() / 4

    def values_of(sample):
        ids = torch.tensor(sample["token_ids"])
        row = model(input_ids=ids[None, :-1]).logits[0, :, 0]
        return row[sample["prompt"] - 1:]

    steps = []
    for _ in range(2):
        with torch.no_grad():
            old = [values_of(s) for s in samples]
        returns = []
        for value, reward in zip(old, rewards):
            value = value.double()
            n = len(value)
            earned = [0.0] * (n - 1) + [float(reward)]
            delta = [earned[t] + gamma * (value[t + 1] if t + 1 < n else 0.0) - value[t]
                     for t in range(n)]
            # The sum that defines it, not the recursion.
            advantage = [sum((gamma * lam) ** (k - t) * delta[k] for k in range(t, n))
                         for t in range(n)]
            returns.append(torch.stack([torch.as_tensor(a) for a in advantage]) + value)
        flat_old, flat_returns = torch.cat(old).double(), torch.cat(returns)
        sums = {"critic/vf_loss": 0.0, "critic/vf_clipfrac": 0.0, "critic/vpred_mean": 0.0,
                "critic/grad_norm": 0.0}
        updates = epochs * (4 // groups_each)  # four groups of two samples
        for _ in range(epochs):
            for first in range(0, 8, 2 * groups_each):
                members = range(first, first + 2 * groups_each)
                new = torch.cat([values_of(samples[i]) for i in members])
                was = torch.cat([old[i] for i in members])
                target = torch.cat([returns[i] for i in members]).float()
                near = torch.clamp(new, was - cliprange, was + cliprange)
                plain, clipped = (new - target) ** 2, (near - target) ** 2
                loss = 0.5 * torch.maximum(plain, clipped).mean()
                optimizer.zero_grad()
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                sums["critic/vf_loss"] += loss.item() / updates
                sums["critic/vf_clipfrac"] += (clipped > plain).float().mean().item() / updates
                sums["critic/vpred_mean"] += new.mean().item() / updates
                sums["critic/grad_norm"] += norm.item() / updates
        steps.append({
            "values": [v.tolist() for v in old], "returns": [r.tolist() for r in returns],
            "metrics": sums | {
                "critic/values/mean": flat_old.mean().item(),
                "critic/returns/max": flat_returns.max().item(),
                "critic/vf_explained_var": (1 - (flat_returns - flat_old).var()
                                            / (flat_returns.var() + 1e-5)).item()}})
    return {"gamma": gamma, "lam": lam, "cliprange": cliprange, "epochs": epochs, "lr": 5e-3,
            "groups_each": groups_each, "samples": samples, "rewards": rewards.tolist(),
            "steps": steps}


def preference(folder):
    def load():
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                    attn_implementation="eager").eval()

    policy, reference = load(), load()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3, **ADAMW)
    beta, smoothing = 0.2, 0.1
    prompts = sequences(5)
    pairs = []
    for prompt in prompts:
        start = prompt["token_ids"][:prompt["prompt"]]
        pairs.append([start + s["token_ids"] for s in sequences(2)])

    def logprob(model, prompt, ids):
        ids = torch.tensor(ids)
        logp = torch.log_softmax(model(input_ids=ids[None, :-1]).logits[0], dim=-1)
        return logp.gather(-1, ids[1:, None])[prompt - 1:, 0].double().sum()

    steps = []
    for _ in range(4):
        terms = {name: [] for name in ("loss", "chosen", "rejected", "logp_chosen", "logp_rejected")}
        for prompt, (good, bad) in zip(prompts, pairs):
            n = prompt["prompt"]
            chosen, rejected = logprob(policy, n, good), logprob(policy, n, bad)
            with torch.no_grad():
                ref_chosen, ref_rejected = logprob(reference, n, good), logprob(reference, n, bad)
            logits = (chosen - rejected) - (ref_chosen - ref_rejected)
            terms["loss"].append(-F.logsigmoid(beta * logits) * (1 - smoothing)
                                 - F.logsigmoid(-beta * logits) * smoothing)
            terms["chosen"].append(beta * (chosen - ref_chosen).detach())
            terms["rejected"].append(beta * (rejected - ref_rejected).detach())
            terms["logp_chosen"].append(chosen.detach())
            terms["logp_rejected"].append(rejected.detach())
        terms = {name: torch.stack(values) for name, values in terms.items()}
        optimizer.zero_grad()
        terms["loss"].mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        steps.append({
            "train/loss": terms["loss"].mean().item(),
            "rewards/chosen": terms["chosen"].mean().item(),
            "rewards/rejected": terms["rejected"].mean().item(),
            "rewards/margins": (terms["chosen"] - terms["rejected"]).mean().item(),
            "rewards/accuracies": (terms["chosen"] > terms["rejected"]).double().mean().item(),
            "logps/chosen": terms["logp_chosen"].mean().item(),
            "logps/rejected": terms["logp_rejected"].mean().item(),
            "actor/grad_norm": norm.item()})
    return {"beta": beta, "label_smoothing": smoothing, "lr": 3e-3,
            "prompts": [p["prompt"] for p in prompts], "pairs": pairs, "steps": steps}


json.dump({"value_loss": value_loss(), "preference_loss": preference_loss(),
           "critic": critic(sys.argv[1]), "preference": preference(sys.argv[1])}, sys.stdout)
print()
