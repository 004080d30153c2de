// GradientReducer: sums the gradients of units over micro-batches and ranks into float32 shards.
//
// A unit's gradients, as the backward passes of its stages give them, are laid in a flat buffer and
// reduce-scattered among the ranks that share a copy of the model; that runs while the next stage's
// backward computes and is waited for when the next unit's gradients come, so one such buffer is in
// use at a time, two where the embedding is tied. Gradients of bfloat16 travel as they are, each
// rank's slice to its owner, who adds them in float32: the same sum at half the traffic. A group of
// one rank adds to its shard directly. Copies of the model add up their shards once, at the end.
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
#include "common/comm/device_mesh.h"
#include "common/model/parameter_table.h"
#include "services/trainer/fsdp/buffer_pool.h"
#include "services/trainer/fsdp/device_streams.h"
#include "services/trainer/fsdp/phase_clock.h"

namespace tandem::trainer {

class GradientReducer {
 public:
  struct Options {
    const model::ParameterTable* table = nullptr;  // all of these outlive the reducer
    const comm::DeviceMesh* mesh = nullptr;
    BufferPool* pool = nullptr;
    DeviceStreams* streams = nullptr;
    PhaseClock* clock = nullptr;
    at::ScalarType compute_dtype = at::kFloat;  // of the gradients
    // kBFloat16 rounds gradients before they travel; they are added up in float32 in any case.
    at::ScalarType reduce_dtype = at::kFloat;
    // A unit that two stages add to in one micro-batch, -1 for none. Its gradients are added up in
    // float32.
    int shared_unit = -1;
  };

  // `shards`: this rank's float32 sums, one for each unit, at addresses that stay; on the pool's
  // device, in host memory, or in an OffloadFile, where they rest between two uses.
  GradientReducer(const Options& options, std::vector<at::Tensor> shards);

  // Adds gradients of parameters (indices into the table); an undefined one is zero, and an empty
  // span all of them.
  absl::Status Add(absl::Span<const int> parameters, absl::Span<const at::Tensor> gradients);
  // The micro-batch has no more gradients of the unit: the sum over ranks begins. Parameters that
  // got none count as zero.
  absl::Status Complete(int unit);
  // Waits until the shards hold everything that was completed.
  absl::Status Finish();
  // Adds up the shards of all copies of the model, once before they are read. Collective.
  absl::Status SumReplicas();

  // Begins new sums: the next gradients overwrite the shards.
  void Reset();
  // Zeroes the shards that nothing was added to since Reset().
  void ZeroUntouched();

 private:
  struct Unit {
    at::Tensor shard;
    at::Tensor full;            // while gradients of a micro-batch are being laid in
    std::vector<bool> written;  // of the buffer that they are laid in, for each parameter
    bool touched = false;       // the shard holds a sum
  };
  struct InFlight {
    int unit = -1;
    at::Tensor full;
    at::Tensor slices;  // every rank's gradients of this rank's part; undefined for float32
    at::Tensor sum;     // over the ranks; the shard itself where it held nothing yet
    std::unique_ptr<comm::Work> work;
  };

  // Where the unit's gradients are laid: `full`, made where there is none yet, or the shard itself.
  absl::StatusOr<at::Tensor> LayingBuffer(int unit);
  // Zeroes what no gradient was laid into, the padding too.
  void ZeroUnwritten(int unit, at::Tensor& flat) const;
  // Whether the unit's shard can be an operand of the device's collectives.
  bool OnDevice(int unit) const;
  at::ScalarType LayType(int unit) const;
  at::ScalarType TravelType(int unit) const;

  const Options options_;
  comm::ProcessGroup& group_;  // of the ranks that share a copy
  const bool alone_;
  std::vector<Unit> units_;
  std::vector<int> index_in_unit_;  // of each parameter
  InFlight in_flight_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_GRADIENT_REDUCER_H_
