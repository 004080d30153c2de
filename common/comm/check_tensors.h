// Argument checks shared by the group implementations.
#ifndef TANDEM_COMMON_COMM_CHECK_TENSORS_H_
#define TANDEM_COMMON_COMM_CHECK_TENSORS_H_

#include <ATen/core/Tensor.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/comm/process_group.h"
#include "common/status/status_macros.h"

namespace tandem::comm {

inline absl::Status CheckTensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return absl::InvalidArgumentError("the tensor is undefined");
  if (!tensor.is_contiguous()) return absl::InvalidArgumentError("the tensor is not contiguous");
  return absl::OkStatus();
}

inline absl::Status CheckShards(const at::Tensor& full, const at::Tensor& shard, int size) {
  RETURN_IF_ERROR(CheckTensor(full));
  RETURN_IF_ERROR(CheckTensor(shard));
  if (full.scalar_type() != shard.scalar_type()) {
    return absl::InvalidArgumentError(absl::StrCat("full is ", c10::toString(full.scalar_type()),
                                                   ", shard is ",
                                                   c10::toString(shard.scalar_type())));
  }
  if (full.numel() != shard.numel() * size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "full has ", full.numel(), " elements, expected ", size, " x ", shard.numel()));
  }
  return absl::OkStatus();
}

inline absl::Status CheckSlices(const at::Tensor& out, const at::Tensor& in, int size) {
  RETURN_IF_ERROR(CheckTensor(out));
  RETURN_IF_ERROR(CheckTensor(in));
  if (out.scalar_type() != in.scalar_type() || out.numel() != in.numel()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "out is ", c10::toString(out.scalar_type()), " of ", out.numel(), " elements, in is ",
        c10::toString(in.scalar_type()), " of ", in.numel(), "; expected the same"));
  }
  if (in.numel() % size != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(in.numel(), " elements cannot be cut into ", size, " slices"));
  }
  return absl::OkStatus();
}

inline absl::Status CheckGroup(const GroupOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(absl::StrCat("group ", options.name, ": rank ", options.rank,
                                                   " of ", options.size, " is out of range"));
  }
  if (options.size > 1 && (options.rendezvous.port <= 0 || options.rendezvous.port > 65535)) {
    return absl::InvalidArgumentError(absl::StrCat("group ", options.name,
                                                   ": rendezvous port: expected 1 to 65535, found ",
                                                   options.rendezvous.port));
  }
  return absl::OkStatus();
}

// Adds the group, rank and rendezvous address to a rendezvous error.
inline absl::Status RendezvousError(const GroupOptions& options, const absl::Status& status) {
  return absl::Status(
      status.code(),
      absl::StrCat("group ", options.name, ", rank ", options.rank, " of ", options.size,
                   ": rendezvous at ", options.rendezvous.host, ":", options.rendezvous.port,
                   " as ", options.rendezvous.prefix, ": ", status.message()));
}

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_CHECK_TENSORS_H_
