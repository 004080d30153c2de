// An EnvironmentService in C++: a test says what it answers, how long it takes, what fails, and when
// it dies. It is an example of one, too: Stream reads actions and writes answers, and a thread of its
// own gives the answers that take time, so that no episode waits for another.
#ifndef TANDEM_TESTS_FAKES_FAKE_ENVIRONMENT_H_
#define TANDEM_TESTS_FAKES_FAKE_ENVIRONMENT_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/server.h"
#include "tandem/environment/v1/environment_service.grpc.pb.h"

namespace tandem::testing {

class FakeEnvironment final : public environment::v1::EnvironmentService::CallbackService {
 public:
  using Reset = environment::v1::Reset;
  using Step = environment::v1::Step;
  using PlayRequest = environment::v1::PlayRequest;
  using PlayResponse = environment::v1::PlayResponse;

  struct Options {
    // What the environment says after a turn. Called with the lock held.
    std::function<environment::v1::Observation(const Reset&, const Step&)> step;
    // How long it takes over it.
    std::function<absl::Duration(const Reset&, const Step&)> delay = [](const Reset&, const Step&) {
      return absl::ZeroDuration();
    };
    // An error in place of the answer.
    std::function<std::optional<environment::v1::EpisodeErrorCode>(const Reset&, const Step&)>
        fails = [](const Reset&, const Step&) { return std::nullopt; };
    // Dies before it answers this many steps in all, once; 0: never.
    int64_t dies_at = 0;
    std::string listen = "127.0.0.1:0";
  };

  // Counts, since the start.
  struct Counts {
    int64_t resets = 0;
    int64_t restored = 0;  // resets with a past
    int64_t steps = 0;
    int64_t closed = 0;
    int64_t pings = 0;
    int64_t deaths = 0;
  };

  explicit FakeEnvironment(Options options) : options_(std::move(options)) {
    server_ = *rpc::Server::Start({.listen = options_.listen, .role = "reward"}, {this});
    thread_ = std::thread([this] { AnswerWhenDue(); });
  }
  ~FakeEnvironment() override {
    {
      absl::MutexLock lock(&mu_);
      is_stopping_ = true;
      EndStreams();
    }
    thread_.join();
    server_.reset();
  }

  const std::string& address() const { return server_->address(); }
  Counts counts() const {
    absl::MutexLock lock(&mu_);
    return counts_;
  }
  // As if the process had been killed and started again: every stream ends, every episode is gone.
  void Die() {
    absl::MutexLock lock(&mu_);
    DieLocked();
  }
  // Episodes that it knows.
  size_t num_episodes() const {
    absl::MutexLock lock(&mu_);
    return episodes_.size();
  }

  grpc::ServerBidiReactor<PlayRequest, PlayResponse>* Play(grpc::CallbackServerContext*) override {
    auto* stream = new Stream(*this);
    absl::MutexLock lock(&mu_);
    streams_.insert(stream);
    return stream;
  }

 private:
  // Deletes itself when gRPC is done with it. Guarded by the fake's lock.
  class Stream final : public grpc::ServerBidiReactor<PlayRequest, PlayResponse> {
   public:
    explicit Stream(FakeEnvironment& fake) : fake_(fake) { StartRead(&request_); }

    void OnReadDone(bool ok) override {
      absl::MutexLock lock(&fake_.mu_);
      if (!ok) {
        End(grpc::Status::OK);
        return;
      }
      fake_.OnAction(*this, request_);
      if (!has_ended_) StartRead(&request_);
    }
    void OnWriteDone(bool ok) override {
      absl::MutexLock lock(&fake_.mu_);
      answers_.pop_front();
      if (ok && !has_ended_ && !answers_.empty()) StartWrite(&answers_.front());
    }
    void OnDone() override {
      {
        absl::MutexLock lock(&fake_.mu_);
        fake_.streams_.erase(this);
        std::erase_if(fake_.due_, [this](const auto& due) { return due.second.stream == this; });
      }
      delete this;
    }
    void Answer(PlayResponse response) {
      if (has_ended_) return;
      answers_.push_back(std::move(response));
      if (answers_.size() == 1) StartWrite(&answers_.front());
    }
    void End(const grpc::Status& status) {
      if (!std::exchange(has_ended_, true)) Finish(status);
    }

   private:
    FakeEnvironment& fake_;
    PlayRequest request_;
    std::deque<PlayResponse> answers_;  // the first one is being written
    bool has_ended_ = false;
  };

  struct Due {
    Stream* stream;
    PlayRequest request;
  };

  void OnAction(Stream& stream, const PlayRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (request.has_step()) {
      const auto episode = episodes_.find(request.episode_id());
      const absl::Duration delay = episode == episodes_.end()
                                       ? absl::ZeroDuration()
                                       : options_.delay(episode->second, request.step());
      due_.emplace(absl::Now() + delay, Due{&stream, request});
      return;
    }
    PlayResponse response;
    response.set_episode_id(request.episode_id());
    response.set_action_id(request.action_id());
    if (request.has_close()) {
      counts_.closed += static_cast<int64_t>(episodes_.erase(request.episode_id()));
      return;
    }
    if (request.has_ping()) {
      ++counts_.pings;
    } else {
      ++counts_.resets;
      if (request.reset().past_size() > 0) ++counts_.restored;
      episodes_[request.episode_id()] = request.reset();
      response.mutable_reset_done();
    }
    stream.Answer(std::move(response));
  }

  void AnswerWhenDue() {
    absl::MutexLock lock(&mu_);
    const auto has_due = [this] {
      mu_.AssertHeld();
      return is_stopping_ || (!due_.empty() && due_.begin()->first <= absl::Now());
    };
    while (!is_stopping_) {
      mu_.AwaitWithTimeout(absl::Condition(&has_due), absl::Milliseconds(5));
      while (!is_stopping_ && !due_.empty() && due_.begin()->first <= absl::Now()) {
        const Due due = due_.begin()->second;
        due_.erase(due_.begin());
        OnStep(due);
      }
    }
  }

  void OnStep(const Due& due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (options_.dies_at > 0 && counts_.steps + 1 >= options_.dies_at && counts_.deaths == 0) {
      DieLocked();
      return;
    }
    PlayResponse response;
    response.set_episode_id(due.request.episode_id());
    response.set_action_id(due.request.action_id());
    const auto episode = episodes_.find(due.request.episode_id());
    if (episode == episodes_.end()) {
      response.mutable_error()->set_code(environment::v1::EPISODE_ERROR_CODE_RETRY);
      response.mutable_error()->set_message("no such episode");
    } else if (const auto code = options_.fails(episode->second, due.request.step())) {
      response.mutable_error()->set_code(*code);
      response.mutable_error()->set_message("as the test says");
    } else {
      ++counts_.steps;
      *response.mutable_observation() = options_.step(episode->second, due.request.step());
    }
    due.stream->Answer(std::move(response));
  }

  void DieLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ++counts_.deaths;
    episodes_.clear();
    EndStreams();
  }
  void EndStreams() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    due_.clear();
    for (Stream* stream : streams_) {
      stream->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the environment died"));
    }
  }

  const Options options_;
  mutable absl::Mutex mu_;
  std::set<Stream*> streams_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Reset> episodes_ ABSL_GUARDED_BY(mu_);
  std::multimap<absl::Time, Due> due_ ABSL_GUARDED_BY(mu_);
  Counts counts_ ABSL_GUARDED_BY(mu_);
  bool is_stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<rpc::Server> server_;
  std::thread thread_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_FAKE_ENVIRONMENT_H_
