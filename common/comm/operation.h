// Operation: describes one operation of a group, for error messages.
#ifndef TANDEM_COMMON_COMM_OPERATION_H_
#define TANDEM_COMMON_COMM_OPERATION_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tandem::comm {

struct Operation {
  std::string op;  // "all_gather"
  std::string tag;
  int64_t bytes = 0;
  int peer = -1;  // root, destination or source; -1 if all ranks have the same role
  absl::Time deadline;
  absl::Duration timeout;
};

inline std::string DescribeOperation(absl::string_view group, int rank, int size,
                                     const Operation& op) {
  return absl::StrCat(
      "group ", group, ", rank ", rank, " of ", size, ": ", op.op, " '", op.tag, "' of ", op.bytes,
      " bytes",
      op.peer >= 0 ? absl::StrCat(op.op == "send" ? " to rank " : " from rank ", op.peer) : "");
}

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_OPERATION_H_
