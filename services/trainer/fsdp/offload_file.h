// OffloadFile: tensors backed by a memory-mapped file, for training state that does not fit in
// memory. The file is unlinked at creation: nothing is left behind, however the process ends. It is
// no checkpoint and is never made durable.
//
//   ASSIGN_OR_RETURN(auto file, OffloadFile::Create("run/offload"));
//   ASSIGN_OR_RETURN(at::Tensor moments, file->Zeros(numel, at::kFloat));
//   Prefetch(moments);      // starts reading from disk and returns
//   ...                     // computes
//   Evict(moments);         // releases its pages and starts writing changed ones to disk
//
// Between Evict() and the next use the kernel's page cache holds the bytes while memory is free:
// they count neither as the process's private memory nor as its resident set. Any thread; one
// tensor by one thread at a time.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_OFFLOAD_FILE_H_
#define TANDEM_SERVICES_TRAINER_FSDP_OFFLOAD_FILE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace tandem::trainer {

class OffloadFile : public std::enable_shared_from_this<OffloadFile> {
 public:
  // Creates the folder if it is missing. Errors name the folder and the failed operation.
  static absl::StatusOr<std::shared_ptr<OffloadFile>> Create(const std::string& folder);
  ~OffloadFile();

  // A CPU tensor [numel] that keeps the file alive. Allocates its disk space now, so that a full
  // disk is an error here and no signal later: RESOURCE_EXHAUSTED names the folder and the bytes.
  absl::StatusOr<at::Tensor> Zeros(int64_t numel, at::ScalarType dtype);

  // Whether the folder's file system keeps files in memory, where offloading gains nothing.
  bool in_memory() const { return in_memory_; }

  // Bytes of the process's tensors in such files.
  static int64_t total_bytes();

 private:
  OffloadFile(std::string folder, int fd, bool in_memory)
      : folder_(std::move(folder)), fd_(fd), in_memory_(in_memory) {}

  const std::string folder_;
  const int fd_;
  const bool in_memory_;
  absl::Mutex mu_;
  int64_t size_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

// Both affect the tensor's whole storage and do nothing if no file backs it.
void Prefetch(const at::Tensor& tensor);
void Evict(const at::Tensor& tensor);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_OFFLOAD_FILE_H_
