"""Writes tests/services/trainer/algorithm/preference_golden.json: every preference loss of dpo.loss_type
with its gradients, from the papers' formulas, in float64.

usage: python tests/parity/preference_golden.py > tests/services/trainer/algorithm/preference_golden.json
"""
import json
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(4711)


def randn(*shape):
    return torch.randn(*shape, generator=generator).double()


def loss_of(name, difference, beta, e):
    """difference: (chosen - rejected) - (ref_chosen - ref_rejected)."""
    if name in ("sigmoid", "sigmoid_norm"):
        return -(1 - e) * F.logsigmoid(beta * difference) - e * F.logsigmoid(-beta * difference)
    if name == "robust":
        # The average over both labels, weighted so that swapped pairs cancel.
        right, swapped = -F.logsigmoid(beta * difference), -F.logsigmoid(-beta * difference)
        return ((1 - e) * right - e * swapped) / (1 - 2 * e)
    if name == "ipo":
        return (difference - 1 / (2 * beta)) ** 2
    return torch.clamp(1 - beta * difference, min=0)  # hinge


cases = []
for name in ("sigmoid", "sigmoid_norm", "ipo", "hinge", "robust"):
    for beta, smoothing in ((0.1, 0.0), (0.3, 0.2)):
        chosen, rejected, ref_chosen, ref_rejected = (-20 + 6 * randn(9) for _ in range(4))
        chosen.requires_grad_(True)
        rejected.requires_grad_(True)
        loss = loss_of(name, (chosen - rejected) - (ref_chosen - ref_rejected), beta, smoothing)
        grads = torch.autograd.grad(loss.sum(), (chosen, rejected))
        cases.append({
            "name": name, "beta": beta, "label_smoothing": smoothing, "chosen": chosen.tolist(),
            "rejected": rejected.tolist(), "ref_chosen": ref_chosen.tolist(),
            "ref_rejected": ref_rejected.tolist(), "loss": loss.tolist(),
            "chosen_grad": grads[0].tolist(), "rejected_grad": grads[1].tolist()})
sys.stdout.write('{"preference_loss": [' + ",\n".join(json.dumps(case) for case in cases) + "]}\n")
