// tandem bench train: tokens per second of the sharded trainer, on the work of a supervised step.
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/io/json_text.h"
#include "common/io/model_config.h"
#include "common/model/model_spec.h"
#include "common/rank_setup/mesh_shape.h"
#include "common/rank_setup/rank_setup.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/bench/bench.h"
#include "tools/tandem/bench/random_pictures.h"
#include "tools/tandem/commands/run_options.h"
#include "tools/tandem/commands/session.h"
#include "tools/tandem/plan/batch_plan.h"
#include "tools/tandem/plan/hardware.h"
#include "tools/tandem/plan/rank_memory.h"
#include "tools/tandem/plan/step_cost.h"

namespace tandem::bench {
namespace {

using common::v1::Sample;

struct TrainOptions {
  std::string model;
  int64_t ranks = 2;
  int64_t batch = 8;
  int64_t sequence_length = 256;
  int64_t steps = 6;
  std::string dtype = "bfloat16";
  std::string hardware;  // empty: not named
  PictureOptions pictures;
  bool no_shared_memory = false;
  std::vector<std::string> overrides;
};

// Every token of a sequence but the first is trained on; with pictures, which come first, those behind
// their placeholders.
Sample ToSample(int64_t index, const std::vector<uint32_t>& ids, RandomPictures* pictures,
                driver::StepImages& images) {
  driver::Prompt whole{.token_ids = ids};
  size_t num_given = 1;
  if (pictures != nullptr) {
    const auto tokens = static_cast<size_t>(pictures->tokens_per_prompt());
    whole.token_ids.resize(ids.size() - tokens);
    pictures->AddTo(whole);
    num_given = tokens + whole.images.size();
  }
  Sample sample;
  sample.set_sample_id(absl::StrCat(index));
  sample.set_group_id(absl::StrCat(index));
  sample.set_temperature(1);
  common::v1::Segment* prompt = sample.add_segments();
  prompt->set_kind(common::v1::SEGMENT_KIND_PROMPT);
  const auto split = whole.token_ids.begin() + static_cast<ptrdiff_t>(num_given);
  prompt->mutable_token_ids()->Add(whole.token_ids.begin(), split);
  for (const driver::PromptImage& image : whole.images) {
    prompt->add_image_digests(image.digest);
    images.emplace(image.digest, image);
  }
  common::v1::Segment* rest = sample.add_segments();
  rest->set_kind(common::v1::SEGMENT_KIND_SAMPLED);
  rest->mutable_token_ids()->Add(split, whole.token_ids.end());
  return sample;
}

// Milliseconds of a step by phase, a column for each rank, on stderr. The rows above the last add
// up to it.
void PrintPhases(const nlohmann::json& ranks) {
  struct Row {
    const char* title;
    const char* phase;
  };
  constexpr Row kRows[] = {{"forward", "forward"},
                           {"backward", "backward"},
                           {"head and loss", "head"},
                           {"wait for gathers", "all_gather_wait"},
                           {"wait for reductions", "reduce_scatter_wait"},
                           {"wait for the norm", "norm_wait"},
                           {"optimizer", "optimizer"},
                           {"other", "other"},
                           {"step", "step"}};
  std::fprintf(stderr, "%-22s", "ms per step");
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    std::fprintf(stderr, "%9s%2zu", "rank", rank);
  }
  std::fprintf(stderr, "\n");
  for (const Row& row : kRows) {
    std::fprintf(stderr, "%-22s", row.title);
    for (const nlohmann::json& phases : ranks) {
      const double seconds = phases.is_object() ? phases.value(row.phase, 0.0) : 0.0;
      std::fprintf(stderr, "%11.1f", seconds * 1e3);
    }
    std::fprintf(stderr, "\n");
  }
}

// What tools/tandem/plan says of the same work. expert_load: RankWorkload::expert_load as the trainer
// reported it; pictures: of each sequence, or null.
absl::StatusOr<int64_t> PredictedPeak(const TrainOptions& options,
                                      const config::v1::RunConfig& config,
                                      const model::ModelSpec& spec, double expert_load,
                                      const RandomPictures* pictures) {
  ASSIGN_OR_RETURN(const comm::MeshShape mesh,
                   setup::MeshShapeOf(config.trainer(), static_cast<int>(options.ranks)));
  const int64_t sequences = options.ranks * options.batch;
  const int64_t data_ranks = mesh.num_data_ranks();
  plan::RankWorkload work =
      plan::SupervisedWorkload((sequences + data_ranks - 1) / data_ranks, options.sequence_length,
                               config.trainer().max_tokens_per_micro_batch());
  work.expert_load = expert_load;
  if (pictures != nullptr) {
    work.image_prompts = work.sequences;
    work.rows_per_prompt = pictures->rows_per_prompt();
    // Placeholders, and a token before each run but the first, are not trained on.
    const int64_t trained =
        options.sequence_length + 1 - pictures->tokens_per_prompt() - options.pictures.per_prompt;
    work.rows = work.sequences * trained;
    work.step_image_prompts = work.step_tokens / options.sequence_length;
    work.step_rows = work.step_image_prompts * trained;
  }
  const setup::RankSetup setup = setup::SetupOf(config, spec, mesh, {});
  return plan::PredictRankMemory(spec, setup, work).peak.total();
}

absl::Status RunTrain(const TrainOptions& options) {
  double peak_flops = 0;  // of one rank; 0 where the hardware is not named
  if (!options.hardware.empty()) {
    ASSIGN_OR_RETURN(const plan::Hardware hardware, plan::ParseHardware(options.hardware));
    peak_flops = hardware.flops;
  }
  commands::Session session;
  commands::ScratchFolder scratch(&session);
  commands::RunOptions run;
  run.overrides = {absl::StrCat("model.path='", options.model, "'"),
                   absl::StrCat("model.dtype=", options.dtype),
                   absl::StrCat("trainer.ranks=", options.ranks),
                   absl::StrCat("trainer.max_tokens_per_micro_batch=",
                                options.batch * (options.sequence_length + 1)),
                   absl::StrCat("trainer.total_steps=", options.steps + 1),
                   absl::StrCat("run_dir=", scratch.path()),
                   "trainer.threads=1",
                   "actor.optim.lr=1e-3",
                   "actor.optim.betas=[0.9, 0.999]",
                   "actor.optim.weight_decay=0.01",
                   "actor.optim.grad_clip=1"};
  if (options.no_shared_memory) run.overrides.push_back("trainer.shared_memory=false");
  run.overrides.insert(run.overrides.end(), options.overrides.begin(), options.overrides.end());
  ASSIGN_OR_RETURN(const config::v1::RunConfig config, commands::ResolveConfig(run, {}));
  ASSIGN_OR_RETURN(const io::ModelConfig model_config, io::ReadModelConfig(options.model));
  ASSIGN_OR_RETURN(const model::ModelSpec spec,
                   model::ParseModelSpec(model_config.json, model_config.path));
  // Each has a token before those that are trained on.
  if (options.sequence_length >= spec.max_position_embeddings) {
    return commands::Misuse(absl::InvalidArgumentError(
        absl::StrCat("--sequence-length ", options.sequence_length,
                     ": expected less than the model's max_position_embeddings ",
                     spec.max_position_embeddings)));
  }
  std::optional<RandomPictures> pictures;
  if (options.pictures.per_prompt > 0) {
    ASSIGN_OR_RETURN(pictures, RandomPictures::Create(options.model, spec, options.pictures));
    // A token before each, and one that is trained on.
    const int64_t least = pictures->tokens_per_prompt() + options.pictures.per_prompt;
    if (options.sequence_length < least) {
      return commands::Misuse(absl::InvalidArgumentError(
          absl::StrCat("--sequence-length ", options.sequence_length, ": expected at least ", least,
                       " for the pictures of --images and --image-size")));
    }
  }
  RETURN_IF_ERROR(session.Explain(session.Open(config, {.local = true, .needs_rollouts = false})));

  TorchRandint randint(7, spec.vocab_size);
  const int64_t sequences = options.ranks * options.batch;
  const int64_t length = options.sequence_length + 1;
  nlohmann::json losses = nlohmann::json::array();
  nlohmann::json grad_norms = nlohmann::json::array();
  nlohmann::json phases = nlohmann::json::object();
  std::map<std::string, nlohmann::json> rank_phases;  // by "rank.K"
  std::vector<double> step_seconds;
  double seconds = 0;
  double peak_tensor_bytes = 0;
  double expert_load = 1;
  nlohmann::json rank_memory;
  for (int64_t step = 1; step <= options.steps + 1; ++step) {
    const std::vector<uint32_t> ids = randint.Draw(sequences * length);
    std::vector<Sample> samples;
    driver::StepImages images;
    for (int64_t i = 0; i < sequences; ++i) {
      const auto first = ids.begin() + static_cast<ptrdiff_t>(i * length);
      samples.push_back(ToSample(i, {first, first + static_cast<ptrdiff_t>(length)},
                                 pictures.has_value() ? &*pictures : nullptr, images));
    }
    const absl::Time start = absl::Now();
    const auto response =
        session.trainer().TrainStep(step, trainer::v1::OBJECTIVE_SUPERVISED, samples,
                                    /*total_steps=*/0, images);
    RETURN_IF_ERROR(session.Explain(response.status()));
    const double elapsed = absl::ToDoubleSeconds(absl::Now() - start);
    const auto& metrics = response->metrics();
    losses.push_back(metrics.at("train/loss"));
    grad_norms.push_back(metrics.at("actor/grad_norm"));
    if (const auto peak = metrics.find("perf/peak_tensor_bytes"); peak != metrics.end()) {
      peak_tensor_bytes = std::max(peak_tensor_bytes, peak->second);
    }
    if (const auto load = metrics.find("experts/largest_rank_load"); load != metrics.end()) {
      expert_load = std::max(expert_load, load->second);
    }
    rank_memory = nlohmann::json::array();
    for (const trainer::v1::RankMetrics& rank : response->rank_metrics()) {
      nlohmann::json bytes = nlohmann::json::object();
      for (const auto& [name, value] : rank.metrics()) bytes[name.substr(5)] = value;  // "perf/"
      rank_memory.push_back(std::move(bytes));
    }
    if (step == 1) continue;  // not timed: buffers are made, pages touched
    seconds += elapsed;
    step_seconds.push_back(elapsed);
    for (const auto& [name, value] : metrics) {
      if (name.rfind("timing_s/", 0) != 0) continue;
      const std::string phase = name.substr(9);
      const size_t slash = phase.find('/');
      const bool of_rank = phase.rfind("rank.", 0) == 0 && slash != std::string::npos;
      nlohmann::json& times = of_rank ? rank_phases[phase.substr(0, slash)] : phases;
      if (times.is_null()) times = nlohmann::json::object();
      const std::string key = of_rank ? phase.substr(slash + 1) : phase;
      times[key] = times.value(key, 0.0) + value / static_cast<double>(options.steps);
    }
  }
  nlohmann::json ranks = nlohmann::json::array();
  for (int64_t rank = 0; rank < options.ranks; ++rank) {
    ranks.push_back(rank_phases[absl::StrCat("rank.", rank)]);
  }
  ASSIGN_OR_RETURN(const int64_t predicted,
                   PredictedPeak(options, config, spec, expert_load,
                                 pictures.has_value() ? &*pictures : nullptr));
  const double tokens = static_cast<double>(sequences * options.sequence_length);
  const double tokens_per_second = tokens * static_cast<double>(options.steps) / seconds;
  const double rank_flops = plan::TrainingFlopsPerToken(spec, options.sequence_length) *
                            tokens_per_second / static_cast<double>(options.ranks);
  nlohmann::json utilisation;  // null where there is nothing to hold it against
  if (peak_flops > 0) utilisation = rank_flops / peak_flops;
  const nlohmann::json line = {{"bench", "train"},
                               {"model", options.model},
                               {"dtype", options.dtype},
                               {"ranks", options.ranks},
                               {"batch", options.batch},
                               {"sequence_length", options.sequence_length},
                               {"steps", options.steps},
                               {"tokens_per_second", tokens_per_second},
                               {"flops_per_second_per_rank", rank_flops},
                               {"mfu", utilisation},
                               {"median_step_seconds", Median(step_seconds)},
                               {"losses", losses},
                               {"grad_norms", grad_norms},
                               {"peak_tensor_bytes", peak_tensor_bytes},
                               {"predicted_peak_tensor_bytes", predicted},
                               {"rank_memory", rank_memory},
                               {"phases", phases},
                               {"rank_phases", ranks}};
  PrintPhases(ranks);
  std::printf("%s\n", io::JsonText(line).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddTrain(CLI::App& bench, commands::Runner& runner) {
  CLI::App* command = bench.add_subcommand("train", "Training throughput in tokens per second");
  auto options = std::make_shared<TrainOptions>();
  command->add_option("--model", options->model, "Hugging Face folder")->required();
  command->add_option("--ranks", options->ranks, "Processes")->capture_default_str();
  command->add_option("--batch", options->batch, "Sequences per rank")->capture_default_str();
  command->add_option("--sequence-length", options->sequence_length, "Tokens per sequence")
      ->capture_default_str();
  command
      ->add_option("--images", options->pictures.per_prompt,
                   "Pictures in each sequence, whose placeholders are among its tokens")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  command->add_option("--image-size", options->pictures.side, "Width and height of a picture")
      ->check(CLI::Range(16, 4096))
      ->capture_default_str();
  command->add_option("--steps", options->steps, "Timed steps, after one warm-up step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "float32 or bfloat16")->capture_default_str();
  command->add_option("--hardware", options->hardware,
                      "Hardware of a rank (h100, h200, a YAML file), whose bfloat16 peak is the "
                      "base of model flops utilisation");
  command->add_flag("--no-shared-memory", options->no_shared_memory,
                    "Uses Gloo's sockets between ranks of one host");
  command->add_option("--set", options->overrides, "Overrides a configuration value")
      ->allow_extra_args(false);
  SetRun(*command, runner, options, RunTrain);
}

}  // namespace tandem::bench
