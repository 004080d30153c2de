"""One training step: 04_train_step.py TRAINER. Streams a group of four samples of one prompt with their
rewards, as token ids, and prints the step's metrics. It has no lease, so the trainer accepts it only
while no driver holds one (AcquireLease).

Needs the package tandem-client: `tools/wheel`, then `pip install build/wheel/tandem_client-*.whl`.
"""

import sys
import uuid

from tandem.channels import open_channel
from tandem.common.v1 import sample_pb2 as common
from tandem.trainer.v1 import trainer_service_pb2 as pb
from tandem.trainer.v1.trainer_service_pb2_grpc import TrainerServiceStub


def sample(group, index, prompt_ids, completion_ids, reward, logprobs=(), finish_reason=None):
    """One completion as a Sample. Without log-probs the trainer treats it as on-policy."""
    return common.Sample(
        sample_id=f"{group}/{index}", group_id=group, index=index, reward=reward, temperature=1,
        finish_reason=finish_reason or common.FINISH_REASON_STOP,
        segments=[common.Segment(kind=common.SEGMENT_KIND_PROMPT, token_ids=prompt_ids),
                  common.Segment(kind=common.SEGMENT_KIND_SAMPLED, token_ids=completion_ids,
                                 logprobs=logprobs)])


def train_step(trainer, samples):
    """The next step: the trainer applies step k after k-1, and a repeat returns the stored result."""
    info = trainer.GetModelInfo(pb.GetModelInfoRequest(), timeout=60)
    header = pb.TrainStepHeader(request_id=str(uuid.uuid4()), incarnation=info.incarnation,
                                step=info.step + 1, objective=pb.OBJECTIVE_POLICY_GRADIENT,
                                num_samples=len(samples))
    messages = [pb.TrainStepRequest(header=header), *(pb.TrainStepRequest(sample=s) for s in samples)]
    return trainer.TrainStep(iter(messages), timeout=600)


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
