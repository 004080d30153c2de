#include "common/io/safetensors_writer.h"

#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/io/file_util.h"
#include "common/io/safetensors_header.h"
#include "common/status/status_macros.h"

namespace tandem::io {
namespace {

// The length and the JSON header, padded with spaces to a multiple of 8 bytes as other writers do.
absl::StatusOr<std::string> HeaderBytes(const std::vector<TensorDeclaration>& tensors,
                                        const std::vector<int64_t>& sizes,
                                        const std::map<std::string, std::string>& metadata) {
  int64_t offset = 0;
  std::string text = "{";
  const auto add = [&text](const nlohmann::ordered_json& key, const nlohmann::ordered_json& value) {
    absl::StrAppend(&text, text.size() > 1 ? "," : "", key.dump(), ":", value.dump());
  };
  try {
    if (!metadata.empty()) add("__metadata__", metadata);
    for (size_t i = 0; i < tensors.size(); ++i) {
      nlohmann::ordered_json entry;
      entry["dtype"] = std::string(Name(tensors[i].dtype));
      entry["shape"] = tensors[i].shape;
      entry["data_offsets"] = {offset, offset + sizes[i]};
      add(tensors[i].name, entry);
      offset += sizes[i];
    }
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor's name or the metadata is not valid UTF-8: ", error.what()));
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  if (static_cast<int64_t>(text.size()) > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("expected a header of at most ",
                                                   kMaxSafetensorsHeaderBytes, " bytes, found ",
                                                   text.size(), "; write several files"));
  }
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(uint64_t{text.size()} >> (8 * i)));
  return bytes + text;
}

}  // namespace

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path, std::vector<TensorDeclaration> tensors,
    const std::map<std::string, std::string>& metadata) {
  absl::flat_hash_set<absl::string_view> names;
  std::vector<int64_t> sizes;
  int64_t total = 0;
  for (const TensorDeclaration& tensor : tensors) {
    const std::string place = absl::StrCat(path, ": tensor \"", tensor.name, "\"");
    if (tensor.name.empty() || tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          place,
          ": expected a unique name, found one that is empty, reserved or already declared"));
    }
    absl::StatusOr<int64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
    if (!bytes.ok()) return AtPlace(place, bytes.status());
    if (tensor.shape.size() > kMaxTensorDimensions ||
        __builtin_add_overflow(total, *bytes, &total)) {
      return absl::InvalidArgumentError(
          absl::StrCat(place, ": too many dimensions, or more than 2^63 bytes in one file"));
    }
    sizes.push_back(*bytes);
  }
  absl::StatusOr<std::string> header = HeaderBytes(tensors, sizes, metadata);
  if (!header.ok()) return AtPlace(path, header.status());
  ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  RETURN_IF_ERROR(file.Append(*header));
  return SafetensorsWriter(std::move(file), std::move(tensors), std::move(sizes));
}

SafetensorsWriter::SafetensorsWriter(AtomicFile file, std::vector<TensorDeclaration> tensors,
                                     std::vector<int64_t> sizes)
    : file_(std::move(file)), tensors_(std::move(tensors)), size_bytes_(std::move(sizes)) {
  SkipComplete();
}

void SafetensorsWriter::SkipComplete() {
  while (current_ < tensors_.size() && written_bytes_ == size_bytes_[current_]) {
    ++current_;
    written_bytes_ = 0;
  }
}

absl::Status SafetensorsWriter::Append(absl::string_view name, absl::Span<const std::byte> bytes) {
  if (bytes.empty()) return absl::OkStatus();  // tensors without elements have no turn
  const absl::string_view expected =
      current_ < tensors_.size() ? absl::string_view(tensors_[current_].name) : "none";
  if (current_ == tensors_.size() || expected != name) {
    return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": expected bytes of tensor \"",
                                                   expected, "\", found those of \"", name, "\""));
  }
  const int64_t missing = size_bytes_[current_] - written_bytes_;
  if (static_cast<int64_t>(bytes.size()) > missing) {
    return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": tensor \"", name,
                                                   "\": expected ", missing, " more bytes, found ",
                                                   bytes.size()));
  }
  RETURN_IF_ERROR(file_.Append(bytes));
  written_bytes_ += static_cast<int64_t>(bytes.size());
  SkipComplete();
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Commit() {
  if (current_ < tensors_.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(file_.path(), ": tensor \"", tensors_[current_].name, "\": expected ",
                     size_bytes_[current_], " bytes, found ", written_bytes_, " at the end; ",
                     tensors_.size() - current_ - 1, " tensors after it have none"));
  }
  return file_.Commit();
}

}  // namespace tandem::io
