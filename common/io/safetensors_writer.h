// Writing a safetensors file as a stream: the tensors are declared first, then their bytes follow
// in that order, in pieces of any size, so no tensor need be in memory whole.
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

// Owned and used by one thread at a time. The file appears at Commit(), whole; a writer destroyed
// before leaves nothing.
class SafetensorsWriter {
 public:
  // INVALID_ARGUMENT for a name that is empty, reserved or declared twice, or a size beyond 63
  // bits. The data begins at a multiple of 8 bytes; tensors follow each other without padding.
  static absl::StatusOr<SafetensorsWriter> Create(
      const std::string& path, std::vector<TensorDeclaration> tensors,
      const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  // The next bytes of `name`, which must be the first declared tensor that is not yet complete.
  // INVALID_ARGUMENT where it is another one, or where there are more bytes than declared.
  absl::Status Append(absl::string_view name, absl::Span<const std::byte> bytes);

  // FAILED_PRECONDITION, naming the tensor, where bytes are missing.
  absl::Status Commit();

 private:
  SafetensorsWriter(AtomicFile file, std::vector<TensorDeclaration> tensors,
                    std::vector<int64_t> sizes);
  void SkipComplete();  // moves on to the next tensor that wants bytes

  AtomicFile file_;
  std::vector<TensorDeclaration> tensors_;
  std::vector<int64_t> size_bytes_;  // of each tensor
  size_t current_ = 0;
  int64_t written_bytes_ = 0;  // of the current tensor
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_SAFETENSORS_WRITER_H_
