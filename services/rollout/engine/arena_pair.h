// ArenaPair: the weights that are live and those that come next. Two arenas at fixed addresses; a
// commit changes which of them is live. For an engine on a GPU both lie on the host, where weights
// are received and verified, and a third on the GPU has a copy of the live one: a commit writes it
// in place, so that what holds its addresses, as CUDA graphs do, stays good, and the GPU holds the
// model once.
#ifndef TANDEM_SERVICES_ROLLOUT_ENGINE_ARENA_PAIR_H_
#define TANDEM_SERVICES_ROLLOUT_ENGINE_ARENA_PAIR_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/model/arena.h"
#include "common/model/packed_arena.h"

namespace tandem::rollout {

// Thread-safe; the contents are not: the live arena is only read, and the staged one is its
// stager's alone. After a flip nobody reads the formerly live one any more: the engine thread does
// not, for it is the one that flips, and other readers are the stager.
class ArenaPair {
 public:
  // Allocates the first arena that is staged, and that of `device`, the engine's, if it is not the
  // CPU; the second one with the second update. `table` outlives the pair.
  ArenaPair(const model::ParameterTable& table, at::ScalarType dtype, at::Device device = at::kCPU)
      : table_(table), dtype_(dtype), device_(device) {}

  at::ScalarType dtype() const { return dtype_; }
  // Version of the live arena; -1 where there is none.
  int64_t live_version() const;
  // The live arena, or null.
  std::shared_ptr<const model::PackedArena> live() const;

  // The arena that is not live, for writing; the same until the next Flip(). RESOURCE_EXHAUSTED
  // where it cannot be allocated.
  absl::StatusOr<std::shared_ptr<model::PackedArena>> Staged();

  // What is staged is dropped; its memory is kept for the next time.
  void DropStaged();

  // No weights are live any more, and their memory goes back to the system; that of the staged
  // arena too, unless it has a stager. The engine thread, which then reads none.
  void Release();

  // Brings what is staged to the device that computes; before Flip(), by the same thread. Of no
  // effect on the CPU. RESOURCE_EXHAUSTED or INTERNAL where the device does not take it: nothing is
  // live then, and the call may be repeated.
  absl::Status Load();

  // The staged arena becomes live.
  void Flip(int64_t version);

  // What the forward pass reads of the live arena, on the engine's device, or null; valid until the
  // flip after the next.
  const model::ParameterProvider* live_parameters() const;

 private:
  // The arena on device_, where that is not the CPU. RESOURCE_EXHAUSTED.
  absl::Status ProvideOnDevice() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const model::ParameterTable& table_;
  const at::ScalarType dtype_;
  const at::Device device_;
  mutable absl::Mutex mu_;
  // Packed for the CPU, unless another device computes.
  std::array<std::shared_ptr<model::PackedArena>, 2> arenas_ ABSL_GUARDED_BY(mu_);
  // A copy of the live arena on device_; null on the CPU. Written by the engine thread.
  std::unique_ptr<model::Arena> on_device_ ABSL_GUARDED_BY(mu_);
  int live_ ABSL_GUARDED_BY(mu_) = -1;
  int64_t live_version_ ABSL_GUARDED_BY(mu_) = -1;
  bool released_ ABSL_GUARDED_BY(mu_) = false;  // arenas_[live_] has no contents
  bool has_stager_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_ENGINE_ARENA_PAIR_H_
