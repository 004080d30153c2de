// PythonReward: a user's reward function in several worker processes.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_PYTHON_REWARD_H_
#define TANDEM_TOOLS_TANDEM_REWARD_PYTHON_REWARD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/reward/python_worker.h"

namespace tandem::reward {

// A prompt and those of its completions that the function may score together.
struct PythonGroup {
  std::string name;    // in errors: "row 3 of the data set"
  std::string prompt;  // as text
  std::string answer;
  nlohmann::json row;
  std::vector<uint32_t> prompt_ids;
  std::vector<std::string> completions;
  std::vector<std::vector<uint32_t>> completion_ids;
};

// Thread-safe. Starts a worker when a group finds none idle, and keeps it until the end.
class PythonReward {
 public:
  struct Options {
    PythonFunction function;
    std::string prompt_key = "prompt";  // of a row, where chat messages stand
    int64_t max_workers = 1;
    absl::Duration timeout;  // of a call of the function
  };

  explicit PythonReward(Options options)
      : options_(std::move(options)), num_free_(options_.max_workers) {}

  // Loads the file once, in a worker that ends at once and prints to this process's stderr. Errors:
  // see PythonWorker::Start().
  absl::Status Check() const;

  // Returns each group's rewards. Scores a group by one call of the function, or by one for each
  // completion, and several groups at once. A call that ends its worker, or exceeds its time, is
  // repeated once in a new worker, because the cause may lie in the process or the machine.
  // Errors: see PythonWorker. After an error every later call fails with it at once.
  absl::StatusOr<std::vector<OptionalRewards>> Score(const std::vector<PythonGroup>& groups);

 private:
  using Worker = std::unique_ptr<PythonWorker>;

  absl::StatusOr<OptionalRewards> ScoreGroup(const PythonGroup& group);
  absl::StatusOr<OptionalRewards> ScoreGroup(const PythonGroup& group, Worker& worker) const;
  absl::StatusOr<OptionalRewards> Call(const std::string& name, const nlohmann::json& request,
                                       Worker& worker) const;
  // Waits for one of max_workers places. Each is free again by the deadlines of its group's calls.
  absl::StatusOr<Worker> Take();
  // Frees the place of a worker; keeps the worker if it can take another call.
  void Return(Worker worker);
  absl::StatusOr<Worker> Start(const std::string& log_path) const;

  const Options options_;
  absl::Mutex mu_;
  int64_t num_free_ ABSL_GUARDED_BY(mu_);  // places; idle workers have free ones
  std::vector<Worker> idle_ ABSL_GUARDED_BY(mu_);
  absl::Status error_ ABSL_GUARDED_BY(mu_);  // the first
};

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_PYTHON_REWARD_H_
