"""One weight update: 03_update_weights.py TRAINER ROLLOUT... Makes the trainer's weights live on the
rollouts, as one transaction, and prints bytes, digest and time per phase.

Needs the package tandem-client: `tools/wheel`, then `pip install build/wheel/tandem_client-*.whl`.
"""

import sys
import uuid

from tandem.channels import open_channel
from tandem.trainer.v1 import trainer_service_pb2 as pb
from tandem.trainer.v1.trainer_service_pb2_grpc import TrainerServiceStub


def publish(trainer, rollouts):
    """The trainer connects to the rollouts: pass their addresses as the trainer reaches them."""
    info = trainer.GetModelInfo(pb.GetModelInfoRequest(), timeout=60)
    return trainer.PublishWeights(pb.PublishWeightsRequest(
        request_id=str(uuid.uuid4()), incarnation=info.incarnation, policy_version=info.policy_version,
        replicas=[pb.RolloutReplica(replica_id=address, rank_addresses=[address])
                  for address in rollouts]), timeout=300)


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
