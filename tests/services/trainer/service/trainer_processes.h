// The ranks of a trainer as processes of this machine.
#ifndef TANDEM_TESTS_SERVICES_TRAINER_SERVICE_TRAINER_PROCESSES_H_
#define TANDEM_TESTS_SERVICES_TRAINER_SERVICE_TRAINER_PROCESSES_H_

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/to_yaml.h"
#include "common/io/atomic_file.h"
#include "common/net/reserved_port.h"
#include "common/rpc/child_process.h"
#include "common/rpc/process.h"
#include "common/status/status_macros.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::trainer {

class TrainerProcesses {
 public:
  // Starts config.trainer().ranks() processes and waits until the leader serves. Logs and the ready
  // file lie in `folder`.
  static absl::StatusOr<std::unique_ptr<TrainerProcesses>> Start(
      const std::string& folder, const config::v1::RunConfig& config) {
    std::unique_ptr<TrainerProcesses> out(new TrainerProcesses);
    std::filesystem::create_directories(folder);
    const std::string config_path = folder + "/config.yaml";
    const std::string ready_file = folder + "/ready";
    std::filesystem::remove(ready_file);
    RETURN_IF_ERROR(io::WriteFileAtomically(config_path, config::ToYaml(config)));
    ASSIGN_OR_RETURN(const int port, net::ReservePort());
    const char* bin = std::getenv("TANDEM_BIN");
    for (int64_t rank = 0; rank < config.trainer().ranks(); ++rank) {
      rpc::ChildProcessOptions options;
      options.name = absl::StrCat("trainer rank ", rank);
      options.argv = {absl::StrCat(bin == nullptr ? "build/bin" : bin, "/tandem-trainer"),
                      "--config", config_path, "--ready-file", ready_file};
      options.environment = {{"RANK", absl::StrCat(rank)},
                             {"LOCAL_RANK", absl::StrCat(rank)},
                             {"WORLD_SIZE", absl::StrCat(config.trainer().ranks())},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", absl::StrCat(port)}};
      options.log_path = absl::StrCat(folder, "/rank-", rank, ".log");
      ASSIGN_OR_RETURN(out->ranks_.emplace_back(), rpc::ChildProcess::Start(std::move(options)));
    }
    ASSIGN_OR_RETURN(out->address_,
                     rpc::WaitForReadyFile(ready_file, *out->ranks_[0], absl::Seconds(120)));
    return out;
  }

  const std::string& address() const { return address_; }
  rpc::ChildProcess& rank(int i) { return *ranks_[i]; }
  int size() const { return static_cast<int>(ranks_.size()); }

  // Asks all ranks to end; true where all did, with status 0.
  bool StopInOrder() {
    for (auto& rank : ranks_) rank->Terminate();
    bool in_order = true;
    for (auto& rank : ranks_) in_order &= rank->Wait(absl::Seconds(60)) && rank->ExitStatus().ok();
    return in_order;
  }

 private:
  std::vector<std::unique_ptr<rpc::ChildProcess>> ranks_;
  std::string address_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_TESTS_SERVICES_TRAINER_SERVICE_TRAINER_PROCESSES_H_
