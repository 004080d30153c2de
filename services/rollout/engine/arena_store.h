// ArenaStore: the engine's two arenas as the receiver of weight updates sees them.
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
#include "services/rollout/engine/arena_pair.h"
#include "services/rollout/engine/engine.h"
#include "services/rollout/receive/weight_store.h"

namespace tandem::rollout {

// Threads as WeightStore says. The manifest's type is the engine's compute type: bytes are received
// where they are used.
class ArenaStore : public WeightStore, private weights::PackedTensors {
 public:
  // Makes what is staged live, as WeightStore::Commit().
  using CommitStaged =
      std::function<absl::StatusOr<CommitResult>(int64_t version, int64_t incarnation)>;

  // Arenas over the model's table; both outlive the store.
  static absl::StatusOr<std::unique_ptr<ArenaStore>> Create(const model::Transformer& model,
                                                            ArenaPair& arenas, CommitStaged commit);
  // `engine` outlives the store. A commit waits up to `commit_timeout` for the end of a step, or of
  // the requests in flight where the engine's policy is to wait for them.
  static absl::StatusOr<std::unique_ptr<ArenaStore>> Create(Engine& engine,
                                                            absl::Duration commit_timeout);

  const common::v1::Manifest& manifest() const override { return manifest_; }
  int64_t live_version() const override { return arenas_.live_version(); }
  int64_t live_incarnation() const override;
  std::string live_model_digest() const override;

  absl::Status PrepareStaging() override;
  weights::PackedTensors* packed() override { return this; }
  absl::Span<std::byte> Staged(int index) override { return staged_->SegmentBytes(index); }
  absl::Status Arrived(int index, int64_t offset, int64_t size) override;
  // Keeps the memory for the next update.
  void DropStaged() override;
  absl::StatusOr<CommitResult> Commit(int64_t policy_version, int64_t incarnation,
                                      const std::string& model_digest) override;
  absl::Span<const std::byte> Live(int index) const override;

 private:
  ArenaStore(const model::Transformer& model, ArenaPair& arenas, CommitStaged commit,
             common::v1::Manifest manifest)
      : table_(model.table()),
        arenas_(arenas),
        commit_(std::move(commit)),
        manifest_(std::move(manifest)) {}

  // Of what the arenas hold as the products read it.
  void WriteStaged(int index, int64_t offset, absl::Span<const std::byte> from) override;
  void ReadStaged(int index, int64_t offset, absl::Span<std::byte> to) const override;
  absl::Status ReadLive(int index, int64_t offset, absl::Span<std::byte> to) const override;
  Grain GrainOf(int index) const override;

  const model::ParameterTable& table_;
  ArenaPair& arenas_;
  const CommitStaged commit_;
  const common::v1::Manifest manifest_;
  // The receiver's thread:
  std::shared_ptr<model::PackedArena> staged_;
  mutable absl::Mutex mu_;
  std::string live_model_digest_ ABSL_GUARDED_BY(mu_);
  int64_t live_incarnation_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_ENGINE_ARENA_STORE_H_
