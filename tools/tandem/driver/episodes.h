// Episodes: makes the episodes of a run with the configured environment.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<Episodes> episodes, Episodes::Create(config, tokenizer));
//   episodes->AddNeeds(needs_of_rows);
//   RETURN_IF_ERROR(episodes->Check(timeout, interrupted));
//   RETURN_IF_ERROR(episodes->Start(log_folder, timeout, interrupted));
//   options.make_episode = episodes->factory(fleet);
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_EPISODES_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_EPISODES_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/tokenizer/tokenizer.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/agent_player.h"
#include "tools/tandem/driver/episode.h"
#include "tools/tandem/driver/image_reader.h"
#include "tools/tandem/driver/image_store.h"
#include "tools/tandem/driver/rollout_fleet.h"
#include "tools/tandem/driver/row_prompt.h"
#include "tools/tandem/driver/run_folder.h"
#include "tools/tandem/environment/agent_program.h"
#include "tools/tandem/environment/environment_client.h"
#include "tools/tandem/environment/service_process.h"

namespace tandem::driver {

// How long a run waits for an EnvironmentService before it starts.
inline constexpr absl::Duration kEnvironmentWait = absl::Seconds(60);

// Thread-safe but for Start(). Outlives the episodes' last use; destroying it ends what they wait for.
class Episodes {
 public:
  // `tokenizer` may be null if every row gives token ids; it outlives the episodes. `max_length` is the
  // longest sequence that the rollouts take, 0 if unknown. Connects nowhere and starts nothing.
  // FAILED_PRECONDITION if the environment needs a tokenizer and there is none; for a model that sees
  // images, the errors of ImageReader::Create(). What episodes see is kept in run_dir/images.
  static absl::StatusOr<std::unique_ptr<Episodes>> Create(const config::v1::RunConfig& config,
                                                          const tokenizer::Tokenizer* tokenizer,
                                                          int64_t max_length = 0);
  ~Episodes();

  // Adds what the episodes need of the rows.
  void AddNeeds(RowNeeds& needs) const;
  // Finds out whether the environment is there: the program of environment.command, or a service, for
  // which it waits up to `timeout`; CANCELLED soon after `interrupted`, which may be null, is true.
  absl::Status Check(absl::Duration timeout, const std::function<bool()>& interrupted) const;
  // Starts the service's program, if it is the run's to start, and waits like Check() until it answers.
  // What it writes is appended to `log_folder`/environment.log.
  absl::Status Start(const std::string& log_folder, absl::Duration timeout,
                     const std::function<bool()>& interrupted);
  // `fleet` samples the episodes. Agents need it and use it until Shutdown(); otherwise it may be null.
  // `returns_experts`: agents' calls do (completion_experts.h), as other requests by GenerateOptions.
  EpisodeFactory factory(RolloutFleet* fleet, bool returns_experts = false) const;
  // Cuts off agents and ends the connection to a service; then nothing uses a fleet. Harmless to repeat.
  void Shutdown();
  // Adds counts since the last call.
  void AddMetrics(Metrics& metrics) const;

 private:
  Episodes(const config::v1::RunConfig& config, const tokenizer::Tokenizer* tokenizer,
           int64_t max_length);
  absl::Status MakeEnvironment();
  // Sets images_, if the episodes have several turns.
  absl::Status ReadModel(const std::string& folder);
  EpisodeFactory AgentFactory(RolloutFleet* fleet, bool returns_experts) const;

  const config::v1::EnvironmentConfig config_;
  const int64_t max_tokens_;
  const int64_t max_turn_tokens_;
  const int64_t max_length_;
  const int64_t max_agent_length_;
  const bool rewards_;  // the environment's reward is one of the run's
  const tokenizer::Tokenizer* const tokenizer_;
  const ImageStore store_;
  std::unique_ptr<ImageReader> images_;                   // null unless the model sees images
  std::string endpoint_;                                  // of the service
  std::unique_ptr<environment::ServiceProcess> process_;  // null unless the run starts the service
  std::shared_ptr<environment::EnvironmentClient> client_;    // null unless a service plays
  std::shared_ptr<const environment::AgentProgram> program_;  // null unless an agent plays
  std::unique_ptr<AgentPlayer> player_;                       // likewise
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_EPISODES_H_
