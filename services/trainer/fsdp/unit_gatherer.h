// UnitGatherer: decides which units are gathered, and when. A pass over the model is a list of
// steps, each with the units that it reads. Entering a step gathers its units and prefetches those
// of the next `prefetch` steps; all others are freed, unless units stay from forward to backward.
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
#include "common/model/parameter_provider.h"
#include "common/model/parameter_table.h"
#include "services/trainer/fsdp/buffer_pool.h"
#include "services/trainer/fsdp/device_streams.h"
#include "services/trainer/fsdp/flat_unit.h"
#include "services/trainer/fsdp/phase_clock.h"

namespace tandem::trainer {

class UnitGatherer : public model::ParameterProvider {
 public:
  struct Options {
    const model::ParameterTable* table = nullptr;  // all of these outlive the gatherer
    comm::ProcessGroup* group = nullptr;
    BufferPool* pool = nullptr;
    DeviceStreams* streams = nullptr;
    PhaseClock* clock = nullptr;
    int64_t prefetch = 1;
    // Frees a unit between its forward and its backward; false keeps it while a later step reads
    // it.
    bool reshard_after_forward = true;
    bool trainable = true;
  };

  // `shards`: this rank's part of each unit, in compute dtype, at stable addresses. A group of one
  // rank reads them in place and never gathers. Shards in an OffloadFile are evicted while no step
  // of the window reads them.
  UnitGatherer(const Options& options, std::vector<at::Tensor> shards);

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
    at::Tensor shard;
    at::Tensor memory;                 // defined while gathered or in flight
    std::unique_ptr<comm::Work> work;  // while in flight
  };

  // Whether the unit must be held while `step` runs.
  bool Stays(int unit, size_t step) const;
  // End of the steps, from `step` on, that are prepared.
  size_t WindowEnd(size_t step) const;
  bool IsRead(int unit, size_t begin, size_t end) const;
  // Moves the window if shards are read in place.
  void MoveWindow(size_t step);
  absl::Status Start(int unit);
  absl::Status Finish(int unit);
  void Free(int unit);

  const Options options_;
  const bool alone_;
  std::vector<Unit> units_;
  std::vector<int> index_in_unit_;  // of each parameter
  std::vector<std::vector<int>> steps_;
  int num_units_held_ = 0;
  int peak_units_ = 0;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_UNIT_GATHERER_H_
