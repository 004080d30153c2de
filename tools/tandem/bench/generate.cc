// tandem bench generate: tokens per second of the rollout service.
#include <cstdio>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/io/model_config.h"
#include "common/model/model_spec.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/bench/bench.h"
#include "tools/tandem/commands/model_session.h"

namespace tandem::bench {
namespace {

struct Options {
  commands::ModelOptions model;
  int64_t batch = 32;
  int64_t prompt_tokens = 64;
  int64_t new_tokens = 128;
  int repeats = 3;
};

// Seconds from the first request to the last token of `batch` requests.
absl::StatusOr<double> TimeBatch(driver::RolloutFleet& fleet, TorchRandint& randint,
                                 const Options& options, int64_t new_tokens) {
  std::vector<driver::Prompt> prompts(options.batch);
  // New ids each time: nothing is found in the prefix cache.
  for (driver::Prompt& prompt : prompts) prompt.token_ids = randint.Draw(options.prompt_tokens);
  rollout::v1::SamplingParams params;
  params.set_temperature(1);
  params.set_top_k(50);
  params.set_n(1);
  params.set_seed(1);
  params.set_ignore_eos(true);
  params.set_max_tokens(new_tokens);
  const absl::Time start = absl::Now();
  ASSIGN_OR_RETURN(const std::vector<driver::Group> groups,
                   fleet.Generate(std::move(prompts), {.sampling = params, .return_text = false}));
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  for (const driver::Group& group : groups) {
    if (static_cast<int64_t>(group.completions[0].token_ids.size()) != new_tokens) {
      return absl::InternalError(absl::StrCat("expected ", new_tokens, " tokens, found ",
                                              group.completions[0].token_ids.size()));
    }
  }
  return seconds;
}

absl::Status Run(const Options& options) {
  commands::Session session;
  commands::ScratchFolder scratch;
  config::v1::RunConfig config;
  commands::ModelOptions model = options.model;
  const int64_t length = options.prompt_tokens + options.new_tokens;
  // Room for the whole batch, so that nothing is preempted or queued.
  model.overrides.insert(
      model.overrides.begin(),
      {absl::StrCat("rollout.max_num_seqs=", std::max<int64_t>(options.batch, 1)),
       absl::StrCat("data.max_prompt_length=", options.prompt_tokens),
       absl::StrCat("rollout.max_tokens=", options.new_tokens),
       absl::StrCat("rollout.max_model_len=", length)});
  ASSIGN_OR_RETURN(const io::ModelConfig model_config, io::ReadModelConfig(model.model));
  ASSIGN_OR_RETURN(const model::ModelSpec spec,
                   model::ParseModelSpec(model_config.json, model_config.path));
  const int64_t element = model.dtype == "bfloat16" ? 2 : 4;
  const int64_t kv_bytes = 2 * spec.num_layers * spec.kv_size() * element * (length + 16);
  model.overrides.insert(
      model.overrides.begin(),
      absl::StrCat("rollout.kv_cache_megabytes=",
                   std::max<int64_t>(64, 1 + options.batch * kv_bytes / 1000000)));
  RETURN_IF_ERROR(session.Explain(
      commands::OpenModelSession(model, commands::Side::kRollout, scratch, session, config)));
  TorchRandint randint(1, spec.vocab_size);
  RETURN_IF_ERROR(TimeBatch(session.fleet(), randint, options, 4).status());  // warm-up
  std::vector<double> prefill, total;
  for (int i = 0; i < options.repeats; ++i) {
    ASSIGN_OR_RETURN(prefill.emplace_back(), TimeBatch(session.fleet(), randint, options, 1));
    ASSIGN_OR_RETURN(total.emplace_back(),
                     TimeBatch(session.fleet(), randint, options, options.new_tokens));
  }
  const double prefill_s = Median(prefill);
  const double total_s = Median(total);
  const double batch = static_cast<double>(options.batch);
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  const int64_t weight_bytes = spec.num_parameters() * element;
  const double bandwidth = MeasureReadBandwidth(weight_bytes, threads);
  const nlohmann::json line = {
      {"bench", "generate"},
      {"model", options.model.model},
      {"dtype", options.model.dtype},
      {"batch", options.batch},
      {"prompt_tokens", options.prompt_tokens},
      {"new_tokens", options.new_tokens},
      {"seconds", total_s},
      {"tokens_per_second", batch * options.new_tokens / total_s},
      {"prefill_tokens_per_second", batch * options.prompt_tokens / prefill_s},
      {"decode_tokens_per_second", batch * (options.new_tokens - 1) / (total_s - prefill_s)},
      {"roofline_tokens_per_second", batch * bandwidth / static_cast<double>(weight_bytes)},
      {"read_gigabytes_per_second", bandwidth / 1e9},
      {"repeats", options.repeats}};
  std::printf("%s\n", line.dump().c_str());
  return absl::OkStatus();
}

}  // namespace

void AddGenerate(CLI::App& bench, commands::Runner& runner) {
  CLI::App* command = bench.add_subcommand("generate", "Tokens per second of generation");
  auto options = std::make_shared<Options>();
  commands::AddModelOptions(*command, options->model);
  command->get_option("--model")->required();
  command->add_option("--batch", options->batch, "Requests at once")->capture_default_str();
  command->add_option("--prompt-tokens", options->prompt_tokens, "Length of each prompt")
      ->capture_default_str();
  command->add_option("--new-tokens", options->new_tokens, "Tokens sampled for each")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--repeats", options->repeats, "Runs; the median is reported")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  SetRun(*command, runner, options, Run);
}

}  // namespace tandem::bench
