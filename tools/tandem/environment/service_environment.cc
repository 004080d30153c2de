#include "tools/tandem/environment/service_environment.h"

#include <string>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/io/json_text.h"
#include "common/rewards/reward_range.h"
#include "common/status/status_macros.h"

namespace tandem::environment {
namespace {

constexpr int kMaxAttempts = 3;

std::string DrawId() {
  absl::BitGen random;
  return absl::StrFormat("%016x%016x", absl::Uniform<uint64_t>(random),
                         absl::Uniform<uint64_t>(random));
}

v1::Step ToProto(const SampledTurn& turn) {
  v1::Step out;
  out.set_turn(turn.number);
  out.mutable_token_ids()->Add(turn.token_ids.begin(), turn.token_ids.end());
  out.set_text(turn.text);
  out.set_finish_reason(turn.is_cut ? common::v1::FINISH_REASON_LENGTH
                                    : common::v1::FINISH_REASON_STOP);
  for (const ToolCall& call : turn.tool_calls) {
    v1::ToolCall& added = *out.add_tool_calls();
    added.set_name(call.name);
    added.set_arguments_json(io::JsonText(nlohmann::json(call.arguments)));
  }
  return out;
}

// A message's images, then its text.
nlohmann::ordered_json PartsOf(const v1::Message& message) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (int i = 0; i < message.images_size(); ++i) parts.push_back({{"type", "image"}});
  if (!message.content().empty()) {
    parts.push_back({{"type", "text"}, {"text", message.content()}});
  }
  return parts;
}

absl::StatusOr<Reply> FromProto(const v1::Observation& observation) {
  Reply out;
  if (observation.messages_size() > 0 && observation.token_ids_size() > 0) {
    return absl::InternalError("expected messages or token_ids in an observation, found both");
  }
  if (!rewards::IsReward(observation.reward())) {
    return absl::InternalError(
        absl::StrCat("observation.reward: ", rewards::ExpectedReward(observation.reward())));
  }
  if (observation.messages_size() > 0) out.messages = nlohmann::ordered_json::array();
  for (const v1::Message& message : observation.messages()) {
    nlohmann::ordered_json added = {{"role", message.role().empty() ? "tool" : message.role()}};
    if (!message.name().empty()) added["name"] = message.name();
    if (message.images().empty()) {
      added["content"] = message.content();
    } else {
      added["content"] = PartsOf(message);
    }
    for (const common::v1::Image& image : message.images()) {
      out.images.push_back(std::make_shared<const std::string>(image.data()));
    }
    out.messages.push_back(std::move(added));
  }
  if (observation.images_size() > 0 && observation.token_ids_size() == 0) {
    return absl::InternalError(
        "expected images beside token_ids, or in messages, found some beside no token_ids");
  }
  for (const common::v1::Image& image : observation.images()) {
    out.images.push_back(std::make_shared<const std::string>(image.data()));
  }
  out.token_ids.assign(observation.token_ids().begin(), observation.token_ids().end());
  out.reward = observation.reward();
  out.done = observation.done();
  out.num_malformed_calls = observation.num_malformed_tool_calls();
  return out;
}

// Its callbacks may use it: the caller's `done` keeps it alive until it is called.
class ServiceEnvironment : public Environment {
 public:
  ServiceEnvironment(std::shared_ptr<EnvironmentClient> client, v1::Reset reset,
                     absl::Duration timeout)
      : client_(std::move(client)), timeout_(timeout), id_(DrawId()), reset_(std::move(reset)) {}

  ~ServiceEnvironment() override {
    if (generation_ == 0) return;
    v1::PlayRequest close = Request();
    close.mutable_close();
    client_->Send(std::move(close), absl::InfiniteFuture(), nullptr);
  }

  std::optional<absl::StatusOr<Reply>> Step(const SampledTurn& turn, Done done) override {
    step_ = ToProto(turn);
    done_ = std::move(done);
    deadline_ = absl::Now() + timeout_;
    num_attempts_ = 0;
    Attempt();
    return std::nullopt;
  }

 private:
  v1::PlayRequest Request() const {
    v1::PlayRequest out;
    out.set_episode_id(id_);
    return out;
  }

  void Attempt() {
    ++num_attempts_;
    const int64_t generation = client_->generation();
    if (generation == generation_) {
      SendStep();
      return;
    }
    generation_ = generation;
    v1::PlayRequest request = Request();
    *request.mutable_reset() = reset_;
    client_->Send(std::move(request), deadline_, [this](absl::StatusOr<v1::PlayResponse> answer) {
      if (!answer.ok() || !answer->has_reset_done()) {
        OnFailure(std::move(answer));
      } else {
        SendStep();
      }
    });
  }

  void SendStep() {
    v1::PlayRequest request = Request();
    *request.mutable_step() = step_;
    client_->Send(std::move(request), deadline_, [this](absl::StatusOr<v1::PlayResponse> answer) {
      if (!answer.ok() || !answer->has_observation()) {
        OnFailure(std::move(answer));
        return;
      }
      *reset_.add_past() = std::move(step_);
      absl::StatusOr<Reply> reply = FromProto(answer->observation());
      if (reply.ok()) reply->num_tool_calls = reset_.past().rbegin()->tool_calls_size();
      Finish(std::move(reply));
    });
  }

  void OnFailure(absl::StatusOr<v1::PlayResponse> answer) {
    absl::Status error = answer.status();
    bool retries = absl::IsUnavailable(error);
    bool may_play_again = retries || absl::IsDeadlineExceeded(error);
    if (answer.ok() && answer->has_error()) {
      const v1::EpisodeErrorCode code = answer->error().code();
      error =
          absl::AbortedError(absl::StrCat("the environment says ", v1::EpisodeErrorCode_Name(code),
                                          ": ", answer->error().message()));
      if (code == v1::EPISODE_ERROR_CODE_FATAL) {
        Finish(absl::FailedPreconditionError(error.message()));
        return;
      }
      retries = code == v1::EPISODE_ERROR_CODE_RETRY;
      may_play_again = retries || code == v1::EPISODE_ERROR_CODE_RESTART;
      if (!may_play_again) {
        Finish(DropEpisode(error));
        return;
      }
    } else if (answer.ok()) {
      Finish(absl::InternalError(
          "expected reset_done to a Reset, and an observation to a Step, or an error; the "
          "environment sent something else"));
      return;
    }
    if (retries && num_attempts_ < kMaxAttempts && absl::Now() < deadline_) {
      generation_ = 0;  // begins again, with its past
      Attempt();
      return;
    }
    Finish(may_play_again ? MayPlayAgain(error) : error);
  }

  // `this` may be gone afterwards.
  void Finish(absl::StatusOr<Reply> reply) { std::exchange(done_, nullptr)(std::move(reply)); }

  const std::shared_ptr<EnvironmentClient> client_;
  const absl::Duration timeout_;
  const std::string id_;
  v1::Reset reset_;         // with the past turns
  int64_t generation_ = 0;  // of the client's stream that knows the episode; 0: none
  v1::Step step_;           // the turn under way
  Done done_;
  absl::Time deadline_;
  int num_attempts_ = 0;
};

}  // namespace

std::unique_ptr<Environment> MakeServiceEnvironment(std::shared_ptr<EnvironmentClient> client,
                                                    v1::Reset reset, absl::Duration timeout) {
  return std::make_unique<ServiceEnvironment>(std::move(client), std::move(reset), timeout);
}

}  // namespace tandem::environment
