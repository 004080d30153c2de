// ArenaPair: the live weights and the next ones, in two arenas at fixed addresses.
//
//   engine on     staged on   a commit
//   CPU           CPU         swaps the arenas' roles
//   GPU           that GPU    copies the staged arena into the live one, within the GPU's memory
//   GPU           CPU         swaps two arenas in host memory, and copies the live one into a third,
//                             on the GPU, which then holds the model once
//
// On a GPU the arena that the forward pass reads is overwritten in place, so the addresses captured
// in CUDA graphs stay valid.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_ARENA_PAIR_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_ARENA_PAIR_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/model/arena.h"
#include "common/model/packed_arena.h"

namespace tandem::rollout {

// Thread-safe, except for the contents: the live arena is read-only, and only the stager writes the
// staged one. After a flip nobody reads the previously live arena: the thread that runs the forward
// pass (the engine's, or RankFollower::Run()'s) makes the flip itself, and the only other reader is
// the stager.
class ArenaPair {
 public:
  // `device`: the engine's. `staged_on`: that device or the CPU. Arenas are allocated on demand: the
  // first staged one and, unless it is the CPU, that of the engine's device; the second in host
  // memory with the second update. `table` must outlive the pair.
  ArenaPair(const model::ParameterTable& table, at::ScalarType dtype, at::Device device = at::kCPU,
            at::Device staged_on = at::kCPU)
      : table_(table), dtype_(dtype), device_(device), staged_on_(staged_on) {}

  at::ScalarType dtype() const { return dtype_; }
  // The device of staged() and live().
  at::Device staged_on() const { return staged_on_; }
  // Version of the live arena; -1 if there is none.
  int64_t live_version() const;
  // The live arena, or null.
  std::shared_ptr<const model::PackedArena> live() const;

  // Returns the staged arena for writing; the same until the next Flip(). RESOURCE_EXHAUSTED if it
  // cannot be allocated.
  absl::StatusOr<std::shared_ptr<model::PackedArena>> Staged();

  // Discards the staged contents; keeps the memory for the next update.
  void DropStaged();

  // Releases the live weights and returns their memory to the system; also the staged arena's,
  // unless it has a stager. Only for the engine thread, which must not read them afterwards.
  void Release();

  // Copies the staged weights to the compute device. Call before Flip(), on the same thread. No
  // effect on the CPU. RESOURCE_EXHAUSTED or INTERNAL if the device fails: nothing is live then,
  // and the call may be repeated.
  absl::Status Load();

  // Whether the staged weights have the bytes of the live ones in these parameters. False if nothing is
  // live, or the device that holds them fails. For the engine thread, before Load().
  bool StagedEqualsLive(absl::Span<const int> parameters) const;

  // Makes the staged arena live.
  void Flip(int64_t version);

  // The live arena's parameters for the forward pass, on the engine's device, or null. Stays valid
  // through the next flip.
  const model::ParameterProvider* live_parameters() const;

 private:
  // Whether the arenas are in the memory of the engine's GPU; then their roles are fixed.
  bool stages_on_device() const { return !staged_on_.is_cpu(); }
  int staged() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return live_ == 0 ? 1 : 0; }
  // Allocates arenas_[i]. RESOURCE_EXHAUSTED.
  absl::Status Provide(int i) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Allocates what the forward pass reads on a GPU. RESOURCE_EXHAUSTED.
  absl::Status ProvideOnDevice() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const model::ParameterTable& table_;
  const at::ScalarType dtype_;
  const at::Device device_;
  const at::Device staged_on_;
  mutable absl::Mutex mu_;
  // On staged_on_. Packed for the CPU, unless another device runs the forward pass. On a GPU the
  // second is the live one.
  std::array<std::shared_ptr<model::PackedArena>, 2> arenas_ ABSL_GUARDED_BY(mu_);
  // A copy of the live arena on device_, if the arenas are in host memory and the engine is on a
  // GPU; else null. Written by the engine thread.
  std::unique_ptr<model::Arena> on_device_ ABSL_GUARDED_BY(mu_);
  int live_ ABSL_GUARDED_BY(mu_) = -1;  // of arenas_
  int64_t live_version_ ABSL_GUARDED_BY(mu_) = -1;
  bool released_ ABSL_GUARDED_BY(mu_) = false;  // arenas_[live_] has no contents
  bool has_stager_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_ARENA_PAIR_H_
