// A rollout that serves WeightService over a fake store.
#ifndef TANDEM_TESTS_FAKES_FAKE_ROLLOUT_H_
#define TANDEM_TESTS_FAKES_FAKE_ROLLOUT_H_

#include <memory>
#include <string>
#include <utility>

#include "common/rpc/server.h"
#include "services/rollout/receive/weight_receiver.h"
#include "services/rollout/receive/weight_service.h"
#include "tests/fakes/fake_weight_store.h"
#include "tests/fakes/test_model.h"

namespace tandem::testing {

// One rollout rank at an address of its own.
class FakeRollout {
 public:
  explicit FakeRollout(const TestModel& model, std::string listen = "127.0.0.1:0")
      : store(model.manifest()), receiver(&store), service_(&receiver) {
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

  absl::Status status;  // of the start
  FakeWeightStore store;
  rollout::WeightReceiver receiver;

 private:
  rollout::WeightServiceImpl service_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_FAKE_ROLLOUT_H_
