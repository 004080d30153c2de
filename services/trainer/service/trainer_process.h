// RunTrainerProcess: runs one rank of the trainer from start to exit.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_PROCESS_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_PROCESS_H_

#include <string>

#include "absl/status/status.h"
#include "common/comm/launch_environment.h"
#include "common/rpc/termination_signal.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::trainer {

struct TrainerProcessOptions {
  config::v1::RunConfig config;
  comm::LaunchEnvironment environment;
  std::string listen = "127.0.0.1:0";  // of the leader
  std::string health_listen;           // of every rank's health port; empty: none
  std::string ready_file;              // written by the leader once it serves; empty: none
  std::string metrics;                 // HOST:PORT to serve metrics on; empty: none
};

// INVALID_ARGUMENT if the configuration and the launcher disagree.
absl::Status CheckTrainerProcess(const TrainerProcessOptions& options);

// Blocks until the process is asked to terminate (OK) or cannot continue. After a failure the
// process should leave with _Exit: threads waiting in broken groups may never return.
absl::Status RunTrainerProcess(const TrainerProcessOptions& options,
                               rpc::TerminationSignal& termination);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_PROCESS_H_
