#include "tools/tandem/doctor/model_checks.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/model_folder.h"
#include "common/model/compare_parameters.h"
#include "common/tokenizer/tokenizer.h"
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

// Rows with answers for `train`, else rows of prompts, else pairs for `dpo`, whose completions may
// hold the prompt. The error is the first one.
absl::StatusOr<driver::PromptSource> LoadRows(const config::v1::RunConfig& config,
                                              const std::vector<std::string>& files,
                                              const tokenizer::Tokenizer* tokenizer,
                                              bool& has_answers) {
  const auto load = [&](const driver::RowNeeds& needs) {
    return driver::PromptSource::Load(files, config.data(), tokenizer, config.seed(), needs);
  };
  absl::StatusOr<driver::PromptSource> first = load({.answer = true});
  has_answers = first.ok();
  if (first.ok()) return first;
  if (auto prompts = load({}); prompts.ok()) return prompts;
  auto pairs = load({.given = driver::RowNeeds::Given::kPair, .generation = false, .end_ids = {0}});
  return pairs.ok() ? std::move(pairs) : std::move(first);
}

}  // namespace

void CheckData(const config::v1::RunConfig& config, Findings& findings) {
  const auto tokenizer = driver::LoadTokenizerIfAny(config.model().path());
  for (const auto& [key, files] : {std::pair{"data.train_files", &config.data().train_files()},
                                   std::pair{"data.test_files", &config.data().test_files()}}) {
    if (files->empty()) continue;
    bool has_answers = false;
    const auto source = LoadRows(config, {files->begin(), files->end()},
                                 tokenizer.ok() ? tokenizer->get() : nullptr, has_answers);
    if (!source.ok()) {
      findings.Fail(key, std::string(source.status().message()),
                    "correct the line, or data.prompt_key and data.answer_key");
      continue;
    }
    const bool lacks_answers = !has_answers && driver::NeedsAnswer(config.reward());
    findings.Ok(
        key,
        absl::StrCat(Count(static_cast<int64_t>(source->prompts().size()), "prompt"), "; ",
                     source->num_too_long(), " too long are skipped; ", source->files()[0].form,
                     lacks_answers ? absl::StrCat(": `tandem train` refuses rows without the "
                                                  "answer that the reward ",
                                                  driver::RewardLabel(config.reward()), " needs")
                                   : ""));
  }
}

}  // namespace tandem::doctor
