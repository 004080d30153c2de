#include "common/comm/shareable_memory.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/comm/file_mapping.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

// Keeps the file's size: a read beyond the end of a file that shrank raises a signal, not an error.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status SystemError(absl::string_view what, int64_t size_bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("shareable memory of ", size_bytes, " bytes: ", what, ": ", strerror(errno)));
}

// By address. Never destroyed: tensors of static storage outlive everything else.
class Segments {
 public:
  void Add(std::shared_ptr<const ShareableSegment> segment) {
    absl::MutexLock lock(&mu_);
    if (count_ != nullptr) count_(segment->size_bytes());
    const std::byte* const begin = segment->data();
    segments_[begin] = std::move(segment);
  }

  void Remove(const void* data) {
    std::shared_ptr<const ShareableSegment> last;  // unmapped without the lock
    absl::MutexLock lock(&mu_);
    const auto found = segments_.find(static_cast<const std::byte*>(data));
    if (found == segments_.end()) return;
    last = std::move(found->second);
    if (count_ != nullptr) count_(-last->size_bytes());
    segments_.erase(found);
  }

  std::optional<ShareableRange> Find(const std::byte* data, int64_t size_bytes) const {
    absl::MutexLock lock(&mu_);
    auto found = segments_.upper_bound(data);
    if (found == segments_.begin()) return std::nullopt;
    --found;
    const int64_t offset = data - found->first;
    const int64_t whole = found->second->size_bytes();
    if (offset > whole || size_bytes > whole - offset) return std::nullopt;
    return ShareableRange{found->second, offset};
  }

  void Count(std::function<void(int64_t)> count) {
    absl::MutexLock lock(&mu_);
    count_ = std::move(count);
  }

 private:
  mutable absl::Mutex mu_;
  std::map<const std::byte*, std::shared_ptr<const ShareableSegment>> segments_
      ABSL_GUARDED_BY(mu_);
  std::function<void(int64_t)> count_ ABSL_GUARDED_BY(mu_);
};

Segments& segments() {
  static Segments* const segments = new Segments;
  return *segments;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ShareableSegment>> ShareableSegment::Create(
    int64_t size_bytes) {
  static std::atomic<uint64_t> next_id{1};
  rlimit limit{};
  // To exceed it would be a signal.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && static_cast<rlim_t>(size_bytes) > limit.rlim_cur) {
    errno = EFBIG;
    return SystemError("RLIMIT_FSIZE", size_bytes);
  }
  host::FileDescriptor file(memfd_create("tandem-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) return SystemError("memfd_create", size_bytes);
  if (ftruncate(file.get(), size_bytes) != 0 || fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return SystemError("a file of that size", size_bytes);
  }
  std::byte* const data = MapMemoryFile(file.get(), size_bytes, PROT_READ | PROT_WRITE);
  if (data == nullptr) return SystemError("mmap", size_bytes);
  ProvideLargePages(data, size_bytes);
  return std::shared_ptr<const ShareableSegment>(
      new ShareableSegment(next_id.fetch_add(1), data, size_bytes, std::move(file)));
}

ShareableSegment::~ShareableSegment() { munmap(data_, static_cast<size_t>(size_bytes_)); }

absl::StatusOr<std::unique_ptr<const MappedSegment>> MappedSegment::Map(
    const host::FileDescriptor& file) {
  struct stat found = {};
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (fstat(file.get(), &found) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      found.st_size <= 0) {
    return absl::InvalidArgumentError("expected a sealed memory segment, found another file");
  }
  const auto size_bytes = static_cast<int64_t>(found.st_size);
  const std::byte* const data = MapMemoryFile(file.get(), size_bytes, PROT_READ);
  if (data == nullptr) return SystemError("mmap", size_bytes);
  return std::unique_ptr<const MappedSegment>(new MappedSegment(data, size_bytes));
}

MappedSegment::~MappedSegment() {
  munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_bytes_));
}

at::Tensor ShareableZeros(int64_t numel, at::ScalarType dtype) {
  const int64_t size_bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  if (size_bytes >= kLeastShareableBytes) {
    auto segment = ShareableSegment::Create(size_bytes);
    if (segment.ok()) {
      std::byte* const data = (*segment)->data();
      segments().Add(*std::move(segment));
      return at::from_blob(
          data, {numel}, [](void* freed) { segments().Remove(freed); }, dtype);
    }
  }
  return at::zeros({numel}, dtype);
}

std::optional<ShareableRange> FindShareable(const void* data, int64_t size_bytes) {
  return segments().Find(static_cast<const std::byte*>(data), size_bytes);
}

void CountShareable(std::function<void(int64_t)> count) { segments().Count(std::move(count)); }

}  // namespace tandem::comm
