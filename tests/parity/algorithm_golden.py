"""Writes tests/services/trainer/algorithm/golden.json: the formulas of services/trainer/algorithm as
PyTorch computes them in float64 on padded, masked matrices, gradients by autograd.

usage: python tests/parity/algorithm_golden.py > tests/services/trainer/algorithm/golden.json
"""
import json
import sys

import torch

torch.set_default_dtype(torch.float64)
generator = torch.Generator().manual_seed(20240)


def randn(*shape):
    return torch.randn(*shape, generator=generator)


def advantages():
    rewards = [1.0, 0.0, 0.5, 0.25, 0.25, 0.25, 7.5, -3.0, 0.125]
    groups = [0, 0, 0, 1, 1, 1, 2, 3, 3]
    out = {"rewards": rewards, "groups": groups}
    for name, divide in (("divided", True), ("centred", False)):
        values = []
        for reward, group in zip(rewards, groups):
            members = torch.tensor([r for r, g in zip(rewards, groups) if g == group])
            mean, std = (members.mean(), members.std()) if len(members) > 1 else (0.0, 1.0)
            values.append(float((reward - mean) / (std + 1e-6) if divide else reward - mean))
        out[name] = values
    return out


def ppo(logp, old, adv, low, high, dual):
    """The loss of each token, and which bound made it."""
    log_ratio = torch.clamp(logp - old, min=-20.0, max=20.0)
    ratio = torch.exp(log_ratio)
    first = -adv * ratio
    second = -adv * torch.clamp(ratio, 1 - low, 1 + high)
    clipped_once = torch.maximum(first, second)
    clipped = torch.gt(second, first).double()
    if dual == 0:
        return clipped_once, clipped, torch.zeros_like(clipped), log_ratio
    third = -adv * dual
    clipped_twice = torch.min(third, clipped_once)
    lower = torch.gt(clipped_once, third) * (adv < 0).double()
    return torch.where(adv < 0, clipped_twice, clipped_once), clipped, lower, log_ratio


def policy_loss():
    cases = []
    for low, high, dual in ((0.2, 0.2, 3.0), (0.2, 0.28, 3.0), (0.1, 0.3, 0.0)):
        old = -randn(24).abs() - 0.1
        logp = old + 0.8 * randn(24)
        logp[0], logp[1] = old[0] + 25.0, old[1] - 25.0  # beyond the clamp
        logp.requires_grad_(True)
        adv = randn(24)
        adv[0], adv[2] = -0.5, 0.0
        loss, clipped, lower, log_ratio = ppo(logp, old, adv, low, high, dual)
        (grad,) = torch.autograd.grad(loss.sum(), logp)
        cases.append({
            "low": low, "high": high, "dual": dual, "logprobs": logp.tolist(), "old": old.tolist(),
            "advantages": adv.tolist(), "loss": loss.tolist(), "clipped": clipped.tolist(),
            "clipped_lower": lower.tolist(), "log_ratio": log_ratio.tolist(), "grad": grad.tolist()})
    return cases


def kl_terms(logp, ref, kind):
    d = logp - ref
    if kind == "k1":
        return d
    if kind == "abs":
        return d.abs()
    if kind == "k2":
        return 0.5 * d * d
    minus = torch.clamp(ref - logp, min=-20, max=20)
    return torch.clamp(torch.exp(minus) - minus - 1, min=-10, max=10)


def kl():
    ref = -randn(16).abs()
    logp = ref + 0.5 * randn(16)
    logp[0], logp[1], logp[2] = ref[0] - 4.0, ref[1] + 30.0, ref[2]  # beyond the clamps, and equal
    logp.requires_grad_(True)
    out = {"logprobs": logp.tolist(), "ref": ref.tolist()}
    for kind in ("k1", "abs", "k2", "k3"):
        value = kl_terms(logp, ref, kind)
        (grad,) = torch.autograd.grad(value.sum(), logp)
        out[kind] = {"value": value.tolist(), "grad": grad.tolist()}
    for kind in ("k1", "k3"):  # with the gradient of k2
        out[kind + "_plus"] = {"value": out[kind]["value"], "grad": out["k2"]["grad"]}
    return out


def aggregate(losses, mask, mode, scale):
    """As in verl, on one rank: losses and mask are [sequences, longest]."""
    used = (mask.sum(dim=-1) > 0).double()
    if mode == "token_mean":
        return (losses * mask).sum() / mask.sum()
    if mode == "token_sum":
        return (losses * mask).sum()
    if mode == "seq_mean_token_sum":
        return (losses * mask).sum(dim=-1).sum() / used.sum()
    if mode == "seq_mean_token_mean":
        means = (losses * mask).sum(dim=-1) / (mask.sum(dim=-1) + (1 - used))
        return means.sum() / used.sum()
    return (losses * mask).sum(dim=-1).sum() / used.sum() / scale


def aggregation():
    lengths = [3, 1, 7, 0, 5]
    mask = torch.zeros(5, 7)
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
    losses = randn(5, 7).requires_grad_(True)
    taken = mask.bool()
    out = {"lengths": lengths, "scale": 7.0, "losses": losses[taken].tolist(), "modes": {}}
    for mode in ("token_mean", "token_sum", "seq_mean_token_sum", "seq_mean_token_mean",
                 "seq_mean_token_sum_norm"):
        value = aggregate(losses, mask, mode, 7.0)
        (grad,) = torch.autograd.grad(value, losses)
        out["modes"][mode] = {"value": float(value.detach()), "grad": grad[taken].tolist()}
    return out


def whole():
    """GRPO's loss with KL and entropy over logits, and cross-entropy, each with gradients."""
    lengths, longest, vocab = [4, 2, 5, 3], 5, 11
    mask = torch.zeros(4, longest)
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
    taken = mask.bool()
    logits = randn(4, longest, vocab).requires_grad_(True)
    targets = torch.randint(0, vocab, (4, longest), generator=generator)
    all_logp = torch.log_softmax(logits, dim=-1)
    logp = all_logp.gather(-1, targets[..., None])[..., 0]
    entropy = -(all_logp.exp() * all_logp).sum(dim=-1)
    old = logp.detach() + 0.3 * randn(4, longest)
    ref = logp.detach() + 0.3 * randn(4, longest)
    adv = randn(4)[:, None].expand(4, longest)
    pg, _, _, _ = ppo(logp, old, adv, 0.2, 0.28, 3.0)
    mode = "seq_mean_token_mean"
    pg_loss = aggregate(pg, mask, mode, 1.0)
    kl_loss = aggregate(kl_terms(logp, ref, "k3"), mask, mode, 1.0)
    entropy_loss = aggregate(entropy, mask, mode, 1.0)
    loss = pg_loss + 0.05 * kl_loss - 0.01 * entropy_loss
    (grad,) = torch.autograd.grad(loss, logits, retain_graph=True)
    supervised = torch.nn.functional.cross_entropy(logits[taken], targets[taken])
    (supervised_grad,) = torch.autograd.grad(supervised, logits)
    return {"lengths": lengths, "logits": logits[taken].tolist(), "targets": targets[taken].tolist(),
            "old": old[taken].tolist(), "ref": ref[taken].tolist(), "advantages": adv[taken].tolist(),
            "low": 0.2, "high": 0.28, "dual": 3.0, "kl_coef": 0.05, "entropy_coeff": 0.01,
            "pg_loss": float(pg_loss.detach()), "kl_loss": float(kl_loss.detach()), "loss": float(loss.detach()),
            "grad": grad[taken].tolist(), "supervised": float(supervised.detach()),
            "supervised_grad": supervised_grad[taken].tolist()}


json.dump({"advantages": advantages(), "policy_loss": policy_loss(), "kl": kl(),
           "aggregation": aggregation(), "whole": whole()}, sys.stdout, indent=1)
print()
