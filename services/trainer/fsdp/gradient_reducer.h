// GradientReducer: sums the gradients of units over micro-batches and ranks into float32 shards.
//
// A unit's gradients come from the backward passes of its stages. They are copied into a flat
// buffer and reduce-scattered among the ranks that share a copy of the model; the order of buffers
// and collectives is that of common/sharding/gradient_reduction.h. The reduce-scatter overlaps the
// next stage's backward. bfloat16 gradients travel unreduced, each rank's slice to its owner, which
// adds them in float32: the same sum at half the traffic. Ranks on several hosts do so within each host
// first, and hosts then exchange their sums. A group of one rank adds to its shard directly. Copies of
// the model add up their shards once, at the end.
//
// One thread; every rank adds the same units in the same order.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_GRADIENT_REDUCER_H_
#define TANDEM_SERVICES_TRAINER_FSDP_GRADIENT_REDUCER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/comm/device_mesh.h"
#include "common/device/side_stream.h"
#include "common/model/parameter_table.h"
#include "common/sharding/gradient_reduction.h"
#include "services/trainer/fsdp/buffer_pool.h"
#include "services/trainer/fsdp/phase_clock.h"

namespace tandem::trainer {

// What its events mark.
inline constexpr char kGradientsLaid[] = "compute before a gradient reduction";
inline constexpr char kShardsSummed[] = "compute before a sum over replicas";

class GradientReducer {
 public:
  struct Options {
    const model::ParameterTable* table = nullptr;  // all of these outlive the reducer
    const comm::DeviceMesh* mesh = nullptr;
    BufferPool* pool = nullptr;
    device::SideStream* side = nullptr;
    PhaseClock* clock = nullptr;
    at::ScalarType compute_dtype = at::kFloat;  // of the gradients
    // kBFloat16 rounds gradients before they travel; sums are in float32 in any case.
    at::ScalarType reduce_dtype = at::kFloat;
    // A unit that two stages add to in one micro-batch, -1 for none. Its gradients are summed in
    // float32.
    int shared_unit = -1;
  };

  // `shards`: this rank's float32 sums, one for each unit, at stable addresses; on the pool's
  // device, in host memory, or in an OffloadFile, to which they are evicted between uses. Undefined
  // for frozen units, whose parameters must not be given to Add().
  GradientReducer(const Options& options, std::vector<at::Tensor> shards);
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Adds the gradient of a parameter (an index into the table). An undefined one counts as zero.
  absl::Status Add(int index, const at::Tensor& gradient);
  // Call after the unit's last gradients in the micro-batch: starts the sum over ranks. Parameters
  // without a gradient count as zero.
  absl::Status Complete(int unit);
  // Waits until the shards hold the sums of all completed units.
  absl::Status Finish();
  // Adds up the shards of all copies of the model. Collective; call once before they are read.
  absl::Status SumReplicas();

  // Starts new sums: the next gradients overwrite the shards.
  void Reset();
  // Zeroes the shards without a gradient since Reset().
  void ZeroUntouched();

 private:
  struct Unit {
    at::Tensor shard;                     // undefined if the unit is frozen
    comm::ProcessGroup* group = nullptr;  // of the ranks that share a copy of the unit
    comm::HostGroups by_host;             // the same ranks, if they are on several hosts
    std::vector<bool> written;            // by parameter: whether its part of the buffer is filled
  };

  // The operations of sharding::GradientReduction on tensors.
  class TensorOps {
   public:
    using Buffer = at::Tensor;
    using ElementType = at::ScalarType;
    using Flight = sharding::GradientFlight<at::Tensor>;
    static constexpr at::ScalarType kFloat32 = at::kFloat;
    static constexpr at::ScalarType kBFloat16 = at::kBFloat16;

    explicit TensorOps(GradientReducer& reducer) : reducer_(reducer) {}
    at::Tensor Acquire(int64_t numel, at::ScalarType type);
    void Release(at::Tensor buffer);
    void Seal(int unit, at::Tensor& full);
    void Round(const at::Tensor& from, at::Tensor& to) { to.copy_(from); }
    void SortByRankOfHost(int unit, const at::Tensor& from, at::Tensor& to);
    bool CanReduceIntoShard(int unit) const { return reducer_.OnDevice(unit); }
    absl::Status Start(int unit, sharding::Leg leg, Flight& flight);
    absl::Status Wait(int unit, sharding::Leg leg);
    void AddSlices(int unit, Flight& flight);
    void AddToShard(int unit, const at::Tensor& sum, bool holds_sum);
    void Arrived(int unit);

   private:
    at::Tensor& SumOf(int unit, Flight& flight);
    // While in flight.
    std::unique_ptr<comm::Work>& WorkOf(sharding::Leg leg) {
      return leg == sharding::Leg::kBetweenHosts ? second_work_ : first_work_;
    }

    GradientReducer& reducer_;
    std::unique_ptr<comm::Work> first_work_;
    std::unique_ptr<comm::Work> second_work_;
  };

  // The buffer for the unit's gradients, allocated if needed, or the shard itself.
  absl::StatusOr<at::Tensor> LayingBuffer(int unit);
  // Zeroes the parts without a gradient, padding included.
  void ZeroUnwritten(int unit, at::Tensor& flat) const;
  // Whether the shard is the whole unit.
  bool IsAlone(int unit) const { return units_[unit].group->size() == 1; }
  // Whether the device's collectives can use the unit's shard directly.
  bool OnDevice(int unit) const;
  std::vector<sharding::ReducedUnit> ReducedUnits() const;

  const Options options_;
  std::vector<Unit> units_;
  std::vector<int> index_in_unit_;  // of each parameter
  TensorOps ops_{*this};
  // Of the units of several ranks.
  std::optional<sharding::GradientReduction<TensorOps>> reduction_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_GRADIENT_REDUCER_H_
