#include "common/io/safetensors.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/io/file_util.h"
#include "common/io/safetensors_header.h"
#include "common/status/status_macros.h"

namespace tandem::io {
namespace {

uint64_t ReadLittleEndian64(absl::Span<const std::byte> bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
  return value;
}

// Returns the header and the data's offset; the file may have any content.
absl::StatusOr<SafetensorsHeader> ReadHeader(absl::Span<const std::byte> file,
                                             int64_t* data_begin) {
  const int64_t file_bytes = static_cast<int64_t>(file.size());
  if (file_bytes < kSafetensorsLengthBytes) {
    return absl::DataLossError(absl::StrCat(
        "expected a safetensors file, which begins with 8 bytes of header length; found ",
        file_bytes, " bytes"));
  }
  const uint64_t header_bytes = ReadLittleEndian64(file);
  if (header_bytes > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes)) {
    return absl::DataLossError(absl::StrCat("expected a safetensors file with a header of at most ",
                                            kMaxSafetensorsHeaderBytes,
                                            " bytes, found one that states ", header_bytes,
                                            "; the file is damaged or has another format"));
  }
  const int64_t available = file_bytes - kSafetensorsLengthBytes;
  if (static_cast<int64_t>(header_bytes) > available) {
    return absl::DataLossError(absl::StrCat("expected a header of ", header_bytes, " bytes, found ",
                                            available,
                                            "; the file is truncated: copy or download it again"));
  }
  *data_begin = kSafetensorsLengthBytes + static_cast<int64_t>(header_bytes);
  const absl::string_view text(reinterpret_cast<const char*>(file.data()) + kSafetensorsLengthBytes,
                               header_bytes);
  return ParseSafetensorsHeader(text, file_bytes - *data_begin);
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  SafetensorsFile file(path, std::move(mapped));
  const absl::Span<const std::byte> bytes = file.file_.bytes();
  int64_t data_begin = 0;
  absl::StatusOr<SafetensorsHeader> header = ReadHeader(bytes, &data_begin);
  if (!header.ok()) return AtPlace(path, header.status());
  file.metadata_ = std::move(header->metadata);
  file.tensors_.reserve(header->tensors.size());
  for (TensorInfo& info : header->tensors) {
    file.index_.emplace(info.name, file.tensors_.size());
    file.tensors_.push_back({std::move(info.name), info.dtype, std::move(info.shape),
                             bytes.subspan(static_cast<size_t>(data_begin + info.begin),
                                           static_cast<size_t>(info.end - info.begin))});
  }
  return file;
}

SafetensorsFile::SafetensorsFile(std::string path, MappedFile file)
    : path_(std::move(path)), file_(std::move(file)) {}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const TensorView& tensor : tensors_) names.push_back(tensor.name);
  return names;
}

absl::StatusOr<TensorView> SafetensorsFile::Find(absl::string_view name) const {
  const auto it = index_.find(name);
  if (it == index_.end()) {
    return absl::NotFoundError(
        absl::StrCat(path_, ": no tensor \"", name, "\" among ", tensors_.size()));
  }
  return tensors_[it->second];
}

}  // namespace tandem::io
