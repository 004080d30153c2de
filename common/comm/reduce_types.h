// Converts dtypes and ReduceOp to the enums of reduce_kernels.h.
#ifndef TANDEM_COMMON_COMM_REDUCE_TYPES_H_
#define TANDEM_COMMON_COMM_REDUCE_TYPES_H_

#include <c10/core/ScalarType.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/comm/process_group.h"
#include "common/comm/reduce_kernels.h"

namespace tandem::comm {

// INVALID_ARGUMENT for a dtype that our reductions do not support.
inline absl::StatusOr<ReduceType> ToReduceType(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return ReduceType::kFloat;
    case at::kDouble:
      return ReduceType::kDouble;
    case at::kBFloat16:
      return ReduceType::kBFloat16;
    case at::kChar:
      return ReduceType::kInt8;
    case at::kByte:
      return ReduceType::kUInt8;
    case at::kInt:
      return ReduceType::kInt32;
    case at::kLong:
      return ReduceType::kInt64;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("tensors of ", c10::toString(type), " cannot be reduced by this group"));
  }
}

inline ReduceKind ToReduceKind(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return ReduceKind::kMax;
    case ReduceOp::kMin:
      return ReduceKind::kMin;
    default:
      return ReduceKind::kSum;
  }
}

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_REDUCE_TYPES_H_
