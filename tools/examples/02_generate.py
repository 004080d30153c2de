"""One generation: 02_generate.py ROLLOUT PROMPT [SAMPLES]. Prints each completion with its log-prob and
the version that sampled it.

Needs the package tandem-client: `tools/wheel`, then `pip install build/wheel/tandem_client-*.whl`.
"""

import sys

from tandem.channels import open_channel
from tandem.rollout.v1 import rollout_service_pb2 as pb
from tandem.rollout.v1.rollout_service_pb2_grpc import RolloutServiceStub
from tandem.rollout.v1.sampling_pb2 import SamplingParams


def main():
    endpoint, prompt = sys.argv[1:3]
    samples = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    rollout = RolloutServiceStub(open_channel(endpoint))
    request = pb.GenerateRequest(text=prompt, return_text=True,
                                 sampling=SamplingParams(n=samples, max_tokens=16, seed=1))
    # One message per finished sample; stream=True streams tokens as they are sampled.
    for answer in rollout.Generate(request, timeout=60):
        print(f"sample {answer.index}: {answer.text!r} tokens={list(answer.token_ids)} "
              f"logprob={sum(answer.logprobs):.4f} "
              f"policy_version={answer.version_spans[0].policy_version}")


if __name__ == "__main__":
    main()
