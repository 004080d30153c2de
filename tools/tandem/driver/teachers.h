// Teachers: the models that a run's policy is distilled from (section `teacher`): one for all rows, or
// one for each data_source.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<Teachers> teachers, Teachers::Create(config, policy));
//   RETURN_IF_ERROR(teachers->CheckRows(prompts));
//   RETURN_IF_ERROR(teachers->Connect(options));
//   RETURN_IF_ERROR(teachers->Score(groups));
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_TEACHERS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_TEACHERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/config/teacher.h"
#include "common/tokenizer/tokenizer.h"
#include "tandem/common/v1/sample.pb.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/prompt_source.h"
#include "tools/tandem/driver/served_folder.h"
#include "tools/tandem/driver/teacher_client.h"

namespace tandem::driver {

// Score() and ScoreTop() are thread-safe after Connect().
class Teachers {
 public:
  struct Policy {
    int64_t vocab_size = 0;
    const tokenizer::Tokenizer* tokenizer = nullptr;  // null: its folder has none
  };

  // Reads the teachers' folders; connects nowhere. Returns null if the configuration has
  // no teacher. INVALID_ARGUMENT if a folder's model has another vocabulary than the policy: another
  // size, or, if both have a tokenizer, other tokens; or if teacher.top_k is larger.
  static absl::StatusOr<std::unique_ptr<Teachers>> Create(const config::v1::RunConfig& config,
                                                          const Policy& policy);

  // INVALID_ARGUMENT names a row whose data_source has no teacher, or, for `sft`, whose likeliest
  // tokens would not fit in a message.
  absl::Status CheckRows(const PromptSource& rows) const;

  // The folders of teachers without an endpoint, each to be served by a rollout.
  std::vector<ServedFolder> served_folders() const;

  struct ConnectOptions {
    AddressOfServed address_of;    // of the rollouts that serve served_folders()
    int64_t longest_sequence = 0;  // tokens of the longest sequence that will be scored
    std::function<bool()> interrupted;
    absl::Duration timeout = absl::Minutes(5);  // for a teacher to answer
  };
  // Waits for every teacher. INVALID_ARGUMENT if one serves a reward model, has another vocabulary or
  // takes only shorter sequences, or if the likeliest tokens of the longest would not fit in a message;
  // UNAVAILABLE or DEADLINE_EXCEEDED without an answer; CANCELLED after an interrupt, which also ends
  // later calls.
  absl::Status Connect(const ConnectOptions& options);

  // Sets teacher_logprobs of every completion, at rollout.temperature, and with teacher.top_k the likeliest
  // tokens. Errors: TeacherClient::Score().
  absl::Status Score(std::vector<Group>& groups);

  // Sets the likeliest tokens of the sampled segments of supervised samples; `prompts`: the row of each
  // sample.
  absl::Status ScoreTop(const std::vector<const Prompt*>& prompts,
                        std::vector<common::v1::Sample>& samples);

  // Seconds since the last call in which at least one sequence was being scored.
  double TakeSeconds();

 private:
  struct Teacher {
    config::TeacherSource source;
    std::unique_ptr<TeacherClient> client;  // null until Connect()
  };
  // Counts the time in which calls are under way.
  class ScopedCall;

  Teachers(const config::v1::RunConfig& config, const Policy& policy);
  int32_t top_k() const { return static_cast<int32_t>(config_.teacher().top_k()); }
  // INVALID_ARGUMENT, of `what`, if the likeliest tokens of so long a sequence would not fit in a message.
  absl::Status CheckFits(const std::string& what, int64_t num_tokens) const;
  absl::Status CheckServer(const Teacher& teacher, const ConnectOptions& options) const;
  // INVALID_ARGUMENT without one.
  absl::StatusOr<size_t> TeacherOf(const Prompt& prompt) const;
  // Scores with each row's teacher; the responses are in the order of the requests.
  absl::StatusOr<std::vector<rollout::v1::ScoreResponse>> ScoreEach(
      const std::vector<const Prompt*>& prompts, std::vector<rollout::v1::ScoreRequest> requests);

  const config::v1::RunConfig config_;
  const int64_t vocab_size_;
  std::vector<Teacher> teachers_;

  absl::Mutex mu_;
  int num_calls_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time busy_since_ ABSL_GUARDED_BY(mu_);
  double seconds_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_TEACHERS_H_
