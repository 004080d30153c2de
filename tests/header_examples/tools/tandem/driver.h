// What the usage examples in tools/tandem/driver leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_DRIVER_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_DRIVER_H_

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tandem::driver::driver_names {
extern config::v1::RunConfig config;
extern int64_t step, version;
}  // namespace tandem::driver::driver_names

namespace tandem::driver::agent_player_example {
extern AgentPlayer player;
extern AgentPlayer::Request request;
inline constexpr header_examples::AnyFunction Use;
}  // namespace tandem::driver::agent_player_example

namespace tandem::driver::episode_example {
extern Prompt prompt;
Completion Sample(const Turn& turn);
void Wake();
inline constexpr header_examples::AnyFunction WaitUntilWoken;
}  // namespace tandem::driver::episode_example

namespace tandem::driver::episode_sequences_example {
extern Prompt prompt;
extern Completion completion;
inline constexpr header_examples::AnyFunction Write;
}  // namespace tandem::driver::episode_sequences_example

namespace tandem::driver::experts_text_example {
extern nlohmann::json line;
extern std::string segment_bytes, text;
}  // namespace tandem::driver::experts_text_example

namespace tandem::driver::recorded_experts_example {
extern std::vector<rollout::v1::RecordedCall> calls;
extern int call;
extern int64_t first;
}  // namespace tandem::driver::recorded_experts_example

namespace tandem::driver::encoding_metrics_example {
extern RolloutFleet* fleet;
extern std::map<std::string, double> metrics;
}  // namespace tandem::driver::encoding_metrics_example

namespace tandem::driver::episodes_example {
using namespace driver_names;
extern const tokenizer::Tokenizer* tokenizer;
extern RowNeeds needs_of_rows;
extern absl::Duration timeout;
extern std::function<bool()> interrupted;
extern std::string log_folder;
extern RolloutFleet* fleet;
extern GenerationLoop::Options options;
}  // namespace tandem::driver::episodes_example

namespace tandem::driver::image_store_example {
extern const config::v1::RunConfig config;
extern const std::string file;
}  // namespace tandem::driver::image_store_example

namespace tandem::driver::image_reader_example {
extern std::string model_folder;
extern const std::unique_ptr<tokenizer::Tokenizer> tokenizer;
extern const nlohmann::ordered_json messages, listed;
extern std::vector<int32_t> ids;
}  // namespace tandem::driver::image_reader_example

namespace tandem::driver::prompt_image_example {
extern const Prompt prompt;
extern rollout::v1::GenerateRequest request;
}  // namespace tandem::driver::prompt_image_example

namespace tandem::driver::fleet_membership_example {
using namespace driver_names;
extern FleetMembership membership;
extern std::set<std::string> committed;
extern absl::Time now;
inline constexpr header_examples::AnyFunction GetServerInfo;
}  // namespace tandem::driver::fleet_membership_example

namespace tandem::driver::generation_loop_example {
using namespace driver_names;
inline constexpr header_examples::AnyFunction TrainAndPublish;
extern GenerationLoop::Options options;
extern std::function<absl::Status()> look;
}  // namespace tandem::driver::generation_loop_example

namespace tandem::driver::group_queue_example {
using namespace driver_names;
extern GroupQueue queue;
extern int64_t place;
extern Group group;
extern bool differs;
inline constexpr header_examples::AnyFunction Train;
}  // namespace tandem::driver::group_queue_example

namespace tandem::driver::group_run_example {
extern GroupRun::Options options;
}  // namespace tandem::driver::group_run_example

namespace tandem::driver::lease_keeper_example {
extern trainer::v1::TrainerService::Stub* stub;
extern std::string run_id;
extern trainer::v1::TrainStepHeader header;
}  // namespace tandem::driver::lease_keeper_example

namespace tandem::driver::pair_loss_example {
extern config::v1::DpoConfig dpo;
extern double chosen, rejected, ref_chosen, ref_rejected, loss;
}  // namespace tandem::driver::pair_loss_example

namespace tandem::driver::publish_retry_example {
extern absl::Duration patience;
absl::Status Publish();
}  // namespace tandem::driver::publish_retry_example

namespace tandem::driver::recorded_episode_example {
extern std::vector<rollout::v1::RecordedCall> calls;
extern int64_t incarnation;
}  // namespace tandem::driver::recorded_episode_example

namespace tandem::driver::score_client_example {
extern std::vector<rollout::v1::ScoreRequest> requests;
}  // namespace tandem::driver::score_client_example

namespace tandem::driver::skipped_steps_example {
using namespace driver_names;
extern std::function<void(const std::string&)> note;
extern trainer::v1::TrainStepResponse response;
extern std::map<std::string, double> metrics;
}  // namespace tandem::driver::skipped_steps_example

namespace tandem::driver::task_pool_example {
inline constexpr header_examples::AnyFunction Judge;
extern std::function<void(absl::Status)> on_error;
}  // namespace tandem::driver::task_pool_example

namespace tandem::driver::teacher_client_example {
extern std::vector<rollout::v1::ScoreRequest> requests;
}  // namespace tandem::driver::teacher_client_example

namespace tandem::driver::teachers_example {
using namespace driver_names;
extern Teachers::Policy policy;
extern PromptSource prompts;
extern Teachers::ConnectOptions options;
extern std::vector<Group> groups;
}  // namespace tandem::driver::teachers_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_DRIVER_H_
