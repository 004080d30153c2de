#include "common/model/recurrent_states.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "absl/strings/str_cat.h"
#include "common/model/delta_sizes.h"
#include "common/model/release_pages.h"

namespace tandem::model {
namespace {

char* RowOf(const at::Tensor& tensor, int64_t row) {
  return static_cast<char*>(tensor.mutable_data_ptr()) + row * (tensor.nbytes() / tensor.size(0));
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
    const kernels::DeltaShape sizes = SizesOf(*layer);
    bytes += sizes.state_floats() * static_cast<int64_t>(sizeof(float)) +
             sizes.tail_elements() * static_cast<int64_t>(c10::elementSize(options.dtype));
  }
  return bytes;
}

absl::StatusOr<RecurrentStates> RecurrentStates::Create(const RecurrentStateOptions& options) {
  RecurrentStates states;
  if (options.empty()) return states;
  states.options_ = options;
  try {
    for (const std::optional<DeltaSpec>& layer : options.layers) {
      at::Tensor& state = states.states_.emplace_back();
      at::Tensor& tail = states.tails_.emplace_back();
      if (!layer.has_value()) continue;
      const kernels::DeltaShape sizes = SizesOf(*layer);
      state = at::empty({options.count, sizes.state_floats()}, at::kFloat);
      tail = at::empty({options.count, sizes.tail_elements()}, options.dtype);
    }
  } catch (const std::exception&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("states of linear attention: the system refused ",
                     options.count * BytesPerSequence(options) >> 20, " MiB for ", options.count,
                     " sequences; lower rollout.max_num_seqs"));
  }
  return states;
}

float* RecurrentStates::State(int64_t layer, int64_t state) const {
  TORCH_CHECK(state >= 0 && state < options_.count,
              "a sequence has no state, or one that is not "
              "there: ",
              state, " of ", options_.count);
  return reinterpret_cast<float*>(RowOf(states_[layer], state));
}

void* RecurrentStates::Tail(int64_t layer, int64_t state) const {
  return RowOf(tails_[layer], state);
}

void RecurrentStates::Copy(int64_t from, int64_t to) {
  for (const auto* tensors : {&states_, &tails_}) {
    for (const at::Tensor& tensor : *tensors) {
      if (!tensor.defined()) continue;
      std::memcpy(RowOf(tensor, to), RowOf(tensor, from), tensor.nbytes() / tensor.size(0));
    }
  }
}

void RecurrentStates::ReleaseMemory() {
  for (const auto* tensors : {&states_, &tails_}) {
    for (const at::Tensor& tensor : *tensors) {
      if (tensor.defined()) ReleasePages(tensor.data_ptr(), tensor.nbytes());
    }
  }
}

}  // namespace tandem::model
