#include "tools/tandem/driver/sample_builder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::driver {
namespace {

using common::v1::Sample;
using common::v1::Segment;

Segment* AddSegment(Sample& sample, common::v1::SegmentKind kind,
                    const std::vector<uint32_t>& token_ids) {
  Segment* segment = sample.add_segments();
  segment->set_kind(kind);
  segment->mutable_token_ids()->Add(token_ids.begin(), token_ids.end());
  return segment;
}

// Builds a prompt with a given completion and the end of sequence. Tokenizes them separately, as in
// generation, where the completion begins after the prompt's last token.
absl::StatusOr<Sample> GivenSample(const std::string& sample_id, const std::string& group_id,
                                   const Prompt& prompt, const std::string& text,
                                   const tokenizer::Tokenizer& tokenizer, uint32_t eos_token_id) {
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer.Encode(text, /*add_special_tokens=*/false));
  std::vector<uint32_t> completion(ids.begin(), ids.end());
  completion.push_back(eos_token_id);
  Sample sample;
  sample.set_sample_id(sample_id);
  sample.set_group_id(group_id);
  sample.set_temperature(1);
  sample.set_finish_reason(common::v1::FINISH_REASON_STOP);
  AddSegment(sample, common::v1::SEGMENT_KIND_PROMPT, prompt.token_ids);
  AddSegment(sample, common::v1::SEGMENT_KIND_SAMPLED, completion);
  return sample;
}

}  // namespace

std::vector<Sample> ToSamples(int64_t step, const std::vector<Group>& groups, double temperature) {
  std::vector<Sample> samples;
  for (size_t g = 0; g < groups.size(); ++g) {
    const Group& group = groups[g];
    for (size_t i = 0; i < group.completions.size(); ++i) {
      const Completion& completion = group.completions[i];
      Sample& sample = samples.emplace_back();
      sample.set_group_id(absl::StrCat(step, "/", g));
      sample.set_sample_id(absl::StrCat(step, "/", g, "/", i));
      sample.set_index(static_cast<int32_t>(i));
      sample.set_reward(completion.reward);
      if (group.baseline.has_value()) sample.set_baseline_reward(group.baseline->reward);
      sample.set_temperature(temperature);
      sample.set_finish_reason(completion.finish_reason);
      AddSegment(sample, common::v1::SEGMENT_KIND_PROMPT, group.prompt.token_ids);
      Segment* sampled = AddSegment(sample, common::v1::SEGMENT_KIND_SAMPLED, completion.token_ids);
      sampled->mutable_logprobs()->Add(completion.processed_logprobs.begin(),
                                       completion.processed_logprobs.end());
      sampled->mutable_token_rewards()->Add(completion.token_rewards.begin(),
                                            completion.token_rewards.end());
      for (const auto& span : completion.version_spans) *sampled->add_version_spans() = span;
    }
  }
  return samples;
}

absl::StatusOr<Sample> ToSupervisedSample(int64_t step, int64_t index, const Prompt& prompt,
                                          const tokenizer::Tokenizer& tokenizer,
                                          uint32_t eos_token_id) {
  const std::string id = absl::StrCat(step, "/", index);
  return GivenSample(id, id, prompt, prompt.answer, tokenizer, eos_token_id);
}

absl::Status CheckPreferenceRow(const Prompt& prompt, const config::v1::DataConfig& config) {
  for (const std::string& key : {config.chosen_key(), config.rejected_key()}) {
    const auto found = prompt.fields.find(key);
    if (found != prompt.fields.end() && found->is_string()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "row ", prompt.row + 1, " of the data set: ", key, ": expected a string, found ",
        found == prompt.fields.end() ? "nothing" : found->type_name(),
        "; data.chosen_key and data.rejected_key name the two completions"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Sample>> ToPreferenceSamples(int64_t step, int64_t index,
                                                        const Prompt& prompt,
                                                        const config::v1::DataConfig& config,
                                                        const tokenizer::Tokenizer& tokenizer,
                                                        uint32_t eos_token_id) {
  RETURN_IF_ERROR(CheckPreferenceRow(prompt, config));
  const std::string group = absl::StrCat(step, "/", index);
  std::vector<Sample> samples;
  for (const std::string& key : {config.chosen_key(), config.rejected_key()}) {
    ASSIGN_OR_RETURN(Sample sample,
                     GivenSample(absl::StrCat(group, "/", samples.size()), group, prompt,
                                 prompt.fields[key].get<std::string>(), tokenizer, eos_token_id));
    sample.set_index(static_cast<int32_t>(samples.size()));
    sample.set_reward(samples.empty() ? 1 : 0);
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace tandem::driver
