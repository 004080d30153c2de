// A rollout that serves WeightService over a fake store.
#ifndef TANDEM_TESTS_FAKES_FAKE_ROLLOUT_H_
#define TANDEM_TESTS_FAKES_FAKE_ROLLOUT_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/rpc/message_digest.h"
#include "common/rpc/server.h"
#include "common/rpc/status_conversion.h"
#include "services/rollout/receive/weight_receiver.h"
#include "services/rollout/receive/weight_service.h"
#include "tests/fakes/fake_weight_store.h"
#include "tests/fakes/test_model.h"

namespace tandem::testing {

// Notes which reads it is asked for, and which updates.
class RecordingWeightService : public rollout::WeightServiceImpl {
 public:
  explicit RecordingWeightService(rollout::WeightReceiver* receiver)
      : WeightServiceImpl(receiver), receiver_(receiver) {}
  grpc::ServerWriteReactor<rollout::v1::ReadWeightsResponse>* ReadWeights(
      grpc::CallbackServerContext* context,
      const rollout::v1::ReadWeightsRequest* request) override {
    {
      absl::MutexLock lock(&mu_);
      if (reads_.size() < kMostRecorded) reads_.push_back(*request);
    }
    return WeightServiceImpl::ReadWeights(context, request);
  }
  grpc::ServerUnaryReactor* BeginUpdate(grpc::CallbackServerContext* context,
                                        const rollout::v1::BeginUpdateRequest* request,
                                        rollout::v1::BeginUpdateResponse* response) override {
    std::function<void(rollout::v1::BeginUpdateRequest&)> alter;
    {
      absl::MutexLock lock(&mu_);
      if (begun_.size() < kMostRecorded) begun_.push_back(*request);
      alter = alter_;
    }
    if (alter == nullptr) return WeightServiceImpl::BeginUpdate(context, request, response);
    rollout::v1::BeginUpdateRequest altered = *request;
    alter(altered);
    auto* reactor = context->DefaultReactor();
    receiver_->BeginUpdate(altered, [=](absl::StatusOr<rollout::v1::BeginUpdateResponse> answer) {
      if (answer.ok()) {
        *response = *answer;
        rpc::SetDigest(*response, request->message_digest());
      }
      reactor->Finish(rpc::ToGrpcStatus(answer.status()));
    });
    return reactor;
  }
  void AlterUpdates(std::function<void(rollout::v1::BeginUpdateRequest&)> alter) {
    absl::MutexLock lock(&mu_);
    alter_ = std::move(alter);
  }
  std::vector<rollout::v1::ReadWeightsRequest> reads() const {
    absl::MutexLock lock(&mu_);
    return reads_;
  }
  std::vector<rollout::v1::BeginUpdateRequest> begun() const {
    absl::MutexLock lock(&mu_);
    return begun_;
  }

 private:
  // Of each kind, the first ones: a test that updates for long looks at what piles up.
  static constexpr size_t kMostRecorded = 64;

  rollout::WeightReceiver* const receiver_;
  mutable absl::Mutex mu_;
  std::function<void(rollout::v1::BeginUpdateRequest&)> alter_;
  std::vector<rollout::v1::ReadWeightsRequest> reads_;
  std::vector<rollout::v1::BeginUpdateRequest> begun_;
};

// One rollout rank at an address of its own. Where it reads from another, it does so in buckets of
// a few bytes.
class FakeRollout {
 public:
  explicit FakeRollout(const TestModel& model, std::string listen = "127.0.0.1:0",
                       rollout::StreamReader::Options stream = {.bucket_bytes = 64})
      : FakeRollout(model.manifest(), std::move(listen), stream) {}
  // A rank that holds what the manifest says.
  explicit FakeRollout(common::v1::Manifest manifest, std::string listen = "127.0.0.1:0",
                       rollout::StreamReader::Options stream = {.bucket_bytes = 64})
      : store(std::move(manifest)), receiver(&store, stream, &owner), service_(&receiver) {
    rpc::ServerOptions options;
    options.listen = std::move(listen);
    options.role = "rollout";
    auto server = rpc::Server::Start(options, {&service_});
    if (server.ok())
      server_ = *std::move(server);
    else
      status = server.status();
  }
  ~FakeRollout() {
    receiver.Shutdown();
    server_.reset();
  }
  const std::string& address() const { return server_->address(); }
  // That others made of it.
  std::vector<rollout::v1::ReadWeightsRequest> reads() const { return service_.reads(); }
  // Every request to begin an update, as it came.
  std::vector<rollout::v1::BeginUpdateRequest> begun() const { return service_.begun(); }
  // What the rollout is told of updates from now on is another thing than it was sent: so its calls
  // work, and its data plane leads elsewhere. Null: nothing is changed.
  void AlterUpdates(std::function<void(rollout::v1::BeginUpdateRequest&)> alter) {
    service_.AlterUpdates(std::move(alter));
  }

  absl::Status status;  // of the start
  FakeWeightStore store;
  rollout::RolloutOwner owner;
  rollout::WeightReceiver receiver;

 private:
  RecordingWeightService service_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_FAKE_ROLLOUT_H_
