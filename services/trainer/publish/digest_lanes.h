// Digests of a model's tensors in messages between the trainer's ranks: two numbers for each tensor
// of the manifest.
//
//   AppendLanes(sums, *message.mutable_lanes());
//   RETURN_IF_ERROR(AddLanes(message.lanes(), absl::MakeSpan(sums)));
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_DIGEST_LANES_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_DIGEST_LANES_H_

#include <google/protobuf/repeated_field.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/weights/tensor_digests.h"

namespace tandem::trainer {

inline void AppendLanes(absl::Span<const weights::DigestSum> sums,
                        google::protobuf::RepeatedField<uint64_t>& lanes) {
  for (const weights::DigestSum& sum : sums) lanes.Add(sum.lanes, sum.lanes + 2);
}

// Adds a rank's digests to `sums`. INTERNAL if they belong to another model; changes nothing then.
inline absl::Status AddLanes(const google::protobuf::RepeatedField<uint64_t>& lanes,
                             absl::Span<weights::DigestSum> sums) {
  if (lanes.size() != 2 * static_cast<int>(sums.size())) {
    return absl::InternalError(absl::StrCat("reports ", lanes.size(), " digest words, expected ",
                                            2 * sums.size(),
                                            "; run the same configuration on all ranks"));
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const int lane = 2 * static_cast<int>(i);
    sums[i].Add({{lanes[lane], lanes[lane + 1]}});
  }
  return absl::OkStatus();
}

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_DIGEST_LANES_H_
