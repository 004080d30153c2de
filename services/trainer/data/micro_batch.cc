#include "services/trainer/data/micro_batch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "common/model/routed_experts.h"
#include "services/trainer/data/image_packer.h"

namespace tandem::trainer {
namespace {

template <typename T>
at::Tensor ToTensor(const std::vector<T>& values, at::ScalarType dtype) {
  at::Tensor out = at::empty({static_cast<int64_t>(values.size())}, dtype);
  std::copy(values.begin(), values.end(), out.data_ptr<T>());
  return out;
}

// One value for each row, of what each sequence holds; undefined where one that has rows lacks it.
at::Tensor RowValues(const TrainingBatch& batch, absl::Span<const int64_t> indices,
                     std::vector<float> Sequence::*member) {
  std::vector<float> values;
  for (int64_t index : indices) {
    const Sequence& sequence = batch.sequences[index];
    const std::vector<float>& part = sequence.*member;
    if (part.size() != sequence.trained.size()) return {};
    values.insert(values.end(), part.begin(), part.end());
  }
  return ToTensor(values, at::kFloat);
}

// The experts of the tokens that the model reads; undefined if no sequence has any.
at::Tensor RoutedExperts(const TrainingBatch& batch, absl::Span<const int64_t> indices) {
  int64_t num_tokens = 0;
  int64_t values_per_token = 0;
  for (const int64_t index : indices) {
    const Sequence& sequence = batch.sequences[index];
    num_tokens += sequence.num_input_tokens();
    if (sequence.routed_experts.empty()) continue;
    values_per_token =
        static_cast<int64_t>(sequence.routed_experts.size() / sequence.token_ids.size());
  }
  if (values_per_token == 0) return {};
  at::Tensor out = at::full({num_tokens, values_per_token}, -1, at::kInt);
  auto* to = out.mutable_data_ptr<int32_t>();
  for (const int64_t index : indices) {
    const Sequence& sequence = batch.sequences[index];
    const int64_t count = sequence.num_input_tokens() * values_per_token;
    if (!sequence.routed_experts.empty()) {
      std::transform(sequence.routed_experts.begin(), sequence.routed_experts.begin() + count, to,
                     [](uint16_t expert) {
                       return expert == model::kUnknownExpert ? -1 : static_cast<int32_t>(expert);
                     });
    }
    to += count;
  }
  return out;
}

// Leaves a batch without images as it is.
void PackImages(const TrainingBatch& batch, absl::Span<const int64_t> indices,
                PackedBatch& packed) {
  const bool has_images = std::any_of(indices.begin(), indices.end(), [&batch](int64_t index) {
    return !batch.sequences[index].images.empty();
  });
  if (!has_images) return;
  ImagePacker packer(*batch.images);
  for (const int64_t index : indices) {
    const Sequence& sequence = batch.sequences[index];
    packer.Add(sequence, sequence.num_input_tokens());
  }
  std::move(packer).MoveTo(batch.images, packed);
}

}  // namespace

MicroBatch PackMicroBatch(const TrainingBatch& batch, absl::Span<const int64_t> indices,
                          absl::Span<const double> token_weights) {
  std::vector<int64_t> token_ids, positions, rows, targets, sequence_index;
  std::vector<float> temperatures, weights, advantages, rollout_logprobs;
  MicroBatch out;
  out.packed.cu_seqlens = {0};
  for (int64_t index : indices) {
    const Sequence& sequence = batch.sequences[index];
    const int64_t begin = out.packed.cu_seqlens.back();
    const int64_t length = sequence.num_input_tokens();
    for (int64_t i = 0; i < length; ++i) {
      token_ids.push_back(sequence.token_ids[i]);
      positions.push_back(i);
    }
    for (size_t t = 0; t < sequence.trained.size(); ++t) {
      const int64_t position = sequence.trained[t];
      rows.push_back(begin + position - 1);
      targets.push_back(sequence.token_ids[position]);
      temperatures.push_back(static_cast<float>(sequence.temperature));
      sequence_index.push_back(index);
      weights.push_back(static_cast<float>(token_weights[index]));
      advantages.push_back(sequence.advantages.empty() ? 0.0f : sequence.advantages[t]);
      rollout_logprobs.push_back(sequence.rollout_logprobs.empty()
                                     ? std::numeric_limits<float>::quiet_NaN()
                                     : sequence.rollout_logprobs[t]);
    }
    out.packed.cu_seqlens.push_back(begin + length);
  }
  out.packed.token_ids = ToTensor(token_ids, at::kLong);
  out.packed.positions = ToTensor(positions, at::kLong);
  out.packed.rows = ToTensor(rows, at::kLong);
  out.packed.targets = ToTensor(targets, at::kLong);
  out.packed.temperatures = ToTensor(temperatures, at::kFloat);
  out.packed.routed_experts = RoutedExperts(batch, indices);
  PackImages(batch, indices, out.packed);
  out.sequence_index = ToTensor(sequence_index, at::kLong);
  out.loss_weights = ToTensor(weights, at::kFloat);
  out.advantages = ToTensor(advantages, at::kFloat);
  out.rollout_logprobs = ToTensor(rollout_logprobs, at::kFloat);
  out.old_logprobs = RowValues(batch, indices, &Sequence::old_logprobs);
  out.ref_logprobs = RowValues(batch, indices, &Sequence::ref_logprobs);
  out.teacher_logprobs = RowValues(batch, indices, &Sequence::teacher_logprobs);
  out.importance_weights = RowValues(batch, indices, &Sequence::importance_weights);
  out.selected = RowValues(batch, indices, &Sequence::selected);
  out.values = RowValues(batch, indices, &Sequence::values);
  out.returns = RowValues(batch, indices, &Sequence::returns);
  return out;
}

void AddTeacherTargets(const TrainingBatch& batch, absl::Span<const int64_t> indices,
                       MicroBatch& micro_batch) {
  std::vector<int64_t> ids;
  std::vector<float> logprobs;
  for (const int64_t index : indices) {
    const Sequence& sequence = batch.sequences[index];
    ids.insert(ids.end(), sequence.teacher_top_ids.begin(), sequence.teacher_top_ids.end());
    logprobs.insert(logprobs.end(), sequence.teacher_top_logprobs.begin(),
                    sequence.teacher_top_logprobs.end());
  }
  if (micro_batch.num_rows() == 0) return;
  const int64_t rows = micro_batch.num_rows();
  micro_batch.packed.soft_ids = ToTensor(ids, at::kLong).view({rows, -1});
  micro_batch.packed.soft_weights = ToTensor(logprobs, at::kFloat).exp_().view({rows, -1});
}

}  // namespace tandem::trainer
