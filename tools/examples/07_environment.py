"""A custom environment: 07_environment.py HOST:PORT. Serves until SIGTERM; a run uses it with
environment.name=service, environment.endpoint=HOST:PORT and reward.name=environment.

The policy guesses a number from 0 to 9 and hears "higher" or "lower". Write a class like Guessing for a
game of your own; EnvironmentServer is the same for all.

Needs the package tandem-client: `tools/wheel`, then `pip install build/wheel/tandem_client-*.whl`.
"""

import concurrent.futures
import json
import queue
import random
import re
import signal
import sys
import threading

import grpc

from tandem.channels import add_port
from tandem.environment.v1 import environment_service_pb2 as pb
from tandem.environment.v1.environment_service_pb2_grpc import (
    EnvironmentServiceServicer, add_EnvironmentServiceServicer_to_server)


class Guessing:
    """One episode. It may be slow: others go on meanwhile."""

    def __init__(self, row, seed):
        # The row's own number, or one that the seed decides: a repeat must play the same game.
        self.number = int(row.get("number", random.Random(seed).randrange(10)))

    def step(self, step):
        """The observation of a turn: step.text, step.token_ids, step.tool_calls."""
        guess = re.search(r"\d", step.text)
        if guess is None:
            return pb.Observation(messages=[pb.Message(role="user", content="Say a digit.")],
                                  reward=-0.1)
        if int(guess[0]) == self.number:
            return pb.Observation(reward=1, done=True)
        hint = "higher" if int(guess[0]) < self.number else "lower"
        return pb.Observation(messages=[pb.Message(role="user", content=hint)])


class EnvironmentServer(EnvironmentServiceServicer):
    """Plays many episodes over each stream: a thread reads actions, a pool plays, gRPC writes."""

    def __init__(self, make, workers=16):
        self.make = make
        self.pool = concurrent.futures.ThreadPoolExecutor(max_workers=workers)

    def Play(self, requests, context):
        answers = queue.Queue()
        context.add_callback(lambda: answers.put(None))
        threading.Thread(target=self.read, args=(requests, answers), daemon=True).start()
        yield from iter(answers.get, None)

    def read(self, requests, answers):
        episodes = {}
        try:
            for request in requests:
                action = request.WhichOneof("action")
                if action == "ping":
                    answers.put(pb.PlayResponse(action_id=request.action_id))
                elif action == "close":
                    episodes.pop(request.episode_id, None)
                else:
                    # The driver sends an episode's next action after the answer to this one.
                    self.pool.submit(self.act, request, episodes, answers)
        except grpc.RpcError:
            pass  # the stream broke; the driver opens another one
        finally:
            answers.put(None)

    def act(self, request, episodes, answers):
        response = pb.PlayResponse(episode_id=request.episode_id, action_id=request.action_id)
        try:
            if request.WhichOneof("action") == "reset":
                episode = self.make(json.loads(request.reset.row_json or "{}"), request.reset.seed)
                for past in request.reset.past:  # after a broken stream
                    episode.step(past)
                episodes[request.episode_id] = episode
                response.reset_done.SetInParent()
            elif request.episode_id in episodes:
                response.observation.CopyFrom(episodes[request.episode_id].step(request.step))
            else:
                response.error.code = pb.EPISODE_ERROR_CODE_RETRY
                response.error.message = "no such episode: this server restarted"
        except Exception as error:  # of this episode; its group is dropped and the run goes on
            response.error.code = pb.EPISODE_ERROR_CODE_DROP
            response.error.message = repr(error)
        answers.put(response)


def main():
    # Each stream keeps one of gRPC's threads.
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=8))
    add_EnvironmentServiceServicer_to_server(EnvironmentServer(Guessing), server)
    port = add_port(server, sys.argv[1], "reward")
    server.start()
    print(f"{sys.argv[1].rsplit(':', 1)[0]}:{port}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: server.stop(grace=5))
    server.wait_for_termination()


if __name__ == "__main__":
    main()
