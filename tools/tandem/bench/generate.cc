// tandem bench generate: tokens per second of the rollout service.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/host/control_group.h"
#include "common/io/json_text.h"
#include "common/io/model_config.h"
#include "common/model/model_spec.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/bench/bench.h"
#include "tools/tandem/bench/episode_workload.h"
#include "tools/tandem/bench/group_workload.h"
#include "tools/tandem/bench/random_pictures.h"
#include "tools/tandem/bench/roofline.h"
#include "tools/tandem/bench/timed_generation.h"
#include "tools/tandem/commands/model_session.h"
#include "tools/tandem/commands/run_options.h"

namespace tandem::bench {
namespace {

struct GenerateOptions {
  commands::ModelOptions model;
  std::string workload = "batch";
  GroupWorkload groups;
  EpisodeWorkload episodes;
  int64_t batch_cap = 64;  // of episodes
  GenerationWork work;
  PictureOptions pictures;
  std::string device = "cpu";
  int repeats = 3;

  int64_t element_bytes() const { return model.dtype == "bfloat16" ? 2 : 4; }
};

// Seconds of the work with another number of new tokens.
absl::StatusOr<double> TimeBatch(driver::RolloutFleet& fleet, TorchRandint& randint,
                                 GenerationWork work, int64_t new_tokens) {
  work.new_tokens = new_tokens;
  ASSIGN_OR_RETURN(const TimedGeneration timed, TimeGeneration(fleet, randint, work));
  return timed.seconds;
}

// A few tokens of the work.
absl::Status WarmUp(driver::RolloutFleet& fleet, TorchRandint& randint,
                    const GenerationWork& work) {
  return TimeBatch(fleet, randint, work, std::min<int64_t>(4, work.new_tokens)).status();
}

absl::StatusOr<model::ModelSpec> SpecOf(const GenerateOptions& options) {
  std::vector<std::string> overrides = options.model.overrides;
  RETURN_IF_ERROR(commands::AddFamilies(overrides));
  ASSIGN_OR_RETURN(const io::ModelConfig config, io::ReadModelConfig(options.model.model));
  return model::ParseModelSpec(config.json, config.path);
}

// Seconds to a first token of prompts with new pictures, and of the same pictures in other prompts: the
// rollout has their rows already.
struct PrefillSeconds {
  double of_new = 0;
  double of_known = 0;
};

absl::StatusOr<PrefillSeconds> TimePrefill(driver::RolloutFleet& fleet, TorchRandint& randint,
                                           GenerationWork work) {
  work.new_tokens = 1;
  PrefillSeconds seconds;
  std::vector<driver::Prompt> prompts = DrawPrompts(randint, work);
  ASSIGN_OR_RETURN(const TimedGeneration of_new, TimePrompts(fleet, prompts, work));
  seconds.of_new = of_new.seconds;
  if (work.pictures == nullptr) return seconds;
  // Another first token, so that no block is in the prefix cache.
  for (driver::Prompt& prompt : prompts) prompt.token_ids[0] = prompt.token_ids[0] == 1 ? 2 : 1;
  ASSIGN_OR_RETURN(const TimedGeneration of_known, TimePrompts(fleet, std::move(prompts), work));
  seconds.of_known = of_known.seconds;
  return seconds;
}

// A replica of the model with room for the work.
absl::StatusOr<model::ModelSpec> Open(const GenerateOptions& options, const GenerationWork& work,
                                      absl::string_view length_flags,
                                      const commands::ScratchFolder& scratch,
                                      commands::Session& session) {
  config::v1::RunConfig config;
  commands::ModelOptions model = options.model;
  RETURN_IF_ERROR(commands::AddFamilies(model.overrides));
  ASSIGN_OR_RETURN(const io::ModelConfig model_config, io::ReadModelConfig(model.model));
  ASSIGN_OR_RETURN(const model::ModelSpec spec,
                   model::ParseModelSpec(model_config.json, model_config.path));
  ASSIGN_OR_RETURN(const std::vector<std::string> room,
                   RoomFor(work, spec, options.element_bytes(), length_flags));
  model.overrides.insert(model.overrides.begin(), room.begin(), room.end());
  model.overrides.insert(model.overrides.begin(), "rollout.device=" + options.device);
  RETURN_IF_ERROR(session.Explain(
      commands::OpenModelSession(model, commands::Side::kRollout, scratch, session, config)));
  return spec;
}

absl::Status RunGroups(const GenerateOptions& options) {
  commands::Session session;
  commands::ScratchFolder scratch(&session);
  const GroupWorkload& groups = options.groups;
  if (groups.least_new_tokens > groups.most_new_tokens) {
    return commands::Misuse(
        absl::InvalidArgumentError(absl::StrCat("--least-new-tokens ", groups.least_new_tokens,
                                                ": expected at most ", groups.most_new_tokens)));
  }
  GenerationWork work{.batch = groups.prompts,
                      .n = groups.samples,
                      .prompt_tokens = groups.prompt_tokens,
                      .new_tokens = groups.most_new_tokens};
  ASSIGN_OR_RETURN(
      const model::ModelSpec spec,
      Open(options, work, "--group-prompt-tokens or --most-new-tokens", scratch, session));
  TorchRandint randint(1, spec.vocab_size);
  work.batch = 1;
  RETURN_IF_ERROR(WarmUp(session.fleet(), randint, work));
  ASSIGN_OR_RETURN(nlohmann::json line,
                   RunGroupWorkload(session.fleet(), randint, groups, options.repeats));
  line["bench"] = "generate";
  line["workload"] = options.workload;
  line["model"] = options.model.model;
  line["dtype"] = options.model.dtype;
  line["device"] = options.device;
  std::printf("%s\n", io::JsonText(line).c_str());
  return absl::OkStatus();
}

absl::Status RunEpisodes(const GenerateOptions& options) {
  commands::Session session;
  commands::ScratchFolder scratch(&session);
  const EpisodeWorkload& episodes = options.episodes;
  // Room for all episodes, so that none that waits loses its cache.
  GenerationWork work{.batch = episodes.episodes,
                      .prompt_tokens = episodes.length() - episodes.sampled_tokens(),
                      .new_tokens = episodes.sampled_tokens()};
  GenerateOptions capped = options;
  capped.model.overrides.push_back(absl::StrCat("rollout.max_num_seqs=", options.batch_cap));
  ASSIGN_OR_RETURN(
      const model::ModelSpec spec,
      Open(capped, work, "--turns, --turn-tokens or --episode-prompt-tokens", scratch, session));
  TorchRandint randint(1, spec.vocab_size);
  work.batch = 1;
  RETURN_IF_ERROR(WarmUp(session.fleet(), randint, work));
  ASSIGN_OR_RETURN(nlohmann::json line,
                   RunEpisodeWorkload(session.fleet(), randint, episodes, options.repeats));
  line["bench"] = "generate";
  line["workload"] = options.workload;
  line["model"] = options.model.model;
  line["dtype"] = options.model.dtype;
  line["device"] = options.device;
  line["batch_cap"] = options.batch_cap;
  std::printf("%s\n", io::JsonText(line).c_str());
  return absl::OkStatus();
}

absl::Status RunGenerate(const GenerateOptions& options) {
  if (options.pictures.per_prompt > 0 && options.workload != "batch") {
    return commands::Misuse(absl::InvalidArgumentError(
        absl::StrCat("--images: expected --workload batch beside it, found ", options.workload)));
  }
  if (options.workload == "grpo") return RunGroups(options);
  if (options.workload == "episodes") return RunEpisodes(options);
  commands::Session session;
  commands::ScratchFolder scratch(&session);
  GenerationWork work = options.work;
  std::optional<RandomPictures> pictures;
  if (options.pictures.per_prompt > 0) {
    if (work.prompt_tokens < options.pictures.per_prompt) {
      return commands::Misuse(absl::InvalidArgumentError(
          absl::StrCat("--prompt-tokens ", work.prompt_tokens, ": expected at least --images, ",
                       options.pictures.per_prompt, ", as a token comes before each")));
    }
    ASSIGN_OR_RETURN(const model::ModelSpec of_folder, SpecOf(options));
    ASSIGN_OR_RETURN(pictures,
                     RandomPictures::Create(options.model.model, of_folder, options.pictures));
    work.pictures = &*pictures;
  }
  ASSIGN_OR_RETURN(const model::ModelSpec spec,
                   Open(options, work, "--prompt-tokens or --new-tokens", scratch, session));
  TorchRandint randint(1, spec.vocab_size);
  RETURN_IF_ERROR(WarmUp(session.fleet(), randint, work));
  std::vector<double> prefill, known, total;
  for (int i = 0; i < options.repeats; ++i) {
    ASSIGN_OR_RETURN(const PrefillSeconds seconds, TimePrefill(session.fleet(), randint, work));
    prefill.push_back(seconds.of_new);
    known.push_back(seconds.of_known);
    ASSIGN_OR_RETURN(const TimedGeneration timed, TimeGeneration(session.fleet(), randint, work));
    total.push_back(timed.seconds);
  }
  ASSIGN_OR_RETURN(const int64_t kv_blocks, CountKvBlocks(session.fleet(), randint, work));
  const double prefill_s = Median(prefill);
  const double total_s = Median(total);
  const double batch = static_cast<double>(work.batch);
  const double decode = batch * (work.new_tokens - 1) / (total_s - prefill_s);
  nlohmann::json line = {{"bench", "generate"},
                         {"model", options.model.model},
                         {"dtype", options.model.dtype},
                         {"device", options.device},
                         {"batch", work.batch},
                         {"prompt_tokens", work.prompt_tokens},
                         {"new_tokens", work.new_tokens},
                         {"seconds", total_s},
                         {"tokens_per_second", batch * work.new_tokens / total_s},
                         {"prefill_tokens_per_second", batch * work.prompt_length() / prefill_s},
                         {"decode_tokens_per_second", decode},
                         {"kv_blocks", kv_blocks},
                         {"repeats", options.repeats}};
  if (pictures.has_value()) {
    const double encode_s = prefill_s - Median(known);
    line["images"] = options.pictures.per_prompt;
    line["image_size"] = options.pictures.side;
    line["image_tokens"] = pictures->tokens_per_prompt();
    line["encode_seconds"] = encode_s;
    line["encode_patches_per_second"] = batch * pictures->patches_per_prompt() / encode_s;
  }
  const double context =
      static_cast<double>(work.prompt_length()) + static_cast<double>(work.new_tokens) / 2;
  const StepCost cost = DecodeCost(spec, options.element_bytes(), work.batch, context);
  line["step_bytes"] = cost.bytes;
  line["step_flops"] = cost.flops;
  if (options.device == "cpu") {
    // The roofline's rates are measured on the CPU cores.
    const int threads = host::UsableCores();
    const MachineRates rates = MeasureMachineRates(static_cast<int64_t>(cost.bytes), threads);
    const double roofline = batch / cost.Seconds(rates);
    line["roofline_tokens_per_second"] = roofline;
    line["roofline_share"] = decode / roofline;
    line["read_gigabytes_per_second"] = rates.read_bytes_per_second / 1e9;
    line["gigaflops_per_second"] = rates.flops_per_second / 1e9;
  }
  std::printf("%s\n", io::JsonText(line).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddGenerate(CLI::App& bench, commands::Runner& runner) {
  CLI::App* command =
      bench.add_subcommand("generate", "Generation throughput in tokens per second");
  auto options = std::make_shared<GenerateOptions>();
  commands::AddModelOptions(*command, options->model);
  command->get_option("--model")->required();
  command
      ->add_option("--workload", options->workload,
                   "batch: concurrent requests of equal length. grpo: groups of samples, with and "
                   "without a shared prompt. episodes: several turns with an environment between "
                   "them, beside single turns of as many tokens")
      ->check(CLI::IsMember({"batch", "grpo", "episodes"}))
      ->capture_default_str();
  command->add_option("--batch", options->work.batch, "Concurrent requests")->capture_default_str();
  command->add_option("--prompts", options->groups.prompts, "grpo: number of groups")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--samples", options->groups.samples, "grpo: samples per group")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--group-prompt-tokens", options->groups.prompt_tokens,
                   "grpo: length of each prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--least-new-tokens", options->groups.least_new_tokens,
                   "grpo: new tokens in the shortest group")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--most-new-tokens", options->groups.most_new_tokens,
                   "grpo: new tokens in the longest group")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--episodes", options->episodes.episodes, "episodes: played at a time")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--turns", options->episodes.turns, "episodes: turns of each")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--episode-prompt-tokens", options->episodes.prompt_tokens,
                   "episodes: length of each prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--turn-tokens", options->episodes.turn_tokens,
                   "episodes: tokens to sample per turn")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--observation-tokens", options->episodes.observation_tokens,
                   "episodes: tokens that the environment adds after a turn")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--environment-ms", options->episodes.environment_ms,
                   "episodes: milliseconds that the environment takes over it")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--batch-cap", options->batch_cap,
                   "episodes: sequences computed at a time, as rollout.max_num_seqs")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--prompt-tokens", options->work.prompt_tokens, "Text tokens of each prompt")
      ->capture_default_str();
  command
      ->add_option("--images", options->pictures.per_prompt,
                   "batch: pictures in each prompt, beside its text, all of them different")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  command->add_option("--image-size", options->pictures.side, "Width and height of a picture")
      ->check(CLI::Range(16, 4096))
      ->capture_default_str();
  command->add_option("--new-tokens", options->work.new_tokens, "Tokens to sample per request")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--device", options->device,
                   "The rollout's device, like rollout.device: cpu, cuda or cuda:N")
      ->capture_default_str();
  command->add_option("--repeats", options->repeats, "Runs; reports the median")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  SetRun(*command, runner, options, RunGenerate);
}

}  // namespace tandem::bench
