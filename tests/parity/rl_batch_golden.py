"""Writes tests/services/trainer/algorithm/batch_golden.json: advantages, policy losses with their
gradients, KL in rewards and rollout correction as PyTorch computes them in float64 on padded, masked
matrices, from the papers and verl's documents.

usage: python tests/parity/rl_batch_golden.py > tests/services/trainer/algorithm/batch_golden.json
"""
import json
import math
import sys

import torch

torch.set_default_dtype(torch.float64)
generator = torch.Generator().manual_seed(31337)

# Sequences of uneven lengths, one of a single token; groups of 3, 2, 1 and 3, the second without any
# spread of rewards.
LENGTHS = [4, 7, 2, 5, 3, 6, 1, 8, 3]
GROUPS = [0, 0, 0, 1, 1, 2, 3, 3, 3]
REWARDS = [1.0, 0.0, 0.5, 0.25, 0.25, 2.5, -3.0, 0.125, 7.0]
BASELINES = [0.25, 0.25, 0.25, 1.0, 1.0, -0.5, 0.0, 0.0, 0.0]
# Several rewards, with their weights: the first without any spread in a group, the last opposed.
PARTS = [("format", 0.5, [1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]),
         ("length", -0.25, [4.0, 7.0, 2.0, 5.0, 3.0, 6.0, 1.0, 8.0, 3.0]),
         ("match", 2.0, [1.0, 0.0, 0.5, 0.25, 0.25, 1.25, -1.0, 0.125, 3.0])]
DRO_BETA = 0.05
NUM, LONGEST = len(LENGTHS), max(LENGTHS)
MASK = (torch.arange(LONGEST)[None, :] < torch.tensor(LENGTHS)[:, None]).double()


def randn(*shape):
    """Numbers that a float32 holds exactly, for both sides read the same."""
    return torch.randn(*shape, generator=generator).float().double()


def f32(x):
    return x.float().double()


def rows(matrix):
    return matrix[MASK.bool()].tolist()


def masked_mean(x, mask=MASK):
    return (x * mask).sum() / mask.sum()


def whiten(x):
    mean = masked_mean(x)
    var = ((x - mean) ** 2 * MASK).sum() / (MASK.sum() - 1)
    return (x - mean) * torch.rsqrt(var + 1e-8) * MASK


def kl_terms(logp, ref, kind):
    d = logp - ref
    if kind == "k1":
        return d
    if kind == "abs":
        return d.abs()
    if kind == "k2":
        return 0.5 * d * d
    minus = torch.clamp(-d, min=-20, max=20)
    return torch.clamp(torch.exp(minus) - minus - 1, min=-10, max=10)


def of_others(values, group, me):
    return [v for i, v in enumerate(values) if GROUPS[i] == group and i != me]


def members(values, group):
    return [v for i, v in enumerate(values) if GROUPS[i] == group]


def several_rewards(divides):
    """Each reward normalised within its group, then their weighted sum."""
    sums = [0.0] * NUM
    for _, weight, of_part in PARTS:
        for i, r in enumerate(of_part):
            group = torch.tensor(members(of_part, GROUPS[i]))
            alone = len(group) == 1
            centred = r - (0.0 if alone else group.mean().item())
            std = 1.0 if alone else group.std().item()
            sums[i] += weight * (centred / (std + 1e-6) if divides else centred)
    return sums


def token_baselines(returns_to_go, logp, squares):
    """Each token's baseline: the mean of its group's returns in its column, by weight."""
    weights = ((1 - 2 * torch.exp(logp) + squares) * MASK).cumsum(-1)
    out = torch.zeros(NUM, LONGEST)
    for i, n in enumerate(LENGTHS):
        others = [k for k in range(NUM) if GROUPS[k] == GROUPS[i] and k != i]
        for t in range(n):
            if not any(t < LENGTHS[k] for k in others):
                continue  # alone in its column
            there = [k for k in others + [i] if t < LENGTHS[k]]
            total = sum(weights[k, t] for k in there) + 1e-8
            out[i, t] = sum(weights[k, t] * returns_to_go[k, t] for k in there) / total
    return out


def advantages(token_rewards, values, logp, squares):
    """Every estimator, from a matrix of rewards of tokens."""
    total = token_rewards.sum(-1)
    scores = total.tolist()
    out = {}

    def spread(per_sequence):
        return rows(torch.tensor(per_sequence)[:, None] * MASK)

    centred, divided, leave_one_out, optimal = [], [], [], []
    best, best_centred = [], []
    for i, r in enumerate(scores):
        group = torch.tensor(members(scores, GROUPS[i]))
        lengths = torch.tensor(members([float(n) for n in LENGTHS], GROUPS[i]))
        alone = len(group) == 1
        mean, std = (0.0, 1.0) if alone else (group.mean().item(), group.std().item())
        centred.append(r - mean)
        divided.append((r - mean) / (std + 1e-6))
        others = of_others(scores, GROUPS[i], i)
        leave_one_out.append(r if alone else r - sum(others) / len(others))
        optimal.append(r if alone else r - ((lengths * group).sum() / lengths.sum()).item())
        # The first of the best, less the best of the others.
        first = scores.index(max(members(scores, GROUPS[i])), GROUPS.index(GROUPS[i])) == i
        gain = 0.0 if alone or not first else r - max(others)
        best_centred.append(gain)
        best.append(gain / (std + 1e-6))
    out["grpo"] = spread(divided)
    out["dr_grpo"] = spread(centred)
    out["rloo"] = spread(leave_one_out)
    out["opo"] = spread(optimal)
    # Scaled by the share of samples that earn something.
    num_rewarded = max(1, sum(r != 0 for r in scores))
    out["gpg"] = spread([NUM / num_rewarded * r for r in centred])
    out["grpo_passk"] = spread(best)
    out["grpo_passk_centred"] = spread(best_centred)
    out["reinforce_plus_plus_baseline"] = rows(whiten(torch.tensor(centred)[:, None] * MASK))

    out["gdpo"] = rows(whiten(torch.tensor(several_rewards(True))[:, None] * MASK))
    out["gdpo_centred"] = rows(whiten(torch.tensor(several_rewards(False))[:, None] * MASK))

    returns_to_go = torch.stack(
        [(token_rewards * MASK)[:, t:].sum(-1) for t in range(LONGEST)], dim=1)
    out["remax"] = rows(returns_to_go - torch.tensor(BASELINES)[:, None])

    # Without gaps between the sampled tokens, both kinds count the same positions.
    out["optimal_token_baseline"] = rows(returns_to_go - token_baselines(returns_to_go, logp, squares))

    gamma, lam = 0.97, 0.9
    discounted = torch.zeros(NUM, LONGEST)
    gae = torch.zeros(NUM, LONGEST)
    for i, n in enumerate(LENGTHS):
        for t in range(n):
            discounted[i, t] = sum(gamma ** (k - t) * token_rewards[i, k] for k in range(t, n))
            # The sum that defines it, not the recursion.
            for k in range(t, n):
                after = values[i, k + 1] if k + 1 < n else 0.0
                delta = token_rewards[i, k] + gamma * after - values[i, k]
                gae[i, t] += (gamma * lam) ** (k - t) * delta
    out["reinforce_plus_plus"] = rows(whiten(discounted))
    out["gae"] = rows(whiten(gae))
    out["gae_returns"] = rows(gae + values)
    out["gamma"], out["lam"] = gamma, lam
    return out


def token_rewards(logp, ref, kind, coefficient):
    scores = torch.zeros(NUM, LONGEST)
    for i, n in enumerate(LENGTHS):
        scores[i, n - 1] = REWARDS[i]
    kl = kl_terms(logp, ref, kind) * MASK
    mean = (kl.sum(-1) / MASK.sum(-1)).mean().item()
    return scores - coefficient * kl, mean


def rewards_and_advantages():
    logp = f32(-randn(NUM, LONGEST).abs() - 0.05)
    ref = f32(logp + 0.4 * randn(NUM, LONGEST))
    values = randn(NUM, LONGEST)
    # Between the token's own square and that of a distribution whose other mass is on one token.
    own = torch.Generator().manual_seed(11)
    pi, share = torch.exp(logp), torch.rand(NUM, LONGEST, generator=own)
    squares = f32(pi ** 2 + share * (1 - pi) ** 2)
    plain, _ = token_rewards(logp, ref, "k1", 0.0)
    out = {"old": rows(logp), "ref": rows(ref), "values": rows(values), "coefficient": 0.3,
           "sum_pi_squared": rows(squares),
           "without_kl": advantages(plain, values, logp, squares), "with_kl": {}}
    for kind in ("k1", "abs", "k2", "k3"):
        penalized, mean = token_rewards(logp, ref, kind, 0.3)
        out["with_kl"][kind] = {"mean": mean, "token_rewards": rows(penalized),
                                "advantages": advantages(penalized, values, logp, squares)}
    return out


def aggregate(losses, mode, scale):
    if mode == "token_mean":
        return masked_mean(losses)
    if mode == "token_sum":
        return (losses * MASK).sum()
    if mode == "seq_mean_token_sum":
        return (losses * MASK).sum(-1).mean()
    if mode == "seq_mean_token_mean":
        return ((losses * MASK).sum(-1) / MASK.sum(-1)).mean()
    return (losses * MASK).sum(-1).mean() / scale


def token_losses(mode, logp, old, adv):
    low, high, dual, tau_pos, tau_neg = 0.2, 0.28, 3.0, 1.0, 1.05
    log_ratio = logp - old
    zeros = torch.zeros_like(logp)
    if mode == "gspo":
        of_sequence = (log_ratio * MASK).sum(-1, keepdim=True) / MASK.sum(-1, keepdim=True)
        exponent = logp - logp.detach() + of_sequence.detach()
        ratio = torch.exp(torch.clamp(exponent, max=10.0))
        first, second = -adv * ratio, -adv * torch.clamp(ratio, 1 - low, 1 + high)
        return torch.maximum(first, second), (second > first).double(), zeros
    ratio = torch.exp(torch.clamp(log_ratio, -20.0, 20.0))
    if mode == "cispo":
        weight = torch.clamp(ratio, 1 - low, 1 + high).detach()
        return -weight * adv * logp, (weight != ratio).double(), zeros
    if mode == "gpg":
        return -adv * logp, zeros, zeros
    if mode == "dro":
        return -adv * logp + 0.5 * DRO_BETA * log_ratio ** 2, zeros, zeros
    if mode == "gmpo":
        d = torch.clamp(log_ratio, -20.0, 20.0)
        bounded = torch.where(adv > 0, torch.clamp(d, max=high), torch.clamp(d, min=-low))
        bounded = torch.where(adv == 0, torch.zeros_like(d), bounded)
        counts = MASK.sum(-1, keepdim=True)
        mean = (bounded * MASK).sum(-1, keepdim=True) / counts
        a = (adv * MASK).sum(-1, keepdim=True) / counts
        outside = ((adv > 0) & (d > high)) | ((adv < 0) & (d < -low))
        return (-a * torch.exp(mean)).expand_as(logp), outside.double(), zeros
    if mode.startswith("dppo"):
        p, q = (torch.exp(torch.clamp(x.detach(), max=0.0)) for x in (logp, old))
        distance = (p - q).abs()
        if mode == "dppo_kl":
            cp, cq = torch.clamp(p, 1e-6, 1 - 1e-6), torch.clamp(q, 1e-6, 1 - 1e-6)
            distance = cq * torch.log(cq / cp) + (1 - cq) * torch.log((1 - cq) / (1 - cp))
        leaves = ((adv > 0) & (p > q) & (distance > high)) | ((adv < 0) & (p < q) & (distance > low))
        loss = -adv * torch.clamp(ratio, max=20.0)
        return torch.where(leaves, torch.zeros_like(loss), loss), leaves.double(), zeros
    if mode.startswith("reinforce"):
        weight = torch.ones_like(logp)
        if mode != "reinforce":
            total = (log_ratio * MASK).sum(-1, keepdim=True).expand_as(logp)
            exponent = log_ratio if "token" in mode else total
            raw = torch.exp(torch.clamp(exponent, -20.0, 20.0)).detach()
            if mode.endswith("masked"):
                weight = torch.where((raw >= 0.5) & (raw <= 1.5), raw, torch.zeros_like(raw))
            else:
                weight = torch.clamp(raw, max=2.0)
            return -weight * adv * logp, (weight != raw).double(), zeros
        return -weight * adv * logp, zeros, zeros
    if mode == "sapo":
        tau = torch.where(adv > 0, torch.tensor(tau_pos), torch.tensor(tau_neg))
        return -torch.sigmoid(tau * (ratio - 1)) * (4.0 / tau) * adv, zeros, zeros
    first, second = -adv * ratio, -adv * torch.clamp(ratio, 1 - low, 1 + high)
    once = torch.maximum(first, second)
    bound = -adv * dual
    lower = ((once > bound) & (adv < 0)).double()
    return torch.where(adv < 0, torch.minimum(once, bound), once), (second > first).double(), lower


def losses():
    old = f32(-randn(NUM, LONGEST).abs() - 0.05)
    logp = f32(old + 0.5 * randn(NUM, LONGEST))
    logp[1, 0], logp[1, 1] = old[1, 0] + 25.0, old[1, 1] - 25.0  # beyond the clamps
    logp[7, 2] = old[7, 2] + 3.0
    logp[3] = old[3]  # ratios of exactly 1
    logp = f32(logp)
    adv = randn(NUM, LONGEST)
    adv[0, 1], adv[1, 0] = 0.0, -0.5
    weights = f32(torch.rand(NUM, LONGEST, generator=generator) * 2)
    weights[2, 0] = 0.0
    out = {"old": rows(old), "logprobs": rows(logp), "advantages": rows(adv), "weights": rows(weights),
           "low": 0.2, "high": 0.28, "dual": 3.0, "tau_pos": 1.0, "tau_neg": 1.05, "scale": 16.0,
           "dro_beta": DRO_BETA,
           "modes": {}}
    for mode in ("vanilla", "gspo", "cispo", "sapo", "gmpo", "gpg", "dppo_tv", "dppo_kl", "dro",
                 "reinforce", "reinforce_token", "reinforce_sequence", "reinforce_token_masked"):
        cases = {}
        for aggregation in ("token_mean", "token_sum", "seq_mean_token_sum", "seq_mean_token_mean",
                            "seq_mean_token_sum_norm"):
            for weighted in (False, True):
                leaf = logp.clone().requires_grad_(True)
                per_token, clipped, lower = token_losses(mode, leaf, old, adv)
                used = per_token * weights if weighted else per_token
                # These are means over sequences, whatever is asked for.
                how = "seq_mean_token_mean" if mode in ("gspo", "sapo", "gmpo") else aggregation
                value = aggregate(used, how, 16.0)
                (grad,) = torch.autograd.grad(value, leaf)
                cases[aggregation + ("_weighted" if weighted else "")] = {
                    "value": value.item(), "grad": rows(grad)}
        out["modes"][mode] = {
            "loss": rows(per_token.detach()), "clip_fraction": masked_mean(clipped).item(),
            "clip_fraction_lower": masked_mean(lower).item(), "cases": cases}
    out["covariance"] = covariances(old, adv, logp)
    return out


def covariances(old, adv, logp):
    """Of log-probs and advantages over all tokens; the tokens that KL-Cov holds, and its loss; and
    the tokens of the highest entropy."""
    cov = (old - masked_mean(old)) * (adv - masked_mean(adv))
    flat = cov[MASK.bool()]
    count = int(0.1 * len(flat))
    chosen = torch.zeros_like(flat)
    chosen[torch.topk(flat, count).indices] = 1.0
    leaf = logp[MASK.bool()].clone().requires_grad_(True)
    d = torch.clamp(leaf - old[MASK.bool()], -20.0, 20.0)
    loss = -adv[MASK.bool()] * torch.exp(d) + 0.3 * chosen * d.abs()
    (grad,) = torch.autograd.grad(loss.mean(), leaf)
    own = torch.Generator().manual_seed(5)
    entropies = f32(torch.rand(len(flat), generator=own) * 2)
    threshold = torch.quantile(entropies, 0.7)
    return {"values": flat.tolist(), "ratio": 0.1, "coefficient": 0.3,
            "kl_selected": chosen.tolist(), "kl_loss": loss.mean().item(), "kl_grad": grad.tolist(),
            "entropies": entropies.tolist(), "share": 0.3, "threshold": threshold.item(),
            "keep": (entropies >= threshold).double().tolist()}


def statistics(weights):
    """What is reported of the weights that are applied."""
    mean, mean_square = masked_mean(weights), masked_mean(weights ** 2)
    of_sequence = (weights * MASK).sum(-1) / MASK.sum(-1)
    return {"mean": mean.item(), "max": weights[MASK.bool()].max().item(),
            "min": weights[MASK.bool()].min().item(),
            "std": math.sqrt(max(0.0, (mean_square - mean ** 2).item())),
            "eff_sample_size": (mean ** 2 / mean_square).item(),
            "seq_mean": of_sequence.mean().item(), "seq_std": of_sequence.std().item(),
            "seq_max_deviation": (of_sequence - 1).abs().max().item()}


def importance_weights(log_ratio):
    cases = []
    total = (log_ratio * MASK).sum(-1, keepdim=True)
    for level in ("token", "sequence"):
        exponent = log_ratio if level == "token" else total.expand_as(log_ratio)
        raw = torch.exp(torch.clamp(exponent, -20.0, 20.0))
        for threshold, low, high in (("2", None, 2.0), ("0.5_1.5", 0.5, 1.5), ("0_5", 0.0, 5.0)):
            if low is None:
                bounded = torch.clamp(raw, max=high)
            else:
                bounded = torch.where((raw >= low) & (raw <= high), raw, torch.zeros_like(raw))
            for normalize in (False, True):
                weights = bounded
                if normalize:
                    of_sequence = (bounded * MASK).sum(-1) / MASK.sum(-1)
                    weights = bounded / (masked_mean(bounded) if level == "token" else of_sequence.mean())
                case = {"level": level, "threshold": threshold, "normalize": normalize,
                        "weights": rows(weights), "metrics": statistics(bounded)}
                if level == "sequence":  # its extremes are the raw ones
                    case["metrics"]["max"] = math.exp(min(20.0, total.max().item()))
                    case["metrics"]["min"] = math.exp(total.min().item())
                if low is not None:
                    outside = ((raw < low) | (raw > high)).double()
                    case["metrics"]["oob_ratio"] = masked_mean(outside).item()
                cases.append(case)
    return cases


def rejection(log_ratio):
    safe = torch.clamp(log_ratio, -20.0, 20.0)
    measures = {"ratio": safe, "k1": -safe, "k2": 0.5 * safe ** 2, "k3": torch.exp(safe) - 1 - safe}

    def keep(name, threshold):
        known = {"token": ("token", "ratio"), "sequence": ("sum", "ratio"), "geometric": ("mean", "ratio")}
        level, measure = known.get(name) or (
            ("token", name[-2:]) if name.startswith("token") else (name.split("_")[1], name[-2:]))
        stat = measures[measure]
        if level == "sum":
            stat = (stat * MASK).sum(-1, keepdim=True).expand_as(stat)
        elif level == "mean":
            stat = ((stat * MASK).sum(-1, keepdim=True) / MASK.sum(-1, keepdim=True)).expand_as(stat)
        elif level == "max":
            stat = stat.masked_fill(MASK == 0, -math.inf).max(-1, keepdim=True).values.expand_as(stat)
        if measure in ("ratio", "k1"):
            low, high = threshold.split("_") if "_" in threshold else (1 / float(threshold), threshold)
            return (stat >= math.log(float(low))) & (stat <= math.log(float(high)))
        return stat <= float(threshold)

    cases = []
    for rules, thresholds in (
            ("token", "1.5"), ("sequence", "0.25_4"), ("geometric", "0.8_1.25"), ("token_k1", "0.5_1.4"),
            ("token_k2", "0.1"), ("token_k3", "0.1"), ("seq_sum_k1", "0.2_3"), ("seq_sum_k2", "1"),
            ("seq_sum_k3", "1"), ("seq_mean_k1", "1.2"), ("seq_mean_k2", "0.1"), ("seq_mean_k3", "0.1"),
            ("seq_max_k2", "0.6"), ("seq_max_k3", "0.6"), ("token_k1,seq_mean_k3", "0.5_2,0.12"),
            ("token_k2,seq_max_k2", "0.5")):
        bounds = thresholds.split(",")
        kept = torch.ones(NUM, LONGEST, dtype=torch.bool)
        for i, rule in enumerate(rules.split(",")):
            kept &= keep(rule, bounds[0] if len(bounds) == 1 else bounds[i])
        refused = (~kept).double() * MASK
        cases.append({
            "rules": rules, "thresholds": thresholds, "keep": [int(k) for k in kept[MASK.bool()]],
            "masked_fraction": masked_mean(refused).item(),
            "seq_masked_fraction": (refused.sum(-1) > 0).double().mean().item()})
    return cases


def off_policy(old, rollout):
    log_ratio = old - rollout
    mean_old = (old * MASK).sum(-1) / MASK.sum(-1)
    mean_rollout = (rollout * MASK).sum(-1) / MASK.sum(-1)
    difference = mean_rollout - mean_old
    return {"kl": masked_mean(-log_ratio).item(),
            "k3_kl": masked_mean(torch.exp(log_ratio) - log_ratio - 1).item(),
            "training_ppl": torch.exp(-mean_old).mean().item(),
            "training_log_ppl": (-mean_old).mean().item(),
            "rollout_ppl": torch.exp(-mean_rollout).mean().item(),
            "rollout_log_ppl": (-mean_rollout).mean().item(),
            "log_ppl_diff": difference.mean().item(), "log_ppl_abs_diff": difference.abs().mean().item(),
            "log_ppl_diff_max": difference.max().item(), "log_ppl_diff_min": difference.min().item(),
            "ppl_ratio": torch.exp(difference).mean().item(),
            "chi2_token": masked_mean(torch.exp(2 * log_ratio)).item() - 1,
            "chi2_seq": torch.exp(2 * (log_ratio * MASK).sum(-1)).mean().item() - 1}


def correction():
    rollout = f32(-randn(NUM, LONGEST).abs() - 0.05)
    old = f32(rollout + 0.35 * randn(NUM, LONGEST))
    old[7, 3] = rollout[7, 3] + 4.0
    old[5] = rollout[5]  # a sequence without any mismatch
    old = f32(old)
    return {"old": rows(old), "rollout": rows(rollout), "weights": importance_weights(old - rollout),
            "rejection": rejection(old - rollout), "off_policy": off_policy(old, rollout)}


def rounded(x):
    """Ten digits: far below every tolerance, a file half as long."""
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    if isinstance(x, list):
        return [rounded(v) for v in x]
    return float(f"{x:.12g}") if isinstance(x, float) else x


def write(x, indent=0):
    """Objects over several lines, lists on one."""
    pad = " " * indent
    if isinstance(x, dict):
        inner = ",\n".join(f'{pad} "{k}": {write(v, indent + 1)}' for k, v in x.items())
        return "{\n" + inner + "\n" + pad + "}"
    if isinstance(x, list) and x and isinstance(x[0], dict):
        return "[" + ",\n".join(f"{pad} {write(v, indent + 1)}" for v in x) + "]"
    return json.dumps(x)


sys.stdout.write(write(rounded({
    "lengths": LENGTHS, "groups": GROUPS, "rewards": REWARDS, "baselines": BASELINES,
    "reward_parts": [{"name": n, "weight": w, "values": v} for n, w, v in PARTS],
    "advantages": rewards_and_advantages(), "losses": losses(), "correction": correction()})) + "\n")
