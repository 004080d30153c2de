// ShardDigests: the contribution of a rank's shard of a unit to the digests of the model's tensors
// (additive_digest.h). Computed when the shard is written, while it is in the core's cache: the
// sender need not read the shard for its digest, and the receiver detects later changes.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_SHARD_DIGESTS_H_
#define TANDEM_SERVICES_TRAINER_FSDP_SHARD_DIGESTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/model/parameter_table.h"
#include "common/weights/additive_digest.h"

namespace tandem::trainer {

class ShardDigests {
 public:
  struct Part {
    int tensor = 0;        // in the model's canonical order
    int64_t elements = 0;  // of it in the shard
    weights::DigestSum sum;
  };

  // For elements [offset, offset + numel) of a unit's flat buffer, of `element_bytes` each. The
  // table outlives it.
  ShardDigests(const model::ParameterTable& table, int unit, int64_t offset, int64_t numel,
               int64_t element_bytes);

  // Starts over: all elements must be added again.
  void Clear();
  // Records that elements [begin, end) of the shard, whose bytes start at `bytes`, were written.
  // Add each element once after Clear(); threads may add different ranges at once.
  void Add(int64_t begin, int64_t end, const std::byte* bytes);

  // Whether all elements were added. Call on the thread that waited for the adding threads.
  bool is_complete() const;
  std::vector<Part> parts() const;

 private:
  const int64_t offset_;
  const int64_t numel_;
  const int64_t element_bytes_;
  std::vector<const model::Segment*> segments_;  // of parts_
  mutable absl::Mutex mu_;
  std::vector<Part> parts_ ABSL_GUARDED_BY(mu_);
  int64_t told_ ABSL_GUARDED_BY(mu_) = 0;  // elements added
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_SHARD_DIGESTS_H_
