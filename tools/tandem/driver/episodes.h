// Episodes: makes the episodes of a run with the configured environment.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<Episodes> episodes, Episodes::Create(config, tokenizer));
//   episodes->AddNeeds(needs_of_rows);
//   RETURN_IF_ERROR(episodes->Check(timeout, interrupted));
//   options.make_episode = episodes->factory();
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_EPISODES_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_EPISODES_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/tokenizer/tokenizer.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/episode.h"
#include "tools/tandem/driver/row_prompt.h"
#include "tools/tandem/driver/run_folder.h"
#include "tools/tandem/environment/environment_client.h"

namespace tandem::driver {

// How long a run waits for an EnvironmentService before it starts.
inline constexpr absl::Duration kEnvironmentWait = absl::Seconds(60);

// Thread-safe. Outlives the episodes' last use; destroying it ends what they wait for.
class Episodes {
 public:
  // `tokenizer` may be null if every row gives token ids; it outlives the episodes. `max_length` is the
  // longest sequence that the rollouts take, 0 if unknown. Connects nowhere.
  // FAILED_PRECONDITION if the environment needs a tokenizer and there is none.
  static absl::StatusOr<std::unique_ptr<Episodes>> Create(const config::v1::RunConfig& config,
                                                          const tokenizer::Tokenizer* tokenizer,
                                                          int64_t max_length = 0);
  ~Episodes();

  // Adds what the episodes need of the rows.
  void AddNeeds(RowNeeds& needs) const;
  // Finds out whether the environment is there. Waits up to `timeout` for a service; CANCELLED soon
  // after `interrupted`, which may be null, is true.
  absl::Status Check(absl::Duration timeout, const std::function<bool()>& interrupted) const;
  EpisodeFactory factory() const;
  // Adds counts since the last call.
  void AddMetrics(Metrics& metrics) const;

 private:
  Episodes(const config::v1::RunConfig& config, const tokenizer::Tokenizer* tokenizer,
           int64_t max_length);

  const config::v1::EnvironmentConfig config_;
  const int64_t max_tokens_;
  const int64_t max_turn_tokens_;
  const int64_t max_length_;
  const tokenizer::Tokenizer* const tokenizer_;
  std::shared_ptr<environment::EnvironmentClient> client_;  // null unless a service plays
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_EPISODES_H_
