"""The calls of a driver: a weight update, a sample, a training step.

    from tandem.calls import publish, sample, train_step

    trainer = TrainerServiceStub(open_channel("127.0.0.1:5001"))
    publish(trainer, ["127.0.0.1:5002"])
    train_step(trainer, [sample("g", 0, prompt_ids, [5, 0], 1.0), sample("g", 1, prompt_ids, [7, 0], 0.0)])
"""

import uuid

from tandem.common.v1 import sample_pb2 as common
from tandem.trainer.v1 import trainer_service_pb2 as pb


def publish(trainer, rollouts):
    """Makes the trainer's weights live on the rollouts, as one transaction. The trainer connects to
    them: pass their addresses as the trainer reaches them."""
    info = trainer.GetModelInfo(pb.GetModelInfoRequest(), timeout=60)
    return trainer.PublishWeights(pb.PublishWeightsRequest(
        request_id=str(uuid.uuid4()), incarnation=info.incarnation, policy_version=info.policy_version,
        replicas=[pb.RolloutReplica(replica_id=address, rank_addresses=[address])
                  for address in rollouts]), timeout=300)


def sample(group, index, prompt_ids, completion_ids, reward, logprobs=(), finish_reason=None):
    """One completion as a Sample. Without log-probs the trainer treats it as on-policy."""
    return common.Sample(
        sample_id=f"{group}/{index}", group_id=group, index=index, reward=reward, temperature=1,
        finish_reason=finish_reason or common.FINISH_REASON_STOP,
        segments=[common.Segment(kind=common.SEGMENT_KIND_PROMPT, token_ids=prompt_ids),
                  common.Segment(kind=common.SEGMENT_KIND_SAMPLED, token_ids=completion_ids,
                                 logprobs=logprobs)])


def train_step(trainer, samples):
    """The next step: the trainer applies step k after k-1, and a repeat returns the stored result. It
    has no lease, so the trainer accepts it only while no driver holds one (AcquireLease)."""
    info = trainer.GetModelInfo(pb.GetModelInfoRequest(), timeout=60)
    header = pb.TrainStepHeader(request_id=str(uuid.uuid4()), incarnation=info.incarnation,
                                step=info.step + 1, objective=pb.OBJECTIVE_POLICY_GRADIENT,
                                num_samples=len(samples))
    messages = [pb.TrainStepRequest(header=header), *(pb.TrainStepRequest(sample=s) for s in samples)]
    return trainer.TrainStep(iter(messages), timeout=600)
