// PythonWorker: a process of the user's Python with the user's reward function.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_PYTHON_WORKER_H_
#define TANDEM_TOOLS_TANDEM_REWARD_PYTHON_WORKER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/child_process.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/reward/message_socket.h"
#include "tools/tandem/reward/worker_messages.h"

namespace tandem::reward {

struct PythonFunction {
  std::string python = "python3";  // a path, or a name to look up in PATH
  std::string path;                // the user's file
  std::string name;                // of the function; empty: found by its signature
  // File to append to what the function prints. Empty: this process's stderr.
  std::string log_path;
};

// The process ends with this object, and with this process however that ends. Used by one thread at
// a time.
class PythonWorker {
 public:
  // Starts Python and loads the file. Errors name the file: INVALID_ARGUMENT if it cannot be
  // loaded, with the exception's traceback, or has no such function; NOT_FOUND without the
  // interpreter; DEADLINE_EXCEEDED after `timeout`; UNAVAILABLE if Python ends meanwhile.
  static absl::StatusOr<std::unique_ptr<PythonWorker>> Start(const PythonFunction& function,
                                                             absl::Duration timeout);

  // Whether a call scores all completions of a prompt; otherwise a call scores one completion.
  bool scores_groups() const { return scores_groups_; }
  bool running() { return process_->running(); }

  // Calls the function. INVALID_ARGUMENT if it raises, with the user's file, line and traceback, or
  // returns no rewards; the worker can take another call. After any other error it cannot:
  // DEADLINE_EXCEEDED after `timeout`, UNAVAILABLE if the process ends.
  absl::StatusOr<OptionalRewards> Call(const nlohmann::json& request, absl::Duration timeout);

 private:
  PythonWorker(std::unique_ptr<rpc::ChildProcess> process, host::FileDescriptor fd,
               std::string path, std::string log_path)
      : process_(std::move(process)),
        socket_(std::move(fd)),
        path_(std::move(path)),
        log_path_(std::move(log_path)) {}

  absl::Status Load(absl::Duration timeout);
  // Receives an object; says why there is none, and ends a process that exceeds its time.
  absl::StatusOr<nlohmann::json> Receive(absl::Time deadline, absl::Duration timeout);
  absl::Status Explain(const absl::Status& status, absl::Duration timeout);

  const std::unique_ptr<rpc::ChildProcess> process_;
  MessageSocket socket_;
  const std::string path_;
  const std::string log_path_;
  std::string name_;
  bool scores_groups_ = false;
};

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_PYTHON_WORKER_H_
