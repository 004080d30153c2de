#include "tools/tandem/driver/rollout_fleet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::driver {
namespace {

using common::v1::FINISH_REASON_UNSPECIFIED;
using rollout::v1::GenerateRequest;
using rollout::v1::GenerateResponse;

// Appends a run of tokens to a completion, its spans shifted by what is there already.
absl::Status Append(const GenerateResponse& response, bool want_processed,
                    std::vector<Completion>& completions) {
  if (response.index() < 0 || response.index() >= static_cast<int>(completions.size())) {
    return absl::InternalError(
        absl::StrCat("sample index ", response.index(), " of ", completions.size(), " samples"));
  }
  Completion& completion = completions[response.index()];
  const int64_t offset = static_cast<int64_t>(completion.token_ids.size());
  completion.token_ids.insert(completion.token_ids.end(), response.token_ids().begin(),
                              response.token_ids().end());
  if (response.logprobs_size() != response.token_ids_size() ||
      (want_processed && response.processed_logprobs_size() != response.token_ids_size())) {
    return absl::InternalError(absl::StrCat(response.token_ids_size(), " tokens came with ",
                                            response.logprobs_size(), " log-probs"));
  }
  completion.logprobs.insert(completion.logprobs.end(), response.logprobs().begin(),
                             response.logprobs().end());
  completion.processed_logprobs.insert(completion.processed_logprobs.end(),
                                       response.processed_logprobs().begin(),
                                       response.processed_logprobs().end());
  completion.text += response.text();
  for (common::v1::VersionSpan span : response.version_spans()) {
    span.set_begin(span.begin() + offset);
    span.set_end(span.end() + offset);
    if (!completion.version_spans.empty() &&
        completion.version_spans.back().policy_version() == span.policy_version() &&
        completion.version_spans.back().end() == span.begin()) {
      completion.version_spans.back().set_end(span.end());
    } else {
      completion.version_spans.push_back(span);
    }
  }
  if (response.finish_reason() != FINISH_REASON_UNSPECIFIED) {
    completion.finish_reason = response.finish_reason();
  }
  return absl::OkStatus();
}

}  // namespace

// One Generate call. Owns itself: OnDone, the last that gRPC calls, hands over the outcome and
// deletes it.
class RolloutFleet::Call : public grpc::ClientReadReactor<GenerateResponse> {
 public:
  using Done = std::function<void(absl::Status, std::vector<Completion>)>;

  Call(Link& link, std::shared_ptr<grpc::ClientContext> context, GenerateRequest request,
       int64_t cost, std::function<void(int64_t)> on_tokens, Done done)
      : link_(link),
        context_(std::move(context)),
        request_(std::move(request)),
        cost_(cost),
        on_tokens_(std::move(on_tokens)),
        done_(std::move(done)),
        completions_(request_.sampling().n()) {
    link_.outstanding_tokens += cost_;
  }

  void Start() {
    link_.stub->async()->Generate(context_.get(), &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    absl::Status status = Append(response_, request_.sampling().processed_logprobs(), completions_);
    if (!status.ok()) {
      malformed_ = status;
      context_->TryCancel();
      return;
    }
    if (on_tokens_) on_tokens_(response_.token_ids_size());
    response_.Clear();
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& grpc_status) override {
    link_.outstanding_tokens -= cost_;
    absl::Status status = malformed_.ok() ? rpc::FromGrpcStatus(grpc_status) : malformed_;
    if (status.ok()) {
      for (size_t i = 0; i < completions_.size(); ++i) {
        if (completions_[i].finish_reason == FINISH_REASON_UNSPECIFIED) {
          status = absl::InternalError(absl::StrCat("sample ", i, " of the group never ended"));
        }
      }
    }
    done_(std::move(status), std::move(completions_));
    delete this;
  }

 private:
  Link& link_;
  const std::shared_ptr<grpc::ClientContext> context_;
  const GenerateRequest request_;
  const int64_t cost_;
  const std::function<void(int64_t)> on_tokens_;
  const Done done_;
  GenerateResponse response_;
  std::vector<Completion> completions_;
  absl::Status malformed_;
};

RolloutFleet::RolloutFleet(std::vector<Replica> replicas, absl::Duration request_timeout)
    : replicas_(std::move(replicas)), request_timeout_(request_timeout) {
  for (const Replica& replica : replicas_) {
    auto link = std::make_unique<Link>();
    link->stub = rollout::v1::RolloutService::NewStub(rpc::MakeChannel(replica.address));
    links_.push_back(std::move(link));
  }
}

RolloutFleet::~RolloutFleet() = default;

size_t RolloutFleet::PickReplica(int except) const {
  size_t best = links_.size();
  for (size_t i = 0; i < links_.size(); ++i) {
    if (static_cast<int>(i) == except && links_.size() > 1) continue;
    if (best == links_.size() || links_[i]->outstanding_tokens < links_[best]->outstanding_tokens) {
      best = i;
    }
  }
  return best;
}

absl::StatusOr<std::vector<Group>> RolloutFleet::Generate(std::vector<Prompt> prompts,
                                                          const GenerateOptions& options) {
  // What calls report to; they hold it too, for their last callback may outlast this function.
  struct Ended {
    size_t entry;
    absl::Status status;
    std::vector<Completion> completions;
  };
  struct Inbox {
    absl::Mutex mu;
    std::vector<Ended> ended ABSL_GUARDED_BY(mu);
  };
  struct Entry {
    std::shared_ptr<grpc::ClientContext> context;
    int replica = -1;
    bool retried = false;
    bool finished = false;
  };
  auto inbox = std::make_shared<Inbox>();
  // The groups' calls, then those of the baselines.
  std::vector<Entry> entries(prompts.size() * (options.baseline.has_value() ? 2 : 1));
  std::vector<Group> groups(prompts.size());

  const auto start = [&](size_t e) {
    Entry& entry = entries[e];
    const size_t i = e % prompts.size();
    const rollout::v1::SamplingParams& params =
        e < prompts.size() ? options.sampling : *options.baseline;
    entry.replica = static_cast<int>(PickReplica(entry.retried ? entry.replica : -1));
    entry.context = rpc::MakeContext(request_timeout_);
    GenerateRequest request;
    if (prompts[i].token_ids.empty() && !prompts[i].text.empty()) {
      request.set_text(prompts[i].text);
    } else {
      request.mutable_token_ids()->mutable_ids()->Add(prompts[i].token_ids.begin(),
                                                      prompts[i].token_ids.end());
    }
    *request.mutable_sampling() = params;
    if (params.has_seed()) {
      const uint64_t place = static_cast<uint64_t>(prompts[i].place.value_or(i));
      request.mutable_sampling()->set_seed(params.seed() * 0x9E3779B97F4A7C15ULL + place + 1);
    }
    request.set_return_text(options.return_text);
    const int64_t cost =
        static_cast<int64_t>(prompts[i].token_ids.size()) + params.n() * params.max_tokens();
    auto* call =
        new Call(*links_[entry.replica], entry.context, std::move(request), cost, options.on_tokens,
                 [inbox, e](absl::Status status, std::vector<Completion> completions) {
                   absl::MutexLock lock(&inbox->mu);
                   inbox->ended.push_back({e, std::move(status), std::move(completions)});
                 });
    call->Start();
  };
  for (size_t e = 0; e < entries.size(); ++e) start(e);

  absl::Status first_error;
  for (size_t num_done = 0; num_done < entries.size();) {
    std::vector<Ended> batch;
    {
      // Every call has a deadline, so this wait ends.
      absl::MutexLock lock(&inbox->mu);
      inbox->mu.Await(absl::Condition(
          +[](std::vector<Ended>* ended) { return !ended->empty(); }, &inbox->ended));
      batch.swap(inbox->ended);
    }
    for (Ended& ended : batch) {
      Entry& entry = entries[ended.entry];
      if (absl::IsUnavailable(ended.status) && !entry.retried && links_.size() > 1 &&
          first_error.ok()) {
        entry.retried = true;
        start(ended.entry);
        continue;
      }
      entry.finished = true;
      ++num_done;
      Group& group = groups[ended.entry % prompts.size()];
      if (ended.entry < prompts.size()) {
        group.completions = std::move(ended.completions);
      } else if (ended.status.ok()) {
        group.baseline = std::move(ended.completions[0]);
      }
      const bool whole =
          !group.completions.empty() && group.baseline.has_value() == options.baseline.has_value();
      if (ended.status.ok() && whole && options.on_group) {
        options.on_group(ended.entry % prompts.size(), group);
      }
      if (ended.status.ok() || !first_error.ok()) continue;
      const Replica& replica = replicas_[entry.replica];
      first_error = absl::Status(ended.status.code(),
                                 absl::StrCat("rollout ", replica.id, " at ", replica.address, ": ",
                                              ended.status.message()));
      for (Entry& other : entries) {
        if (!other.finished) other.context->TryCancel();
      }
    }
  }
  RETURN_IF_ERROR(first_error);
  for (size_t i = 0; i < prompts.size(); ++i) groups[i].prompt = std::move(prompts[i]);
  return groups;
}

absl::StatusOr<rollout::v1::GetServerInfoResponse> RolloutFleet::GetServerInfo(size_t replica) {
  auto context = rpc::MakeContext(absl::Seconds(10));
  rollout::v1::GetServerInfoResponse response;
  RETURN_IF_ERROR(
      rpc::FromGrpcStatus(links_[replica]->stub->GetServerInfo(context.get(), {}, &response)))
      << "rollout " << replicas_[replica].id << " at " << replicas_[replica].address;
  return response;
}

void RolloutFleet::AbortAll() {
  for (auto& link : links_) {
    auto context = rpc::MakeContext(absl::Seconds(2));
    rollout::v1::AbortRequest request;
    request.set_all(true);
    rollout::v1::AbortResponse response;
    // A replica that can't be reached has nothing left to abort.
    link->stub->Abort(context.get(), request, &response).error_code();
  }
}

}  // namespace tandem::driver
