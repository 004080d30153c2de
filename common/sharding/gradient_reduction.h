// GradientReduction: the way of units' gradients from the backward pass to the shards of a group of
// ranks: which buffers each takes and when they are released. Written once over the operations
// `Ops`: the trainer's move tensors (gradient_reducer.h), the planner's count bytes.
//
// A unit's gradients are laid into a flat buffer, which is reduced while the next stage computes;
// the next unit's gradients wait for it, so one such buffer is in use at a time, two if the
// embedding is tied.
//
// Ops declares
//   - Buffer, and ElementType with the constants kFloat32 and kBFloat16;
//   - Acquire(numel, type), Release(buffer): buffers for reuse;
//   - Seal(unit, full): zeroes what was not written;
//   - Round(from, to): converts to a narrower type;
//   - CanReduceIntoShard(unit): the collective can write the unit's shard;
//   - Start(unit, flight), Wait(unit): the collective;
//   - AddSlices(unit, flight): adds up every rank's gradients of this rank's part;
//   - AddToShard(unit, sum, holds_sum): copies the sum to the shard if that holds none yet;
//   - Arrived(unit): the shard holds the sum.
#ifndef TANDEM_COMMON_SHARDING_GRADIENT_REDUCTION_H_
#define TANDEM_COMMON_SHARDING_GRADIENT_REDUCTION_H_

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/sharding/shard_extent.h"
#include "common/status/status_macros.h"

namespace tandem::sharding {

// The buffers of a unit whose gradients are on their way.
template <typename Buffer>
struct GradientFlight {
  std::optional<Buffer> full{};    // this rank's gradients of the whole unit
  std::optional<Buffer> sum{};     // over the ranks, of this rank's part; none: the shard itself
  std::optional<Buffer> slices{};  // every rank's gradients of this rank's part; none for float32
};

template <typename Ops>
class GradientReduction {
 public:
  using Buffer = typename Ops::Buffer;
  using ElementType = typename Ops::ElementType;
  using Flight = GradientFlight<Buffer>;

  struct Options {
    ElementType compute_type = Ops::kFloat32;  // of the gradients
    // kBFloat16 rounds gradients before they travel; sums are in float32 in any case.
    ElementType reduce_type = Ops::kFloat32;
    // A unit that two stages add to in one micro-batch, -1 for none. Its gradients are summed in
    // float32.
    int shared_unit = -1;
  };

  // `ops` outlives the reduction. `units`: the extent of each.
  GradientReduction(Ops& ops, const Options& options, std::vector<ShardExtent> units)
      : ops_(ops), options_(options) {
    for (const ShardExtent& extent : units) units_.push_back({.extent = extent});
  }

  // Gives the unit a buffer for a micro-batch's gradients, if it has none.
  absl::Status Open(int unit) {
    Unit& state = units_[unit];
    if (state.full.has_value()) return absl::OkStatus();
    // This reduction reuses the buffer of the one before.
    RETURN_IF_ERROR(Finish());
    // Compute writes it before the collective does, and compute is in order.
    state.full = ops_.Acquire(state.extent.padded, LayType(unit));
    return absl::OkStatus();
  }
  // Of an open unit: [padded].
  Buffer& buffer(int unit) { return *units_[unit].full; }

  // Call after the unit's last gradients in the micro-batch: starts the sum over ranks.
  absl::Status Complete(int unit) {
    RETURN_IF_ERROR(Open(unit));
    // If two units were filled side by side, waits for the reduction of the first.
    RETURN_IF_ERROR(Finish());
    Unit& state = units_[unit];
    ops_.Seal(unit, *state.full);
    flight_ = Flight{.full = std::exchange(state.full, std::nullopt)};
    const ElementType travel_type = TravelType(unit);
    if (LayType(unit) != travel_type) {
      Buffer rounded = ops_.Acquire(state.extent.padded, travel_type);
      ops_.Round(*flight_.full, rounded);
      ops_.Release(*std::exchange(flight_.full, std::move(rounded)));
    }
    // A collective overwrites its result, so it must not get a shard that already holds a sum.
    if (state.holds_sum || !ops_.CanReduceIntoShard(unit)) {
      flight_.sum = ops_.Acquire(state.extent.owned, Ops::kFloat32);
    }
    // bfloat16 gradients arrive in a buffer beside those being sent.
    if (travel_type != Ops::kFloat32) {
      flight_.slices = ops_.Acquire(state.extent.padded, travel_type);
    }
    RETURN_IF_ERROR(ops_.Start(unit, flight_));
    unit_in_flight_ = unit;
    return absl::OkStatus();
  }

  // Waits until the shards hold the sums of all completed units.
  absl::Status Finish() {
    if (unit_in_flight_ < 0) return absl::OkStatus();
    RETURN_IF_ERROR(ops_.Wait(unit_in_flight_));
    const int unit = std::exchange(unit_in_flight_, -1);
    Flight done = std::exchange(flight_, Flight());
    ops_.Release(*std::move(done.full));
    if (done.slices.has_value()) {
      ops_.AddSlices(unit, done);
      ops_.Release(*std::move(done.slices));
    }
    if (done.sum.has_value()) {
      ops_.AddToShard(unit, *done.sum, units_[unit].holds_sum);
      ops_.Release(*std::move(done.sum));
    }
    units_[unit].holds_sum = true;
    ops_.Arrived(unit);
    return absl::OkStatus();
  }

  bool holds_sum(int unit) const { return units_[unit].holds_sum; }
  void SetHoldsSum(int unit) { units_[unit].holds_sum = true; }
  // Starts new sums: the next gradients overwrite the shards.
  void Reset() {
    for (Unit& unit : units_) unit.holds_sum = false;
  }

 private:
  struct Unit {
    ShardExtent extent;
    std::optional<Buffer> full{};  // while gradients of a micro-batch are laid in
    bool holds_sum = false;        // the shard does
  };

  ElementType LayType(int unit) const {
    return unit == options_.shared_unit ? Ops::kFloat32 : options_.compute_type;
  }
  ElementType TravelType(int unit) const {
    return options_.reduce_type == Ops::kBFloat16 ? Ops::kBFloat16 : LayType(unit);
  }

  Ops& ops_;
  const Options options_;
  std::vector<Unit> units_;
  int unit_in_flight_ = -1;
  Flight flight_;
};

}  // namespace tandem::sharding

#endif  // TANDEM_COMMON_SHARDING_GRADIENT_REDUCTION_H_
