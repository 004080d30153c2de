// WeightStore: what the receiving side of weight updates needs of the engine: two arenas, one live
// and one staged, and the moment between two scheduler steps at which they change places.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_WEIGHT_STORE_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_WEIGHT_STORE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/weights/device_ops.h"
#include "common/weights/packed_tensors.h"
#include "tandem/common/v1/weights.pb.h"

namespace tandem::rollout {

struct CommitResult {
  double pause_seconds = 0;  // that the scheduler stood still
  int64_t num_recomputed_requests = 0;
  int64_t num_aborted_requests = 0;
};

// Implemented by the engine. manifest() and what is said of the live weights may be called from any
// thread; the others are called by the receiver's thread only, one at a time.
class WeightStore {
 public:
  virtual ~WeightStore() = default;

  // The tensors in canonical order, with their type in the arena, which is that of the wire.
  // Constant.
  virtual const common::v1::Manifest& manifest() const = 0;
  // Where the arenas are, and who works on them there; the spans below are addresses of that place.
  // Constant.
  virtual weights::DeviceOps& ops() const { return weights::CpuOps(); }
  // -1 while nothing is committed.
  virtual int64_t live_version() const = 0;
  // Of the trainer that the live version came from; 0 where none did or nothing is committed.
  virtual int64_t live_incarnation() const = 0;
  virtual std::string live_model_digest() const = 0;

  // Makes room for a new version; what was staged before is undefined. RESOURCE_EXHAUSTED where it
  // does not fit. The live weights are not touched.
  virtual absl::Status PrepareStaging() = 0;
  // The tensors that the arenas hold in an order of their own; for these the spans below are empty.
  // Null where there are none. Constant.
  virtual weights::PackedTensors* packed() { return nullptr; }
  const weights::PackedTensors* packed() const { return const_cast<WeightStore*>(this)->packed(); }
  // The bytes of tensor `index` of the manifest in the staged arena. Between PrepareStaging() and
  // Commit() or DropStaged(), always the same.
  virtual absl::Span<std::byte> Staged(int index) = 0;
  // Bytes [offset, offset + size) at Staged(index), whole elements, are final: what else
  // the engine keeps of them can be made while others are still on their way. Each byte is told of
  // once. RESOURCE_EXHAUSTED.
  virtual absl::Status Arrived(int index, int64_t offset, int64_t size) = 0;
  // Forgets what was staged; may free it.
  virtual void DropStaged() = 0;

  // Makes the staged arena live between two scheduler steps and stamps the version, of the trainer
  // `incarnation` (0: of none). Blocks until it is done. Repeatable after an error, with nothing
  // changed.
  virtual absl::StatusOr<CommitResult> Commit(int64_t policy_version, int64_t incarnation,
                                              const std::string& model_digest) = 0;

  // The bytes of tensor `index` in the live arena; empty while nothing is committed.
  virtual absl::Span<const std::byte> Live(int index) const = 0;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_WEIGHT_STORE_H_
