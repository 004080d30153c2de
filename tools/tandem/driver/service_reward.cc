// A RewardService as the source of a run's rewards.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/io/json_text.h"
#include "common/rewards/reward_range.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "tandem/reward/v1/reward_service.grpc.pb.h"
#include "tools/tandem/driver/interruptible_call.h"
#include "tools/tandem/driver/reward_source.h"

namespace tandem::driver {
namespace {

void AddCompletion(const Judged& judged, reward::v1::ComputeRewardsRequest& request) {
  const auto& [prompt, completion] = judged;
  auto* added = request.add_completions();
  added->set_prompt(prompt->text);
  added->set_completion(completion->text);
  added->set_answer(prompt->answer);
  added->set_finish_reason(completion->finish_reason);
  added->mutable_prompt_token_ids()->Add(prompt->token_ids.begin(), prompt->token_ids.end());
  added->mutable_completion_token_ids()->Add(completion->token_ids.begin(),
                                             completion->token_ids.end());
  added->set_row_json(io::JsonText(prompt->fields));
}

// Sends completions in calls of at most kBatch, which stay below the message limit.
class ServiceReward : public RewardSource {
 public:
  static constexpr size_t kBatch = 256;

  ServiceReward(const std::string& endpoint, absl::Duration timeout)
      : endpoint_(endpoint),
        timeout_(timeout),
        stub_(reward::v1::RewardService::NewStub(rpc::MakeChannel(endpoint))) {}

  absl::Status Check(absl::Duration timeout, const std::function<bool()>& interrupted) override {
    const auto context = rpc::MakeContext(timeout, {.wait_for_ready = true});
    reward::v1::ComputeRewardsResponse response;
    const std::optional<absl::Status> answer = CallInterruptibly(
        *context, [&] { return stub_->ComputeRewards(context.get(), {}, &response); }, interrupted);
    if (!answer.has_value()) return absl::CancelledError("interrupted");
    const absl::Status& asked = *answer;
    if (absl::IsUnimplemented(asked)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the server at ", endpoint_,
                       " has no tandem.reward.v1.RewardService; correct the endpoint"));
    }
    if (absl::IsDeadlineExceeded(asked) || absl::IsUnavailable(asked) ||
        absl::IsUnauthenticated(asked) || absl::IsPermissionDenied(asked)) {
      return absl::Status(asked.code(),
                          absl::StrCat("no RewardService answered at ", endpoint_, " within ",
                                       absl::FormatDuration(timeout), " (", asked.message(),
                                       "); start it, or correct the endpoint"));
    }
    // Any other error is the service's answer to a request without completions.
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Score>> Judge(const std::vector<Judged>& completions) override {
    std::vector<Score> out;
    for (size_t begin = 0; begin < completions.size(); begin += kBatch) {
      const size_t end = std::min(begin + kBatch, completions.size());
      RETURN_IF_ERROR(JudgeBatch({completions.begin() + static_cast<ptrdiff_t>(begin),
                                  completions.begin() + static_cast<ptrdiff_t>(end)},
                                 out));
    }
    return out;
  }

 private:
  absl::Status JudgeBatch(const std::vector<Judged>& batch, std::vector<Score>& out) {
    reward::v1::ComputeRewardsRequest request;
    for (const Judged& judged : batch) AddCompletion(judged, request);
    const auto context = rpc::MakeContext(timeout_);
    reward::v1::ComputeRewardsResponse response;
    RETURN_IF_ERROR(rpc::FromGrpcStatus(stub_->ComputeRewards(context.get(), request, &response)))
        << "reward service at " << endpoint_ << ", at " << RowName(*batch.front().prompt)
        << " and following";
    if (response.rewards_size() != static_cast<int>(batch.size())) {
      return absl::InternalError(absl::StrCat("reward service at ", endpoint_, " returned ",
                                              response.rewards_size(), " rewards for ",
                                              batch.size(), " completions"));
    }
    for (int i = 0; i < response.rewards_size(); ++i) {
      if (!rewards::IsReward(response.rewards(i))) {
        return absl::InternalError(absl::StrCat("reward service at ", endpoint_, ", rewards[", i,
                                                "], of ", RowName(*batch[i].prompt), ": ",
                                                rewards::ExpectedReward(response.rewards(i))));
      }
      out.push_back({.reward = response.rewards(i), .token_rewards = {}});
    }
    return SetTokenRewards(response, batch, absl::MakeSpan(out).subspan(out.size() - batch.size()));
  }

  absl::Status SetTokenRewards(const reward::v1::ComputeRewardsResponse& response,
                               const std::vector<Judged>& batch, absl::Span<Score> scores) const {
    if (response.token_rewards_size() == 0) return absl::OkStatus();
    if (response.token_rewards_size() != static_cast<int>(batch.size())) {
      return absl::InternalError(absl::StrCat(
          "reward service at ", endpoint_, ": expected token_rewards of each of the ", batch.size(),
          " completions, or none; found ", response.token_rewards_size()));
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto& values = response.token_rewards(static_cast<int>(i)).values();
      const auto place = [&] {
        return absl::StrCat("reward service at ", endpoint_, ", token_rewards[", i, "], of ",
                            RowName(*batch[i].prompt), ": ");
      };
      const size_t num_tokens = batch[i].completion->token_ids.size();
      if (!values.empty() && static_cast<size_t>(values.size()) != num_tokens) {
        return absl::InternalError(
            absl::StrCat(place(), "expected one value for each of the ", num_tokens,
                         " completion_token_ids, or none; found ", values.size()));
      }
      for (const double value : values) {
        if (!rewards::IsReward(value)) {
          return absl::InternalError(absl::StrCat(place(), rewards::ExpectedReward(value)));
        }
      }
      scores[i].token_rewards.assign(values.begin(), values.end());
    }
    return absl::OkStatus();
  }

  const std::string endpoint_;
  const absl::Duration timeout_;
  const std::unique_ptr<reward::v1::RewardService::Stub> stub_;
};

}  // namespace

std::unique_ptr<RewardSource> MakeServiceReward(const std::string& endpoint,
                                                absl::Duration timeout) {
  return std::make_unique<ServiceReward>(endpoint, timeout);
}

}  // namespace tandem::driver
