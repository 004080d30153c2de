#include "common/checkpoint/manifest.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/block_file.h"
#include "common/hash/hasher.h"
#include "common/io/atomic_file.h"
#include "common/io/json_fields.h"
#include "common/io/read_file.h"
#include "common/status/status_macros.h"

namespace tandem::checkpoint {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "tandem-checkpoint";
constexpr int kFormatVersion = 2;
constexpr int64_t kMaxSideFileBytes = int64_t{16} << 30;
constexpr int64_t kMaxElements = int64_t{1} << 60;       // as bytes they fit into 63 bits
constexpr int64_t kMaxCounter = (int64_t{1} << 53) - 1;  // exact in every JSON reader

// Calls `each` for every object of an array.
template <typename Each>
absl::Status ForEachObject(const io::JsonFields& fields, const std::string& key, Each each) {
  const auto found = fields.json().find(key);
  if (found == fields.json().end() || !found->is_array()) {
    return fields.Error(key, "expected an array");
  }
  for (size_t i = 0; i < found->size(); ++i) {
    const std::string place = absl::StrCat(fields.place(), ": ", key, "[", i, "]");
    if (!(*found)[i].is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(place, ": expected an object"));
    }
    RETURN_IF_ERROR(each(io::JsonFields((*found)[i], place)));
  }
  return absl::OkStatus();
}

json ModelToJson(const ModelEntry& model) {
  json out = {{"name", model.name},
              {"architecture", model.architecture},
              {"kinds", model.kinds},
              {"optimizer_steps", model.optimizer_steps},
              {"tensors", json::array()}};
  for (const LogicalTensor& tensor : model.tensors) {
    json entry = {{"name", tensor.name}, {"shape", tensor.shape}};
    if (!tensor.trainable) entry["trainable"] = false;
    if (!tensor.state_kinds.empty()) entry["state_kinds"] = tensor.state_kinds;
    out["tensors"].push_back(std::move(entry));
  }
  return out;
}

absl::StatusOr<ModelEntry> ModelFromJson(const io::JsonFields& fields) {
  ModelEntry out;
  ASSIGN_OR_RETURN(out.name, fields.String("name"));
  ASSIGN_OR_RETURN(out.architecture, fields.String("architecture"));
  ASSIGN_OR_RETURN(out.kinds, fields.StringList("kinds"));
  ASSIGN_OR_RETURN(out.optimizer_steps, fields.Int("optimizer_steps"));
  int64_t elements = 0;
  RETURN_IF_ERROR(
      ForEachObject(fields, "tensors", [&](const io::JsonFields& tensor) -> absl::Status {
        LogicalTensor& to = out.tensors.emplace_back();
        ASSIGN_OR_RETURN(to.name, tensor.String("name"));
        ASSIGN_OR_RETURN(to.shape, tensor.IntList("shape"));
        ASSIGN_OR_RETURN(to.trainable, tensor.BoolOr("trainable", true));
        if (tensor.Has("state_kinds")) {
          ASSIGN_OR_RETURN(to.state_kinds, tensor.StringList("state_kinds"));
        }
        ASSIGN_OR_RETURN(const int64_t count, CheckShape(tensor, "shape", to.shape));
        elements += count;
        if (elements >= kMaxElements) {
          return fields.Error("tensors", "expected fewer than 2^60 elements");
        }
        return absl::OkStatus();
      }));
  return out;
}

absl::StatusOr<Manifest> FromJson(const io::JsonFields& fields) {
  Manifest out;
  ASSIGN_OR_RETURN(out.step, fields.Int("step"));
  ASSIGN_OR_RETURN(out.policy_version, fields.Int("policy_version"));
  ASSIGN_OR_RETURN(out.source_folder, fields.String("source_folder"));
  ASSIGN_OR_RETURN(out.shards, fields.StringList("shards"));
  ASSIGN_OR_RETURN(const io::JsonFields scalars, fields.Object("scalars"));
  for (const auto& [name, value] : scalars.json().items()) {
    ASSIGN_OR_RETURN(out.scalars[name], scalars.Double(name));
  }
  RETURN_IF_ERROR(
      ForEachObject(fields, "models", [&out](const io::JsonFields& model) -> absl::Status {
        ASSIGN_OR_RETURN(out.models.emplace_back(), ModelFromJson(model));
        return absl::OkStatus();
      }));
  RETURN_IF_ERROR(
      ForEachObject(fields, "files", [&out](const io::JsonFields& file) -> absl::Status {
        FileEntry& to = out.files.emplace_back();
        ASSIGN_OR_RETURN(to.name, file.String("name"));
        ASSIGN_OR_RETURN(to.size_bytes, file.Int("size_bytes"));
        ASSIGN_OR_RETURN(to.digest, file.String("digest"));
        return CheckFileName(file, "name", to.name);
      }));
  // The counters continue from these: one more must not overflow.
  for (const auto& [key, value] :
       {std::pair{"step", out.step}, std::pair{"policy_version", out.policy_version}}) {
    if (value < 0 || value > kMaxCounter) {
      return fields.Error(key, absl::StrCat("expected 0 to ", kMaxCounter, ", found ", value));
    }
  }
  return out;
}

std::string FirstFew(const std::vector<std::string>& names) {
  constexpr size_t kShown = 4;
  const std::vector<std::string> few(names.begin(), names.begin() + std::min(names.size(), kShown));
  return absl::StrCat(absl::StrJoin(few, ", "), names.size() > kShown ? ", ..." : "");
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("float32[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace

const io::FolderKind kCheckpointFolder = {
    "a checkpoint", [](const std::string& folder) {
      const auto manifest = io::ReadJsonFile(absl::StrCat(folder, "/", kManifestFile));
      if (!manifest.ok()) return false;
      const auto format = manifest->find("format");
      return format != manifest->end() && *format == kFormat;
    }};

bool LogicalTensor::HasKind(const std::string& kind) const {
  if (kind == kMasterKind) return true;
  return trainable && (state_kinds.empty() || std::find(state_kinds.begin(), state_kinds.end(),
                                                        kind) != state_kinds.end());
}

std::vector<std::string> LogicalTensor::StateKinds(const std::vector<std::string>& kinds) const {
  std::vector<std::string> out;
  for (const std::string& kind : kinds) {
    if (kind != kMasterKind && HasKind(kind)) out.push_back(kind);
  }
  return out;
}

const ModelEntry* Manifest::FindModel(const std::string& name) const {
  for (const ModelEntry& model : models) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

absl::StatusOr<int64_t> CheckShape(const io::JsonFields& fields, const std::string& key,
                                   const std::vector<int64_t>& shape) {
  int64_t extent = 1;  // product of the non-zero dimensions: bounds rows and columns, too
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(extent, std::max<int64_t>(1, size), &extent) ||
        extent >= kMaxElements) {
      return fields.Error(key, "expected a shape of fewer than 2^60 elements");
    }
    elements *= size;
  }
  return elements;
}

absl::Status CheckFileName(const io::JsonFields& fields, const std::string& key,
                           const std::string& name) {
  if (!name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
      name.find('\0') == std::string::npos) {
    return absl::OkStatus();
  }
  return fields.Error(key, "expected the name of a file in the same folder");
}

absl::StatusOr<FileEntry> DescribeFile(const std::string& folder, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string bytes,
                   io::ReadFile(absl::StrCat(folder, "/", name), kMaxSideFileBytes));
  return FileEntry{name, static_cast<int64_t>(bytes.size()), hash::HexDigest(bytes)};
}

absl::Status WriteSideFile(const std::string& folder, const std::string& name,
                           const std::string& bytes, Manifest& manifest) {
  RETURN_IF_ERROR(io::WriteFileAtomically(absl::StrCat(folder, "/", name), bytes));
  manifest.files.push_back({name, static_cast<int64_t>(bytes.size()), hash::HexDigest(bytes)});
  return absl::OkStatus();
}

absl::Status WriteManifest(const std::string& folder, const Manifest& manifest) {
  json out = {{"format", kFormat},
              {"format_version", kFormatVersion},
              {"step", manifest.step},
              {"policy_version", manifest.policy_version},
              {"source_folder", manifest.source_folder},
              {"scalars", manifest.scalars},
              {"shards", manifest.shards},
              {"models", json::array()},
              {"files", json::array()}};
  for (const ModelEntry& model : manifest.models) out["models"].push_back(ModelToJson(model));
  for (const FileEntry& file : manifest.files) {
    out["files"].push_back(
        {{"name", file.name}, {"size_bytes", file.size_bytes}, {"digest", file.digest}});
  }
  out["digest"] = hash::HexDigest(out.dump());
  return io::WriteFileAtomically(absl::StrCat(folder, "/", kManifestFile), out.dump(1) + "\n");
}

absl::StatusOr<Manifest> ReadManifest(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kManifestFile);
  ASSIGN_OR_RETURN(json parsed, io::ReadJsonFile(path));
  {
    const io::JsonFields fields(parsed, path);
    ASSIGN_OR_RETURN(const std::string format, fields.String("format"));
    ASSIGN_OR_RETURN(const int64_t version, fields.Int("format_version"));
    if (format != kFormat || version != kFormatVersion) {
      return fields.Error(
          "format", absl::StrFormat("expected %s of version %d, found %s of version %d", kFormat,
                                    kFormatVersion, format, version));
    }
    ASSIGN_OR_RETURN(const std::string digest, fields.String("digest"));
    parsed.erase("digest");
    if (hash::HexDigest(parsed.dump()) != digest) {
      return absl::DataLossError(absl::StrCat(
          path, " is damaged: its digest differs from the one written; use another checkpoint"));
    }
  }
  return FromJson(io::JsonFields(parsed, path));
}

absl::StatusOr<std::string> ReadSideFile(const std::string& folder, const std::string& name,
                                         const Manifest& manifest) {
  const std::string path = absl::StrCat(folder, "/", name);
  for (const FileEntry& file : manifest.files) {
    if (file.name != name) continue;
    absl::StatusOr<std::string> bytes = io::ReadFile(path, kMaxSideFileBytes);
    if (absl::IsNotFound(bytes.status())) {
      return absl::DataLossError(absl::StrCat(path, " is missing; use another checkpoint"));
    }
    RETURN_IF_ERROR(bytes.status());
    if (static_cast<int64_t>(bytes->size()) != file.size_bytes ||
        hash::HexDigest(*bytes) != file.digest) {
      return absl::DataLossError(
          absl::StrFormat("%s is damaged: its size (%d bytes, %d were written) or its digest is "
                          "wrong; use another checkpoint",
                          path, bytes->size(), file.size_bytes));
    }
    return *std::move(bytes);
  }
  return absl::DataLossError(absl::StrCat(folder, "/", kManifestFile, " does not list ", name,
                                          "; use another checkpoint"));
}

TensorMismatch CompareTensors(const std::vector<LogicalTensor>& wanted,
                              const std::vector<LogicalTensor>& found) {
  std::map<std::string, const LogicalTensor*> by_name;
  for (const LogicalTensor& tensor : found) by_name[tensor.name] = &tensor;
  TensorMismatch out;
  for (const LogicalTensor& tensor : wanted) {
    const auto it = by_name.find(tensor.name);
    if (it == by_name.end()) {
      out.missing.push_back(tensor.name);
    } else {
      if (it->second->shape != tensor.shape) {
        out.misshapen.push_back(
            {tensor.name, ShapeText(tensor.shape), ShapeText(it->second->shape)});
      }
      by_name.erase(it);
    }
  }
  for (const auto& [name, tensor] : by_name) out.unexpected.push_back(name);
  return out;
}

std::string TensorMismatch::ToString() const {
  std::vector<std::string> parts, shapes;
  for (const Shape& shape : misshapen) {
    shapes.push_back(
        absl::StrCat(shape.name, ": expected ", shape.expected, ", found ", shape.found));
  }
  if (!missing.empty()) {
    parts.push_back(absl::StrCat(missing.size(), " missing: ", FirstFew(missing)));
  }
  if (!unexpected.empty()) {
    parts.push_back(absl::StrCat(unexpected.size(), " unexpected: ", FirstFew(unexpected)));
  }
  if (!shapes.empty()) {
    parts.push_back(absl::StrCat(shapes.size(), " with a different shape: ", FirstFew(shapes)));
  }
  return absl::StrJoin(parts, "; ");
}

}  // namespace tandem::checkpoint
