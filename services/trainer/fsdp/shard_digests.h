// ShardDigests: what a rank's shard of a unit adds to the digests of the model's tensors
// (additive_digest.h), made where the shard is written, while it is in the core's cache: who sends
// it need not read it for that, and what changes it later is found out by who receives it.
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
    int64_t elements = 0;  // of it that the shard has
    weights::DigestSum sum;
  };

  // Of elements [offset, offset + numel) of a unit's flat buffer, of `element_bytes` each. The
  // table outlives it.
  ShardDigests(const model::ParameterTable& table, int unit, int64_t offset, int64_t numel,
               int64_t element_bytes);

  // All elements will be told of anew.
  void Clear();
  // Elements [begin, end) of the shard, which begin at `bytes`, have been written. Each once after
  // Clear(); threads may tell of different ones at once.
  void Add(int64_t begin, int64_t end, const std::byte* bytes);

  // Whether all have been told of. By the thread that waited for those that told.
  bool is_complete() const;
  std::vector<Part> parts() const;

 private:
  const int64_t offset_;
  const int64_t numel_;
  const int64_t element_bytes_;
  std::vector<const model::Segment*> segments_;  // of parts_
  mutable absl::Mutex mu_;
  std::vector<Part> parts_ ABSL_GUARDED_BY(mu_);
  int64_t told_ ABSL_GUARDED_BY(mu_) = 0;  // elements
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_SHARD_DIGESTS_H_
