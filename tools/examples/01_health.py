"""Checks whether each process serves: 01_health.py HOST:PORT[=NAME]...

NAME is a health name: tandem.trainer.v1.TrainerService, tandem.rollout.v1.WeightService (ready to
receive weights), tandem.rollout.v1.RolloutService (has a version); default: the process itself. Exits 1
if one does not serve.

Needs the package tandem-client: `tools/wheel`, then `pip install build/wheel/tandem_client-*.whl`.
"""

import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.channels import open_channel


def main():
    failed = 0
    for question in sys.argv[1:]:
        endpoint, _, name = question.partition("=")
        try:
            answer = health_pb2_grpc.HealthStub(open_channel(endpoint)).Check(
                health_pb2.HealthCheckRequest(service=name), timeout=10)
            word = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        except grpc.RpcError as error:
            word = error.code().name
        failed += word != "SERVING"
        print(endpoint, name or "the process", word)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
