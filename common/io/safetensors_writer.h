// Writes a safetensors file as a stream: declare the tensors first, then append their bytes in that
// order, in pieces of any size, so that no whole tensor need be in memory.
//
//   ASSIGN_OR_RETURN(io::SafetensorsWriter writer,
//                    io::SafetensorsWriter::Create(path, declarations));
//   for (const Piece& piece : pieces) RETURN_IF_ERROR(writer.Append(piece.tensor, piece.bytes));
//   RETURN_IF_ERROR(writer.Commit());
#ifndef TANDEM_COMMON_IO_SAFETENSORS_WRITER_H_
#define TANDEM_COMMON_IO_SAFETENSORS_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/io/atomic_file.h"
#include "common/io/dtype.h"

namespace tandem::io {

struct TensorDeclaration {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// Owned and used by one thread at a time. The file appears atomically at Commit(); a writer
// destroyed earlier leaves nothing.
class SafetensorsWriter {
 public:
  // INVALID_ARGUMENT for a name that is empty, reserved or declared twice, or a size beyond 63
  // bits. The data starts at a multiple of 8 bytes; tensors follow each other without padding.
  static absl::StatusOr<SafetensorsWriter> Create(
      const std::string& path, std::vector<TensorDeclaration> tensors,
      const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  // Appends the next bytes of `name`, which must be the first declared tensor that is incomplete.
  // INVALID_ARGUMENT if it is another one, or if there are more bytes than declared.
  absl::Status Append(absl::string_view name, absl::Span<const std::byte> bytes);

  // FAILED_PRECONDITION, naming the tensor, if bytes are missing.
  absl::Status Commit();

 private:
  SafetensorsWriter(AtomicFile file, std::vector<TensorDeclaration> tensors,
                    std::vector<int64_t> sizes);
  void SkipComplete();  // advances to the next incomplete tensor

  AtomicFile file_;
  std::vector<TensorDeclaration> tensors_;
  std::vector<int64_t> size_bytes_;  // of each tensor
  size_t current_ = 0;
  int64_t written_bytes_ = 0;  // of the current tensor
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_SAFETENSORS_WRITER_H_
