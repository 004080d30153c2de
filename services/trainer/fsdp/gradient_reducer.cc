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
    : options_(options) {
  const model::ParameterTable& table = *options.table;
  index_in_unit_.resize(table.parameters().size());
  for (size_t u = 0; u < shards.size(); ++u) {
    const std::vector<int>& parameters = table.units()[u].parameters;
    for (size_t i = 0; i < parameters.size(); ++i)
      index_in_unit_[parameters[i]] = static_cast<int>(i);
    Unit unit;
    unit.shard = std::move(shards[u]);
    const bool of_experts = table.units()[u].of_experts;
    unit.group = of_experts ? &options.mesh->expert_shard() : &options.mesh->shard();
    unit.by_host =
        of_experts ? options.mesh->expert_shard_by_host() : options.mesh->shard_by_host();
    unit.written.resize(parameters.size());
    units_.push_back(std::move(unit));
  }
  reduction_.emplace(
      ops_,
      sharding::GradientReduction<TensorOps>::Options{.compute_type = options.compute_dtype,
                                                      .reduce_type = options.reduce_dtype,
                                                      .shared_unit = options.shared_unit},
      ReducedUnits());
}

std::vector<sharding::ReducedUnit> GradientReducer::ReducedUnits() const {
  std::vector<sharding::ReducedUnit> units;
  for (const Unit& unit : units_) {
    const int64_t owned = unit.shard.defined() ? unit.shard.numel() : 0;
    units.push_back({.extent = {.owned = owned, .padded = owned * unit.group->size()},
                     .num_hosts = unit.by_host.num_hosts()});
  }
  return units;
}

bool GradientReducer::OnDevice(int unit) const {
  return units_[unit].shard.device() == options_.pool->device();
}

absl::StatusOr<at::Tensor> GradientReducer::LayingBuffer(int unit) {
  if (IsAlone(unit)) return units_[unit].shard;
  RETURN_IF_ERROR(reduction_->Open(unit));
  return reduction_->buffer(unit);
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
  if (!IsAlone(unit)) return reduction_->Complete(unit);
  Evict(units_[unit].shard);
  return absl::OkStatus();
}

absl::Status GradientReducer::Finish() {
  const at::NoGradGuard no_grad;
  return reduction_->Finish();
}

at::Tensor GradientReducer::TensorOps::Acquire(int64_t numel, at::ScalarType type) {
  return reducer_.options_.pool->Acquire(numel, type).tensor;
}

void GradientReducer::TensorOps::Release(at::Tensor buffer) {
  reducer_.options_.pool->Release(std::move(buffer));
}

void GradientReducer::TensorOps::Seal(int unit, at::Tensor& full) {
  reducer_.ZeroUnwritten(unit, full);
  // The unit's next buffer starts without gradients.
  std::vector<bool>& written = reducer_.units_[unit].written;
  written.assign(written.size(), false);
}

at::Tensor& GradientReducer::TensorOps::SumOf(int unit, Flight& flight) {
  return flight.sum.has_value() ? *flight.sum : reducer_.units_[unit].shard;
}

void GradientReducer::TensorOps::SortByRankOfHost(int unit, const at::Tensor& from,
                                                  at::Tensor& to) {
  const comm::HostGroups& by_host = reducer_.units_[unit].by_host;
  const int64_t hosts = by_host.across->size();
  const int64_t ranks = by_host.within->size();
  to.view({ranks, hosts, -1}).copy_(from.view({hosts, ranks, -1}).transpose(0, 1));
}

absl::Status GradientReducer::TensorOps::Start(int unit, sharding::Leg leg, Flight& flight) {
  const Options& options = reducer_.options_;
  const Unit& of = reducer_.units_[unit];
  comm::ProcessGroup& group = leg == sharding::Leg::kAll          ? *of.group
                              : leg == sharding::Leg::kWithinHost ? *of.by_host.within
                                                                  : *of.by_host.across;
  const std::string tag = absl::StrCat("gradients of ", options.table->units()[unit].name);
  const std::shared_ptr<device::Event> laid = options.side->device().Record(kGradientsLaid);
  comm::ProcessGroup::WorkOr work = absl::InternalError("not issued");
  options.side->IssueAfter({laid.get()}, [&] {
    work = flight.slices.has_value() ? group.AllToAll(*flight.slices, *flight.full, tag)
                                     : group.ReduceScatter(SumOf(unit, flight), *flight.full, tag);
  });
  ASSIGN_OR_RETURN(WorkOf(leg), std::move(work));
  return absl::OkStatus();
}

absl::Status GradientReducer::TensorOps::Wait(int unit, sharding::Leg leg) {
  const Options& options = reducer_.options_;
  const PhaseClock::Scope scope(*options.clock, Phase::kReduceScatterWait,
                                options.table->units()[unit].name);
  const std::unique_ptr<comm::Work> work = std::move(WorkOf(leg));
  return work->Wait();
}

void GradientReducer::TensorOps::AddSlices(int unit, Flight& flight) {
  at::Tensor& sum = SumOf(unit, flight);
  at::sum_out(sum, flight.slices->view({-1, sum.numel()}), {0}, /*keepdim=*/false, at::kFloat);
}

void GradientReducer::TensorOps::AddToShard(int unit, const at::Tensor& sum, bool holds_sum) {
  at::Tensor& shard = reducer_.units_[unit].shard;
  if (holds_sum) {
    shard.add_(sum.to(shard.device()));
  } else {
    shard.copy_(sum);
  }
}

void GradientReducer::TensorOps::Arrived(int unit) { Evict(reducer_.units_[unit].shard); }

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
    const std::shared_ptr<device::Event> summed = options_.side->device().Record(kShardsSummed);
    comm::ProcessGroup::WorkOr work = absl::InternalError("not issued");
    options_.side->IssueAfter({summed.get()}, [&] {
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
  reduction_->Reset();
  for (Unit& unit : units_) {
    if (unit.group->size() == 1) unit.written.assign(unit.written.size(), false);
  }
}

void GradientReducer::ZeroUntouched() {
  for (size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = units_[u];
    if (!unit.shard.defined()) continue;
    const int index = static_cast<int>(u);
    if (IsAlone(index)) {
      ZeroUnwritten(index, unit.shard);
      unit.written.assign(unit.written.size(), true);
      Evict(unit.shard);
    } else if (!reduction_->holds_sum(index)) {
      unit.shard.zero_();
      Evict(unit.shard);
      reduction_->SetHoldsSum(index);
    }
  }
}

}  // namespace tandem::trainer
