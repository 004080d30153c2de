#include "tools/tandem/driver/sample_builder.h"

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
      sample.set_temperature(temperature);
      sample.set_finish_reason(completion.finish_reason);
      AddSegment(sample, common::v1::SEGMENT_KIND_PROMPT, group.prompt.token_ids);
      Segment* sampled = AddSegment(sample, common::v1::SEGMENT_KIND_SAMPLED, completion.token_ids);
      sampled->mutable_logprobs()->Add(completion.processed_logprobs.begin(),
                                       completion.processed_logprobs.end());
      for (const auto& span : completion.version_spans) *sampled->add_version_spans() = span;
    }
  }
  return samples;
}

absl::StatusOr<Sample> ToSupervisedSample(int64_t step, int64_t index, const Prompt& prompt,
                                          const tokenizer::Tokenizer& tokenizer,
                                          uint32_t eos_token_id) {
  // Prompt and answer are tokenised apart, as they are at generation: there the completion begins
  // after the prompt's last token.
  ASSIGN_OR_RETURN(std::vector<int32_t> answer,
                   tokenizer.Encode(prompt.answer, /*add_special_tokens=*/false));
  std::vector<uint32_t> completion(answer.begin(), answer.end());
  completion.push_back(eos_token_id);
  Sample sample;
  sample.set_sample_id(absl::StrCat(step, "/", index));
  sample.set_group_id(sample.sample_id());
  sample.set_temperature(1);
  sample.set_finish_reason(common::v1::FINISH_REASON_STOP);
  AddSegment(sample, common::v1::SEGMENT_KIND_PROMPT, prompt.token_ids);
  AddSegment(sample, common::v1::SEGMENT_KIND_SAMPLED, completion);
  return sample;
}

}  // namespace tandem::driver
