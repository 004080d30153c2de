// UnitGatherer: gathers and frees the units of a pass over the model, as a GatherSchedule
// (common/sharding/gather_schedule.h) of its steps says.
//
//   gatherer.Begin({{embedding}, {layer_0}, {layer_1}, {head, embedding}});
//   for (size_t step = 0; step < 4; ++step) {
//     RETURN_IF_ERROR(gatherer.Enter(step));
//     ...                                           // computes
//   }
//   gatherer.End();
//
// One thread, the rank's collective thread: every rank enters the same steps in the same order.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_UNIT_GATHERER_H_
#define TANDEM_SERVICES_TRAINER_FSDP_UNIT_GATHERER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/comm/process_group.h"
#include "common/device/side_stream.h"
#include "common/model/parameter_provider.h"
#include "common/model/parameter_table.h"
#include "common/sharding/gather_schedule.h"
#include "services/trainer/fsdp/buffer_pool.h"
#include "services/trainer/fsdp/flat_unit.h"
#include "services/trainer/fsdp/phase_clock.h"

namespace tandem::trainer {

// What its events mark.
inline constexpr char kShardsWritten[] = "compute before a pass";

class UnitGatherer : public model::ParameterProvider {
 public:
  struct Options {
    const model::ParameterTable* table = nullptr;  // all of these outlive the gatherer
    comm::ProcessGroup* group = nullptr;
    // Of the units with Unit::of_experts; null: there are none.
    comm::ProcessGroup* expert_group = nullptr;
    BufferPool* pool = nullptr;
    device::SideStream* side = nullptr;
    PhaseClock* clock = nullptr;
    sharding::GatherOptions schedule;
    bool trainable = true;
  };

  // `shards`: this rank's part of each unit, in compute dtype, at stable addresses. Those of a group
  // of one rank are read in place and never gathered. Shards in an OffloadFile are evicted while no step
  // of the window reads them.
  UnitGatherer(const Options& options, std::vector<at::Tensor> shards);

  // Gathers of the pass wait for the compute issued so far: it may have written the shards.
  void Begin(std::vector<std::vector<int>> steps);
  // Enter steps one by one, from 0. Errors are those of the collective.
  absl::Status Enter(size_t step);
  // Frees all units, also after an error; waits for those in flight.
  void End();

  // Throws c10::Error if the parameter's unit is not gathered.
  const at::Tensor& Get(int index) const override;
  int peak_units() const { return peak_units_; }

 private:
  struct Unit {
    std::unique_ptr<FlatUnit> flat;
    comm::ProcessGroup* group = nullptr;
    at::Tensor shard;
    at::Tensor memory;                 // defined while gathered or in flight
    std::unique_ptr<comm::Work> work;  // while in flight
  };

  // Whether the shard is the unit, read in place.
  static bool IsAlone(const Unit& unit) { return unit.group->size() == 1; }
  // Moves the window of the shards that are read in place.
  void MoveWindow(size_t step);
  absl::Status Start(int unit);
  absl::Status Finish(int unit);
  void Free(int unit);

  const Options options_;
  std::vector<Unit> units_;
  std::vector<int> index_in_unit_;  // of each parameter
  sharding::GatherSchedule schedule_;
  std::shared_ptr<device::Event> shards_written_;
  int num_units_held_ = 0;
  int peak_units_ = 0;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_UNIT_GATHERER_H_
