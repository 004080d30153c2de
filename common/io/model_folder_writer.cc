#include "common/io/model_folder_writer.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/io/atomic_file.h"
#include "common/io/model_config.h"
#include "common/io/read_file.h"
#include "common/io/safetensors_header.h"
#include "common/status/status_macros.h"

namespace tandem::io {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxSideFileBytes = int64_t{1} << 30;

// Files of a model besides its weights and config.json.
bool IsSideFile(absl::string_view name) {
  for (const absl::string_view known :
       {"generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
        "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt",
        "chat_template.jinja", "chat_template.json", "preprocessor_config.json",
        "processor_config.json"}) {
    if (name == known) return true;
  }
  return absl::StartsWith(name, "LICENSE") || absl::StartsWith(name, "NOTICE");
}

absl::Status CopySideFiles(const std::string& from, const std::string& to) {
  std::error_code error;
  for (fs::directory_iterator it(from, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (!IsSideFile(name) || !it->is_regular_file(ignored)) continue;
    ASSIGN_OR_RETURN(const std::string bytes, ReadFile(it->path().string(), kMaxSideFileBytes));
    RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(to, "/", name), bytes));
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat(from, ": cannot list"));
  return absl::OkStatus();
}

// config.json must name the stored dtype, or a reader that trusts it converts the weights.
void SetDType(const std::vector<TensorDeclaration>& tensors, nlohmann::json* config) {
  if (tensors.empty()) return;
  for (const TensorDeclaration& tensor : tensors) {
    if (tensor.dtype != tensors[0].dtype) return;
  }
  const std::string name(TorchName(tensors[0].dtype));
  const bool has_new_key = config->contains("dtype");
  if (has_new_key) (*config)["dtype"] = name;
  if (!has_new_key || config->contains("torch_dtype")) (*config)["torch_dtype"] = name;
}

}  // namespace

int64_t SideFileBytes(const std::string& source_folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(source_folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (!IsSideFile(it->path().filename().string()) || !it->is_regular_file(ignored)) continue;
    const uintmax_t size = it->file_size(ignored);
    if (!ignored) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

absl::StatusOr<std::vector<ModelFolderWriter::Shard>> ModelFolderWriter::PlanShards(
    std::vector<TensorDeclaration> tensors, int64_t max_shard_bytes) {
  if (max_shard_bytes <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_shard_bytes: expected more than 0, found ", max_shard_bytes));
  }
  std::vector<Shard> shards(1);
  for (TensorDeclaration& tensor : tensors) {
    absl::StatusOr<int64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
    if (!bytes.ok()) return AtPlace(absl::StrCat("tensor \"", tensor.name, "\""), bytes.status());
    // Not size + bytes > max, which could overflow.
    if (!shards.back().tensors.empty() && *bytes > max_shard_bytes - shards.back().size_bytes) {
      shards.emplace_back();
    }
    shards.back().size_bytes += *bytes;
    shards.back().missing_bytes += *bytes;
    shards.back().tensors.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = shards.size() == 1
                         ? "model.safetensors"
                         : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, shards.size());
  }
  return shards;
}

absl::StatusOr<ModelFolderWriter> ModelFolderWriter::Create(const std::string& path,
                                                            std::vector<TensorDeclaration> tensors,
                                                            const Options& options) {
  ASSIGN_OR_RETURN(AtomicFolder folder,
                   AtomicFolder::Create(path, options.replace_model ? &kModelFolder : nullptr));
  nlohmann::json config = nlohmann::json::object();
  if (!options.source_folder.empty()) {
    ASSIGN_OR_RETURN(ModelConfig source, ReadModelConfig(options.source_folder));
    config = std::move(source.json);
    config.erase("quantization_config");
  }
  SetDType(tensors, &config);
  config.merge_patch(options.config);
  if (!config.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": config: expected a JSON object, found ", Describe(config)));
  }
  absl::StatusOr<std::vector<Shard>> shards =
      PlanShards(std::move(tensors), options.max_shard_bytes);
  if (!shards.ok()) return AtPlace(path, shards.status());

  if (!options.source_folder.empty()) {
    RETURN_IF_ERROR(CopySideFiles(options.source_folder, folder.temporary_path()));
  }
  RETURN_IF_ERROR(WriteFileAtomically(
      folder.temporary_path() + "/config.json",
      config.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
  ModelFolderWriter writer(std::move(folder), *std::move(shards));
  RETURN_IF_ERROR(writer.OpenShard());
  RETURN_IF_ERROR(writer.CommitCompleteShards());
  return writer;
}

ModelFolderWriter::ModelFolderWriter(AtomicFolder folder, std::vector<Shard> shards)
    : folder_(std::move(folder)), shards_(std::move(shards)) {}

absl::Status ModelFolderWriter::OpenShard() {
  const Shard& shard = shards_[current_];
  ASSIGN_OR_RETURN(SafetensorsWriter writer,
                   SafetensorsWriter::Create(
                       absl::StrCat(folder_.temporary_path(), "/", shard.file), shard.tensors));
  writer_.emplace(std::move(writer));
  return absl::OkStatus();
}

absl::Status ModelFolderWriter::CommitCompleteShards() {
  while (writer_.has_value() && shards_[current_].missing_bytes == 0) {
    RETURN_IF_ERROR(writer_->Commit());
    writer_.reset();
    if (++current_ < shards_.size()) {
      RETURN_IF_ERROR(OpenShard());
    }
  }
  return absl::OkStatus();
}

absl::Status ModelFolderWriter::Append(absl::string_view name, absl::Span<const std::byte> bytes) {
  if (bytes.empty()) return absl::OkStatus();
  if (!writer_.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder_.path(), ": expected no more bytes, found some of tensor \"", name, "\""));
  }
  RETURN_IF_ERROR(writer_->Append(name, bytes));
  shards_[current_].missing_bytes -= static_cast<int64_t>(bytes.size());
  return CommitCompleteShards();
}

absl::Status ModelFolderWriter::WriteIndex() const {
  nlohmann::json weight_map = nlohmann::json::object();
  int64_t total_size = 0;
  for (const Shard& shard : shards_) {
    total_size += shard.size_bytes;
    for (const TensorDeclaration& tensor : shard.tensors) weight_map[tensor.name] = shard.file;
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total_size}}},
                                {"weight_map", std::move(weight_map)}};
  return WriteFileAtomically(folder_.temporary_path() + "/model.safetensors.index.json",
                             index.dump(2) + "\n");
}

absl::Status ModelFolderWriter::Commit() {
  if (writer_.has_value()) return AtPlace(folder_.path(), writer_->Commit());
  if (shards_.size() > 1) {
    RETURN_IF_ERROR(WriteIndex());
  }
  return folder_.Commit();
}

}  // namespace tandem::io
