"""A custom driver: 06_driver.py TRAINER ROLLOUT STEPS PROMPT..., each prompt as token ids, "7,14,5".
Generates groups, scores them with a function, trains, publishes; prints each step's mean reward.

Needs the package tandem-client: `tools/wheel`, then `pip install build/wheel/tandem_client-*.whl`.
"""

import sys
import uuid

from tandem.calls import publish, sample, train_step
from tandem.channels import open_channel
from tandem.rollout.v1 import rollout_service_pb2 as rollout_pb
from tandem.rollout.v1.rollout_service_pb2_grpc import RolloutServiceStub
from tandem.rollout.v1.sampling_pb2 import SamplingParams
from tandem.trainer.v1.trainer_service_pb2_grpc import TrainerServiceStub

SAMPLES = 16


def reward(text):
    """Rewards the character 7."""
    return text.count("7") / max(1, len(text))


def generate(rollout, prompt, prompt_ids, seed):
    """The samples of a group with rewards. Training uses the sampled ids and log-probs, never text."""
    request = rollout_pb.GenerateRequest(
        request_id=str(uuid.uuid4()), token_ids=rollout_pb.TokenIds(ids=prompt_ids), return_text=True,
        sampling=SamplingParams(n=SAMPLES, max_tokens=8, seed=seed, processed_logprobs=True))
    return [sample(f"{prompt}/{seed}", answer.index, prompt_ids, answer.token_ids,
                   reward(answer.text), answer.processed_logprobs, answer.finish_reason)
            for answer in rollout.Generate(request, timeout=120)]


def main():
    trainer = TrainerServiceStub(open_channel(sys.argv[1]))
    rollout = RolloutServiceStub(open_channel(sys.argv[2]))
    # Token ids, comma-separated; a client with a tokenizer would encode text.
    prompts = {prompt: [int(i) for i in prompt.split(",")] for prompt in sys.argv[4:]}
    publish(trainer, [sys.argv[2]])
    for step in range(1, int(sys.argv[3]) + 1):
        samples = [completion for prompt, ids in prompts.items()
                   for completion in generate(rollout, prompt, ids, seed=step)]
        trained = train_step(trainer, samples)
        publish(trainer, [sys.argv[2]])
        mean = sum(completion.reward for completion in samples) / len(samples)
        print(f"step {step} version {trained.policy_version} reward {mean:.4f} "
              f"grad_norm {trained.metrics['actor/grad_norm']:.4f}", flush=True)


if __name__ == "__main__":
    main()
