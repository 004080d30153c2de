"""Golden log-probs for tests/services/rollout/sampler: what PyTorch's log_softmax says of rows of logits.

usage: sampling_golden.py FILE        (needs torch)

FILE holds {"cases": [{"seed", "vocab", "spread", "temperature", "ids", "raw", "processed"}...]}. A case's
logits are spread * sin(0.7 * i * i + seed) + 0.1 * cos(i), i < vocab, computed in float64 and rounded to
float32; raw[j] is log_softmax(logits)[ids[j]] and processed[j] log_softmax(logits / temperature)[ids[j]],
in float64.
"""
import json
import sys

import torch


def logits_of(seed, vocab, spread):
    i = torch.arange(vocab, dtype=torch.float64)
    # i * i stays exact; the remainder keeps the sine's argument small.
    angle = torch.remainder(0.7 * i * i + seed, 2 * torch.pi)
    return (spread * torch.sin(angle) + 0.1 * torch.cos(i)).float()


def main(out):
    cases = []
    for seed, vocab, spread, temperature in [
            (1, 5, 1.0, 1.0), (2, 131, 3.0, 0.7), (3, 1000, 8.0, 0.25), (4, 32000, 4.0, 1.0),
            (5, 32000, 12.0, 1.7), (6, 151936, 2.0, 0.6), (7, 151936, 30.0, 2.5)]:
        logits = logits_of(seed, vocab, spread).double()
        ids = sorted({0, vocab - 1, vocab // 2, int(logits.argmax()), int(logits.argmin()), vocab // 3})
        raw = torch.log_softmax(logits, -1)
        processed = torch.log_softmax(logits / temperature, -1)
        cases.append({"seed": seed, "vocab": vocab, "spread": spread, "temperature": temperature,
                      "ids": ids, "raw": [float(raw[i]) for i in ids],
                      "processed": [float(processed[i]) for i in ids]})
    with open(out, "w") as file:
        json.dump({"cases": cases}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
