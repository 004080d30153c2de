#include "tools/tandem/commands/data_checks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/config/summary.h"
#include "common/config/teacher.h"
#include "common/io/model_config.h"
#include "common/status/status_macros.h"
#include "common/text/count.h"
#include "common/text/printable.h"
#include "tools/tandem/driver/reward_parts.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::commands {
namespace {

using text::Count;

// The model has each of the ids.
absl::Status CheckIds(const std::vector<uint32_t>& ids, int64_t vocab_size) {
  for (const uint32_t id : ids) {
    if (id < vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "has token %d, but the model's vocabulary (vocab_size of its config.json) ends with %d; "
        "use the tokenizer that the model was trained with",
        id, vocab_size - 1));
  }
  return absl::OkStatus();
}

// What the data set gives whole is one sequence of the model.
absl::Status CheckGiven(const driver::GivenSequence& sequence, const model::ModelSpec& spec) {
  int64_t length = 0;
  for (const driver::TokenRun& run : sequence) {
    RETURN_IF_ERROR(CheckIds(run.token_ids, spec.vocab_size));
    length += static_cast<int64_t>(run.token_ids.size());
  }
  if (length <= spec.max_position_embeddings) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "has %s with its completion, but the model has %s (max_position_embeddings of its "
      "config.json); shorten or remove the row",
      Count(length, "token"), Count(spec.max_position_embeddings, "position")));
}

absl::Status CheckSequences(const char* key, const driver::PromptSource& source,
                            const model::ModelSpec& spec) {
  for (const driver::Prompt& prompt : source.prompts()) {
    absl::Status status = CheckIds(prompt.token_ids, spec.vocab_size);
    for (const driver::GivenSequence& sequence : prompt.given) {
      if (status.ok()) status = CheckGiven(sequence, spec);
    }
    if (status.ok()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": ", source.PlaceOf(prompt), " ", status.message()));
  }
  return absl::OkStatus();
}

// The rows of `source` that say nothing, by `is_empty`: a warning, or an error if all do. `what`
// ends in what it means.
template <typename IsEmpty>
absl::Status CheckEmpty(const char* key, const driver::PromptSource& source, const char* what,
                        const IsEmpty& is_empty, std::vector<std::string>& warnings) {
  const driver::Prompt* first = nullptr;
  int64_t num_empty = 0;
  for (const driver::Prompt& prompt : source.prompts()) {
    if (!is_empty(prompt)) continue;
    if (num_empty++ == 0) first = &prompt;
  }
  if (num_empty == 0) return absl::OkStatus();
  const auto total = static_cast<int64_t>(source.prompts().size());
  std::string problem =
      absl::StrFormat("%s: %d of %s %s %s; the first is %s", key, num_empty, Count(total, "row"),
                      num_empty == 1 ? "has" : "have", what, source.PlaceOf(*first));
  if (num_empty == total) {
    return absl::InvalidArgumentError(absl::StrCat(problem, "; check data.answer_key"));
  }
  warnings.push_back(std::move(problem));
  return absl::OkStatus();
}

// The text of what is trained on is empty: its end is all that is left.
bool TrainsOnNothing(const driver::Prompt& prompt) {
  return std::any_of(prompt.given.begin(), prompt.given.end(),
                     [](const driver::GivenSequence& sequence) {
                       size_t num_trained = 0;
                       for (const driver::TokenRun& run : sequence) {
                         if (run.is_trained) num_trained += run.token_ids.size();
                       }
                       return num_trained == 1;
                     });
}

bool HasNoAnswer(const driver::Prompt& prompt) {
  return absl::StripAsciiWhitespace(prompt.answer).empty();
}

constexpr char kEmptyCompletion[] = "an empty completion, which teaches the model to stop at once";
constexpr char kEmptyAnswer[] =
    "an empty answer, so a completion that stops at once is the right one";

// Empty text may be meant, as the answer of a question that has none; mostly it is not.
absl::Status CheckEmptyRows(const CheckedRun& run, std::vector<std::string>& warnings) {
  const bool compares = driver::NeedsAnswer(run.config.reward());
  if (run.reinforcement && compares) {
    RETURN_IF_ERROR(CheckEmpty("data.train_files", run.train, kEmptyAnswer, HasNoAnswer, warnings));
  }
  if (run.rewards_test() && compares) {
    RETURN_IF_ERROR(CheckEmpty("data.test_files", *run.test, kEmptyAnswer, HasNoAnswer, warnings));
  }
  if (run.reinforcement || run.by_preference) return absl::OkStatus();
  return CheckEmpty("data.train_files", run.train, kEmptyCompletion, TrainsOnNothing, warnings);
}

// Answers that no completion can match: of each reward, those of one source.
void CheckAnswersMatch(const char* key, const driver::PromptSource& source,
                       const config::v1::RewardConfig& reward, std::vector<std::string>& warnings) {
  constexpr size_t kShownBytes = 80;
  for (const driver::RewardPart& part : driver::RewardParts(reward)) {
    const reward::AnswerTest can_match =
        reward::FindAnswerTest(part.name, {.pattern = part.pattern});
    const driver::Prompt* first = nullptr;
    int64_t count = 0;
    for (const driver::Prompt& prompt : source.prompts()) {
      if (can_match(prompt.answer)) continue;
      if (count++ == 0) first = &prompt;
    }
    if (count == 0) continue;
    warnings.push_back(absl::StrFormat(
        "%s.pattern: group 1 of %s cannot be equal to the %s of %d of %s, which then have the "
        "reward 0 whatever the completion; the first is %s: \"%s\"",
        part.key, text::PrintableLine(part.pattern), count == 1 ? "answer" : "answers", count,
        Count(static_cast<int64_t>(source.prompts().size()), "row"),
        absl::StrCat(key, ", ", source.PlaceOf(*first)),
        text::PrintableLine(first->answer.substr(0, kShownBytes))));
  }
}

// The model's vision tower; nullopt without one.
absl::StatusOr<std::optional<model::VisionSpec>> VisionOf(const std::string& folder) {
  ASSIGN_OR_RETURN(const io::ModelConfig config, io::ReadModelConfig(folder));
  ASSIGN_OR_RETURN(model::ModelSpec spec, model::ParseModelSpec(config.json, config.path));
  return std::move(spec.vision);
}

// Whether both make as many rows of an image where they see tiles.
bool SeesTheSameTiles(const model::VisionSpec& a, const model::VisionSpec& b) {
  if (!a.tiles.has_value() || !b.tiles.has_value()) {
    return a.tiles.has_value() == b.tiles.has_value();
  }
  return a.tiles->image_size == b.tiles->image_size && a.rows_per_tile() == b.rows_per_tile() &&
         a.tiles->canvas == b.tiles->canvas && a.tiles->text_between == b.tiles->text_between;
}

// What keeps a teacher from scoring the policy's images; empty if nothing does.
absl::StatusOr<std::string> TeacherProblem(const config::TeacherSource& teacher,
                                           const std::string& policy_folder) {
  if (teacher.path.empty()) {
    return absl::StrCat(teacher.key,
                        ".endpoint: a teacher elsewhere is not known to take images; give ",
                        teacher.key, ".path");
  }
  ASSIGN_OR_RETURN(const std::optional<model::VisionSpec> seen, VisionOf(teacher.path));
  if (!seen.has_value()) {
    return absl::StrCat(teacher.key, ".path: the teacher has no vision tower");
  }
  // Has one: its rows show images.
  ASSIGN_OR_RETURN(const std::optional<model::VisionSpec> policy, VisionOf(policy_folder));
  if (seen->image_token_id == policy->image_token_id && seen->patch_size == policy->patch_size &&
      seen->merge_size == policy->merge_size && SeesTheSameTiles(*seen, *policy) &&
      seen->has_line_breaks == policy->has_line_breaks) {
    return std::string();
  }
  return absl::StrCat(
      teacher.key, ".path: the teacher sees another number of tokens in an image than the policy");
}

}  // namespace

absl::Status CheckImages(const char* key, const driver::PromptSource& source,
                         const config::v1::RunConfig& config, bool samples) {
  const auto found =
      std::find_if(source.prompts().begin(), source.prompts().end(),
                   [](const driver::Prompt& prompt) { return !prompt.images.empty(); });
  if (found == source.prompts().end()) return absl::OkStatus();
  for (const config::TeacherSource& teacher : config::TeachersOf(config)) {
    ASSIGN_OR_RETURN(const std::string problem, TeacherProblem(teacher, config.model().path()));
    if (problem.empty()) continue;
    return absl::UnimplementedError(
        absl::StrCat(problem, "; there are images in ", key, ", ", source.PlaceOf(*found)));
  }
  if (!samples) return absl::OkStatus();
  const driver::BlindReward blind = driver::RewardWithoutSight(config.reward());
  if (blind.key.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      blind.key,
      blind.is_judge
          ? ": the judge is not shown images; set it to true for a judge that sees pictures: "
          : ": reward models see no images: ",
      "there are some in ", key, ", ", source.PlaceOf(*found)));
}

absl::Status CheckRows(const CheckedRun& run, std::vector<std::string>& warnings) {
  RETURN_IF_ERROR(CheckSequences("data.train_files", run.train, run.spec));
  if (run.test != nullptr) {
    RETURN_IF_ERROR(CheckSequences("data.test_files", *run.test, run.spec));
  }
  RETURN_IF_ERROR(CheckImages("data.train_files", run.train, run.config, run.reinforcement));
  if (run.test != nullptr) {
    RETURN_IF_ERROR(CheckImages("data.test_files", *run.test, run.config, run.rewards_test()));
  }
  RETURN_IF_ERROR(CheckEmptyRows(run, warnings));
  const config::v1::RewardConfig& reward = run.config.reward();
  if (run.reinforcement) CheckAnswersMatch("data.train_files", run.train, reward, warnings);
  if (run.rewards_test()) CheckAnswersMatch("data.test_files", *run.test, reward, warnings);
  return absl::OkStatus();
}

}  // namespace tandem::commands
