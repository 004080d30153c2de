#include "services/trainer/fsdp/gradient_reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/sum.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {

GradientReducer::GradientReducer(const Options& options, std::vector<at::Tensor> shards)
    : options_(options), alone_(options.group->size() == 1) {
  for (at::Tensor& shard : shards) units_.push_back({.shard = std::move(shard)});
}

void GradientReducer::Lay(int unit, absl::Span<const at::Tensor> gradients, bool overwrite,
                          at::Tensor& flat) const {
  const PhaseClock::Scope scope(*options_.clock, Phase::kBackward);
  const model::Unit& layout = options_.table->units()[unit];
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const model::Parameter& parameter = options_.table->parameter(layout.parameters[i]);
    at::Tensor slot = flat.narrow(0, parameter.offset, parameter.numel);
    const bool given = i < gradients.size() && gradients[i].defined();
    if (!given) {
      if (overwrite) slot.zero_();
    } else if (overwrite) {
      slot.view(parameter.shape).copy_(gradients[i]);
    } else {
      slot.view(parameter.shape).add_(gradients[i]);
    }
  }
  if (overwrite && flat.numel() > layout.numel) {
    flat.narrow(0, layout.numel, flat.numel() - layout.numel).zero_();
  }
}

absl::Status GradientReducer::Add(int unit, absl::Span<const at::Tensor> gradients, bool complete) {
  const at::NoGradGuard no_grad;
  Unit& state = units_[unit];
  if (alone_) {
    Lay(unit, gradients, /*overwrite=*/!state.touched, state.shard);
    state.touched = true;
    return absl::OkStatus();
  }
  // The buffer of the reduction before this one is the buffer of this one.
  RETURN_IF_ERROR(Finish());
  const bool first = !state.full.defined();
  if (first) {
    // Compute writes it before the collective does, and compute is in order.
    state.full =
        options_.pool->Acquire(state.shard.numel() * options_.group->size(), TravelType(unit))
            .tensor;
  }
  Lay(unit, gradients, /*overwrite=*/first, state.full);
  return complete ? Start(unit) : absl::OkStatus();
}

at::ScalarType GradientReducer::TravelType(int unit) const {
  return unit == options_.shared_unit ? at::kFloat : options_.compute_dtype;
}

absl::Status GradientReducer::Start(int unit) {
  Unit& state = units_[unit];
  in_flight_.unit = unit;
  in_flight_.full = std::exchange(state.full, at::Tensor());
  in_flight_.sum =
      state.touched ? options_.pool->Acquire(state.shard.numel(), at::kFloat).tensor : state.shard;
  if (TravelType(unit) != at::kFloat) {
    in_flight_.slices =
        options_.pool->Acquire(in_flight_.full.numel(), in_flight_.full.scalar_type()).tensor;
  }
  const std::string tag = absl::StrCat("gradients of ", options_.table->units()[unit].name);
  const std::shared_ptr<DeviceStreams::Mark> laid = options_.streams->MarkCompute();
  comm::ProcessGroup::WorkOr work = absl::InternalError("not issued");
  options_.streams->IssueAfter(laid.get(), [&] {
    work = in_flight_.slices.defined()
               ? options_.group->AllToAll(in_flight_.slices, in_flight_.full, tag)
               : options_.group->ReduceScatter(in_flight_.sum, in_flight_.full, tag);
  });
  ASSIGN_OR_RETURN(in_flight_.work, std::move(work));
  return absl::OkStatus();
}

absl::Status GradientReducer::Finish() {
  if (in_flight_.work == nullptr) return absl::OkStatus();
  {
    const PhaseClock::Scope scope(*options_.clock, Phase::kReduceScatterWait);
    RETURN_IF_ERROR(in_flight_.work->Wait());
  }
  const at::NoGradGuard no_grad;
  InFlight done = std::exchange(in_flight_, InFlight());
  options_.pool->Release(std::move(done.full));
  if (done.slices.defined()) {
    at::sum_out(done.sum, done.slices.view({options_.group->size(), -1}), {0}, /*keepdim=*/false,
                at::kFloat);
    options_.pool->Release(std::move(done.slices));
  }
  Unit& state = units_[done.unit];
  if (state.touched) {
    state.shard.add_(done.sum);
    options_.pool->Release(std::move(done.sum));
  }
  state.touched = true;
  return absl::OkStatus();
}

void GradientReducer::Reset() {
  for (Unit& unit : units_) unit.touched = false;
}

void GradientReducer::ZeroUntouched() {
  for (Unit& unit : units_) {
    if (!unit.touched) unit.shard.zero_();
    unit.touched = true;
  }
}

}  // namespace tandem::trainer
