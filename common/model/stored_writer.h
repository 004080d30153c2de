// StoredWriter: writes a model folder with the tensors' names and layouts of a StoredLayout, out of
// the parameters' elements.
//
//   ASSIGN_OR_RETURN(StoredWriter writer, StoredWriter::Create(path, layout, io::DType::kF32,
//                                                              &source, options));
//   RETURN_IF_ERROR(ForStoredPieces(layout, 1 << 22, [&](const StoredPiece& piece) {
//     return writer.Append(piece, ElementsOf(piece));
//   }));
//   RETURN_IF_ERROR(writer.Commit());
#ifndef TANDEM_COMMON_MODEL_STORED_WRITER_H_
#define TANDEM_COMMON_MODEL_STORED_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/dtype.h"
#include "common/io/model_folder.h"
#include "common/io/model_folder_writer.h"
#include "common/model/stored_layout.h"

namespace tandem::model {

// Elements [first, first + count) of a parameter, all in one stored tensor.
struct StoredPiece {
  const StoredTensor* tensor = nullptr;
  const StoredView* view = nullptr;
  size_t parameter = 0;
  int64_t first = 0;
  int64_t count = 0;
  bool is_last = false;  // of the tensor
};

// Calls body for pieces of at most `max_elements` that cover the layout's tensors, in the order in
// which a writer takes them. Stops at the body's first error.
absl::Status ForStoredPieces(const StoredLayout& layout, int64_t max_elements,
                             absl::FunctionRef<absl::Status(const StoredPiece&)> body);

// Opens a folder whose names an export takes (StoredLayout::Create()); none if it has no weights,
// as for a model that was drawn at random.
std::optional<io::ModelFolder> OpenExportSource(const std::string& path);

// Owned and used by one thread at a time. Like io::ModelFolderWriter, leaves nothing before
// Commit(). Writes a parameter that is a tensor of its own piece by piece; holds any other tensor in
// memory until its last piece.
class StoredWriter {
 public:
  // `source`: rows that belong to no parameter are copied from it if it has the tensor in this type
  // and shape, and are zero otherwise; may be null. It and `layout` outlive the writer. Never
  // quantises; logs it if the layout's folder does. Errors are those of
  // io::ModelFolderWriter::Create().
  static absl::StatusOr<StoredWriter> Create(const std::string& path, const StoredLayout& layout,
                                             io::DType dtype, const io::ModelFolder* source,
                                             const io::ModelFolderWriter::Options& options);

  // `elements`: the piece's, in the writer's type, or StoredLayout::DTypeOf(). Call in the order of
  // ForStoredPieces().
  absl::Status Append(const StoredPiece& piece, absl::Span<const std::byte> elements);

  // Writes the layout's constants first. Errors are those of io::ModelFolderWriter::Commit().
  absl::Status Commit();

  // Bytes of tensors written so far.
  int64_t size_bytes() const { return size_bytes_; }

 private:
  StoredWriter(io::ModelFolderWriter writer, const StoredLayout& layout, io::DType dtype,
               const io::ModelFolder* source)
      : writer_(std::move(writer)), layout_(&layout), dtype_(dtype), source_(source) {}

  absl::Status Write(const std::string& name, absl::Span<const std::byte> bytes);
  void BeginAssembly(const StoredTensor& tensor);

  io::ModelFolderWriter writer_;
  const StoredLayout* layout_;
  io::DType dtype_;
  const io::ModelFolder* source_;
  std::vector<std::byte> assembled_;  // the current tensor; empty if it is written piece by piece
  int64_t size_bytes_ = 0;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_STORED_WRITER_H_
