// OffloadFile: tensors whose bytes rest in a file that is mapped into memory, for training state
// that does not fit in it. The file loses its name as soon as it is made: whatever ends the
// process, nothing is left behind. It is no checkpoint and is never made durable.
//
//   ASSIGN_OR_RETURN(auto file, OffloadFile::Create("run/offload"));
//   ASSIGN_OR_RETURN(at::Tensor moments, file->Zeros(numel, at::kFloat));
//   Prefetch(moments);      // reading from disk begins, and this returns
//   ...                    // computes
//   Evict(moments);         // its pages leave the process, changed ones begin their way to disk
//
// Between Evict() and the next use the bytes are the kernel's page cache, which keeps them while
// memory is free and gives it back when it is not: they count as neither the process's private
// memory nor its resident set. Any thread; one tensor by one thread at a time.
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
  // Makes the folder where it is missing. Errors name the folder and what could not be done.
  static absl::StatusOr<std::shared_ptr<OffloadFile>> Create(const std::string& folder);
  ~OffloadFile();

  // A CPU tensor [numel] that keeps the file alive. Its disk space is taken here, so that a full
  // disk is an error now and no signal later: RESOURCE_EXHAUSTED names the folder and the bytes.
  absl::StatusOr<at::Tensor> Zeros(int64_t numel, at::ScalarType dtype);

  // Whether the folder's file system keeps files in memory, where offloading gains nothing.
  bool in_memory() const { return in_memory_; }

  // Of the process's tensors in such files.
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

// Both take the tensor's whole storage and do nothing where it rests in no file.
void Prefetch(const at::Tensor& tensor);
void Evict(const at::Tensor& tensor);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_OFFLOAD_FILE_H_
