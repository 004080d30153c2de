"""A custom reward: 05_reward_service.py HOST:PORT. Serves until SIGTERM; a run uses it with
reward.name=service and reward.endpoint=HOST:PORT.

Needs the package tandem-client: `tools/wheel`, then `pip install build/wheel/tandem_client-*.whl`.
"""

import concurrent.futures
import json
import signal
import sys

import grpc

from tandem.channels import add_port
from tandem.reward.v1 import reward_service_pb2 as pb
from tandem.reward.v1.reward_service_pb2_grpc import (RewardServiceServicer,
                                                      add_RewardServiceServicer_to_server)


class Rewards(RewardServiceServicer):
    """Half a point for a completion that is a number, a full point for the row's answer."""

    def ComputeRewards(self, request, context):
        return pb.ComputeRewardsResponse(rewards=[self.judge(c) for c in request.completions])

    def judge(self, completion):
        text = completion.completion.strip()
        row = json.loads(completion.row_json or "{}")  # the whole data row of the prompt
        if not text.isdigit():
            return 0.0
        return 1.0 if text == row.get("answer", completion.answer) else 0.5


def main():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=8))
    add_RewardServiceServicer_to_server(Rewards(), server)
    port = add_port(server, sys.argv[1], "reward")
    server.start()
    print(f"{sys.argv[1].rsplit(':', 1)[0]}:{port}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: server.stop(grace=5))
    server.wait_for_termination()


if __name__ == "__main__":
    main()
