// LeaderServer: the leader's two halves: the collective thread, which executes commands one by one
// with heartbeats in between, and the gRPC server that fills its queue.
//
//   ASSIGN_OR_RETURN(auto server,
//                    LeaderServer::Start(options, engine, publisher, std::move(links)));
//   termination.Wait();                                   // a signal, or on_failed
//   const absl::Status end = server->Stop(absl::Seconds(20));
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_LEADER_SERVER_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_LEADER_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/probe/diagnostics_service.h"
#include "common/rpc/monotonic_clock.h"
#include "common/rpc/server.h"
#include "services/trainer/service/command_queue.h"
#include "services/trainer/service/control_link.h"
#include "services/trainer/service/rank_team.h"
#include "services/trainer/service/rank_worker.h"
#include "services/trainer/service/trainer_engine.h"
#include "services/trainer/service/trainer_leader.h"
#include "services/trainer/service/trainer_service.h"
#include "services/trainer/service/trainer_status.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::trainer {

// Health service name of every rank: SERVING while the rank belongs to a serving trainer.
inline constexpr char kTrainerHealthName[] = "tandem.trainer.v1.TrainerService";

struct LeaderServerOptions {
  config::v1::RunConfig config;
  int64_t incarnation = 0;
  std::string listen = "127.0.0.1:0";
  std::string health_listen;  // empty: none
  std::string device_description = "cpu";
  int num_threads = 1;  // for the collective thread's kernels
  absl::Duration heartbeat_interval = absl::Seconds(1);
  rpc::MonotonicClock lease_clock = rpc::MonotonicNow;
  // Called once, on the collective thread, when a rank is lost. It should set something and return.
  std::function<void()> on_failed;
};

// One thread calls Start() and Stop(). From Start() on, the engine belongs to the collective
// thread.
class LeaderServer {
 public:
  // links[i] leads to rank i + 1. Serves once it returns.
  static absl::StatusOr<std::unique_ptr<LeaderServer>> Start(
      LeaderServerOptions options, TrainerEngine& engine, RankPublisher& publisher,
      std::vector<std::unique_ptr<ControlLink>> links);
  // Stops without grace unless Stop() was called.
  ~LeaderServer();

  // HOST:PORT with the actual port.
  const std::string& address() const { return server_->address(); }
  TrainerStatus& status() { return status_; }
  std::shared_ptr<TrainerMetrics> metrics() const { return leader_->metrics(); }
  std::shared_ptr<rpc::CallMetrics> call_metrics() const { return server_->metrics(); }

  // Sets health to not serving, refuses new calls, finishes accepted ones within `grace`, and stops
  // the other ranks. Returns OK, the error that made the trainer fail, or DEADLINE_EXCEEDED if a
  // command still runs; then the process must exit.
  absl::Status Stop(absl::Duration grace);

 private:
  LeaderServer(LeaderServerOptions options, TrainerEngine& engine, RankPublisher& publisher,
               std::vector<std::unique_ptr<ControlLink>> links);
  void RunCollectiveThread();

  const LeaderServerOptions options_;
  TrainerStatus status_;
  CommandQueue queue_;
  RankWorker worker_;
  RankTeam team_;
  std::unique_ptr<TrainerLeader> leader_;
  std::unique_ptr<TrainerService> service_;
  std::unique_ptr<probe::DiagnosticsServiceImpl> diagnostics_;
  std::unique_ptr<rpc::Server> server_;
  absl::Notification collective_thread_done_;
  std::thread collective_thread_;
  bool stopped_ = false;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_LEADER_SERVER_H_
