// GradientReducer: sums the gradients of units over micro-batches and ranks into float32 shards.
//
// A unit's gradients, as the backward pass of its stage gives them, are laid in a flat buffer and
// reduce-scattered; that runs while the next stage's backward computes and is waited for when the
// next unit's gradients come, so one such buffer is in use at a time, two where the embedding is
// tied. Gradients of bfloat16 travel as they are, each rank's slice to its owner, who adds them in
// float32: the same sum at half the traffic. A group of one rank adds to its shard directly.
//
// One thread; every rank adds the same units in the same order.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_GRADIENT_REDUCER_H_
#define TANDEM_SERVICES_TRAINER_FSDP_GRADIENT_REDUCER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/comm/process_group.h"
#include "common/model/parameter_table.h"
#include "services/trainer/fsdp/buffer_pool.h"
#include "services/trainer/fsdp/device_streams.h"
#include "services/trainer/fsdp/phase_clock.h"

namespace tandem::trainer {

class GradientReducer {
 public:
  struct Options {
    const model::ParameterTable* table = nullptr;  // all of these outlive the reducer
    comm::ProcessGroup* group = nullptr;
    BufferPool* pool = nullptr;
    DeviceStreams* streams = nullptr;
    PhaseClock* clock = nullptr;
    at::ScalarType compute_dtype = at::kFloat;  // of the gradients
    // A unit that two stages add to in one micro-batch, -1 for none. Its gradients are added up,
    // and travel, in float32.
    int shared_unit = -1;
  };

  // `shards`: this rank's float32 sums, one for each unit, at addresses that stay.
  GradientReducer(const Options& options, std::vector<at::Tensor> shards);

  // Adds gradients of a unit's parameters, in table order; an undefined one is zero, and an empty
  // span all of them. `complete` says that this was the micro-batch's last use of the unit: the sum
  // over ranks begins.
  absl::Status Add(int unit, absl::Span<const at::Tensor> gradients, bool complete);
  // Waits until the shards hold everything that was added.
  absl::Status Finish();

  // Begins new sums: the next gradients overwrite the shards.
  void Reset();
  // Zeroes the shards that no gradient has reached since Reset().
  void ZeroUntouched();

 private:
  struct Unit {
    at::Tensor shard;
    at::Tensor full;       // while gradients of a micro-batch are being laid in
    bool touched = false;  // the shard holds a sum
  };
  struct InFlight {
    int unit = -1;
    at::Tensor full;
    at::Tensor slices;  // every rank's gradients of this rank's part; undefined for float32
    at::Tensor sum;     // over the ranks; the shard itself where it held nothing yet
    std::unique_ptr<comm::Work> work;
  };

  // Writes or adds gradients into `flat`, which has at least the unit's elements.
  void Lay(int unit, absl::Span<const at::Tensor> gradients, bool overwrite,
           at::Tensor& flat) const;
  at::ScalarType TravelType(int unit) const;
  absl::Status Start(int unit);

  const Options options_;
  const bool alone_;
  std::vector<Unit> units_;
  InFlight in_flight_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_GRADIENT_REDUCER_H_
