// Compares and describes the notices that ranks publish about their collectives.
#ifndef TANDEM_COMMON_COMM_SHARED_NOTICE_H_
#define TANDEM_COMMON_COMM_SHARED_NOTICE_H_

#include <c10/core/ScalarType.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/comm/shared_segment.h"

namespace tandem::comm {

enum class CollectiveKind : int32_t {
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kAllReduce,
  kBroadcast,
  kBarrier
};

inline const char* CollectiveName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "collective";
}

inline bool SameNotice(const Notice& a, const Notice& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.root == b.root && a.reduce == b.reduce &&
         a.bytes == b.bytes && std::strncmp(a.tag, b.tag, sizeof(a.tag)) == 0;
}

// "all_gather 'layers.3' of 128 bytes of Float".
inline std::string DescribeNotice(const Notice& notice) {
  const std::string tag(notice.tag, strnlen(notice.tag, sizeof(notice.tag)));
  return absl::StrCat(CollectiveName(static_cast<CollectiveKind>(notice.kind)), " '", tag, "' of ",
                      notice.bytes, " bytes of ",
                      c10::toString(static_cast<c10::ScalarType>(notice.dtype)),
                      notice.root >= 0 ? absl::StrCat(" from rank ", notice.root) : "",
                      notice.reduce == 1   ? " for the maximum"
                      : notice.reduce == 2 ? " for the minimum"
                                           : "");
}

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SHARED_NOTICE_H_
