// Reads safetensors files.
//
//   ASSIGN_OR_RETURN(io::SafetensorsFile file, io::SafetensorsFile::Open("model.safetensors"));
//   for (const io::TensorView& tensor : file.tensors()) Use(tensor.name, tensor.bytes);
//   ASSIGN_OR_RETURN(io::TensorView embedding, file.Find("model.embed_tokens.weight"));
#ifndef TANDEM_COMMON_IO_SAFETENSORS_H_
#define TANDEM_COMMON_IO_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/io/dtype.h"
#include "common/io/mapped_file.h"

namespace tandem::io {

// A tensor in a mapped file. `bytes` are valid while the file is open, little-endian, row-major,
// and start at any address: the format does not promise alignment, so copy, or check before
// casting.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  absl::Span<const std::byte> bytes;

  int64_t num_elements() const { return static_cast<int64_t>(bytes.size()) / SizeOf(dtype); }
};

// An open file whose header has been checked in full. Move-only; any number of threads may read.
// Opening reads the header only; a tensor's bytes are read from disk on first access. See
// MappedFile for what may happen to the file meanwhile.
class SafetensorsFile {
 public:
  // NOT_FOUND if the file does not exist; DATA_LOSS, with the file and the tensor, if it is
  // truncated or its header does not match its size.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = default;

  // Tensors in the order of their data.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  std::vector<std::string> names() const;

  bool Contains(absl::string_view name) const { return index_.contains(name); }
  absl::StatusOr<TensorView> Find(absl::string_view name) const;

  // `__metadata__`: "format" and the like.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }

 private:
  SafetensorsFile(std::string path, MappedFile file);

  std::string path_;
  MappedFile file_;
  std::vector<TensorView> tensors_;
  absl::flat_hash_map<std::string, size_t> index_;  // into tensors_
  std::map<std::string, std::string> metadata_;
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_SAFETENSORS_H_
