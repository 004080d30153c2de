// WeightStore: the engine as seen by the receiver of weight updates: a live and a staged arena,
// which swap between two scheduler steps.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_WEIGHT_STORE_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_WEIGHT_STORE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/weights/update_memory.h"
#include "tandem/common/v1/weights.pb.h"

namespace tandem::rollout {

struct CommitResult {
  double pause_seconds = 0;  // scheduler pause
  int64_t num_recomputed_requests = 0;
  int64_t num_aborted_requests = 0;
};

// Implemented by the engine. Any thread may call manifest(), place() and live_*(); only the receiver's
// thread calls the others, one at a time. Staged memory is constant between PrepareStaging() and
// Commit() or DropStaged().
class WeightStore : public weights::UpdateMemory {
 public:
  // The tensors in canonical order, with their dtype in the arena, which is also the wire dtype.
  // Constant.
  virtual const common::v1::Manifest& manifest() const = 0;
  // -1 while nothing is committed.
  virtual int64_t live_version() const = 0;
  // Trainer that published the live version; 0 if none did or nothing is committed.
  virtual int64_t live_incarnation() const = 0;
  virtual std::string live_model_digest() const = 0;

  // Where ops() keep the staged version. Constant.
  virtual common::v1::UpdatePlace place() const { return {}; }

  // Allocates room for a new version; earlier staged contents become undefined. RESOURCE_EXHAUSTED
  // if it does not fit. Leaves the live weights unchanged.
  virtual absl::Status PrepareStaging() = 0;
  // Discards the staged weights; may free their memory.
  virtual void DropStaged() = 0;

  // Makes the staged arena live between two scheduler steps, as version `policy_version` of the
  // trainer `incarnation` (0: none). Blocks. After an error nothing has changed, and the call may
  // be repeated.
  virtual absl::StatusOr<CommitResult> Commit(int64_t policy_version, int64_t incarnation,
                                              const std::string& model_digest) = 0;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_WEIGHT_STORE_H_
