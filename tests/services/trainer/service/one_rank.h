// A trainer of one rank that serves in this process.
#ifndef TANDEM_TESTS_SERVICES_TRAINER_SERVICE_ONE_RANK_H_
#define TANDEM_TESTS_SERVICES_TRAINER_SERVICE_ONE_RANK_H_

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "common/comm/process_group.h"
#include "services/trainer/service/leader_server.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {

inline constexpr int64_t kIncarnation = 77;

class OneRank {
 public:
  explicit OneRank(const config::v1::RunConfig& config, int64_t incarnation = kIncarnation,
                   rpc::MonotonicClock lease_clock = rpc::MonotonicNow) {
    group_ = *comm::CreateGlooGroup({.name = "world"});
    mesh_ = std::make_unique<comm::DeviceMesh>(*group_);
    auto engine = TrainerEngine::Create(config, *mesh_, at::kCPU);
    EXPECT_THAT(engine, ::tandem::testing::IsOk());
    engine_ = *std::move(engine);
    publisher_ = *RankPublisher::Create(*engine_, config);
    LeaderServerOptions options;
    options.config = config;
    options.incarnation = incarnation;
    options.lease_clock = std::move(lease_clock);
    server_ = *LeaderServer::Start(std::move(options), *engine_, *publisher_, {});
  }

  LeaderServer& server() { return *server_; }

 private:
  std::unique_ptr<comm::ProcessGroup> group_;
  std::unique_ptr<comm::DeviceMesh> mesh_;
  std::unique_ptr<TrainerEngine> engine_;
  std::unique_ptr<RankPublisher> publisher_;
  std::unique_ptr<LeaderServer> server_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_TESTS_SERVICES_TRAINER_SERVICE_ONE_RANK_H_
