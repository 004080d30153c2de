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
      if (!part.teacher_logprobs.empty()) segment["teacher_logprobs"] = part.teacher_logprobs;
      if (!part.token_rewards.empty()) segment["token_rewards"] = part.token_rewards;
    }
    AddExperts("routed_experts", part.routed_experts, segment);
    out.push_back(std::move(segment));
  }
  return out;
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
      const auto write = [&] {
        if (!group.prompt.images.empty()) {
          line["images"] = ImagesOf(group.prompt.images, /*is_first=*/index == 0);
        }
        line["index"] = index++;
        text += io::ToJsonLine(line);
      };
      if (completion.segments.empty()) {  // a single turn
        line["prompt_ids"] = group.prompt.token_ids;
        line["response_ids"] = completion.token_ids;
        line["logprobs"] = completion.processed_logprobs;
        line["policy_versions"] = VersionsOf(completion.version_spans, shift);
        if (!completion.teacher_logprobs.empty()) {
          line["teacher_logprobs"] = completion.teacher_logprobs;
        }
        if (!completion.token_rewards.empty()) line["token_rewards"] = completion.token_rewards;
        AddExperts("prompt_routed_experts", completion.prompt_routed_experts, line);
        AddExperts("routed_experts", completion.routed_experts, line);
        write();
        continue;
      }
      const std::vector<EpisodeSequence> sequences =
          SequencesOf(group.prompt.token_ids, completion);
      for (const EpisodeSequence& sequence : sequences) {
        line["segments"] = SegmentsOf(sequence, shift);
        if (sequences.size() > 1) line["episode"] = i;  // of which several samples tell
        write();
      }
    }
  }
  return text;
}

}  // namespace tandem::driver
