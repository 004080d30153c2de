// ArenaStore: the WeightStore over the engine's two arenas, for the receiver of weight updates.
#ifndef TANDEM_SERVICES_ROLLOUT_ENGINE_ARENA_STORE_H_
#define TANDEM_SERVICES_ROLLOUT_ENGINE_ARENA_STORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/model/transformer.h"
#include "services/rollout/engine/engine.h"
#include "services/rollout/receive/arena_pair.h"
#include "services/rollout/receive/weight_store.h"

namespace tandem::rollout {

// Threads: see WeightStore. The manifest's dtype is the engine's compute dtype, so bytes are
// received directly into their final place.
class ArenaStore : public WeightStore {
 public:
  // Makes the staged weights live; see WeightStore::Commit().
  using CommitStaged =
      std::function<absl::StatusOr<CommitResult>(int64_t version, int64_t incarnation)>;

  // `arenas` must use the model's table; both must outlive the store.
  static absl::StatusOr<std::unique_ptr<ArenaStore>> Create(const model::Transformer& model,
                                                            ArenaPair& arenas, CommitStaged commit);
  // `engine` must outlive the store. A commit waits up to `commit_timeout` for the end of a step,
  // or with InFlightPolicy::kWait for the requests in flight.
  static absl::StatusOr<std::unique_ptr<ArenaStore>> Create(Engine& engine,
                                                            absl::Duration commit_timeout);

  const common::v1::Manifest& manifest() const override { return manifest_; }
  weights::DeviceOps& ops() const override { return *ops_; }
  common::v1::UpdatePlace place() const override { return place_; }
  int64_t live_version() const override { return arenas_.live_version(); }
  int64_t live_incarnation() const override;
  std::string live_model_digest() const override;

  absl::Status PrepareStaging() override;
  absl::Span<std::byte> Staged(int index) override { return staged_->SegmentBytes(index); }
  absl::Status Arrived(int index, int64_t offset, int64_t size) override;
  // Keeps the memory for the next update.
  void DropStaged() override;
  absl::StatusOr<CommitResult> Commit(int64_t policy_version, int64_t incarnation,
                                      const std::string& model_digest) override;
  absl::Span<const std::byte> Live(int index) const override;

  // Access to weights in the layout that the matrix products read.
  bool packs() const override { return true; }
  void WriteStaged(int index, int64_t offset, absl::Span<const std::byte> from) override;
  void ReadStaged(int index, int64_t offset, absl::Span<std::byte> to) const override;
  absl::Status ReadLive(int index, int64_t offset, absl::Span<std::byte> to) const override;
  Grain GrainOf(int index) const override;

 private:
  ArenaStore(ArenaPair& arenas, CommitStaged commit, common::v1::Manifest manifest,
             common::v1::UpdatePlace place, std::unique_ptr<weights::DeviceOps> ops)
      : arenas_(arenas),
        commit_(std::move(commit)),
        manifest_(std::move(manifest)),
        place_(std::move(place)),
        ops_(std::move(ops)) {}

  ArenaPair& arenas_;
  const CommitStaged commit_;
  const common::v1::Manifest manifest_;
  const common::v1::UpdatePlace place_;
  const std::unique_ptr<weights::DeviceOps> ops_;  // of the arenas' device
  // The receiver's thread:
  std::shared_ptr<model::PackedArena> staged_;
  mutable absl::Mutex mu_;
  std::string live_model_digest_ ABSL_GUARDED_BY(mu_);
  int64_t live_incarnation_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_ENGINE_ARENA_STORE_H_
