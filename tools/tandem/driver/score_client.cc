#include "tools/tandem/driver/score_client.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/interruptible_call.h"
#include "tools/tandem/driver/poll_interval.h"

namespace tandem::driver {

using rollout::v1::GetServerInfoResponse;
using rollout::v1::ScoreRequest;
using rollout::v1::ScoreResponse;

namespace {

// Calls at a time: enough to fill the rollout's batches, few enough that none waits long in its queue.
constexpr int kMaxRunning = 64;
constexpr absl::Duration kScoreAgainPause = absl::Milliseconds(500);

// Whether the rollout may take the call later: it is down, loads its weights, or has a full queue.
bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsFailedPrecondition(status) || absl::IsAborted(status) || absl::IsCancelled(status);
}

}  // namespace

// The calls of one Score(). Used by its thread, which also destroys stubs and contexts: a thread of gRPC
// that destroys the last channel waits for itself. gRPC's threads deliver the calls' ends.
class ScoreClient::Batch {
 public:
  Batch(ScoreClient& client, std::vector<ScoreRequest> requests, OnError on_error)
      : client_(client), on_error_(on_error), calls_(requests.size()) {
    for (size_t i = 0; i < requests.size(); ++i) {
      calls_[i].request = std::move(requests[i]);
      waiting_.push_back(i);
    }
  }

  std::vector<absl::StatusOr<ScoreResponse>> Run() {
    for (size_t num_left = calls_.size(); num_left > 0;) {
      if (client_.interrupted()) return EndAll(absl::CancelledError("interrupted"));
      StartCalls();
      for (const auto& [index, ended] : AwaitEnds()) {
        if (!TakeEnd(index, ended)) continue;
        --num_left;
        const absl::Status& status = *calls_[index].result;
        if (!status.ok() && on_error_ == OnError::kCancelOthers) return EndAll(status);
      }
    }
    return Results();
  }

 private:
  struct Call {
    ScoreRequest request;
    ScoreResponse response;
    std::unique_ptr<grpc::ClientContext> context;  // null unless it runs
    std::shared_ptr<Stub> stub;
    absl::Time deadline = absl::InfiniteFuture();  // from the first attempt on
    std::optional<absl::Status> result;            // unset while unfinished
  };
  struct End {
    size_t index;
    absl::Status status;
  };

  // Starts waiting calls, as far as there is room.
  void StartCalls() {
    while (!waiting_.empty() && absl::Now() >= resume_ && Reserve()) {
      const size_t index = waiting_.front();
      waiting_.pop_front();
      Call& call = calls_[index];
      call.deadline = std::min(call.deadline, absl::Now() + client_.options_.timeout);
      call.stub = client_.CurrentStub();
      if (call.stub == nullptr) {
        OnEnd(index, absl::UnavailableError("it is down"));
        continue;
      }
      call.response.Clear();
      call.context = rpc::MakeContext(
          std::max<absl::Duration>(call.deadline - absl::Now(), absl::Milliseconds(1)));
      call.stub->async()->Score(
          call.context.get(), &call.request, &call.response,
          [this, index](const grpc::Status& status) { OnEnd(index, rpc::FromGrpcStatus(status)); });
    }
  }

  bool Reserve() {
    absl::MutexLock lock(&client_.mu_);
    if (client_.num_running_ >= kMaxRunning) return false;
    ++client_.num_running_;
    ++num_running_;
    return true;
  }

  void OnEnd(size_t index, absl::Status status) {
    absl::MutexLock lock(&client_.mu_);
    --client_.num_running_;
    --num_running_;
    ended_.push_back({index, std::move(status)});
  }

  // Waits for the end of calls, for room to start another, or for the time to look around.
  std::vector<End> AwaitEnds() {
    const absl::Duration pause =
        std::min(kPollInterval, waiting_.empty() || resume_ <= absl::Now() ? kPollInterval
                                                                           : resume_ - absl::Now());
    const bool may_start = !waiting_.empty() && resume_ <= absl::Now();
    absl::MutexLock lock(&client_.mu_);
    const auto has_news = [this, may_start] {
      client_.mu_.AssertHeld();
      return !ended_.empty() || (may_start && client_.num_running_ < kMaxRunning);
    };
    client_.mu_.AwaitWithTimeout(absl::Condition(&has_news), pause);
    return std::exchange(ended_, {});
  }

  // Whether the call has its result; it waits to be repeated otherwise.
  bool TakeEnd(size_t index, const absl::Status& ended) {
    Call& call = calls_[index];
    call.context.reset();
    if (ended.ok()) {
      call.result = absl::OkStatus();
      return true;
    }
    const std::string& name = client_.options_.name;
    if (!IsTransient(ended) && !absl::IsDeadlineExceeded(ended)) {
      call.result = absl::Status(ended.code(), absl::StrCat(name, ": ", ended.message()));
      return true;
    }
    if (call.stub != nullptr) client_.Forget(std::exchange(call.stub, nullptr));
    if (!absl::IsDeadlineExceeded(ended) && absl::Now() + kScoreAgainPause < call.deadline) {
      waiting_.push_back(index);
      resume_ = absl::Now() + kScoreAgainPause;
      return false;
    }
    call.result = absl::DeadlineExceededError(absl::StrFormat(
        "%s did not score a sequence of %d tokens within %s (%s): %s", name,
        call.request.token_ids_size(), absl::FormatDuration(client_.options_.timeout),
        client_.options_.timeout_key, ended.message()));
    return true;
  }

  // Cancels what runs and gives what is unfinished this error.
  std::vector<absl::StatusOr<ScoreResponse>> EndAll(const absl::Status& error) {
    for (Call& call : calls_) {
      if (call.context != nullptr) call.context->TryCancel();
      if (!call.result.has_value()) call.result = error;
    }
    {
      // Every call is cancelled and has a deadline, so this wait ends.
      absl::MutexLock lock(&client_.mu_);
      const auto all_ended = [this] {
        client_.mu_.AssertHeld();
        return num_running_ == 0;
      };
      client_.mu_.Await(absl::Condition(&all_ended));
    }
    return Results();
  }

  std::vector<absl::StatusOr<ScoreResponse>> Results() {
    std::vector<absl::StatusOr<ScoreResponse>> out;
    for (Call& call : calls_) {
      if (call.result->ok()) {
        out.emplace_back(std::move(call.response));
      } else {
        out.emplace_back(*std::move(call.result));
      }
    }
    return out;
  }

  ScoreClient& client_;
  const OnError on_error_;
  std::vector<Call> calls_;
  std::deque<size_t> waiting_;
  absl::Time resume_ = absl::InfinitePast();  // when calls may start again after a failure
  // Guarded by client_.mu_.
  std::vector<End> ended_;
  int num_running_ = 0;
};

std::shared_ptr<ScoreClient::Stub> ScoreClient::CurrentStub() {
  {
    absl::MutexLock lock(&mu_);
    if (stub_ != nullptr) return stub_;
  }
  const std::string address = options_.address();
  if (address.empty()) return nullptr;
  std::shared_ptr<Stub> stub = rollout::v1::RolloutService::NewStub(rpc::MakeChannel(address));
  absl::MutexLock lock(&mu_);
  if (stub_ == nullptr) stub_ = std::move(stub);
  return stub_;
}

void ScoreClient::Forget(const std::shared_ptr<Stub>& stub) {
  absl::MutexLock lock(&mu_);
  if (stub_ == stub) stub_ = nullptr;
}

absl::StatusOr<GetServerInfoResponse> ScoreClient::GetServerInfo(
    absl::Duration timeout, const std::function<bool()>& interrupted) {
  const std::string address = options_.address();
  if (address.empty()) {
    return absl::UnavailableError(absl::StrCat(options_.name, ": it is down"));
  }
  const auto stub = rollout::v1::RolloutService::NewStub(rpc::MakeChannel(address));
  const auto context = rpc::MakeContext(timeout, {.wait_for_ready = true});
  GetServerInfoResponse response;
  const std::optional<absl::Status> asked = CallInterruptibly(
      *context, [&] { return stub->GetServerInfo(context.get(), {}, &response); }, interrupted);
  if (!asked.has_value()) return absl::CancelledError("interrupted");
  RETURN_IF_ERROR(*asked) << options_.name << " did not answer within "
                          << absl::FormatDuration(timeout);
  return response;
}

std::vector<absl::StatusOr<ScoreResponse>> ScoreClient::Score(std::vector<ScoreRequest> requests,
                                                              OnError on_error) {
  return Batch(*this, std::move(requests), on_error).Run();
}

}  // namespace tandem::driver
