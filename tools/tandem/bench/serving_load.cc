#include "tools/tandem/bench/serving_load.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/generate_call.h"

namespace tandem::bench {

// gRPC's threads, one at a time, and Next() between requests access it.
struct ServingLoad::Client {
  rollout::v1::RolloutService::Stub* stub = nullptr;
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<driver::PartialGroup> group;
  absl::Time last;  // the request's start, then its last tokens
  bool begun = false;
};

ServingLoad::ServingLoad(const std::vector<std::string>& replicas, const ServingWork& work,
                         int64_t vocab_size)
    : work_(work), randint_(1, vocab_size) {
  for (const std::string& address : replicas) {
    stubs_.push_back(
        rollout::v1::RolloutService::NewStub(rpc::MakeChannel(address, {.retry = false})));
  }
  for (int64_t i = 0; i < work.clients; ++i) {
    clients_.push_back(std::make_unique<Client>());
    clients_.back()->stub = stubs_[i % stubs_.size()].get();
  }
}

ServingLoad::~ServingLoad() = default;

void ServingLoad::Start() {
  {
    absl::MutexLock lock(&mu_);
    num_active_ = work_.clients;
  }
  for (const auto& client : clients_) Next(*client);
}

void ServingLoad::Next(Client& client) {
  rollout::v1::GenerateRequest request;
  {
    absl::MutexLock lock(&mu_);
    if (stopping_) {
      client.context.reset();
      --num_active_;
      return;
    }
    const std::vector<uint32_t> ids = randint_.Draw(work_.prompt_tokens);
    request.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
    client.context = rpc::MakeContext(work_.timeout);
  }
  request.set_stream(true);
  request.mutable_sampling()->set_n(1);
  request.mutable_sampling()->set_max_tokens(work_.new_tokens);
  request.mutable_sampling()->set_top_k(50);
  request.mutable_sampling()->set_ignore_eos(true);
  client.group = std::make_unique<driver::PartialGroup>(std::move(request));
  client.begun = false;
  client.last = absl::Now();
  driver::GenerateCall::Start(
      *client.stub, *client.context, *client.group,
      [this, &client](int64_t count) { OnTokens(client, count); },
      [this, &client](const absl::Status& status) { OnDone(client, status); });
}

void ServingLoad::OnTokens(Client& client, int64_t count) {
  if (count == 0) return;
  const absl::Time now = absl::Now();
  const double seconds = absl::ToDoubleSeconds(now - client.last);
  client.last = now;
  absl::MutexLock lock(&mu_);
  result_.num_tokens += count;
  if (!std::exchange(client.begun, true)) {
    result_.first_token_s.push_back(seconds);
  } else {
    result_.inter_token_s.push_back(seconds);
  }
}

absl::Status ServingLoad::Check(const driver::Completion& completion) const {
  if (completion.finish_reason != common::v1::FINISH_REASON_LENGTH) {
    return absl::InternalError(absl::StrCat("a request ended with ",
                                            common::v1::FinishReason_Name(completion.finish_reason),
                                            "; expected FINISH_REASON_LENGTH"));
  }
  const auto num_tokens = static_cast<int64_t>(completion.token_ids.size());
  if (num_tokens != work_.new_tokens) {
    return absl::InternalError(
        absl::StrCat("a request has ", num_tokens, " tokens; expected ", work_.new_tokens));
  }
  int64_t end = 0;
  int64_t version = -1;
  for (const auto& span : completion.version_spans) {
    if (span.begin() != end || span.end() <= end || span.policy_version() < version) break;
    end = span.end();
    version = span.policy_version();
  }
  if (end == num_tokens) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the version spans of a request end or go back at token ", end));
}

void ServingLoad::OnDone(Client& client, const absl::Status& status) {
  absl::Status outcome = status;
  driver::Completion completion;
  if (outcome.ok()) {
    completion = client.group->Take().front();
    outcome = Check(completion);
  }
  bool lost = false;
  {
    absl::MutexLock lock(&mu_);
    if (outcome.ok()) {
      const int64_t first = completion.version_spans.front().policy_version();
      const int64_t last = completion.version_spans.back().policy_version();
      ++result_.num_requests;
      result_.num_mixed += first != last ? 1 : 0;
      result_.oldest_version =
          result_.oldest_version < 0 ? first : std::min(first, result_.oldest_version);
      result_.newest_version = std::max(last, result_.newest_version);
    } else {
      lost = true;
      ++result_.num_lost;
      result_.first_loss.Update(outcome);
      --num_active_;  // it would only fail again
      client.context.reset();
    }
  }
  if (!lost) Next(client);
}

ServingResult ServingLoad::Finish(absl::Time deadline) {
  absl::MutexLock lock(&mu_);
  stopping_ = true;
  const auto idle = [this] {
    mu_.AssertHeld();
    return num_active_ == 0;
  };
  if (!mu_.AwaitWithDeadline(absl::Condition(&idle), deadline)) {
    for (const auto& client : clients_) {
      if (client->context != nullptr) client->context->TryCancel();
    }
    mu_.Await(absl::Condition(&idle));  // calls that are cancelled end
  }
  result_.seconds = absl::ToDoubleSeconds(absl::Now() - start_);
  return std::move(result_);
}

double Percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
}

}  // namespace tandem::bench
