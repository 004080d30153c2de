#include "tools/tandem/driver/sample_builder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/tandem/driver/episode_sequences.h"

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

// `images`: the prompt's, of which the sequence shows the first ones.
Sample GivenSample(const std::string& sample_id, const std::string& group_id,
                   const GivenSequence& sequence, const std::vector<PromptImage>& images) {
  Sample sample;
  sample.set_sample_id(sample_id);
  sample.set_group_id(group_id);
  sample.set_temperature(1);
  sample.set_finish_reason(common::v1::FINISH_REASON_STOP);
  common::v1::SegmentKind given = common::v1::SEGMENT_KIND_PROMPT;
  auto image = images.begin();
  for (const TokenRun& run : sequence) {
    Segment* const segment = AddSegment(
        sample, run.is_trained ? common::v1::SEGMENT_KIND_SAMPLED : given, run.token_ids);
    for (size_t i = 0; i < run.num_images; ++i) segment->add_image_digests((image++)->digest);
    given = common::v1::SEGMENT_KIND_ENVIRONMENT;  // between turns
  }
  return sample;
}

void AddFacts(const Group& group, const Completion& completion, double temperature,
              Sample& sample) {
  sample.set_reward(completion.reward);
  if (group.baseline.has_value()) sample.set_baseline_reward(group.baseline->reward);
  for (const auto& [label, score] : completion.part_scores) {
    common::v1::RewardPart& part = *sample.add_reward_parts();
    part.set_name(label);
    part.set_value(score);
    part.set_weight(completion.part_weights.at(label));
  }
  sample.set_temperature(temperature);
  sample.set_finish_reason(completion.finish_reason);
}

void AddPart(const SequencePart& part, Sample& sample) {
  Segment* segment = AddSegment(
      sample,
      part.is_sampled ? common::v1::SEGMENT_KIND_SAMPLED : common::v1::SEGMENT_KIND_ENVIRONMENT,
      part.token_ids);
  segment->mutable_logprobs()->Add(part.logprobs.begin(), part.logprobs.end());
  segment->mutable_teacher_logprobs()->Add(part.teacher_logprobs.begin(),
                                           part.teacher_logprobs.end());
  segment->mutable_teacher_top_ids()->Add(part.teacher_top_ids.begin(), part.teacher_top_ids.end());
  segment->mutable_teacher_top_logprobs()->Add(part.teacher_top_logprobs.begin(),
                                               part.teacher_top_logprobs.end());
  segment->mutable_token_rewards()->Add(part.token_rewards.begin(), part.token_rewards.end());
  for (const auto& span : part.version_spans) *segment->add_version_spans() = span;
  segment->set_routed_experts(part.routed_experts);
  for (const PromptImage& image : part.images) segment->add_image_digests(image.digest);
}

}  // namespace

std::vector<Sample> ToSamples(int64_t step, const std::vector<Group>& groups, double temperature) {
  std::vector<Sample> samples;
  for (size_t g = 0; g < groups.size(); ++g) {
    const Group& group = groups[g];
    int32_t index = 0;
    for (const Completion& completion : group.completions) {
      for (const EpisodeSequence& sequence :
           SequencesOf(group.prompt.token_ids, completion, group.prompt.images)) {
        Sample& sample = samples.emplace_back();
        sample.set_group_id(absl::StrCat(step, "/", g));
        sample.set_sample_id(absl::StrCat(step, "/", g, "/", index));
        sample.set_index(index++);
        AddFacts(group, completion, temperature, sample);
        Segment* const prompt =
            AddSegment(sample, common::v1::SEGMENT_KIND_PROMPT, sequence.prompt_ids);
        prompt->set_routed_experts(sequence.prompt_experts);
        for (const PromptImage& image : sequence.prompt_images) {
          prompt->add_image_digests(image.digest);
        }
        for (const SequencePart& part : sequence.parts) AddPart(part, sample);
      }
    }
  }
  return samples;
}

std::vector<Sample> ToSupervisedSamples(int64_t step, int64_t index, const Prompt& prompt) {
  const std::string group = absl::StrCat(step, "/", index);
  std::vector<Sample> samples;
  for (const GivenSequence& sequence : prompt.given) {
    const std::string id =
        prompt.given.size() == 1 ? group : absl::StrCat(group, "/", samples.size());
    Sample sample = GivenSample(id, group, sequence, prompt.images);
    sample.set_index(static_cast<int32_t>(samples.size()));
    samples.push_back(std::move(sample));
  }
  return samples;
}

std::vector<Sample> ToPreferenceSamples(int64_t step, int64_t index, const Prompt& prompt) {
  const std::string group = absl::StrCat(step, "/", index);
  std::vector<Sample> samples;
  for (const GivenSequence& sequence : prompt.given) {
    Sample sample =
        GivenSample(absl::StrCat(group, "/", samples.size()), group, sequence, prompt.images);
    sample.set_index(static_cast<int32_t>(samples.size()));
    sample.set_reward(samples.empty() ? 1 : 0);
    samples.push_back(std::move(sample));
  }
  return samples;
}

void AddImages(const Prompt& prompt, StepImages& images) {
  for (const PromptImage& image : prompt.images) images.try_emplace(image.digest, image);
}

void AddImages(const Group& group, StepImages& images) {
  AddImages(group.prompt, images);
  for (const Completion& completion : group.completions) {
    for (const EpisodeSegment& segment : completion.segments) {
      for (const PromptImage& image : segment.images) images.try_emplace(image.digest, image);
    }
  }
}

}  // namespace tandem::driver
