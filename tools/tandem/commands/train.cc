// tandem train, sft and dpo: a run from configuration to trained model.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/config/summary.h"
#include "common/io/model_folder.h"
#include "common/metrics/metrics_server.h"
#include "common/model/model_spec.h"
#include "common/status/status_macros.h"
#include "common/text/printable.h"
#include "common/tokenizer/tokenizer.h"
#include "common/version/version.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/data_report.h"
#include "tools/tandem/commands/dry_run.h"
#include "tools/tandem/commands/machine_check.h"
#include "tools/tandem/commands/run_checks.h"
#include "tools/tandem/commands/run_options.h"
#include "tools/tandem/commands/run_report.h"
#include "tools/tandem/commands/run_start.h"
#include "tools/tandem/commands/session.h"
#include "tools/tandem/commands/teacher_checks.h"
#include "tools/tandem/driver/episodes.h"
#include "tools/tandem/driver/image_reader.h"
#include "tools/tandem/driver/image_store.h"
#include "tools/tandem/driver/otlp_export.h"
#include "tools/tandem/driver/reward_parts.h"
#include "tools/tandem/driver/rewarder.h"
#include "tools/tandem/driver/run_inputs.h"
#include "tools/tandem/driver/run_metrics.h"
#include "tools/tandem/driver/run_trace.h"
#include "tools/tandem/driver/teachers.h"
#include "tools/tandem/driver/training_loop.h"
#include "tools/tandem/plan/memory_budget.h"

namespace tandem::commands {
namespace {

enum class Kind { kReinforcement, kSupervised, kPreference };

// A dry run tells what is there now.
constexpr absl::Duration kDryRunRewardWait = absl::Seconds(5);

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kSupervised:
      return "sft";
    case Kind::kPreference:
      return "dpo";
    default:
      return "train";
  }
}

// What the configuration asks for, read before any process starts, so that mistakes show at once.
struct RunInputs {
  std::unique_ptr<ScratchFolder> scratch;   // of a dry run that fetches images
  std::unique_ptr<driver::UrlImages> urls;  // null unless data.allow_urls
  config::v1::RunConfig config;
  config::Places places;
  model::ModelSpec spec;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null where the folder has none
  std::optional<driver::PromptSource> train;
  std::optional<driver::PromptSource> test;
  std::unique_ptr<driver::Rewarder> rewarder;
  std::unique_ptr<driver::Episodes> episodes;
  std::unique_ptr<driver::Teachers> teachers;  // null without one
};

// The ids that end a completion: the tokenizer's end of sequence, then the model's.
absl::StatusOr<std::vector<uint32_t>> EndIds(const std::string& model_path,
                                             const tokenizer::Tokenizer* tokenizer,
                                             const io::ModelConfig& model) {
  if (tokenizer == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(model_path, " has no tokenizer.json, but the rows' completions are text"));
  }
  std::vector<uint32_t> ids;
  if (tokenizer->eos_id().has_value()) ids.push_back(static_cast<uint32_t>(*tokenizer->eos_id()));
  for (const auto id : model.eos_token_ids) ids.push_back(static_cast<uint32_t>(id));
  if (!ids.empty()) return ids;
  return absl::FailedPreconditionError(absl::StrCat(model_path, " names no end-of-sequence token"));
}

driver::RowNeeds::Given GivenOf(Kind kind) {
  switch (kind) {
    case Kind::kSupervised:
      return driver::RowNeeds::Given::kCompletion;
    case Kind::kPreference:
      return driver::RowNeeds::Given::kPair;
    default:
      return driver::RowNeeds::Given::kNone;
  }
}

// Replaces trainer.total_epochs by the steps that it needs.
void SetStepsOfEpochs(const driver::PromptSource& train, config::v1::RunConfig& config) {
  if (config.trainer().total_epochs() == 0) return;
  const double prompts = config.trainer().total_epochs() * static_cast<double>(train.epoch_size());
  config.mutable_trainer()->set_total_steps(static_cast<int64_t>(
      std::ceil(prompts / static_cast<double>(config.data().train_batch_size()))));
}

// Images by URL are kept in the run's folder; those of a dry run, which writes none, for as long as it
// lasts.
void OpenUrlImages(const RunOptions& options, Session& session, RunInputs& inputs) {
  if (!inputs.config.data().allow_urls()) return;
  if (options.dry_run) inputs.scratch = std::make_unique<ScratchFolder>(&session);
  const std::string& folder = options.dry_run ? inputs.scratch->path() : inputs.config.run_dir();
  inputs.urls = std::make_unique<driver::UrlImages>(driver::ImageStore(folder + "/images"),
                                                    images::ImageFetcher(),
                                                    [&session] { return session.interrupted(); });
}

absl::StatusOr<RunInputs> ReadInputs(Kind kind, const RunOptions& options, Session& session) {
  RunInputs inputs;
  config::FileNeeds needs;
  needs.train_files = true;
  ASSIGN_OR_RETURN(inputs.config, ResolveConfig(options, needs, &inputs.places));
  const config::v1::RunConfig& config = inputs.config;
  RETURN_IF_ERROR(CheckTeacherKeys(NameOf(kind), config, inputs.places));
  const bool evaluates = config.trainer().test_freq() > 0;
  if (evaluates && config.data().test_files().empty()) {
    return Misuse(absl::InvalidArgumentError(
        "trainer.test_freq requests evaluations, but data.test_files is empty"));
  }
  ASSIGN_OR_RETURN(const io::ModelConfig model_config, io::ReadModelConfig(config.model().path()));
  ASSIGN_OR_RETURN(inputs.spec, model::ParseModelSpec(model_config.json, model_config.path));
  ASSIGN_OR_RETURN(inputs.tokenizer, driver::LoadTokenizerIfAny(config.model().path()));
  OpenUrlImages(options, session, inputs);
  ASSIGN_OR_RETURN(const std::unique_ptr<driver::ImageReader> images,
                   driver::ImageReader::Create(config.model().path(), inputs.tokenizer.get(),
                                               inputs.urls.get()));
  for (const char* key : {"data.image_key", "data.allow_urls"}) {
    if (images != nullptr || !inputs.places.contains(key)) continue;
    return Misuse(absl::InvalidArgumentError(plan::WithPlace(
        inputs.places, absl::StrCat(key, ": the model has no vision tower; remove the key"))));
  }
  if (const std::string key = driver::RewardWithSight(config.reward());
      images == nullptr && !key.empty()) {
    return Misuse(absl::InvalidArgumentError(plan::WithPlace(
        inputs.places, absl::StrCat(key, ": the model has no vision tower; remove the key"))));
  }
  const bool needs_answer = driver::NeedsAnswer(config.reward());
  driver::RowNeeds needs_of_train = {.answer = kind == Kind::kReinforcement && needs_answer,
                                     .check_answer = driver::AnswerCheckOf(config.reward()),
                                     .given = GivenOf(kind),
                                     .generation = kind == Kind::kReinforcement};
  ASSIGN_OR_RETURN(inputs.episodes, driver::Episodes::Create(config, inputs.tokenizer.get(),
                                                             LongestSequence(config, inputs.spec)));
  needs_of_train.keeps_chat = driver::ReadsMessages(config.reward());
  needs_of_train.images = images.get();
  inputs.episodes->AddNeeds(needs_of_train);
  if (kind != Kind::kReinforcement) {
    ASSIGN_OR_RETURN(needs_of_train.end_ids,
                     EndIds(config.model().path(), inputs.tokenizer.get(), model_config));
  }
  const auto load = [&](const auto& files, const driver::RowNeeds& row_needs,
                        const std::vector<double>& weights = {}) {
    return driver::PromptSource::Load({files.begin(), files.end()}, config.data(),
                                      inputs.tokenizer.get(), config.seed(), row_needs, weights);
  };
  ASSIGN_OR_RETURN(inputs.train, load(config.data().train_files(), needs_of_train,
                                      {config.data().train_weights().begin(),
                                       config.data().train_weights().end()}));
  ASSIGN_OR_RETURN(inputs.teachers,
                   driver::Teachers::Create(config, {.vocab_size = inputs.spec.vocab_size,
                                                     .tokenizer = inputs.tokenizer.get()}));
  if (inputs.teachers != nullptr) {
    RETURN_IF_ERROR(inputs.teachers->CheckRows(*inputs.train));
  }
  const bool samples_test =
      evaluates && (kind == Kind::kReinforcement || config.reward().name() != driver::kNoReward);
  if (evaluates) {
    driver::RowNeeds needs_of_test = needs_of_train;
    needs_of_test.answer = samples_test && needs_answer;
    needs_of_test.given_is_optional = needs_of_test.generation = samples_test;
    absl::StatusOr<driver::PromptSource> test = load(config.data().test_files(), needs_of_test);
    if (!test.ok() && needs_of_test.answer && kind != Kind::kReinforcement) {
      return StatusBuilder(test.status()) << "reward.name=none evaluates by the loss alone";
    }
    ASSIGN_OR_RETURN(inputs.test, std::move(test));
  }
  if (kind == Kind::kReinforcement || samples_test) {
    absl::StatusOr<std::unique_ptr<driver::Rewarder>> rewarder =
        driver::Rewarder::Create(config, config.run_dir() + "/logs/reward.log",
                                 [&session] { return session.interrupted(); });
    if (!rewarder.ok()) return Misuse(rewarder.status());
    inputs.rewarder = *std::move(rewarder);
    RETURN_IF_ERROR(
        inputs.rewarder->Check(options.dry_run ? kDryRunRewardWait : driver::kRewardServiceWait,
                               [&session] { return session.interrupted(); }));
    RETURN_IF_ERROR(
        inputs.episodes->Check(options.dry_run ? kDryRunRewardWait : driver::kEnvironmentWait,
                               [&session] { return session.interrupted(); }));
  }
  SetStepsOfEpochs(*inputs.train, inputs.config);
  return inputs;
}

absl::StatusOr<driver::RunIdentity> IdentityOf(const std::string& command,
                                               const RunOptions& options, const RunInputs& inputs) {
  driver::RunIdentity out;
  out.command = command;
  out.seed = inputs.config.seed();
  out.num_prompts = inputs.train->epoch_size();
  ASSIGN_OR_RETURN(out.inputs, driver::DigestModelInputs(inputs.config));
  driver::AddDataInputs(driver::kDataInput, inputs.train->files(), out.inputs);
  if (inputs.test.has_value()) {
    driver::AddDataInputs(driver::kTestDataInput, inputs.test->files(), out.inputs);
  }
  if (inputs.rewarder != nullptr) {
    RETURN_IF_ERROR(driver::AddRewardInputs(inputs.config.reward(), out.inputs));
  }
  RETURN_IF_ERROR(driver::AddTeacherInputs(inputs.config, out.inputs));
  out.allow_changed = {options.allow_changed.begin(), options.allow_changed.end()};
  return out;
}

void Warn(const std::string& text) {
  if (!text.empty()) absl::FPrintF(stderr, "warning  %s\n", text::Printable(text));
}

// Refuses, or warns of, what would otherwise show after hours, or never.
absl::Status CheckInputs(Kind kind, const RunInputs& inputs) {
  ASSIGN_OR_RETURN(const std::vector<std::string> warnings,
                   CheckRun({.config = inputs.config,
                             .spec = inputs.spec,
                             .tokenizer = inputs.tokenizer.get(),
                             .train = *inputs.train,
                             .test = inputs.test.has_value() ? &*inputs.test : nullptr,
                             .reinforcement = kind == Kind::kReinforcement,
                             .by_preference = kind == Kind::kPreference,
                             .samples_test = inputs.rewarder != nullptr}));
  for (const std::string& warning : warnings) Warn(warning);
  return absl::OkStatus();
}

int64_t LongestPromptOf(const RunInputs& inputs) {
  return std::max(LongestPrompt(*inputs.train),
                  inputs.test.has_value() ? LongestPrompt(*inputs.test) : 0);
}

// Tokens of the longest sequence that a teacher scores.
int64_t LongestScored(Kind kind, const RunInputs& inputs) {
  if (kind == Kind::kReinforcement) {
    return std::min(LongestSequence(inputs.config, inputs.spec),
                    LongestPrompt(*inputs.train) + config::LongestCompletion(inputs.config));
  }
  size_t longest = 0;
  for (const driver::Prompt& prompt : inputs.train->prompts()) {
    for (const driver::GivenSequence& sequence : prompt.given) {
      size_t tokens = 0;
      for (const driver::TokenRun& run : sequence) tokens += run.token_ids.size();
      longest = std::max(longest, tokens);
    }
  }
  return static_cast<int64_t>(longest);
}

// The folders of teachers and reward models that have no endpoint.
std::vector<driver::ServedFolder> ServedFolders(const RunInputs& inputs) {
  std::vector<driver::ServedFolder> out;
  if (inputs.rewarder != nullptr) out = inputs.rewarder->served_folders();
  if (inputs.teachers == nullptr) return out;
  for (driver::ServedFolder& folder : inputs.teachers->served_folders()) {
    out.push_back(std::move(folder));
  }
  return out;
}

absl::Status RunTraining(Kind kind, const RunOptions& options, DryRunOptions dry_run) {
  dry_run.supervised = kind != Kind::kReinforcement;
  dry_run.by_preference = kind == Kind::kPreference;
  if (!options.dry_run && (!dry_run.hardware.empty() || !dry_run.output.empty() || dry_run.json)) {
    return Misuse(absl::InvalidArgumentError("--hardware, --output and --json need --dry-run"));
  }
  if (!dry_run.hardware.empty()) return PlanElsewhere(options, dry_run);
  Session session;
  ASSIGN_OR_RETURN(RunInputs inputs, ReadInputs(kind, options, session));
  if (options.dry_run) {
    PrintPlan(inputs.config, inputs.spec, *inputs.train, dry_run.supervised,
              PlannedPolicyState(inputs.config, inputs.places, inputs.spec, dry_run));
    absl::FPrintF(stderr, "%s", DescribeData(*inputs.train, inputs.tokenizer.get()));
    RETURN_IF_ERROR(CheckInputs(kind, inputs));
    RETURN_IF_ERROR(CheckLocalProcesses(options, inputs.config, inputs.rewarder != nullptr));
    return PlanHere(inputs.config, inputs.places, inputs.spec, dry_run);
  }
  RETURN_IF_ERROR(
      ResolveAutoMesh(inputs.places, inputs.spec, dry_run, options.quiet, inputs.config));
  AllowResumeFolder(options, inputs.config);
  const config::v1::RunConfig& config = inputs.config;
  if (!options.quiet) {
    PrintPlan(config, inputs.spec, *inputs.train, dry_run.supervised,
              PlannedPolicyState(config, inputs.places, inputs.spec, dry_run));
  }

  const bool evaluates = inputs.test.has_value();
  const bool needs_rollouts = inputs.rewarder != nullptr;
  RETURN_IF_ERROR(CheckInputs(kind, inputs));
  RETURN_IF_ERROR(CheckMachine(options,
                               {.config = config,
                                .places = inputs.places,
                                .spec = inputs.spec,
                                .longest_prompt = LongestPromptOf(inputs),
                                .needs_rollouts = needs_rollouts},
                               dry_run));
  const std::string command = NameOf(kind);
  driver::Progress progress(command, config.trainer().total_steps(), options.quiet);
  ASSIGN_OR_RETURN(RunStart start, PrepareRunFolder(options, config, session, progress));
  if (options.trace) driver::StartRunTrace(config.run_dir());
  std::unique_ptr<metrics::MetricsServer> metrics_server;
  const auto run_metrics = std::make_shared<driver::RunMetrics>(config.trainer().total_steps());
  if (!options.metrics.empty()) {
    auto server = metrics::MetricsServer::Start(
        options.metrics, {.role = "driver", .version = std::string(version::BuildVersion())});
    if (!server.ok()) return Misuse(server.status());
    metrics_server = *std::move(server);
    metrics_server->Add(run_metrics);
  }
  if (needs_rollouts) {
    RETURN_IF_ERROR(inputs.episodes->Start(config.run_dir() + "/logs", driver::kEnvironmentWait,
                                           [&session] { return session.interrupted(); }));
  }
  RETURN_IF_ERROR(session.Explain(session.Open(
      config, {.local = options.local,
               .needs_rollouts = needs_rollouts,
               .replicas_may_change =
                   config.trainer().update_policy() == config::v1::UPDATE_POLICY_AVAILABLE,
               .metrics = metrics_server == nullptr ? "" : options.metrics,
               .openai_listen = options.openai_listen,
               .replica_ranks = options.replica_ranks,
               .trace = options.trace,
               .served_folders = ServedFolders(inputs),
               .note = [&progress](const std::string& text) { progress.Note(text); }})));
  if (inputs.rewarder != nullptr) {
    RETURN_IF_ERROR(session.Explain(inputs.rewarder->Connect(
        session.address_of_served(), [&session] { return session.interrupted(); })));
  }
  if (inputs.teachers != nullptr) {
    RETURN_IF_ERROR(session.Explain(
        inputs.teachers->Connect({.address_of = session.address_of_served(),
                                  .longest_sequence = LongestScored(kind, inputs),
                                  .interrupted = [&session] { return session.interrupted(); }})));
  }
  RETURN_IF_ERROR(session.Explain(
      session.Drive({.run_id = start.run_id,
                     .run_dir = start.folder.path(),
                     .resumes = options.resume,
                     .take_over = options.take_over,
                     .note = [&progress](const std::string& text) { progress.Note(text); }})));
  RETURN_IF_ERROR(ReserveModelSpace(config, start, session));
  ASSIGN_OR_RETURN(const driver::RunIdentity identity, IdentityOf(command, options, inputs));
  ASSIGN_OR_RETURN(const std::optional<driver::ResumePoint> resume,
                   ResumeIfAsked(start, identity, session, progress));
  driver::LoopContext context{
      .config = config,
      .trainer = session.trainer(),
      .fleet = session.fleet_or_null(),
      .rewarder = inputs.rewarder.get(),
      .episodes = inputs.episodes.get(),
      .train = *inputs.train,
      .test = evaluates ? &*inputs.test : nullptr,
      .folder = start.folder,
      .progress = progress,
      .resume = resume.has_value() ? &*resume : nullptr,
      .inputs = identity.inputs,
      .interrupted = [&session] { return session.interrupted(); },
      .on_step = [&run_metrics](
                     int64_t step,
                     const driver::Metrics& metrics) { run_metrics->OnStep(step, metrics); },
      .teachers = inputs.teachers.get(),
      .sees_images = inputs.spec.vision.has_value(),
  };
  absl::StatusOr<driver::RunSummary> summary =
      kind == Kind::kSupervised   ? driver::RunSupervised(context)
      : kind == Kind::kPreference ? driver::RunPreference(context)
                                  : driver::RunReinforcement(context);
  inputs.episodes->Shutdown();  // before the services that agents use
  // If the folder is no longer the run's, that is why the run failed.
  if (!summary.ok()) {
    const absl::Status folder = start.folder.Check();
    if (absl::IsNotFound(folder) || absl::IsFailedPrecondition(folder)) summary = folder;
  }
  if (options.trace && start.folder.has_begun()) {
    session.StopProcesses();
    const absl::Status written = driver::WriteRunTrace(config.run_dir());
    if (!written.ok()) progress.Note(absl::StrCat("no trace: ", written.message()));
    const char* const collector = std::getenv("OTEL_EXPORTER_OTLP_ENDPOINT");
    if (written.ok() && collector != nullptr && *collector != '\0') {
      const auto exported = driver::ExportTrace(config.run_dir() + "/trace.json", collector);
      if (!exported.ok()) progress.Note(std::string(exported.status().message()));
    }
  }
  if (!summary.ok()) return session.Explain(summary.status());
  PrintSummary(config, *summary, options.quiet);
  return absl::OkStatus();
}

void Add(CLI::App& app, Runner& runner, Kind kind, const char* description) {
  CLI::App* command = app.add_subcommand(NameOf(kind), description);
  auto options = std::make_shared<RunOptions>();
  AddRunOptions(*command, *options);
  AddQuietOption(*command, *options);
  AddReplicaRanksOption(*command, *options);
  AddResumeOption(*command, *options);
  AddObservationOptions(*command, *options);
  AddForceOption(*command, *options);
  auto dry_run = std::make_shared<DryRunOptions>();
  command->add_flag("--dry-run", options->dry_run,
                    "Checks everything and prints the plan: mesh, memory of a rank, batch; exits 1 "
                    "if it does not fit");
  command->add_option("--hardware", dry_run->hardware,
                      "Plans for other machines: h100x8x4, cpu:24gib:2x1, or a YAML file");
  command->add_flag("--json", dry_run->json, "Prints the plan as a JSON object");
  command->add_option("--output", dry_run->output,
                      "Writes the configuration with the plan's values to this file");
  command->callback([&runner, options, dry_run, kind] {
    runner = [options, dry_run, kind] { return RunTraining(kind, *options, *dry_run); };
  });
}

}  // namespace

void AddTrain(CLI::App& app, Runner& runner) {
  Add(app, runner, Kind::kReinforcement, "Trains a policy with reinforcement learning");
}

void AddSft(CLI::App& app, Runner& runner) {
  Add(app, runner, Kind::kSupervised, "Trains a policy on the rows' answers (supervised warm-up)");
}

void AddDpo(CLI::App& app, Runner& runner) {
  Add(app, runner, Kind::kPreference,
      "Trains a policy on pairs of completions (direct preference optimisation)");
}

}  // namespace tandem::commands
