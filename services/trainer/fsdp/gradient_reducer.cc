#include "services/trainer/fsdp/gradient_reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/sum.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "services/trainer/fsdp/offload_file.h"

namespace tandem::trainer {

GradientReducer::GradientReducer(const Options& options, std::vector<at::Tensor> shards)
    : options_(options), group_(options.mesh->shard()), alone_(group_.size() == 1) {
  const model::ParameterTable& table = *options.table;
  index_in_unit_.resize(table.parameters().size());
  for (size_t u = 0; u < shards.size(); ++u) {
    const std::vector<int>& parameters = table.units()[u].parameters;
    for (size_t i = 0; i < parameters.size(); ++i)
      index_in_unit_[parameters[i]] = static_cast<int>(i);
    Unit unit;
    unit.shard = std::move(shards[u]);
    unit.written.resize(parameters.size());
    units_.push_back(std::move(unit));
  }
}

bool GradientReducer::OnDevice(int unit) const {
  return units_[unit].shard.device() == options_.pool->device();
}

at::ScalarType GradientReducer::LayType(int unit) const {
  return unit == options_.shared_unit ? at::kFloat : options_.compute_dtype;
}

at::ScalarType GradientReducer::TravelType(int unit) const {
  return options_.reduce_dtype == at::kBFloat16 ? at::kBFloat16 : LayType(unit);
}

absl::StatusOr<at::Tensor> GradientReducer::LayingBuffer(int unit) {
  Unit& state = units_[unit];
  if (alone_) return state.shard;
  if (!state.full.defined()) {
    // This reduction reuses the buffer of the one before.
    RETURN_IF_ERROR(Finish());
    // Compute writes it before the collective does, and compute is in order.
    state.full = options_.pool->Acquire(state.shard.numel() * group_.size(), LayType(unit)).tensor;
    state.written.assign(state.written.size(), false);
  }
  return state.full;
}

absl::Status GradientReducer::Add(int index, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  const model::Parameter& parameter = options_.table->parameter(index);
  ASSIGN_OR_RETURN(const at::Tensor flat, LayingBuffer(parameter.unit));
  if (!gradient.defined()) return absl::OkStatus();
  const PhaseClock::Scope scope(*options_.clock, Phase::kBackward);
  const at::Tensor slot = flat.narrow(0, parameter.offset, parameter.numel).view(parameter.shape);
  std::vector<bool>& written = units_[parameter.unit].written;
  const int in_unit = index_in_unit_[index];
  // The first gradient is copied, so that the buffer need not be cleared before.
  if (written[in_unit]) {
    slot.add_(gradient.to(slot.device()));
  } else {
    slot.copy_(gradient);
  }
  written[in_unit] = true;
  return absl::OkStatus();
}

void GradientReducer::ZeroUnwritten(int unit, at::Tensor& flat) const {
  const model::Unit& layout = options_.table->units()[unit];
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    if (units_[unit].written[i]) continue;
    const model::Parameter& parameter = options_.table->parameter(layout.parameters[i]);
    flat.narrow(0, parameter.offset, parameter.numel).zero_();
  }
  if (flat.numel() > layout.numel) {
    flat.narrow(0, layout.numel, flat.numel() - layout.numel).zero_();
  }
}

absl::Status GradientReducer::Complete(int unit) {
  const at::NoGradGuard no_grad;
  Unit& state = units_[unit];
  if (alone_) {
    state.touched = true;
    Evict(state.shard);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(LayingBuffer(unit).status());
  // If two units were filled side by side, waits for the reduction of the first.
  RETURN_IF_ERROR(Finish());
  ZeroUnwritten(unit, state.full);
  in_flight_.unit = unit;
  in_flight_.full = std::exchange(state.full, at::Tensor());
  const at::ScalarType travel_type = TravelType(unit);
  if (in_flight_.full.scalar_type() != travel_type) {
    at::Tensor rounded = options_.pool->Acquire(in_flight_.full.numel(), travel_type).tensor;
    rounded.copy_(in_flight_.full);
    options_.pool->Release(std::exchange(in_flight_.full, std::move(rounded)));
  }
  // A collective overwrites its result, so it must not get a shard that already holds a sum.
  in_flight_.sum = state.touched || !OnDevice(unit)
                       ? options_.pool->Acquire(state.shard.numel(), at::kFloat).tensor
                       : state.shard;
  if (travel_type != at::kFloat) {
    in_flight_.slices = options_.pool->Acquire(in_flight_.full.numel(), travel_type).tensor;
  }
  const std::string tag = absl::StrCat("gradients of ", options_.table->units()[unit].name);
  const std::shared_ptr<DeviceStreams::Mark> laid = options_.streams->MarkCompute();
  comm::ProcessGroup::WorkOr work = absl::InternalError("not issued");
  options_.streams->IssueAfter(laid.get(), [&] {
    work = in_flight_.slices.defined() ? group_.AllToAll(in_flight_.slices, in_flight_.full, tag)
                                       : group_.ReduceScatter(in_flight_.sum, in_flight_.full, tag);
  });
  ASSIGN_OR_RETURN(in_flight_.work, std::move(work));
  return absl::OkStatus();
}

absl::Status GradientReducer::Finish() {
  if (in_flight_.work == nullptr) return absl::OkStatus();
  {
    const PhaseClock::Scope scope(*options_.clock, Phase::kReduceScatterWait,
                                  options_.table->units()[in_flight_.unit].name);
    RETURN_IF_ERROR(in_flight_.work->Wait());
  }
  const at::NoGradGuard no_grad;
  InFlight done = std::exchange(in_flight_, InFlight());
  options_.pool->Release(std::move(done.full));
  if (done.slices.defined()) {
    at::sum_out(done.sum, done.slices.view({group_.size(), -1}), {0}, /*keepdim=*/false,
                at::kFloat);
    options_.pool->Release(std::move(done.slices));
  }
  Unit& state = units_[done.unit];
  if (!done.sum.is_same(state.shard)) {
    if (state.touched) {
      state.shard.add_(done.sum.to(state.shard.device()));
    } else {
      state.shard.copy_(done.sum);
    }
    options_.pool->Release(std::move(done.sum));
  }
  state.touched = true;
  Evict(state.shard);
  return absl::OkStatus();
}

absl::Status GradientReducer::SumReplicas() {
  comm::ProcessGroup& replicas = options_.mesh->replicate();
  if (replicas.size() == 1) return absl::OkStatus();
  const at::NoGradGuard no_grad;
  // One unit's sum is in flight while the next one's starts.
  size_t last_unit = 0;
  std::unique_ptr<comm::Work> last_work;
  at::Tensor last_sum;
  const auto finish_last = [&]() -> absl::Status {
    if (last_work == nullptr) return absl::OkStatus();
    {
      const PhaseClock::Scope scope(*options_.clock, Phase::kReduceScatterWait,
                                    options_.table->units()[last_unit].name);
      RETURN_IF_ERROR(last_work->Wait());
    }
    if (!OnDevice(static_cast<int>(last_unit))) units_[last_unit].shard.copy_(last_sum);
    Evict(units_[last_unit].shard);
    return absl::OkStatus();
  };
  for (size_t u = 0; u < units_.size(); ++u) {
    if (!units_[u].shard.defined()) continue;
    at::Tensor sum = units_[u].shard.to(options_.pool->device());
    const std::shared_ptr<DeviceStreams::Mark> summed = options_.streams->MarkCompute();
    comm::ProcessGroup::WorkOr work = absl::InternalError("not issued");
    options_.streams->IssueAfter(summed.get(), [&] {
      work = replicas.AllReduce(
          sum, comm::ReduceOp::kSum,
          absl::StrCat("gradients of ", options_.table->units()[u].name, " over replicas"));
    });
    RETURN_IF_ERROR(work.status());
    RETURN_IF_ERROR(finish_last());
    last_unit = u;
    last_work = *std::move(work);
    last_sum = std::move(sum);
  }
  return finish_last();
}

void GradientReducer::Reset() {
  for (Unit& unit : units_) {
    unit.touched = false;
    if (alone_) unit.written.assign(unit.written.size(), false);
  }
}

void GradientReducer::ZeroUntouched() {
  for (size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = units_[u];
    if (!unit.shard.defined()) continue;
    if (alone_) {
      ZeroUnwritten(static_cast<int>(u), unit.shard);
      unit.written.assign(unit.written.size(), true);
      Evict(unit.shard);
    } else if (!unit.touched) {
      unit.shard.zero_();
      Evict(unit.shard);
    }
    unit.touched = true;
  }
}

}  // namespace tandem::trainer
