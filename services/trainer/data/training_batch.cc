#include "services/trainer/data/training_batch.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/model/image_forms.h"
#include "common/model/routed_experts.h"
#include "services/trainer/data/batch_images.h"

namespace tandem::trainer {
namespace {

// Collects the rewards of trained-on tokens. The reward of another token passes to the trained-on
// token before it, or else after it.
class TokenRewardReader {
 public:
  explicit TokenRewardReader(const common::v1::Sample& sample)
      : has_any_(std::any_of(
            sample.segments().begin(), sample.segments().end(),
            [](const common::v1::Segment& segment) { return segment.token_rewards_size() > 0; })) {}

  void Add(const common::v1::Segment& segment, int i, bool is_trained) {
    if (!has_any_) return;
    const double reward = segment.token_rewards_size() > 0 ? segment.token_rewards(i) : 0.0;
    if (is_trained) {
      rewards_.push_back(reward + std::exchange(waiting_, 0.0));
    } else {
      (rewards_.empty() ? waiting_ : rewards_.back()) += reward;
    }
  }

  // Empty if no segment states rewards.
  std::vector<double> Take() && { return std::move(rewards_); }

 private:
  const bool has_any_;
  std::vector<double> rewards_;
  double waiting_ = 0;  // for the first trained-on token
};

// Collects the teacher's log-probs of trained-on tokens.
class TeacherReader {
 public:
  void Add(const common::v1::Segment& segment, int i) {
    if (segment.teacher_logprobs_size() > 0) {
      logprobs_.push_back(segment.teacher_logprobs(i));
    } else {
      has_logprobs_ = false;
    }
    const int count = segment.teacher_top_ids_size() == 0
                          ? 0
                          : segment.teacher_top_ids_size() / segment.token_ids_size();
    if (!has_tokens_) num_top_ = count;
    has_tokens_ = true;
    if (count != num_top_) num_top_ = 0;
    for (int k = 0; k < num_top_; ++k) {
      top_ids_.push_back(segment.teacher_top_ids(i * count + k));
      top_logprobs_.push_back(segment.teacher_top_logprobs(i * count + k));
    }
  }

  void MoveTo(Sequence& sequence) && {
    if (has_logprobs_) sequence.teacher_logprobs = std::move(logprobs_);
    if (num_top_ == 0) return;
    sequence.teacher_top_ids = std::move(top_ids_);
    sequence.teacher_top_logprobs = std::move(top_logprobs_);
    sequence.num_teacher_top = num_top_;
  }

 private:
  std::vector<float> logprobs_;
  bool has_logprobs_ = true;
  std::vector<int64_t> top_ids_;
  std::vector<float> top_logprobs_;
  bool has_tokens_ = false;
  int num_top_ = 0;  // for each token; 0 once tokens differ
};

// The experts of the sample's tokens, segment after segment; unknown ones where a segment has none.
std::vector<uint16_t> ReadExperts(const common::v1::Sample& sample) {
  size_t values_per_token = 0;
  size_t num_tokens = 0;
  for (const common::v1::Segment& segment : sample.segments()) {
    num_tokens += segment.token_ids_size();
    if (segment.routed_experts().empty()) continue;
    values_per_token = segment.routed_experts().size() / 2 / segment.token_ids_size();
  }
  std::vector<uint16_t> out;
  out.reserve(num_tokens * values_per_token);
  for (const common::v1::Segment& segment : sample.segments()) {
    const size_t end = out.size() + segment.token_ids_size() * values_per_token;
    if (values_per_token > 0) model::AppendExperts(segment.routed_experts(), out);
    out.resize(end, model::kUnknownExpert);
  }
  return out;
}

// Adds the images of a given segment, whose first token is the sequence's `begin`-th.
void AddImagesOf(const common::v1::Segment& segment, int64_t begin, BatchImages& images,
                 Sequence& out) {
  if (segment.image_digests().empty()) return;
  const std::vector<int64_t> ids(segment.token_ids().begin(), segment.token_ids().end());
  const std::vector<images::ImageForm> forms =
      model::FormsOf(images.spec(), ids, segment.image_digests().size());
  for (size_t i = 0; i < forms.size(); ++i) {
    const std::optional<int64_t> image = images.Find(segment.image_digests(static_cast<int>(i)));
    TORCH_CHECK(image.has_value(), "a sample names an image that did not come with the batch");
    out.images.push_back(images.InForm(*image, forms[i]));
  }
  const auto placeholder = static_cast<uint32_t>(images.spec().image_token_id);
  for (int i = 0; i < segment.token_ids_size(); ++i) {
    if (segment.token_ids(i) == placeholder) out.image_tokens.push_back(begin + i);
  }
}

// `images`: null to leave them out.
Sequence MakeSequence(const common::v1::Sample& sample, BatchImages* images) {
  Sequence out;
  out.temperature = sample.temperature() == 0 ? 1.0 : sample.temperature();
  out.reward = sample.reward();
  if (sample.has_baseline_reward()) out.baseline_reward = sample.baseline_reward();
  for (const common::v1::RewardPart& part : sample.reward_parts()) {
    out.reward_parts.push_back({part.name(), part.value(), part.weight()});
  }
  std::sort(out.reward_parts.begin(), out.reward_parts.end(),
            [](const RewardPart& a, const RewardPart& b) { return a.name < b.name; });
  out.is_cut = sample.finish_reason() == common::v1::FINISH_REASON_LENGTH;
  bool seen_sampled = false;
  TokenRewardReader rewards(sample);
  TeacherReader teacher;
  for (const common::v1::Segment& segment : sample.segments()) {
    const bool sampled = segment.kind() == common::v1::SEGMENT_KIND_SAMPLED;
    seen_sampled |= sampled;
    if (sampled) out.response_tokens += segment.token_ids_size();
    if (!seen_sampled) out.prompt_tokens += segment.token_ids_size();
    if (images != nullptr) {
      AddImagesOf(segment, static_cast<int64_t>(out.token_ids.size()), *images, out);
    }
    for (int i = 0; i < segment.token_ids_size(); ++i) {
      const int64_t position = static_cast<int64_t>(out.token_ids.size());
      out.token_ids.push_back(segment.token_ids(i));
      const bool masked = segment.loss_mask_size() > 0 && !segment.loss_mask(i);
      const bool is_trained = sampled && !masked && position > 0;
      rewards.Add(segment, i, is_trained);
      if (!is_trained) continue;
      out.trained.push_back(position);
      teacher.Add(segment, i);
      out.rollout_logprobs.push_back(segment.logprobs_size() > 0
                                         ? segment.logprobs(i)
                                         : std::numeric_limits<float>::quiet_NaN());
      if (segment.advantages_size() > 0) out.advantages.push_back(segment.advantages(i));
    }
  }
  out.token_rewards = std::move(rewards).Take();
  std::move(teacher).MoveTo(out);
  out.routed_experts = ReadExperts(sample);
  return out;
}

// `each`: the number of values of a token.
template <typename T>
void Keep(const std::vector<bool>& keep, std::vector<T>* values, size_t each = 1) {
  if (values->empty()) return;
  size_t kept = 0;
  for (size_t t = 0; t < keep.size(); ++t) {
    if (!keep[t]) continue;
    for (size_t k = 0; k < each; ++k) (*values)[kept++] = (*values)[t * each + k];
  }
  values->resize(kept);
}

// Moves the rewards of dropped tokens to kept ones.
void PassRewards(const std::vector<bool>& keep, std::vector<double>* rewards) {
  if (rewards->empty()) return;
  std::optional<size_t> kept_before;
  double waiting = 0;  // for the first that is kept
  for (size_t t = 0; t < keep.size(); ++t) {
    if (keep[t]) {
      (*rewards)[t] += waiting;
      waiting = 0;
      kept_before = t;
    } else if (kept_before.has_value()) {
      (*rewards)[*kept_before] += (*rewards)[t];
    } else {
      waiting += (*rewards)[t];
    }
  }
}

}  // namespace

void KeepTokens(Sequence& sequence, const std::vector<bool>& keep) {
  PassRewards(keep, &sequence.token_rewards);
  Keep(keep, &sequence.token_rewards);
  for (std::vector<float>* values :
       {&sequence.rollout_logprobs, &sequence.teacher_logprobs, &sequence.old_logprobs,
        &sequence.ref_logprobs, &sequence.values, &sequence.returns, &sequence.importance_weights,
        &sequence.advantages, &sequence.entropies, &sequence.sum_pi_squared, &sequence.selected}) {
    Keep(keep, values);
  }
  const auto num_top = static_cast<size_t>(sequence.num_teacher_top);
  Keep(keep, &sequence.teacher_top_ids, num_top);
  Keep(keep, &sequence.teacher_top_logprobs, num_top);
  Keep(keep, &sequence.trained);
}

int64_t TrainingBatch::num_trained_tokens() const {
  int64_t sum = 0;
  for (const Sequence& sequence : sequences) sum += static_cast<int64_t>(sequence.trained.size());
  return sum;
}

int64_t TrainingBatch::num_tokens() const {
  int64_t sum = 0;
  for (const Sequence& sequence : sequences) sum += static_cast<int64_t>(sequence.token_ids.size());
  return sum;
}

TrainingBatch MakeTrainingBatch(absl::Span<const common::v1::Sample> samples,
                                std::shared_ptr<BatchImages> images) {
  TrainingBatch batch;
  batch.sequences.reserve(samples.size());
  absl::flat_hash_map<std::string, int64_t> group_of;
  for (const common::v1::Sample& sample : samples) {
    Sequence sequence = MakeSequence(sample, images.get());
    if (sample.group_id().empty()) {
      sequence.group = batch.num_groups++;
    } else {
      const auto [at, is_new] = group_of.try_emplace(sample.group_id(), batch.num_groups);
      if (is_new) ++batch.num_groups;
      sequence.group = at->second;
    }
    batch.sequences.push_back(std::move(sequence));
  }
  batch.images = std::move(images);
  return batch;
}

Sequence MakeScoredSequence(std::vector<int64_t> token_ids, double temperature) {
  Sequence out;
  out.token_ids = std::move(token_ids);
  out.temperature = temperature == 0 ? 1.0 : temperature;
  for (int64_t i = 1; i < static_cast<int64_t>(out.token_ids.size()); ++i) out.trained.push_back(i);
  return out;
}

void AddImages(std::vector<int64_t> images, BatchImages& batch, Sequence& sequence) {
  const std::vector<images::ImageForm> forms =
      model::FormsOf(batch.spec(), sequence.token_ids, images.size());
  for (size_t i = 0; i < forms.size(); ++i) images[i] = batch.InForm(images[i], forms[i]);
  sequence.images = std::move(images);
  for (size_t i = 0; i < sequence.token_ids.size(); ++i) {
    if (sequence.token_ids[i] == batch.spec().image_token_id) {
      sequence.image_tokens.push_back(static_cast<int64_t>(i));
    }
  }
}

}  // namespace tandem::trainer
