// A rollout that samples without a model: token i of a sample is a function of the seed, the sample
// and i, so that what a retry must not change can be seen; a test says when it fails.
#ifndef TANDEM_TESTS_FAKES_FAKE_GENERATOR_H_
#define TANDEM_TESTS_FAKES_FAKE_GENERATOR_H_

#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/rpc/server.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"

namespace tandem::testing {

class FakeGenerator : public rollout::v1::RolloutService::Service {
 public:
  // How a call ends that has sent `tokens_before_end` tokens of each sample.
  enum class End { kWhole, kUnavailable, kAborted, kSilent };

  explicit FakeGenerator(int64_t version = 0, std::string listen = "127.0.0.1:0")
      : version(version) {
    rpc::ServerOptions options;
    options.listen = std::move(listen);
    options.role = "rollout";
    auto server = rpc::Server::Start(options, {this});
    if (server.ok()) {
      server_ = *std::move(server);
    } else {
      status = server.status();
    }
  }
  ~FakeGenerator() override { Stop(); }
  void Stop() { server_.reset(); }

  const std::string& address() const { return server_->address(); }

  static uint32_t Token(uint64_t seed, int32_t sample, int64_t position) {
    return static_cast<uint32_t>(
        (seed * 31 + static_cast<uint64_t>(sample) * 7 + static_cast<uint64_t>(position) * 13) %
        97);
  }

  grpc::Status Generate(grpc::ServerContext* context, const rollout::v1::GenerateRequest* request,
                        grpc::ServerWriter<rollout::v1::GenerateResponse>* writer) override {
    {
      absl::MutexLock lock(&mu_);
      requests_.push_back(*request);
    }
    std::vector<int64_t> have(request->sampling().n(), 0);
    std::vector<bool> ended(request->sampling().n(), false);
    for (const auto& begun : request->begun()) {
      have[begun.index()] = begun.token_ids_size();
      ended[begun.index()] = begun.finish_reason() != common::v1::FINISH_REASON_UNSPECIFIED;
    }
    const End end = this->end;
    const int64_t limit =
        end == End::kWhole ? request->sampling().max_tokens() : tokens_before_end.load();
    for (int32_t i = 0; i < request->sampling().n(); ++i) {
      if (ended[i]) continue;
      int64_t sent = 0;
      for (int64_t at = have[i]; at < request->sampling().max_tokens() && sent < limit; ++at) {
        rollout::v1::GenerateResponse response;
        response.set_index(i);
        response.add_token_ids(Token(request->sampling().seed(), i, at));
        response.add_logprobs(-static_cast<float>(at));
        response.add_processed_logprobs(-static_cast<float>(at));
        if (sent == 0) {
          for (int64_t t = 0; t < at; ++t) response.mutable_text()->append("x");
          response.set_num_prompt_tokens(1);
          response.set_seed(request->sampling().seed());
        }
        response.mutable_text()->append("x");
        auto* span = response.add_version_spans();
        span->set_policy_version(version);
        span->set_incarnation(at < foreign_from ? incarnation.load() : incarnation + 1);
        span->set_end(1);
        ++sent;
        // The first sample of a call is whole before the call fails.
        if (at + 1 == request->sampling().max_tokens()) {
          response.set_finish_reason(common::v1::FINISH_REASON_LENGTH);
          ended[i] = true;
        }
        writer->Write(response);
      }
      if (!ended[i] && end == End::kAborted) {
        rollout::v1::GenerateResponse response;
        response.set_index(i);
        response.set_text("?");  // half a character
        response.set_finish_reason(common::v1::FINISH_REASON_ABORTED);
        writer->Write(response);
      }
    }
    while (end == End::kSilent && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    return end == End::kUnavailable ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "it is gone")
                                    : grpc::Status::OK;
  }

  grpc::Status GetServerInfo(grpc::ServerContext*, const rollout::v1::GetServerInfoRequest* request,
                             rollout::v1::GetServerInfoResponse* response) override {
    if (is_deaf) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "deaf");
    heard_of = request->incarnation();
    response->set_policy_version(version);
    response->set_incarnation(incarnation);
    response->set_state(version < 0 ? rollout::v1::ROLLOUT_STATE_STALE
                                    : rollout::v1::ROLLOUT_STATE_SERVING);
    response->set_instance_id(address());
    return grpc::Status::OK;
  }

  std::vector<rollout::v1::GenerateRequest> requests() const {
    absl::MutexLock lock(&mu_);
    return requests_;
  }

  absl::Status status;  // of the start
  std::atomic<int64_t> version;
  std::atomic<int64_t> incarnation{0};  // of the trainer that the version is from
  // The token of each sample from which on another trainer's weights sample.
  std::atomic<int64_t> foreign_from{std::numeric_limits<int64_t>::max()};
  std::atomic<int64_t> heard_of{0};  // the incarnation that the last question named
  std::atomic<End> end{End::kWhole};
  std::atomic<int64_t> tokens_before_end{3};
  std::atomic<bool> is_deaf{false};

 private:
  mutable absl::Mutex mu_;
  std::vector<rollout::v1::GenerateRequest> requests_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_FAKE_GENERATOR_H_
