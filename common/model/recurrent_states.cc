#include "common/model/recurrent_states.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <exception>

#include "absl/strings/str_cat.h"
#include "common/model/delta_sizes.h"
#include "common/model/kernels/round_up.h"
#include "common/model/release_pages.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

constexpr int64_t kStateAlignment = 64;  // bytes, of a state and of a tail: cache lines

int64_t StateBytes(const DeltaSpec& spec) {
  return SizesOf(spec).state_floats() * static_cast<int64_t>(sizeof(float));
}

int64_t TailBytes(const DeltaSpec& spec, at::ScalarType dtype) {
  return SizesOf(spec).tail_elements() * static_cast<int64_t>(c10::elementSize(dtype));
}

}  // namespace

bool RecurrentStateOptions::empty() const {
  return std::none_of(layers.begin(), layers.end(),
                      [](const std::optional<DeltaSpec>& layer) { return layer.has_value(); });
}

int64_t RecurrentStates::BytesPerSequence(const RecurrentStateOptions& options) {
  int64_t bytes = 0;
  for (const std::optional<DeltaSpec>& layer : options.layers) {
    if (!layer.has_value()) continue;
    bytes += kernels::RoundUp(StateBytes(*layer), kStateAlignment) +
             kernels::RoundUp(TailBytes(*layer, options.dtype), kStateAlignment);
  }
  return bytes;
}

absl::StatusOr<RecurrentStates> RecurrentStates::Create(const RecurrentStateOptions& options) {
  RecurrentStates states;
  if (options.empty()) return states;
  states.options_ = options;
  const auto take = [&states](int64_t bytes) {
    const int64_t place = states.bytes_;
    states.bytes_ += kernels::RoundUp(bytes, kStateAlignment);
    return place;
  };
  for (const std::optional<DeltaSpec>& layer : options.layers) {
    Place& place = states.places_.emplace_back();
    if (!layer.has_value()) continue;
    place.state = take(StateBytes(*layer));
    place.tail = take(TailBytes(*layer, options.dtype));
  }
  RETURN_IF_ERROR(states.TakeMemory());
  return states;
}

absl::Status RecurrentStates::TakeMemory() {
  if (options_.empty() || memory_.defined()) return absl::OkStatus();
  try {
    memory_ = at::empty({options_.count, bytes_}, at::device(options_.device).dtype(at::kByte));
  } catch (const std::exception&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("states of linear attention: ",
                     options_.device.is_cpu() ? "the system" : options_.device.str(), " refused ",
                     options_.count * bytes_ >> 20, " MiB for ", options_.count,
                     " sequences; lower rollout.max_num_seqs"));
  }
  return absl::OkStatus();
}

void RecurrentStates::Check(int64_t state) const {
  TORCH_CHECK(state >= 0 && state < options_.count,
              "a sequence has no state, or one that is not "
              "there: ",
              state, " of ", options_.count);
}

float* RecurrentStates::State(int64_t layer, int64_t state) const {
  Check(state);
  return reinterpret_cast<float*>(memory_.mutable_data_ptr<uint8_t>() + state * bytes_ +
                                  places_[layer].state);
}

void* RecurrentStates::Tail(int64_t layer, int64_t state) const {
  Check(state);
  return memory_.mutable_data_ptr<uint8_t>() + state * bytes_ + places_[layer].tail;
}

void RecurrentStates::Copy(int64_t from, int64_t to) {
  if (memory_.defined()) memory_[to].copy_(memory_[from], /*non_blocking=*/true);
}

void RecurrentStates::ReleaseMemory() {
  if (!memory_.defined()) return;
  if (!options_.device.is_cpu()) {
    memory_.reset();
    return;
  }
  ReleasePages(memory_.data_ptr(), memory_.nbytes());
}

}  // namespace tandem::model
