// UnitGatherer: which units are whole, and when. A pass over the model is a list of steps, each
// with the units that it reads; on entering a step its units and those of the next `prefetch` steps
// are gathered or on their way, and no others are, unless units are to stay from forward to
// backward.
//
//   gatherer.Begin({{embed}, {layer 0}, {layer 1}, {head, embed}});
//   for each step: RETURN_IF_ERROR(gatherer.Enter(step)); compute
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
    // Frees a unit between its forward and its backward; false keeps it for as long as a later step
    // reads it.
    bool reshard_after_forward = true;
    bool trainable = true;
  };

  // `shards`: this rank's part of each unit, in compute dtype, at addresses that stay. A group of
  // one rank reads them in place: nothing is ever gathered. Those in an OffloadFile rest while no
  // step of the window reads them.
  UnitGatherer(const Options& options, std::vector<at::Tensor> shards);

  void Begin(std::vector<std::vector<int>> steps);
  // Steps are entered one after the other, from 0. Errors are those of the collective.
  absl::Status Enter(size_t step);
  // Frees all units. After an error too: what is on its way is waited for.
  void End();

  // Aborts where the parameter's unit has not arrived.
  const at::Tensor& Get(int index) const override;
  int peak_units() const { return peak_units_; }

 private:
  struct Unit {
    std::unique_ptr<FlatUnit> flat;
    at::Tensor shard;
    at::Tensor memory;                 // defined while gathered or on its way
    std::unique_ptr<comm::Work> work;  // while on its way
  };

  // Whether the unit is to be held while `step` runs.
  bool Stays(int unit, size_t step) const;
  // Steps from `step` on that are prepared.
  size_t WindowEnd(size_t step) const;
  bool IsRead(int unit, size_t begin, size_t end) const;
  // Where shards are read in place.
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
