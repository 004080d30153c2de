#include "common/io/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/io/file_util.h"
#include "common/io/read_file.h"
#include "common/status/status_macros.h"

namespace tandem::io {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// The index: file name -> its tensors.
using ShardTensors = std::map<std::string, std::vector<std::string>>;

absl::StatusOr<ShardTensors> ReadIndex(const std::string& index_path) {
  ASSIGN_OR_RETURN(const nlohmann::json index, ReadJsonFile(index_path));
  ASSIGN_OR_RETURN(const JsonFields weight_map, JsonFields(index, index_path).Object("weight_map"));
  ShardTensors shards;
  for (const auto& [tensor, file] : weight_map.json().items()) {
    ASSIGN_OR_RETURN(std::string name, weight_map.String(tensor));
    // A name, not a path: an index from elsewhere must not reach into other folders.
    if (name.empty() || name.find('/') != std::string::npos || name.front() == '.') {
      return weight_map.Error(
          tensor,
          absl::StrCat("expected the name of a file in the same folder, found ", Describe(file)));
    }
    shards[name].push_back(tensor);
  }
  if (shards.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(index_path, ": weight_map: expected tensors, found none"));
  }
  return shards;
}

absl::Status CheckShardsPresent(const ShardTensors& shards, const std::string& folder) {
  constexpr size_t kMostListed = 8;
  std::vector<std::string> missing;
  for (const auto& [name, tensors] : shards) {
    if (!Exists(absl::StrCat(folder, "/", name))) missing.push_back(name);
  }
  if (missing.empty()) return absl::OkStatus();
  const size_t listed = std::min(missing.size(), kMostListed);
  return absl::NotFoundError(absl::StrCat(
      folder, "/", kIndexFile, ": ", missing.size(), " of ", shards.size(),
      " shards missing (looked in ", folder, "): ",
      absl::StrJoin(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(listed), ", "),
      listed < missing.size() ? ", ..." : "", "; download them or fix weight_map"));
}

}  // namespace

absl::StatusOr<ModelFolder> ModelFolder::Open(const std::string& path) {
  ModelFolder folder;
  folder.path_ = path;
  ASSIGN_OR_RETURN(folder.config_, ReadModelConfig(path));
  const std::string single = absl::StrCat(path, "/", kSingleFile);
  const std::string index = absl::StrCat(path, "/", kIndexFile);
  if (Exists(single)) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(single));
    folder.files_.push_back(std::move(file));
    for (size_t i = 0; i < folder.files_[0].tensors().size(); ++i) folder.AddTensor(0, i);
  } else if (Exists(index)) {
    RETURN_IF_ERROR(folder.OpenSharded(index));
  } else {
    return absl::NotFoundError(absl::StrCat(
        path, ": expected ", kSingleFile, " or ", kIndexFile, ", found neither",
        Exists(path + "/pytorch_model.bin") || Exists(path + "/pytorch_model.bin.index.json")
            ? ", but a pytorch_model.bin; convert it with save_pretrained(safe_serialization=True)"
            : ""));
  }
  folder.AddAliases();
  return folder;
}

absl::Status ModelFolder::OpenSharded(const std::string& index_path) {
  ASSIGN_OR_RETURN(const ShardTensors shards, ReadIndex(index_path));
  RETURN_IF_ERROR(CheckShardsPresent(shards, path_));
  for (const auto& [name, tensors] : shards) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(absl::StrCat(path_, "/", name)));
    for (const std::string& tensor : tensors) {
      if (file.Contains(tensor)) continue;
      return absl::NotFoundError(
          absl::StrCat(file.path(), ": tensor \"", tensor, "\" is not in this file, but ",
                       index_path, " lists it there; download both files again or fix weight_map"));
    }
    files_.push_back(std::move(file));
    const std::set<absl::string_view> wanted(tensors.begin(), tensors.end());
    for (size_t i = 0; i < files_.back().tensors().size(); ++i) {
      if (wanted.contains(files_.back().tensors()[i].name)) AddTensor(files_.size() - 1, i);
    }
  }
  return absl::OkStatus();
}

void ModelFolder::AddTensor(size_t file, size_t tensor) {
  const TensorView& view = files_[file].tensors()[tensor];
  names_.push_back(view.name);
  index_.emplace(view.name, Location{file, tensor});
  size_bytes_ += static_cast<int64_t>(view.bytes.size());
}

void ModelFolder::AddAliases() {
  for (const SafetensorsFile& file : files_) {
    for (const auto& [alias, name] : file.metadata()) {
      const auto stored = index_.find(name);
      if (stored == index_.end() || index_.contains(alias)) continue;
      const Location location = stored->second;
      index_.emplace(alias, location);
    }
  }
}

absl::StatusOr<TensorView> ModelFolder::Find(absl::string_view name) const {
  const auto it = index_.find(name);
  if (it == index_.end()) {
    return absl::NotFoundError(absl::StrCat(path_, ": no tensor \"", name, "\" among the ",
                                            names_.size(), " of ", files_.size(), " file(s)"));
  }
  return files_[it->second.file].tensors()[it->second.tensor];
}

const std::string& ModelFolder::FileOf(absl::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? path_ : files_[it->second.file].path();
}

bool ModelFolder::HasTokenizer() const { return Exists(path_ + "/tokenizer.json"); }

}  // namespace tandem::io
