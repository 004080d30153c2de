"""One training step: 04_train_step.py TRAINER. Streams a group of four samples of one prompt with their
rewards, as token ids, and prints the step's metrics. It has no lease, so the trainer accepts it only
while no driver holds one (AcquireLease).

Needs the package tandem-client: `tools/wheel`, then `pip install build/wheel/tandem_client-*.whl`.
"""

import sys

from tandem.calls import sample, train_step
from tandem.channels import open_channel
from tandem.trainer.v1.trainer_service_pb2_grpc import TrainerServiceStub


def main():
    trainer = TrainerServiceStub(open_channel(sys.argv[1]))
    completions = [([5, 6, 0], 1.0), ([7, 8, 0], 0.0), ([9, 3, 0], 0.0), ([5, 5, 0], 0.5)]
    step = train_step(trainer, [sample("g", i, [3, 12, 4, 13], ids, reward)
                                for i, (ids, reward) in enumerate(completions)])
    print(f"step {step.step} gave version {step.policy_version}")
    for name in ("actor/pg_loss", "actor/grad_norm", "critic/rewards/mean"):
        print(f"  {name} {step.metrics[name]:.6f}")


if __name__ == "__main__":
    main()
