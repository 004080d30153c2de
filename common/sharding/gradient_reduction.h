// GradientReduction: the way of units' gradients from the backward pass to the shards of a group of
// ranks: which buffers each takes and when they are released. Written once over the operations
// `Ops`: the trainer's move tensors (gradient_reducer.h), the planner's count bytes.
//
// A unit's gradients are laid into a flat buffer, which is reduced while the next stage computes;
// the next unit's gradients wait for it, so one such buffer is in use at a time, two if the
// embedding is tied.
//
// bfloat16 gradients travel unreduced. Where the ranks are spread over hosts they are added up within
// each host first, and only a host's sums travel to others, in reduce_type, while one more stage
// computes: between hosts, one rank's gradients in place of those of every rank of a host.
//
// Ops declares
//   - Buffer, and ElementType with the constants kFloat32 and kBFloat16;
//   - Acquire(numel, type), Release(buffer): buffers for reuse;
//   - Seal(unit, full): zeroes what was not written;
//   - Round(from, to): converts to a narrower type;
//   - SortByRankOfHost(unit, from, to): the same, or a copy, where the ranks' parts, of the ranks of one
//     host side by side, become those of the first rank of each host, then of the second, ...;
//   - CanReduceIntoShard(unit): the collective can write the unit's shard;
//   - Start(unit, leg, flight), Wait(unit, leg): the collective;
//   - AddSlices(unit, flight): adds up flight.slices in float32, into flight.sum or the shard;
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

// What a collective goes over.
enum class Leg {
  kAll,          // all ranks that share a copy of the unit
  kWithinHost,   // those of one host
  kBetweenHosts  // one rank of each host
};

// The buffers of a unit whose gradients are on their way.
template <typename Buffer>
struct GradientFlight {
  std::optional<Buffer> full{};    // what this rank sends
  std::optional<Buffer> sum{};     // over the ranks of the leg; none: the shard itself
  std::optional<Buffer> slices{};  // what every rank of the leg sends to this one; none for float32
};

// How the elements of a unit are spread over ranks.
struct ReducedUnit {
  ShardExtent extent;
  // Over which the ranks are spread evenly, those of a host side by side; 1 also where it does not matter.
  int num_hosts = 1;
};

template <typename Ops>
class GradientReduction {
 public:
  using Buffer = typename Ops::Buffer;
  using ElementType = typename Ops::ElementType;
  using Flight = GradientFlight<Buffer>;

  struct Options {
    ElementType compute_type = Ops::kFloat32;  // of the gradients
    // kBFloat16 rounds gradients, and the sums of a host, before they travel; all are added up in
    // float32.
    ElementType reduce_type = Ops::kFloat32;
    // A unit that two stages add to in one micro-batch, -1 for none. Its gradients are summed in
    // float32.
    int shared_unit = -1;
  };

  // `ops` outlives the reduction.
  GradientReduction(Ops& ops, const Options& options, const std::vector<ReducedUnit>& units)
      : ops_(ops), options_(options) {
    for (const ReducedUnit& unit : units) units_.push_back({.is = unit});
  }

  // Gives the unit a buffer for a micro-batch's gradients, if it has none.
  absl::Status Open(int unit) {
    Unit& state = units_[unit];
    if (state.full.has_value()) return absl::OkStatus();
    // This reduction reuses the buffer of the one before.
    RETURN_IF_ERROR(FinishFirstLeg());
    // Compute writes it before the collective does, and compute is in order.
    state.full = ops_.Acquire(state.is.extent.padded, LayType(unit));
    return absl::OkStatus();
  }
  // Of an open unit: [padded].
  Buffer& buffer(int unit) { return *units_[unit].full; }

  // Call after the unit's last gradients in the micro-batch: starts the sum over ranks.
  absl::Status Complete(int unit) {
    RETURN_IF_ERROR(Open(unit));
    // If two units were filled side by side, waits for the reduction of the first.
    RETURN_IF_ERROR(FinishFirstLeg());
    Unit& state = units_[unit];
    const ShardExtent& extent = state.is.extent;
    const bool by_host = CrossesHosts(unit);
    ops_.Seal(unit, *state.full);
    Flight flight{.full = std::exchange(state.full, std::nullopt)};
    const ElementType travel_type = TravelType(unit);
    if (LayType(unit) != travel_type || by_host) {
      Buffer sent = ops_.Acquire(extent.padded, travel_type);
      if (by_host) {
        ops_.SortByRankOfHost(unit, *flight.full, sent);
      } else {
        ops_.Round(*flight.full, sent);
      }
      ops_.Release(*std::exchange(flight.full, std::move(sent)));
    }
    if (!by_host) AcquireSum(unit, flight);
    // bfloat16 gradients arrive in a buffer beside those being sent.
    if (travel_type != Ops::kFloat32) flight.slices = ops_.Acquire(extent.padded, travel_type);
    const Leg leg = by_host ? Leg::kWithinHost : Leg::kAll;
    RETURN_IF_ERROR(ops_.Start(unit, leg, flight));
    first_ = {unit, leg, std::move(flight)};
    return absl::OkStatus();
  }

  // Waits until the shards hold the sums of all completed units.
  absl::Status Finish() {
    RETURN_IF_ERROR(FinishFirstLeg());
    return FinishLast(second_);
  }

  bool holds_sum(int unit) const { return units_[unit].holds_sum; }
  void SetHoldsSum(int unit) { units_[unit].holds_sum = true; }
  // Starts new sums: the next gradients overwrite the shards.
  void Reset() {
    for (Unit& unit : units_) unit.holds_sum = false;
  }

 private:
  struct Unit {
    ReducedUnit is;
    std::optional<Buffer> full{};  // while gradients of a micro-batch are laid in
    bool holds_sum = false;        // the shard does
  };
  struct InFlight {
    int unit = -1;  // -1: nothing is
    Leg leg = Leg::kAll;
    Flight flight{};
  };

  bool CrossesHosts(int unit) const {
    return units_[unit].is.num_hosts > 1 && TravelType(unit) != Ops::kFloat32;
  }

  // A collective overwrites its result, so it must not get a shard that already holds a sum.
  void AcquireSum(int unit, Flight& flight) {
    if (!units_[unit].holds_sum && ops_.CanReduceIntoShard(unit)) return;
    flight.sum = ops_.Acquire(units_[unit].is.extent.owned, Ops::kFloat32);
  }

  // Frees what the first leg of the unit in flight sends, and starts its second one if it has one.
  absl::Status FinishFirstLeg() {
    if (first_.unit < 0) return absl::OkStatus();
    if (first_.leg == Leg::kAll) return FinishLast(first_);
    RETURN_IF_ERROR(ops_.Wait(first_.unit, first_.leg));
    auto [unit, leg, within] = std::exchange(first_, InFlight());
    ops_.Release(*std::move(within.full));
    const ReducedUnit& is = units_[unit].is;
    const int64_t numel = is.extent.owned * is.num_hosts;
    within.sum = ops_.Acquire(numel, Ops::kFloat32);
    ops_.AddSlices(unit, within);
    ops_.Release(*std::move(within.slices));
    Flight between{.full = std::move(within.sum)};
    RETURN_IF_ERROR(FinishLast(second_));
    if (options_.reduce_type != Ops::kFloat32) {
      Buffer rounded = ops_.Acquire(numel, options_.reduce_type);
      ops_.Round(*between.full, rounded);
      ops_.Release(*std::exchange(between.full, std::move(rounded)));
      between.slices = ops_.Acquire(numel, options_.reduce_type);
    }
    AcquireSum(unit, between);
    RETURN_IF_ERROR(ops_.Start(unit, Leg::kBetweenHosts, between));
    second_ = {unit, Leg::kBetweenHosts, std::move(between)};
    return absl::OkStatus();
  }

  // Waits for a unit's last leg; its shard then holds the sum.
  absl::Status FinishLast(InFlight& last) {
    if (last.unit < 0) return absl::OkStatus();
    RETURN_IF_ERROR(ops_.Wait(last.unit, last.leg));
    auto [unit, leg, flight] = std::exchange(last, InFlight());
    ops_.Release(*std::move(flight.full));
    if (flight.slices.has_value()) {
      ops_.AddSlices(unit, flight);
      ops_.Release(*std::move(flight.slices));
    }
    if (flight.sum.has_value()) {
      ops_.AddToShard(unit, *flight.sum, units_[unit].holds_sum);
      ops_.Release(*std::move(flight.sum));
    }
    units_[unit].holds_sum = true;
    ops_.Arrived(unit);
    return absl::OkStatus();
  }

  ElementType LayType(int unit) const {
    return unit == options_.shared_unit ? Ops::kFloat32 : options_.compute_type;
  }
  ElementType TravelType(int unit) const {
    return options_.reduce_type == Ops::kBFloat16 ? Ops::kBFloat16 : LayType(unit);
  }

  Ops& ops_;
  const Options options_;
  std::vector<Unit> units_;
  InFlight first_;   // on its first leg, or its only one
  InFlight second_;  // between hosts
};

}  // namespace tandem::sharding

#endif  // TANDEM_COMMON_SHARDING_GRADIENT_REDUCTION_H_
