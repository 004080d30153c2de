// tandem bench exact: what `numerics: exact` costs against `fast`: decoding, prefill, the trainer's
// forward pass and a whole GRPO step.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/io/json_text.h"
#include "common/io/model_config.h"
#include "common/model/model_spec.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/bench/bench.h"
#include "tools/tandem/bench/timed_generation.h"
#include "tools/tandem/commands/run_options.h"
#include "tools/tandem/commands/session.h"
#include "tools/tandem/driver/progress.h"
#include "tools/tandem/driver/sample_builder.h"

namespace tandem::bench {
namespace {

struct ExactOptions {
  std::string model;
  std::string dtype = "bfloat16";
  std::vector<int64_t> batches = {1, 32, 256};
  GenerationWork step{.batch = 8, .n = 8, .prompt_tokens = 16, .new_tokens = 16};
  int repeats = 3;
  std::vector<std::string> overrides;
};

// Repeats small batches up to about this many requests: their times are short, and noise on a busy
// machine would double them.
constexpr int64_t kRequestsOfBatch = 32;

// Seconds by the name of the work, and the metrics of a step.
struct Measured {
  std::map<std::string, std::vector<double>> seconds;
  double probs_diff_max = 0;
  double probs_diff_mean = 0;
};

// The services with one kind of numerics, and their times. Both kinds run at once and alternate
// between pieces of the work, so that noise of the machine hits both alike.
struct NumericsSide {
  NumericsSide(std::string numerics, int64_t vocab_size)
      : numerics(std::move(numerics)), randint(1, vocab_size) {}

  const std::string numerics;
  commands::Session session;
  commands::ScratchFolder scratch{&session};
  TorchRandint randint;  // both sides draw the same prompts
  Measured measured;
};

absl::StatusOr<config::v1::RunConfig> MakeConfig(const ExactOptions& options,
                                                 const model::ModelSpec& spec,
                                                 const std::string& numerics,
                                                 const std::string& run_dir) {
  GenerationWork most = options.step;
  most.batch *= most.n;
  most.n = 1;
  for (const int64_t batch : options.batches) most.batch = std::max(most.batch, batch);
  commands::RunOptions run;
  ASSIGN_OR_RETURN(run.overrides, RoomFor(most, spec, options.dtype == "bfloat16" ? 2 : 4));
  run.overrides.insert(
      run.overrides.end(),
      {absl::StrCat("model.path='", options.model, "'"),
       absl::StrCat("model.dtype=", options.dtype), absl::StrCat("numerics=", numerics),
       absl::StrCat("run_dir=", run_dir), absl::StrCat("rollout.n=", options.step.n),
       absl::StrCat("data.train_batch_size=", options.step.batch)});
  run.overrides.insert(run.overrides.end(), options.overrides.begin(), options.overrides.end());
  return commands::ResolveConfig(run, {});
}

// Times the prefill of a batch, and the prefill and decoding of the same batch.
absl::Status MeasureBatch(NumericsSide& side, const ExactOptions& options, int64_t batch) {
  GenerationWork work = options.step;
  work.n = 1;
  work.batch = batch;
  for (int64_t requests = 0; requests < kRequestsOfBatch; requests += batch) {
    work.new_tokens = options.step.new_tokens;
    ASSIGN_OR_RETURN(const TimedGeneration whole,
                     TimeGeneration(side.session.fleet(), side.randint, work));
    work.new_tokens = 1;
    ASSIGN_OR_RETURN(const TimedGeneration prefill,
                     TimeGeneration(side.session.fleet(), side.randint, work));
    auto& seconds = side.measured.seconds;
    seconds[absl::StrCat("prefill, batch ", batch)].push_back(prefill.seconds);
    seconds[absl::StrCat("decode, batch ", batch)].push_back(whole.seconds - prefill.seconds);
  }
  return absl::OkStatus();
}

// Generates, trains, publishes: a policy-gradient step on groups with half of the samples rewarded.
absl::Status MeasureStep(NumericsSide& side, const ExactOptions& options, int64_t step) {
  commands::Session& session = side.session;
  Measured& measured = side.measured;
  const absl::Time start = absl::Now();
  ASSIGN_OR_RETURN(TimedGeneration generated,
                   TimeGeneration(session.fleet(), side.randint, options.step));
  for (driver::Group& group : generated.groups) {
    for (size_t i = 0; i < group.completions.size(); ++i) {
      group.completions[i].reward = static_cast<double>(i % 2);
    }
  }
  const std::vector<common::v1::Sample> samples =
      driver::ToSamples(step, generated.groups, /*temperature=*/1);
  const absl::Time train = absl::Now();
  ASSIGN_OR_RETURN(const auto response, session.trainer().TrainStep(
                                            step, trainer::v1::OBJECTIVE_POLICY_GRADIENT, samples));
  const absl::Time publish = absl::Now();
  RETURN_IF_ERROR(session.trainer().PublishWeights(session.fleet()).status());
  const absl::Time end = absl::Now();
  measured.seconds["step"].push_back(absl::ToDoubleSeconds(end - start));
  measured.seconds["step, generate"].push_back(absl::ToDoubleSeconds(train - start));
  measured.seconds["step, train"].push_back(absl::ToDoubleSeconds(publish - train));
  measured.seconds["step, publish"].push_back(absl::ToDoubleSeconds(end - publish));
  const auto metric = [&](const char* name) {
    const auto found = response.metrics().find(name);
    return found == response.metrics().end() ? 0.0 : found->second;
  };
  measured.probs_diff_max =
      std::max(measured.probs_diff_max, metric("training/rollout_probs_diff_max"));
  measured.probs_diff_mean =
      std::max(measured.probs_diff_mean, metric("training/rollout_probs_diff_mean"));

  trainer::v1::ComputeLogProbsRequest request;
  for (const driver::Group& group : generated.groups) {
    auto* ids = request.add_sequences()->mutable_token_ids();
    ids->Add(group.prompt.token_ids.begin(), group.prompt.token_ids.end());
    const auto& sampled = group.completions[0].token_ids;
    ids->Add(sampled.begin(), sampled.end());
  }
  const absl::Time forward = absl::Now();
  RETURN_IF_ERROR(session.trainer().ComputeLogProbs(request).status());
  measured.seconds["trainer's forward"].push_back(absl::ToDoubleSeconds(absl::Now() - forward));
  return absl::OkStatus();
}

absl::Status Open(NumericsSide& side, const ExactOptions& options, const model::ModelSpec& spec) {
  ASSIGN_OR_RETURN(const config::v1::RunConfig config,
                   MakeConfig(options, spec, side.numerics, side.scratch.path()));
  return side.session.Explain(
      side.session.Open(config, {.local = true, .rollout_model = config.model().path()}));
}

absl::Status RunExact(const ExactOptions& options) {
  ASSIGN_OR_RETURN(const io::ModelConfig model_config, io::ReadModelConfig(options.model));
  ASSIGN_OR_RETURN(const model::ModelSpec spec,
                   model::ParseModelSpec(model_config.json, model_config.path));
  NumericsSide fast_side("fast", spec.vocab_size), exact_side("exact", spec.vocab_size);
  const std::vector<NumericsSide*> sides = {&fast_side, &exact_side};
  driver::Progress progress("bench exact", 0);
  // Records the seconds of each side for a piece of work.
  const auto in_turn = [&](const std::string& what,
                           const std::function<absl::Status(NumericsSide&)>& work) -> absl::Status {
    std::string note = absl::StrCat("bench exact: ", what, ":");
    for (NumericsSide* side : sides) {
      const absl::Time start = absl::Now();
      RETURN_IF_ERROR(side->session.Explain(work(*side)));
      absl::StrAppendFormat(&note, " %s %.2f s", side->numerics,
                            absl::ToDoubleSeconds(absl::Now() - start));
    }
    progress.Note(note);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(in_turn("start", [&](NumericsSide& side) { return Open(side, options, spec); }));
  for (int64_t step = 1; step <= options.repeats + 1; ++step) {
    const std::string of = step == 1 ? std::string("warm-up")
                                     : absl::StrCat("repeat ", step - 1, "/", options.repeats);
    RETURN_IF_ERROR(in_turn(absl::StrCat(of, ", step"),
                            [&](NumericsSide& side) { return MeasureStep(side, options, step); }));
    if (step == 1) {
      for (NumericsSide* side : sides) side->measured = {};
      continue;
    }
    for (const int64_t batch : options.batches) {
      RETURN_IF_ERROR(in_turn(absl::StrCat(of, ", batch ", batch), [&](NumericsSide& side) {
        return MeasureBatch(side, options, batch);
      }));
    }
  }
  const Measured& fast = fast_side.measured;
  const Measured& exact = exact_side.measured;
  nlohmann::json work = nlohmann::json::object();
  for (const auto& [name, seconds] : fast.seconds) {
    const double fast_s = Median(seconds);
    const double exact_s = Median(exact.seconds.at(name));
    work[name] = {
        {"fast_seconds", fast_s}, {"exact_seconds", exact_s}, {"ratio", exact_s / fast_s}};
  }
  const auto difference = [](const Measured& measured) -> nlohmann::json {
    return {{"max", measured.probs_diff_max}, {"mean", measured.probs_diff_mean}};
  };
  const nlohmann::json line = {
      {"bench", "exact"},
      {"model", options.model},
      {"dtype", options.dtype},
      {"prompts", options.step.batch},
      {"n", options.step.n},
      {"prompt_tokens", options.step.prompt_tokens},
      {"new_tokens", options.step.new_tokens},
      {"repeats", options.repeats},
      {"work", work},
      {"rollout_probs_diff", {{"fast", difference(fast)}, {"exact", difference(exact)}}}};
  std::printf("%s\n", io::JsonText(line).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddExact(CLI::App& bench, commands::Runner& runner) {
  CLI::App* command = bench.add_subcommand("exact", "Cost of exact numerics");
  auto options = std::make_shared<ExactOptions>();
  command->add_option("--model", options->model, "Hugging Face folder")->required();
  command->add_option("--dtype", options->dtype, "float32 or bfloat16")->capture_default_str();
  command
      ->add_option("--batches", options->batches, "Concurrent requests, for decoding and prefill")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--prompts", options->step.batch, "Prompts per step")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--n", options->step.n, "Samples per prompt")
      ->check(CLI::Range(2, 1 << 10))
      ->capture_default_str();
  command->add_option("--prompt-tokens", options->step.prompt_tokens, "Length of each prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--new-tokens", options->step.new_tokens, "Tokens to sample per request")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--repeats", options->repeats, "Runs of each measurement; reports medians")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--set", options->overrides, "Overrides a configuration value")
      ->allow_extra_args(false);
  SetRun(*command, runner, options, RunExact);
}

}  // namespace tandem::bench
