#include "services/trainer/fsdp/offload_file.h"

#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::trainer {
namespace {

std::atomic<int64_t> total_bytes_of_process{0};

// A tensor's part of the file.
struct Mapping {
  std::shared_ptr<OffloadFile> file;  // open as long as this is
  int fd = -1;
  int64_t offset = 0;
  void* data = nullptr;
  size_t size_bytes = 0;
};

void Unmap(void* context) {
  const std::unique_ptr<Mapping> mapping(static_cast<Mapping*>(context));
  munmap(mapping->data, mapping->size_bytes);
  total_bytes_of_process -= static_cast<int64_t>(mapping->size_bytes);
}

// Null if the tensor is in no file.
const Mapping* MappingOf(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const at::DataPtr& data = tensor.storage().data_ptr();
  return data.get_deleter() == &Unmap ? static_cast<const Mapping*>(data.get_context()) : nullptr;
}

absl::Status SystemError(int error, const std::string& folder, absl::string_view action) {
  const std::string message = absl::StrCat(folder, ": cannot ", action, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == ENOMEM || error == EFBIG) {
    return absl::ResourceExhaustedError(
        absl::StrCat(message, "; set trainer.offload_dir to a folder on a disk with room"));
  }
  return absl::UnavailableError(message);
}

}  // namespace

absl::StatusOr<std::shared_ptr<OffloadFile>> OffloadFile::Create(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return SystemError(error.value(), folder, "make the folder of trainer.offload_dir");
  std::string path = absl::StrCat(folder, "/state-XXXXXX");
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return SystemError(errno, folder, "make a file for trainer.offload=disk");
  // Without a name the file goes with the process, however that ends.
  unlink(path.c_str());
  struct statfs system {};
  const bool in_memory =
      fstatfs(fd, &system) == 0 && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
  return std::shared_ptr<OffloadFile>(new OffloadFile(folder, fd, in_memory));
}

OffloadFile::~OffloadFile() { close(fd_); }

absl::StatusOr<at::Tensor> OffloadFile::Zeros(int64_t numel, at::ScalarType dtype) {
  const at::TensorOptions options = at::TensorOptions(dtype).device(at::kCPU);
  const size_t size_bytes = static_cast<size_t>(numel) * c10::elementSize(dtype);
  if (size_bytes == 0) return at::empty({numel}, options);
  const int64_t page = sysconf(_SC_PAGESIZE);
  auto mapping = std::make_unique<Mapping>();
  {
    absl::MutexLock lock(&mu_);
    // posix_fallocate() returns the error and does not set errno. Takes the room now: a write to
    // the mapping of a full disk would be SIGBUS instead of an error.
    const int error = posix_fallocate(fd_, size_bytes_, static_cast<off_t>(size_bytes));
    if (error != 0) {
      return SystemError(error, folder_,
                         absl::StrCat("take ", size_bytes, " bytes of disk beside the ",
                                      size_bytes_, " of this rank's training state there"));
    }
    mapping->offset = size_bytes_;
    // mmap() takes offsets of whole pages only.
    size_bytes_ += (static_cast<int64_t>(size_bytes) + page - 1) / page * page;
  }
  mapping->data =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, mapping->offset);
  if (mapping->data == MAP_FAILED) {
    return SystemError(errno, folder_, absl::StrCat("map ", size_bytes, " bytes"));
  }
  mapping->file = shared_from_this();
  mapping->fd = fd_;
  mapping->size_bytes = size_bytes;
  total_bytes_of_process += static_cast<int64_t>(size_bytes);
  void* const data = mapping->data;
  c10::Storage storage(c10::Storage::use_byte_size_t(), size_bytes,
                       at::DataPtr(data, mapping.release(), &Unmap, at::kCPU),
                       /*allocator=*/nullptr, /*resizable=*/false);
  at::Tensor tensor = at::empty({0}, options);
  tensor.set_(std::move(storage), 0, {numel}, {1});
  return tensor;
}

int64_t OffloadFile::total_bytes() { return total_bytes_of_process; }

void Prefetch(const at::Tensor& tensor) {
  const Mapping* const mapping = MappingOf(tensor);
  // Only advice: if it is refused, the bytes come when they are touched.
  if (mapping != nullptr) madvise(mapping->data, mapping->size_bytes, MADV_WILLNEED);
}

void Evict(const at::Tensor& tensor) {
  const Mapping* const mapping = MappingOf(tensor);
  if (mapping == nullptr) return;
  // On a shared mapping this drops the process's view of the pages, never their contents.
  madvise(mapping->data, mapping->size_bytes, MADV_DONTNEED);
  // Starts to write now: when memory is short, the system can drop clean pages at once.
  sync_file_range(mapping->fd, mapping->offset, static_cast<off_t>(mapping->size_bytes),
                  SYNC_FILE_RANGE_WRITE);
}

}  // namespace tandem::trainer
