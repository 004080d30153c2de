"""Writes tests/services/trainer/optim/muon_golden.json: matrices after steps of torch.optim.Muon, with
its Newton-Schulz iteration in float64 in place of bfloat16.

usage: python tests/parity/muon_golden.py > tests/services/trainer/optim/muon_golden.json
"""
import json
import sys

import torch
from torch.optim import Muon, _muon

STEPS, LR = 3, 0.02


def newton_schulz(x, coefficients, steps, eps):
    a, b, c = coefficients
    x = x.double()
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


def noise(rows, columns, phase):
    """The tests compute the same: full-rank matrices without a generator."""
    i = torch.arange(rows * columns, dtype=torch.float64)
    wave = torch.sin(i * 12.9898 + phase * 78.233) * 437.5453
    return (wave - torch.floor(wave) - 0.5).float().double().reshape(rows, columns)


_muon._zeropower_via_newtonschulz = newton_schulz
cases = []
for name, rows, columns in (("k_proj", 16, 20), ("gate_proj", 28, 20)):  # wide and tall
    for nesterov in (True, False):
        for scale in ("original", "match_rms_adamw"):
            if not nesterov and scale == "original":
                continue
            matrix = torch.nn.Parameter(noise(rows, columns, 1.0))
            optimizer = Muon([matrix], lr=LR, weight_decay=0.1, momentum=0.95, nesterov=nesterov,
                             ns_steps=5, adjust_lr_fn=scale)
            for step in range(STEPS):
                matrix.grad = noise(rows, columns, 2.0 + step)
                optimizer.step()
            cases.append({"tensor": name, "nesterov": nesterov, "scale": scale,
                          "values": [round(v, 7) for v in matrix.detach().flatten().tolist()]})
lines = ",\n".join("  " + json.dumps(case) for case in cases)
sys.stdout.write('{"steps": %d, "lr": %s, "cases": [\n%s\n]}\n' % (STEPS, LR, lines))
