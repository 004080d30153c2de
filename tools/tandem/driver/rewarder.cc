#include "tools/tandem/driver/rewarder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rewards/reward_range.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "tandem/reward/v1/reward_service.grpc.pb.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::driver {
namespace {

constexpr char kService[] = "service";  // reward.name: a RewardService

std::string RowName(const Prompt& prompt) {
  return absl::StrCat("row ", prompt.row + 1, " of the data set");
}

class BuiltInRewarder : public Rewarder {
 public:
  explicit BuiltInRewarder(reward::RewardFn fn) : fn_(std::move(fn)) {}

  absl::Status Judge(std::vector<Group>& groups) override {
    for (Group& group : groups) {
      for (Completion* completion : group.judged()) {
        const absl::StatusOr<double> reward = fn_(
            {completion->text, group.prompt.answer, FinishReasonName(completion->finish_reason)});
        if (!reward.ok()) return StatusBuilder(reward.status()) << RowName(group.prompt);
        if (!rewards::IsReward(*reward)) {
          return absl::InvalidArgumentError(absl::StrCat(
              RowName(group.prompt), ": its reward: ", rewards::ExpectedReward(*reward)));
        }
        completion->score = completion->reward = *reward;
      }
    }
    return absl::OkStatus();
  }

 private:
  const reward::RewardFn fn_;
};

// Completions go in calls of at most kBatch, which stay below the limit of a message.
class ServiceRewarder : public Rewarder {
 public:
  static constexpr int kBatch = 256;

  ServiceRewarder(const std::string& endpoint, absl::Duration timeout)
      : endpoint_(endpoint),
        timeout_(timeout),
        stub_(reward::v1::RewardService::NewStub(rpc::MakeChannel(endpoint))) {}

  absl::Status Judge(std::vector<Group>& groups) override {
    reward::v1::ComputeRewardsRequest request;
    std::vector<Pending> pending;
    for (Group& group : groups) {
      for (Completion* completion : group.judged()) {
        auto* added = request.add_completions();
        added->set_prompt(group.prompt.text);
        added->set_completion(completion->text);
        added->set_answer(group.prompt.answer);
        added->set_finish_reason(completion->finish_reason);
        added->mutable_prompt_token_ids()->Add(group.prompt.token_ids.begin(),
                                               group.prompt.token_ids.end());
        added->mutable_completion_token_ids()->Add(completion->token_ids.begin(),
                                                   completion->token_ids.end());
        added->set_row_json(group.prompt.fields.dump());
        pending.push_back({&group.prompt, completion});
        if (pending.size() == kBatch) RETURN_IF_ERROR(Flush(request, pending));
      }
    }
    return pending.empty() ? absl::OkStatus() : Flush(request, pending);
  }

 private:
  struct Pending {
    const Prompt* prompt;
    Completion* completion;
  };

  absl::Status Flush(reward::v1::ComputeRewardsRequest& request, std::vector<Pending>& pending) {
    auto context = rpc::MakeContext(timeout_);
    reward::v1::ComputeRewardsResponse response;
    RETURN_IF_ERROR(rpc::FromGrpcStatus(stub_->ComputeRewards(context.get(), request, &response)))
        << "reward service at " << endpoint_ << ", asked about " << RowName(*pending.front().prompt)
        << " and those after it";
    if (response.rewards_size() != static_cast<int>(pending.size())) {
      return absl::InternalError(absl::StrCat("reward service at ", endpoint_, " answered ",
                                              response.rewards_size(), " rewards for ",
                                              pending.size(), " completions"));
    }
    for (size_t i = 0; i < pending.size(); ++i) {
      if (!rewards::IsReward(response.rewards(i))) {
        return absl::InternalError(absl::StrCat("reward service at ", endpoint_, ", rewards[", i,
                                                "], of ", RowName(*pending[i].prompt), ": ",
                                                rewards::ExpectedReward(response.rewards(i))));
      }
      pending[i].completion->score = pending[i].completion->reward = response.rewards(i);
    }
    request.Clear();
    pending.clear();
    return absl::OkStatus();
  }

  const std::string endpoint_;
  const absl::Duration timeout_;
  std::unique_ptr<reward::v1::RewardService::Stub> stub_;
};

}  // namespace

const char* FinishReasonName(common::v1::FinishReason reason) {
  switch (reason) {
    case common::v1::FINISH_REASON_STOP:
      return "stop";
    case common::v1::FINISH_REASON_LENGTH:
      return "length";
    default:
      return "aborted";
  }
}

absl::Status Rewarder::CheckName(const std::string& name) {
  std::vector<std::string> known = reward::RewardNames();
  known.push_back(kService);
  known.push_back(kNoReward);
  if (std::find(known.begin(), known.end(), name) != known.end()) return absl::OkStatus();
  return reward::UnknownReward(name, known);
}

bool Rewarder::NeedsAnswer(const config::v1::RewardConfig& config) {
  return config.name() != kService &&
         reward::NeedsAnswer(config.name(), {.pattern = config.pattern()});
}

absl::StatusOr<std::unique_ptr<Rewarder>> Rewarder::Create(const config::v1::RewardConfig& config) {
  RETURN_IF_ERROR(CheckName(config.name()));
  if (config.name() == kNoReward) {
    return absl::InvalidArgumentError(
        "reward.name is none, which only the evaluations of tandem sft and tandem dpo can do with");
  }
  if (config.name() == kService) {
    if (config.endpoint().empty()) {
      return absl::InvalidArgumentError(
          "reward.name is service, and reward.endpoint does not say where it is (HOST:PORT)");
    }
    return std::make_unique<ServiceRewarder>(config.endpoint(), absl::Seconds(config.timeout_s()));
  }
  ASSIGN_OR_RETURN(reward::RewardFn fn,
                   reward::FindReward(config.name(), {.pattern = config.pattern()}));
  return std::make_unique<BuiltInRewarder>(std::move(fn));
}

}  // namespace tandem::driver
