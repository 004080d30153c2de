#include "services/rollout/receive/live_digests.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/status/status_macros.h"
#include "common/weights/manifest.h"
#include "common/weights/tensor_digests.h"

namespace tandem::rollout {
namespace {

// Digests the live bytes of a packed tensor.
absl::Status DigestPacked(const common::v1::TensorEntry& tensor, int index,
                          const WeightStore& store, weights::DigestSum& sum) {
  constexpr int64_t kAtOnce = int64_t{1} << 20;
  ASSIGN_OR_RETURN(const int64_t size, weights::TensorBytes(tensor));
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(size, kAtOnce)));
  for (int64_t offset = 0; offset < size; offset += kAtOnce) {
    const absl::Span<std::byte> part =
        absl::MakeSpan(buffer).first(static_cast<size_t>(std::min(kAtOnce, size - offset)));
    RETURN_IF_ERROR(store.ReadLive(index, offset, part));
    weights::AddHeld(tensor, size, offset, part, sum);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::GetDigestsResponse> DigestLive(const WeightStore& store) {
  if (store.live_version() < 0) return absl::FailedPreconditionError("nothing is committed yet");
  v1::GetDigestsResponse response;
  response.set_policy_version(store.live_version());
  response.set_incarnation(store.live_incarnation());
  const auto& manifest = store.manifest();
  std::vector<weights::DigestSum> sums(manifest.tensors_size());
  std::vector<weights::DigestRun> runs;
  for (int i = 0; i < manifest.tensors_size(); ++i) {
    const absl::Span<const std::byte> bytes = store.Live(i);
    if (bytes.empty() && store.packs()) {
      RETURN_IF_ERROR(DigestPacked(manifest.tensors(i), i, store, sums[i]));
      continue;
    }
    runs.push_back(weights::RunOfHeld(manifest.tensors(i), bytes));
    runs.back().slot = i;
  }
  const auto entered = store.ops().Enter();
  RETURN_IF_ERROR(store.ops().Digest(runs, absl::MakeSpan(sums)));
  const std::vector<weights::TensorDigest> digests = weights::MakeTensorDigests(manifest, sums);
  for (const auto& digest : digests) *response.add_digests() = digest;
  response.set_model_digest(weights::ModelDigest(digests));
  return response;
}

}  // namespace tandem::rollout
