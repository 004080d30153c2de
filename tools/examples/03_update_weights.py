"""One weight update: 03_update_weights.py TRAINER ROLLOUT... Makes the trainer's weights live on the
rollouts, as one transaction, and prints bytes, digest and time per phase.

Needs the package tandem-client: `tools/wheel`, then `pip install build/wheel/tandem_client-*.whl`.
"""

import sys

from tandem.calls import publish
from tandem.channels import open_channel
from tandem.trainer.v1.trainer_service_pb2_grpc import TrainerServiceStub


def main():
    trainer = TrainerServiceStub(open_channel(sys.argv[1]))
    update = publish(trainer, sys.argv[2:])
    if not update.model_digest:
        return print(f"version {update.policy_version} was live everywhere already")
    print(f"version {update.policy_version} is live on {len(update.replicas)} rollouts: "
          f"{update.size_bytes} bytes in {update.seconds:.3f} s, digest {update.model_digest}")
    for phase in update.phases:
        print(f"  {phase.phase}: {phase.exposed:.4f} s")


if __name__ == "__main__":
    main()
