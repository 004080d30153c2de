#include "tools/tandem/doctor/model_checks.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/model_folder.h"
#include "common/model/compare_parameters.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/tokenizer.h"
#include "tools/tandem/driver/image_reader.h"
#include "tools/tandem/driver/image_store.h"
#include "tools/tandem/driver/prompt_source.h"
#include "tools/tandem/driver/reward_parts.h"
#include "tools/tandem/driver/sample_builder.h"

namespace tandem::doctor {
namespace {

void CheckWeights(const config::v1::RunConfig& config, const model::ModelSpec& spec,
                  Findings& findings) {
  if (config.model().random_init()) {
    findings.Ok("weights", "drawn at random (model.random_init)");
    return;
  }
  const absl::StatusOr<io::ModelFolder> folder = io::ModelFolder::Open(config.model().path());
  if (!folder.ok()) {
    findings.Fail("weights", std::string(folder.status().message()),
                  "download or copy the folder again; every file that "
                  "model.safetensors.index.json names must be there");
    return;
  }
  const model::ParameterTable table(spec);
  const absl::StatusOr<model::StoredLayout> layout = model::StoredLayout::Create(table, &*folder);
  if (!layout.ok()) {
    findings.Fail("weights", std::string(layout.status().message()),
                  "correct the family's weights (common/model/README.md)");
    return;
  }
  const model::ParameterMismatch mismatch = model::CompareParameters(*layout, *folder);
  if (!mismatch.empty()) {
    findings.Fail(
        "weights", mismatch.ToString(),
        "config.json and the weights belong to different models; copy both from one source");
    return;
  }
  findings.Ok("weights",
              absl::StrCat(Count(folder->names().size(), "tensor"), ", as config.json describes"));
}

void CheckTokenizer(const config::v1::RunConfig& config, const model::ModelSpec& spec,
                    Findings& findings) {
  const auto tokenizer = driver::LoadTokenizerIfAny(config.model().path());
  if (!tokenizer.ok()) {
    findings.Fail("tokenizer", std::string(tokenizer.status().message()),
                  "copy tokenizer.json and tokenizer_config.json of the model again");
  } else if (*tokenizer == nullptr) {
    findings.Warn("tokenizer", "the model's folder has none",
                  "use rows of token ids, or add tokenizer.json for text");
  } else if (static_cast<int64_t>((*tokenizer)->vocab_size()) > spec.vocab_size) {
    findings.Fail(
        "tokenizer",
        absl::StrCat((*tokenizer)->vocab_size(), " tokens, but the model has ", spec.vocab_size),
        "tokenizer.json belongs to another model; copy both from one source");
  } else {
    findings.Ok("tokenizer", absl::StrCat((*tokenizer)->vocab_size(), " tokens"));
  }
}

}  // namespace

std::optional<model::ModelSpec> CheckModel(const config::v1::RunConfig& config,
                                           Findings& findings) {
  const std::string& path = config.model().path();
  const absl::StatusOr<io::ModelConfig> folder = io::ReadModelConfig(path);
  if (!folder.ok()) {
    findings.Fail("model", std::string(folder.status().message()),
                  "set model.path to a Hugging Face folder that this host can read");
    return std::nullopt;
  }
  absl::StatusOr<model::ModelSpec> spec = model::ParseModelSpec(folder->json, folder->path);
  if (!spec.ok()) {
    findings.Fail("model", std::string(spec.status().message()),
                  "use a supported model, or add its family (common/model/README.md)");
    return std::nullopt;
  }
  findings.Ok("model",
              absl::StrCat(spec->architecture, ", ", spec->num_parameters(), " parameters"));
  CheckWeights(config, *spec, findings);
  CheckTokenizer(config, *spec, findings);
  return *std::move(spec);
}

namespace {

// Keeps the images that rows name by URL while they are checked.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code ignored;
    std::string pattern =
        (std::filesystem::temp_directory_path(ignored) / "tandem-doctor-XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;  // empty: there is none, and images by URL cannot be kept
};

// What the rows of data files can be used for.
struct Rows {
  driver::PromptSource source;
  absl::Status answers;   // of `train`: each row has one that the reward can use
  bool is_pairs = false;  // for `dpo`, which needs no answers
};

// Rows with answers for `train`, else rows of prompts, else pairs for `dpo`, whose completions may
// hold the prompt. The error is the first one.
absl::StatusOr<Rows> LoadRows(const config::v1::RunConfig& config,
                              const std::vector<std::string>& files,
                              const tokenizer::Tokenizer* tokenizer) {
  const TemporaryFolder folder;
  const driver::UrlImages urls(driver::ImageStore(folder.path()), images::ImageFetcher(), nullptr);
  ASSIGN_OR_RETURN(const std::unique_ptr<driver::ImageReader> images,
                   driver::ImageReader::Create(
                       config.model().path(), tokenizer,
                       config.data().allow_urls() && !folder.path().empty() ? &urls : nullptr));
  const auto load = [&](driver::RowNeeds needs) {
    needs.images = images.get();
    return driver::PromptSource::Load(files, config.data(), tokenizer, config.seed(), needs);
  };
  const bool needs_answer = driver::NeedsAnswer(config.reward());
  absl::StatusOr<driver::PromptSource> rows =
      load({.answer = needs_answer, .check_answer = driver::AnswerCheckOf(config.reward())});
  if (rows.ok()) return Rows{.source = *std::move(rows), .answers = {}};
  auto pairs = load({.given = driver::RowNeeds::Given::kPair, .generation = false, .end_ids = {0}});
  if (pairs.ok()) {
    return Rows{.source = *std::move(pairs), .answers = rows.status(), .is_pairs = true};
  }
  if (auto prompts = load({}); prompts.ok()) {
    return Rows{.source = *std::move(prompts), .answers = rows.status()};
  }
  return rows.status();
}

// `sft` trains on answers too, but on any text.
bool HasCompletions(const driver::PromptSource& source) {
  const auto& prompts = source.prompts();
  return std::none_of(prompts.begin(), prompts.end(),
                      [](const driver::Prompt& prompt) { return prompt.answer.empty(); });
}

}  // namespace

void CheckData(const config::v1::RunConfig& config, Findings& findings) {
  const auto tokenizer = driver::LoadTokenizerIfAny(config.model().path());
  for (const auto& [key, files] : {std::pair{"data.train_files", &config.data().train_files()},
                                   std::pair{"data.test_files", &config.data().test_files()}}) {
    if (files->empty()) continue;
    const auto rows = LoadRows(config, {files->begin(), files->end()},
                               tokenizer.ok() ? tokenizer->get() : nullptr);
    if (!rows.ok()) {
      findings.Fail(key, std::string(rows.status().message()),
                    "correct the line, or data.prompt_key and data.answer_key");
      continue;
    }
    const driver::PromptSource& source = rows->source;
    const std::string found =
        absl::StrCat(Count(static_cast<int64_t>(source.prompts().size()), "prompt"), "; ",
                     source.num_too_long(), " too long are skipped; ", source.files()[0].form);
    if (rows->answers.ok()) {
      findings.Ok(key, found);
    } else if (rows->is_pairs) {
      findings.Ok(key, absl::StrCat(found, ": `tandem train` refuses rows without the answer that ",
                                    "the reward ", driver::RewardLabel(config.reward()), " needs"));
    } else if (HasCompletions(source)) {
      findings.Warn(
          key, absl::StrCat(found, "; `tandem train` refuses them: ", rows->answers.message()),
          absl::StrCat("for `tandem train`, correct the row, or choose another reward than ",
                       driver::RewardLabel(config.reward()), "; `tandem sft` takes them"));
    } else {
      findings.Fail(key, std::string(rows->answers.message()),
                    absl::StrCat("correct data.answer_key or the row; the reward ",
                                 driver::RewardLabel(config.reward()), " needs an answer"));
    }
  }
}

}  // namespace tandem::doctor
