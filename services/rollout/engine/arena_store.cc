#include "services/rollout/engine/arena_store.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/io/dtype.h"
#include "common/status/status_macros.h"
#include "common/weights/manifest.h"

namespace tandem::rollout {

absl::StatusOr<std::unique_ptr<ArenaStore>> ArenaStore::Create(Engine& engine,
                                                               absl::Duration commit_timeout) {
  const io::DType dtype =
      engine.options().dtype == at::kBFloat16 ? io::DType::kBF16 : io::DType::kF32;
  ASSIGN_OR_RETURN(common::v1::Manifest manifest,
                   weights::MakeManifest(engine.model().table(), dtype));
  return std::unique_ptr<ArenaStore>(new ArenaStore(engine, commit_timeout, std::move(manifest)));
}

std::string ArenaStore::live_model_digest() const {
  absl::MutexLock lock(&mu_);
  return live_model_digest_;
}

absl::Status ArenaStore::PrepareStaging() {
  ASSIGN_OR_RETURN(staged_, engine_.weights().Staged());
  return absl::OkStatus();
}

absl::Status ArenaStore::Arrived(int index, int64_t offset, int64_t size) {
  const model::ParameterTable& table = engine_.model().table();
  const model::ParameterTable::SegmentRef ref = table.segments()[index];
  const auto element = static_cast<int64_t>(c10::elementSize(engine_.options().dtype));
  const int64_t begin = table.segment(ref).offset - table.parameter(ref.parameter).offset;
  return engine_.weights().Derive(ref.parameter, begin + offset / element, size / element);
}

absl::StatusOr<CommitResult> ArenaStore::Commit(int64_t policy_version,
                                                const std::string& model_digest) {
  ASSIGN_OR_RETURN(const CommitResult result,
                   engine_.Commit(policy_version, absl::Now() + commit_timeout_));
  staged_ = nullptr;
  absl::MutexLock lock(&mu_);
  live_model_digest_ = model_digest;
  return result;
}

absl::Span<const std::byte> ArenaStore::Live(int index) const {
  const std::shared_ptr<const model::Arena> live = engine_.weights().live();
  if (live == nullptr) return {};
  return live->SegmentBytes(index);
}

}  // namespace tandem::rollout
