#include "tools/tandem/environment/environment_client.h"

#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"

namespace tandem::environment {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);

// Whether another attempt cannot help.
bool IsFinal(const absl::Status& status) {
  return absl::IsUnimplemented(status) || absl::IsUnauthenticated(status) ||
         absl::IsPermissionDenied(status);
}

}  // namespace

// Owns itself until OnDone. Its own members are guarded by the client's lock.
class EnvironmentClient::Stream final
    : public grpc::ClientBidiReactor<v1::PlayRequest, v1::PlayResponse> {
 public:
  explicit Stream(EnvironmentClient& client) : client_(client) {
    context_.set_wait_for_ready(true);
  }

  void Start() {
    client_.stub_->async()->Play(&context_, this);
    AddHold();  // so that the client may write at any time, until the stream breaks
    StartRead(&response_);
    StartCall();
  }

  // Call with the client's lock held. gRPC never calls back from within.
  void Write(v1::PlayRequest request) {
    if (is_broken_) return;
    queue_.push_back(std::move(request));
    WriteNext();
  }
  void Cancel() { context_.TryCancel(); }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&client_.mu_);
    is_writing_ = false;
    if (ok && !is_broken_) WriteNext();
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      client_.OnAnswer(std::exchange(response_, {}));
      StartRead(&response_);
      return;
    }
    {
      absl::MutexLock lock(&client_.mu_);
      is_broken_ = true;
      if (client_.stream_ == this) client_.stream_ = nullptr;
    }
    // If the service ended the stream in good order, the call does not end by itself.
    context_.TryCancel();
    RemoveHold();
  }

  void OnDone(const grpc::Status& status) override {
    EnvironmentClient& client = client_;
    client.OnStreamDone(this, rpc::FromGrpcStatus(status));
    // The channel must outlive the context: a thread of gRPC that destroys the last channel waits for
    // itself. So the context goes before the client may.
    delete this;
    client.ForgetStream();
  }

 private:
  void WriteNext() {
    if (is_writing_ || queue_.empty()) return;
    writing_ = std::move(queue_.front());
    queue_.pop_front();
    is_writing_ = true;
    StartWrite(&writing_);
  }

  EnvironmentClient& client_;
  grpc::ClientContext context_;
  v1::PlayResponse response_;  // used by gRPC's reads only
  std::deque<v1::PlayRequest> queue_;
  v1::PlayRequest writing_;
  bool is_writing_ = false;
  bool is_broken_ = false;
};

EnvironmentClient::EnvironmentClient(Options options)
    : options_(std::move(options)),
      stub_(v1::EnvironmentService::NewStub(rpc::MakeChannel(options_.endpoint))) {
  thread_ = std::thread([this] { RunPeriodicTasks(); });
}

EnvironmentClient::Stream* EnvironmentClient::OpenStream() {
  auto* stream = new Stream(*this);
  stream_ = stream;
  ++num_streams_;
  ++generation_;
  last_heard_ = last_ping_ = absl::Now();
  stream->Start();
  return stream;
}

void EnvironmentClient::Send(v1::PlayRequest request, absl::Time deadline, Done done) {
  {
    absl::MutexLock lock(&mu_);
    if (!is_shut_down_) {
      if (done == nullptr && stream_ == nullptr) return;
      Stream* const stream = stream_ != nullptr ? stream_ : OpenStream();
      request.set_action_id(next_action_++);
      if (done != nullptr) pending_[request.action_id()] = {std::move(done), deadline, stream};
      stream->Write(std::move(request));
      return;
    }
  }
  if (done != nullptr) done(absl::CancelledError("the run is ending"));
}

void EnvironmentClient::OnAnswer(v1::PlayResponse response) {
  Done done;
  {
    absl::MutexLock lock(&mu_);
    last_heard_ = absl::Now();
    const auto found = pending_.find(response.action_id());
    if (found == pending_.end()) return;  // of a ping, or too late
    done = std::move(found->second.done);
    pending_.erase(found);
  }
  done(std::move(response));
}

void EnvironmentClient::OnStreamDone(Stream* stream, absl::Status status) {
  const std::string place = absl::StrCat("the EnvironmentService at ", options_.endpoint);
  if (!IsFinal(status)) {
    status = absl::UnavailableError(
        absl::StrCat(place, ": the stream broke", status.ok() ? "" : ": ", status.message()));
  } else {
    status = absl::Status(status.code(), absl::StrCat(place, ": ", status.message()));
  }
  std::vector<Done> lost;
  {
    absl::MutexLock lock(&mu_);
    if (stream_ == stream) stream_ = nullptr;
    for (auto it = pending_.begin(); it != pending_.end();) {
      if (it->second.stream == stream) {
        lost.push_back(std::move(it->second.done));
        it = pending_.erase(it);
      } else {
        ++it;
      }
    }
    if (!is_shut_down_) ++num_breaks_;
  }
  for (const Done& done : lost) done(status);
}

void EnvironmentClient::ForgetStream() {
  absl::MutexLock lock(&mu_);
  --num_streams_;
}

int64_t EnvironmentClient::generation() const {
  absl::MutexLock lock(&mu_);
  return stream_ == nullptr ? generation_ + 1 : generation_;
}

int64_t EnvironmentClient::TakeBreaks() {
  absl::MutexLock lock(&mu_);
  return std::exchange(num_breaks_, 0);
}

void EnvironmentClient::RunPeriodicTasks() {
  while (true) {
    std::vector<Done> overdue;
    {
      absl::MutexLock lock(&mu_);
      mu_.AwaitWithTimeout(absl::Condition(&is_shut_down_), kTick);
      if (is_shut_down_) return;
      const absl::Time now = absl::Now();
      for (auto it = pending_.begin(); it != pending_.end();) {
        if (it->second.deadline <= now) {
          overdue.push_back(std::move(it->second.done));
          it = pending_.erase(it);
        } else {
          ++it;
        }
      }
      if (stream_ != nullptr && now - last_heard_ > options_.silence_limit) {
        stream_->Cancel();
      } else if (stream_ != nullptr && now - last_ping_ >= options_.ping_interval) {
        last_ping_ = now;
        v1::PlayRequest ping;
        ping.set_action_id(next_action_++);
        ping.mutable_ping();
        stream_->Write(std::move(ping));
      }
    }
    for (const Done& done : overdue) {
      done(absl::DeadlineExceededError(absl::StrCat("the EnvironmentService at ", options_.endpoint,
                                                    " did not answer in time")));
    }
  }
}

absl::Status EnvironmentClient::Check(absl::Duration timeout,
                                      const std::function<bool()>& interrupted) {
  struct Answer {
    absl::Mutex mu;
    bool has_come ABSL_GUARDED_BY(mu) = false;
    absl::Status status ABSL_GUARDED_BY(mu);
  };
  auto answer = std::make_shared<Answer>();
  v1::PlayRequest ping;
  ping.mutable_ping();
  Send(std::move(ping), absl::Now() + timeout, [answer](absl::StatusOr<v1::PlayResponse> response) {
    absl::MutexLock lock(&answer->mu);
    answer->has_come = true;
    answer->status = response.status();
  });
  absl::MutexLock lock(&answer->mu);
  // The ping has a deadline, so this loop ends.
  while (!answer->mu.AwaitWithTimeout(absl::Condition(&answer->has_come), kTick)) {
    if (interrupted != nullptr && interrupted()) return absl::CancelledError("interrupted");
  }
  if (answer->status.ok()) return absl::OkStatus();
  if (absl::IsUnimplemented(answer->status)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the server at ", options_.endpoint,
                     " has no tandem.environment.v1.EnvironmentService; correct the endpoint"));
  }
  return absl::Status(
      answer->status.code(),
      absl::StrCat("no EnvironmentService answered at ", options_.endpoint, " within ",
                   absl::FormatDuration(timeout), " (", answer->status.message(),
                   "); start it, or correct the endpoint"));
}

void EnvironmentClient::Shutdown() {
  std::vector<Done> waiting;
  {
    absl::MutexLock lock(&mu_);
    if (!is_shut_down_) {
      is_shut_down_ = true;
      for (auto& [id, pending] : pending_) waiting.push_back(std::move(pending.done));
      pending_.clear();
      if (stream_ != nullptr) stream_->Cancel();
    }
  }
  for (const Done& done : waiting) done(absl::CancelledError("the run is ending"));
  if (thread_.joinable()) thread_.join();
  // The stream is cancelled, so this wait ends.
  absl::MutexLock lock(&mu_);
  const auto all_ended = [this] {
    mu_.AssertHeld();
    return num_streams_ == 0;
  };
  mu_.Await(absl::Condition(&all_ended));
}

}  // namespace tandem::environment
