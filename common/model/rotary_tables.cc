#include "common/model/rotary_tables.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/max.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "common/device/upload.h"
#include "common/model/rotary_frequencies.h"
#include "common/model/step_memory.h"

namespace tandem::model {
namespace {

at::Tensor FrequencyTensor(const RotaryFrequencies& frequencies) {
  at::Tensor out = at::empty({static_cast<int64_t>(frequencies.inverse.size())}, at::kFloat);
  std::copy(frequencies.inverse.begin(), frequencies.inverse.end(), out.mutable_data_ptr<float>());
  return out;
}

at::Tensor QueryScales(const QueryPositionScale& scale, const at::Tensor& positions) {
  const int64_t original = scale.original_max_position_embeddings;
  if (!positions.is_cpu()) {
    const at::Tensor turns =
        at::floor_divide(at::add(positions, scale.first), original).to(at::kFloat);
    return at::log1p(turns) * scale.beta + 1.0;
  }
  const at::Tensor places = positions.contiguous();
  at::Tensor out = EmptyTensor({places.numel()}, at::kFloat);
  const int64_t* const position = places.const_data_ptr<int64_t>();
  float* const to = out.mutable_data_ptr<float>();
  // Each on its own: a vector library's logarithm may depend on its neighbours.
  for (int64_t i = 0; i < places.numel(); ++i) {
    const auto turns = static_cast<double>((position[i] + scale.first) / original);
    to[i] = static_cast<float>(1.0 + scale.beta * std::log1p(turns));
  }
  return out;
}

bool HasLonger(const at::Tensor& lengths, int64_t length) {
  return lengths.defined() && lengths.numel() > 0 && lengths.max().item<int64_t>() > length;
}

// The axis of each of the frequencies: 0 for time, 1 for height, 2 for width.
std::vector<int64_t> AxesOf(const RopeSpec& rope) {
  std::vector<int64_t> axes;
  const std::vector<int64_t>& sections = rope.sections;
  if (!rope.sections_alternate) {
    for (size_t axis = 0; axis < sections.size(); ++axis) {
      axes.insert(axes.end(), static_cast<size_t>(sections[axis]), static_cast<int64_t>(axis));
    }
    return axes;
  }
  const int64_t count = sections[0] + sections[1] + sections[2];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t axis = i % 3;
    axes.push_back(i / 3 < sections[static_cast<size_t>(axis)] ? axis : 0);
  }
  return axes;
}

// Each frequency turns by the positions of its axis. positions: int64 [3, num_tokens].
RotaryAngles BySections(const RopeSpec& rope, const at::Tensor& positions,
                        const at::Tensor& inverse_frequencies, double factor) {
  const std::vector<int64_t> axes = AxesOf(rope);
  std::vector<at::Tensor> cosines;
  std::vector<at::Tensor> sines;
  std::vector<int64_t> order;  // the frequencies, axis by axis
  for (int64_t axis = 0; axis < positions.size(0); ++axis) {
    const size_t first = order.size();
    for (size_t i = 0; i < axes.size(); ++i) {
      if (axes[i] == axis) order.push_back(static_cast<int64_t>(i));
    }
    if (order.size() == first) continue;
    const at::Tensor of_axis =
        at::tensor(at::ArrayRef<int64_t>(order).slice(first), at::TensorOptions(at::kLong));
    RotaryAngles part = AnglesOf(positions.select(0, axis).contiguous(),
                                 inverse_frequencies.index_select(0, of_axis), factor);
    cosines.push_back(std::move(part.cos));
    sines.push_back(std::move(part.sin));
  }
  RotaryAngles angles{at::cat(cosines, 1), at::cat(sines, 1)};
  if (std::is_sorted(order.begin(), order.end())) return angles;
  std::vector<int64_t> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    place[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  const at::Tensor places =
      ::tandem::device::Upload(at::tensor(place, at::kLong), positions.device());
  return {angles.cos.index_select(1, places), angles.sin.index_select(1, places)};
}

}  // namespace

RotaryTables::RotaryTables(const ModelSpec& spec)
    : head_dim_(spec.layers.front().attention.head_dim) {
  for (const RopeSpec& rope : spec.ropes) {
    const RotaryFrequencies frequencies = FrequenciesOf(rope, head_dim_, /*length=*/0);
    ropes_.push_back({rope, FrequencyTensor(frequencies), frequencies.attention_factor});
  }
  for (const LayerSpec& layer : spec.layers) {
    TORCH_CHECK(layer.attention.rope < static_cast<int>(spec.ropes.size()),
                "AttentionSpec::rope is ", layer.attention.rope, ", but the model has ",
                spec.ropes.size(), " ropes");
    const std::optional<QueryPositionScale>& scale = layer.attention.query_position_scale;
    scale_of_layer_.push_back(-1);
    if (!scale.has_value()) continue;
    const auto found = std::find(scales_.begin(), scales_.end(), *scale);
    scale_of_layer_.back() = static_cast<int>(found - scales_.begin());
    if (found == scales_.end()) scales_.push_back(*scale);
  }
}

Rotary RotaryTables::Make(const at::Tensor& positions, const at::Tensor& lengths) const {
  const at::NoGradGuard no_grad;
  Rotary rotary;
  const bool has_axes = positions.dim() == 2;
  const at::Tensor times = has_axes ? positions.select(0, 0).contiguous() : positions;
  for (const Rope& rope : ropes_) {
    const auto num_sections = static_cast<int64_t>(rope.spec.sections.size());
    TORCH_CHECK(!has_axes || num_sections == 0 || num_sections == positions.size(0),
                "positions of ", positions.size(0), " axes, but the model's rope has ",
                num_sections, " sections");
    rotary.ropes.push_back(
        has_axes && num_sections > 0
            ? BySections(rope.spec, positions, rope.inverse_frequencies, rope.attention_factor)
        : DependsOnLength(rope.spec) && HasLonger(lengths, OriginalLength(rope.spec))
            ? ByLength(rope.spec, times, lengths)
            : AnglesOf(times, rope.inverse_frequencies, rope.attention_factor));
    rotary.ropes.back().interleaved = rope.spec.interleaved;
  }
  if (scales_.empty()) return rotary;
  std::vector<at::Tensor> scales;
  for (const QueryPositionScale& scale : scales_) scales.push_back(QueryScales(scale, times));
  for (const int scale : scale_of_layer_) {
    rotary.query_scales.push_back(scale < 0 ? at::Tensor() : scales[scale]);
  }
  return rotary;
}

RotaryAngles RotaryTables::ByLength(const RopeSpec& rope, const at::Tensor& positions,
                                    const at::Tensor& lengths) const {
  TORCH_CHECK(lengths.is_cpu() && lengths.numel() == positions.numel(),
              "lengths: expected one for each of ", positions.numel(),
              " tokens, on the CPU, found ", lengths.numel());
  // Each length beyond the original has frequencies of its own, or all of them the same.
  const int64_t original = OriginalLength(rope);
  const auto key = [&](int64_t length) {
    if (length <= original) return int64_t{0};
    return rope.dynamic.has_value() ? length : original + 1;
  };
  const at::Tensor all = lengths.contiguous();
  const int64_t* const length = all.const_data_ptr<int64_t>();
  std::map<int64_t, RotaryFrequencies> tables;
  std::vector<at::Tensor> cosines;
  std::vector<at::Tensor> sines;
  for (int64_t begin = 0; begin < positions.numel();) {
    const int64_t of_run = key(length[begin]);
    int64_t end = begin + 1;
    while (end < positions.numel() && key(length[end]) == of_run) ++end;
    if (!tables.contains(of_run)) tables[of_run] = FrequenciesOf(rope, head_dim_, of_run);
    const RotaryFrequencies& table = tables[of_run];
    // On the positions' device, so that cosines have the bits that a rollout's have.
    RotaryAngles run = AnglesOf(positions.narrow(0, begin, end - begin), FrequencyTensor(table),
                                table.attention_factor);
    cosines.push_back(std::move(run.cos));
    sines.push_back(std::move(run.sin));
    begin = end;
  }
  return {at::cat(cosines), at::cat(sines)};
}

}  // namespace tandem::model
