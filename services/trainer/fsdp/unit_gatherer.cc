#include "services/trainer/fsdp/unit_gatherer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "services/trainer/fsdp/offload_file.h"

namespace tandem::trainer {

UnitGatherer::UnitGatherer(const Options& options, std::vector<at::Tensor> shards)
    : options_(options) {
  const model::ParameterTable& table = *options.table;
  index_in_unit_.resize(table.parameters().size());
  for (size_t u = 0; u < shards.size(); ++u) {
    Unit unit;
    unit.group = table.units()[u].of_experts ? options.expert_group : options.group;
    unit.shard = std::move(shards[u]);
    unit.flat = std::make_unique<FlatUnit>(
        table, static_cast<int>(u), unit.shard.numel() * unit.group->size(),
        unit.shard.scalar_type(), unit.shard.device(), options.trainable);
    if (IsAlone(unit)) unit.flat->Attach(unit.shard);
    const std::vector<int>& parameters = table.units()[u].parameters;
    for (size_t i = 0; i < parameters.size(); ++i)
      index_in_unit_[parameters[i]] = static_cast<int>(i);
    units_.push_back(std::move(unit));
  }
}

void UnitGatherer::Begin(std::vector<std::vector<int>> steps) {
  schedule_ = sharding::GatherSchedule(std::move(steps), options_.schedule);
  // The optimizer writes the shards on the compute stream. Nothing else makes the side stream wait
  // for it: a rank whose micro-batch is empty copies nothing and never synchronizes.
  shards_written_ = options_.side->device().Record(kShardsWritten);
}

void UnitGatherer::MoveWindow(size_t step) {
  const size_t end = schedule_.WindowEnd(step);
  if (step > 0) {
    for (const int unit : schedule_.step(step - 1).units) {
      if (IsAlone(units_[unit]) && !schedule_.IsRead(unit, step, end)) Evict(units_[unit].shard);
    }
  }
  for (size_t s = step == 0 ? 0 : end - 1; s < end; ++s) {
    for (const int unit : schedule_.step(s).units) {
      if (IsAlone(units_[unit])) Prefetch(units_[unit].shard);
    }
  }
}

absl::Status UnitGatherer::Enter(size_t step) {
  MoveWindow(step);
  const sharding::GatherSchedule::Step& entered = schedule_.step(step);
  for (const int unit : entered.frees) {
    if (!IsAlone(units_[unit])) Free(unit);
  }
  for (const int unit : entered.gathers) RETURN_IF_ERROR(Start(unit));
  const size_t end = schedule_.WindowEnd(step);
  if (end < schedule_.num_steps()) {
    // A step before its gather starts: that reads the shard, which may have to come from disk.
    for (const int unit : schedule_.step(end).units) {
      if (!IsAlone(units_[unit])) Prefetch(units_[unit].shard);
    }
  }
  // Waits for this step's units only; the prefetched ones arrive while it computes.
  for (const int unit : entered.units) RETURN_IF_ERROR(Finish(unit));
  return absl::OkStatus();
}

absl::Status UnitGatherer::Start(int index) {
  Unit& unit = units_[index];
  if (IsAlone(unit)) return absl::OkStatus();
  BufferPool::Buffer buffer =
      options_.pool->Acquire(unit.shard.numel() * unit.group->size(), unit.shard.scalar_type());
  unit.memory = std::move(buffer.tensor);
  peak_units_ = std::max(peak_units_, ++num_units_held_);
  comm::ProcessGroup::WorkOr work = absl::InternalError("not issued");
  options_.side->IssueAfter({shards_written_.get(), buffer.last_use.get()}, [&] {
    work = unit.group->AllGather(unit.memory, unit.shard, options_.table->units()[index].name);
  });
  ASSIGN_OR_RETURN(unit.work, std::move(work));
  return absl::OkStatus();
}

absl::Status UnitGatherer::Finish(int index) {
  Unit& unit = units_[index];
  if (unit.work != nullptr) {
    const PhaseClock::Scope scope(*options_.clock, Phase::kAllGatherWait,
                                  options_.table->units()[index].name);
    RETURN_IF_ERROR(unit.work->Wait());
    unit.work.reset();
    Evict(unit.shard);
  }
  if (!unit.flat->attached()) unit.flat->Attach(unit.memory);
  return absl::OkStatus();
}

void UnitGatherer::Free(int index) {
  Unit& unit = units_[index];
  if (unit.flat->attached()) unit.flat->Detach();
  if (unit.work != nullptr) {
    // Only after an error elsewhere. The work keeps the memory alive; it is not used again.
    unit.work->Wait().IgnoreError();
    unit.work.reset();
    unit.memory.reset();
  } else {
    options_.pool->Release(std::move(unit.memory));
    unit.memory = at::Tensor();
  }
  --num_units_held_;
}

void UnitGatherer::End() {
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    if (units_[u].memory.defined()) Free(u);
    if (IsAlone(units_[u])) Evict(units_[u].shard);
  }
  schedule_ = sharding::GatherSchedule();
  shards_written_.reset();
}

const at::Tensor& UnitGatherer::Get(int index) const {
  const model::Parameter& parameter = options_.table->parameter(index);
  const Unit& unit = units_[parameter.unit];
  TORCH_INTERNAL_ASSERT(unit.flat->attached(), "parameter ", parameter.name,
                        " is used while its unit is not gathered");
  return unit.flat->leaves()[index_in_unit_[index]];
}

}  // namespace tandem::trainer
