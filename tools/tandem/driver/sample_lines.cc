#include "tools/tandem/driver/sample_lines.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/io/jsonl.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/driver/episode_sequences.h"
#include "tools/tandem/driver/experts_text.h"

namespace tandem::driver {
namespace {

using nlohmann::json;

json VersionsOf(const std::vector<common::v1::VersionSpan>& spans, int64_t shift) {
  json out = json::array();
  for (const auto& span : spans) {
    // Not below 0: a checkpoint of an older release may lack the group's shift.
    out.push_back({std::max<int64_t>(0, span.policy_version() + shift), span.begin(), span.end()});
  }
  return out;
}

// A list for each token, of `each` values.
template <typename T>
json Lists(const std::vector<T>& values, size_t each) {
  json out = json::array();
  for (auto at = values.begin(); at != values.end(); at += each) {
    out.push_back(std::vector<T>(at, at + each));
  }
  return out;
}

// What the teacher says of a completion, or of a part of it.
template <typename Tokens>
void AddTeacher(const Tokens& tokens, json& row) {
  if (!tokens.teacher_logprobs.empty()) row["teacher_logprobs"] = tokens.teacher_logprobs;
  if (tokens.teacher_top_ids.empty()) return;
  const size_t top_k = tokens.teacher_top_ids.size() / tokens.token_ids.size();
  row["teacher_top_ids"] = Lists(tokens.teacher_top_ids, top_k);
  row["teacher_top_logprobs"] = Lists(tokens.teacher_top_logprobs, top_k);
}

// Where the images are; of a data URL, which may be long, only on the first line of a group.
json ImagesOf(const std::vector<PromptImage>& images, bool is_first) {
  json out = json::array();
  for (const PromptImage& image : images) {
    json entry = {{"sha256", absl::BytesToHexString(image.digest)}};
    if (is_first || !IsDataUrl(image)) entry["path"] = image.source;
    out.push_back(std::move(entry));
  }
  return out;
}

void AddExperts(const std::string& key, const std::string& experts, json& line) {
  if (!experts.empty()) line[key] = ExpertsText(experts);
}

json SegmentsOf(const EpisodeSequence& sequence, int64_t shift) {
  json out = json::array();
  out.push_back({{"kind", "prompt"},
                 {"ids", sequence.prompt_ids},
                 {"mask", std::vector<int>(sequence.prompt_ids.size(), 0)}});
  AddExperts("routed_experts", sequence.prompt_experts, out.back());
  for (const SequencePart& part : sequence.parts) {
    json segment = {{"kind", part.is_sampled ? "sampled" : "observation"},
                    {"ids", part.token_ids},
                    {"mask", std::vector<int>(part.token_ids.size(), part.is_sampled ? 1 : 0)}};
    if (part.is_sampled) {
      segment["versions"] = VersionsOf(part.version_spans, shift);
      segment["reward"] = part.reward;
      segment["logprobs"] = part.logprobs;
      AddTeacher(part, segment);
      if (!part.token_rewards.empty()) segment["token_rewards"] = part.token_rewards;
    }
    if (!part.images.empty()) segment["images"] = ImagesOf(part.images, /*is_first=*/true);
    AddExperts("routed_experts", part.routed_experts, segment);
    out.push_back(std::move(segment));
  }
  return out;
}

}  // namespace

std::string SampleLines(int64_t step, const std::vector<Group>& groups, double temperature,
                        int64_t version_shift) {
  std::string text;
  for (size_t g = 0; g < groups.size(); ++g) {
    const Group& group = groups[g];
    const int64_t shift = group.version_shift - version_shift;
    int64_t index = 0;
    for (size_t i = 0; i < group.completions.size(); ++i) {
      const Completion& completion = group.completions[i];
      json line = {{"step", step},
                   {"group", absl::StrCat(step, "/", g)},
                   {"row", group.prompt.row},
                   {"prompt", group.prompt.text},
                   {"completion", completion.text},
                   {"answer", group.prompt.answer},
                   {"rewards", completion.reward},
                   {"finish_reason", FinishReasonName(completion.finish_reason)},
                   {"temperature", temperature}};
      if (completion.score != completion.reward) line["score"] = completion.score;
      if (!completion.part_scores.empty()) {
        line["scores"] = completion.part_scores;
        line["score_weights"] = completion.part_weights;
      }
      if (group.baseline.has_value()) line["baseline_reward"] = group.baseline->reward;
      const auto write = [&](const std::vector<PromptImage>& prompt_images) {
        if (!prompt_images.empty()) {
          line["images"] = ImagesOf(prompt_images, /*is_first=*/index == 0);
        }
        line["index"] = index++;
        text += io::ToJsonLine(line);
      };
      if (completion.segments.empty()) {  // a single turn
        line["prompt_ids"] = group.prompt.token_ids;
        line["response_ids"] = completion.token_ids;
        line["logprobs"] = completion.processed_logprobs;
        line["policy_versions"] = VersionsOf(completion.version_spans, shift);
        AddTeacher(completion, line);
        if (!completion.token_rewards.empty()) line["token_rewards"] = completion.token_rewards;
        AddExperts("prompt_routed_experts", completion.prompt_routed_experts, line);
        AddExperts("routed_experts", completion.routed_experts, line);
        write(group.prompt.images);
        continue;
      }
      const std::vector<EpisodeSequence> sequences =
          SequencesOf(group.prompt.token_ids, completion, group.prompt.images);
      for (const EpisodeSequence& sequence : sequences) {
        line["segments"] = SegmentsOf(sequence, shift);
        if (sequences.size() > 1) line["episode"] = i;  // of which several samples tell
        write(sequence.prompt_images);
      }
    }
  }
  return text;
}

}  // namespace tandem::driver
